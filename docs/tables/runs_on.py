"""Runs each method on each task, and keeps where it runs, with the call, in `runs_on.json`.

    python docs/tables/runs_on.py                runs all, and writes the file
    python docs/tables/runs_on.py FedProto MOON  runs these anew

Data are small, a run has two rounds. `methods.py` beside this file writes the table into a page.
"""

from __future__ import annotations

import json
import sys
import warnings
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import fgl

ROOT = Path(__file__).parents[2]
FILE = Path(__file__).with_suffix(".json")
sys.path[:0] = [str(ROOT), str(ROOT / "examples")]  # a recipe is a file, and a package's module
TASKS = [
    name
    for name, kind in vars(fgl.tasks).items()
    if isinstance(kind, type) and issubclass(kind, fgl.tasks.settings.Setting)
]
M, PROBES = "fgl.methods.", "fgl.methods.proxy_graph(task.clients[0], blocks=2, num_nodes=20)"
ON = "(task.fedavg)"
# A method as the pages write it: its calls, which are tried in turn, and settings of the task.
CALLS: dict[str, tuple[list[str], list[dict[str, Any]]]] = {
    "FedAvg": (["task.fedavg"], [{}]),
    "centralized training": (["fgl.tasks.centralized(task)"], [{}]),
    "FedGCN (`hops`)": (["task.fedavg"], [{"hops": 2}, {"hops": 2, "model": "gcn"}]),
    "FedSage": (["task.fedavg"], [{"model": "sage"}]),
    "FedSage+": (["fgl.tasks.mended(task, gen_epochs=1, gen_hidden=8, gen_latent=4)"], [{}]),
    "AdaFGL": (["fgl.tasks.adapted(task, first_rounds=1, own_hidden=4)"], [{}]),
    "FedPer": (
        [
            f"{M}fedper(task.fedavg, shared=[{part!r}])"
            for part in ("convs.0", "conv1", "convs", "mlp.0", "one")
        ],
        [{}],
    ),
    "MOON": ([f"{M}moon{ON}"], [{}]),
    "FedProto": ([f"{M}fedproto{ON}", f"{M}fedproto(task.fedavg, draw=False)"], [{}]),
    "FedTGP": ([f"{M}fedtgp(task.fedavg, server_epochs=2)"], [{}]),
    "FGGP": ([f"{M}fggp{ON}"], [{}, {"model": "gcn"}]),
    "FedGTA": ([f"{M}fedgta{ON}"], [{}]),
    "Ditto": ([f"{M}ditto(task.fedavg, penalty=0.1)"], [{}]),
    "FedHGN": ([f"{M}fedhgn{ON}"], [{}, {"bases": 4}]),
    "FedStar": ([f"{M}fedstar{ON}"], [{"model": "star"}]),
    "FedSSP": ([f"{M}fedssp{ON}"], [{"model": "ssp"}]),
    "FedAux": ([f"{M}fedaux{ON}"], [{"model": "aux"}]),
    "FedDEP": ([f"{M}feddep(task.fedavg, encoder_epochs=1, gen_epochs=1)"], [{"model": "deep"}]),
    "FedSPA": ([f"{M}fedspa{ON}"], [{"model": "spa"}]),
    "S2FGL": ([f"{M}s2fgl(task.fedavg, frequencies=2, books=2)"], [{}]),
    "FedGM": (
        [f"{M}fedgm(task.fedavg, condense_steps=2, condense_width=4, fit_steps=2)"],
        [{}],
    ),
    "O-pFGL": ([f"{M}opfgl(task.fedavg, condense_steps=2, condense_width=4, fit_steps=2)"], [{}]),
    "FedTAD": (
        [
            f"{M}fedtad(task.fedavg, {M}node_generator(task.clients[0], noise=4, widths=(8, 8)), "
            "num_nodes=12, epochs=1)"
        ],
        [{}],
    ),
    "FED-PUB": ([f"{M}fedpub(task.fedavg, {PROBES})"], [{}, {"model": "gin"}]),
    "FGSSL": (["fgssl.fgssl(task.fedavg)"], [{}]),
    "FedGL": (["fedgl.fedgl(task.fedavg, num_nodes=1600)"], [{}]),
    "FedEgo": (["fedego.fedego(task.fedavg, epochs=1, batch_size=8)"], [{}]),
    "FedVGAE": (
        [
            f"fedvgae.fedvgae(task.fedavg, task.validate{shared})"
            for shared in ("", ", shared=['convs.0']")
        ],
        [{}],
    ),
    "GPFL": ([f"gpfl.gpfl(task.fedavg, {PROBES})"], [{}]),
    "FedProx": ([f"{M}fedprox(task.fedavg, mu=0.1)"], [{}]),
    "SCAFFOLD": ([f"{M}scaffold{ON}"], [{}]),
    "FedDC": ([f"{M}feddc{ON}"], [{}]),
    "FedDyn": ([f"{M}feddyn{ON}"], [{}]),
    "FedOpt": ([f"{M}fedopt{ON}"], [{}]),
    "FedAMP": ([f"{M}fedamp{ON}"], [{}]),
    "HeurFedAMP": ([f"{M}heurfedamp{ON}"], [{}]),
    "pFedGraph": ([f"{M}pfedgraph{ON}"], [{}]),
    "FedSelect": ([f"{M}fedselect{ON}"], [{}]),
    "GraphFL": ([f"{M}graphfl{ON}"], [{}]),
    "GCFL": ([f"{M}gcfl(task.fedavg, eps1=1e-3, eps2=1.0)"], [{}]),
    "GCFL+": ([f"{M}gcfl_plus(task.fedavg, eps1=1e-3, eps2=1.0, seq_length=2)"], [{}]),
    "D-FedGNN": ([f"{M}ring{ON}"], [{}]),
    "uniform": ([f"{M}mix_updates(task.fedavg, {M}uniform)"], [{}]),
    "Own models": ([f"{M}own_models{ON}"], [{}]),
    "local": ([f"{M}local{ON}"], [{}]),
    "retrained": ([f"{M}retrained(task.fedavg, client=1)"], [{}]),
    "unlearned": ([f"{M}unlearned(task.fedavg, client=1, at=1)"], [{}]),
}


# What a method needs of a task, for the methods that do not run on every task.
NEEDS = {
    "MOON": "a model with embeddings; a loss over all nodes at once",
    "centralized training": "a task with the whole data (`task.whole`)",
    "FedProto, FedTGP": "a model with one embedding row per example; class labels",
    "FGGP": ("a `GCN` that normalises the client's edges; all nodes in each step; class labels"),
    "FedGTA": "nodes with class labels; a model with one output row per node",
    "Ditto": "a model without buffers, such as a batch norm's statistics",
    "FedHGN": "a model whose relations share bases: the task's `bases=4`",
    "FedStar": 'a model with a structure channel, `fgl.nn.Star`: the task\'s `model="star"`',
    "FedSSP": 'a model that reads spectra, `fgl.nn.SSP`: the task\'s `model="ssp"`',
    "FedGCN (`hops`)": "a partition of one graph; all nodes in each step; a `GCN`",
    "FedSage": "a partition of one graph; a `SAGE`",
    "FedSage+": "nodes with labels, a training and a validation mask",
    "FedDEP": (
        "a model that generates missing neighbours, `fgl.nn.DeepNeighbours`: the task's "
        '`model="deep"`; a validation mask'
    ),
    "FGSSL": "nodes with labels; a model with embeddings, such as `GCN`, `GAT`, `SAGE`",
    "FedGL": (
        "clients with node ids, weighted by their nodes; a model of convolutions, such as `GCN`"
    ),
    "FedEgo": "an `EgoSAGE`",
    "FedVGAE": "the same as MOON; `shared=` names the shared layers of a model other than `VGAE`",
    "FED-PUB": "a model that reads no features of edges, such as `GIN`",
    "AdaFGL": "nodes with class labels; one graph per client; masks for scoring clients",
    "FedAux": 'a model with a learned vector, `fgl.nn.AuxSAGE`: the task\'s `model="aux"`',
    "S2FGL": (
        "all nodes in each step; class labels; one graph per client; a model with embeddings"
    ),
    "FedSPA": (
        'a model that scores like and unlike neighbours, `fgl.nn.SPA`: the task\'s `model="spa"`'
    ),
    "FedGM": (
        "nodes with class labels; one graph per client; a model with `reset_parameters`, such "
        "as `GCN`, `SAGE`"
    ),
    "O-pFGL": (
        "all nodes in each step; class labels; one graph per client; a model that reads "
        "`x` and `adj`"
    ),
    "FedTAD": "nodes with class labels; one graph per client; a model that reads `x` and `adj`",
    "GPFL": "`probes` without `batch` if each client has one graph",
}
# Rows whose tasks cannot be tried here.
FURTHER = {
    "generators of FedSage+ (`fedsage_plus`)": ("a `NeighbourGenerator`", "`generator_task`"),
    "FedPer with `models`, clients that differ": (
        "networks with a common part",
        "clients of your own graphs ([how to](guides/clients_that_differ.md))",
    ),
}


@cache
def graph() -> fgl.Graph:
    """As many nodes as `OverlappingNodes` validates and tests, and some to train."""
    return fgl.data.csbm(num_nodes=1600, class_weights=[1.0] * 3, num_features=20, words_per_set=4)


@cache
def task_of(name: str, settings: tuple[tuple[str, Any], ...]) -> fgl.tasks.Task:
    kind: Any = getattr(fgl.tasks, name)
    own = {"clients": 3, "hidden": 8, "partition": "random"}
    own |= {"batch_size": 8, "num_test": 20, "share": 0.4, "per_class": 10, "latent": 4}
    own |= {"proportions": ("0.5", "0.6", "0.5")}
    own = {key: value for key, value in own.items() if key in kind.__dataclass_fields__}
    own.pop("partition") if name in ("Graphs", "Molecules") else None
    own.pop("clients") if name == "OverlappingNodes" else None
    return kind(**own, **dict(settings)).load(seed=0)  # type: ignore[no-any-return]


def made(call: str, task: fgl.tasks.Task) -> tuple[fgl.Method, fgl.tasks.Task]:
    """The method of a call, and the task that it runs on."""
    recipe = call.partition(".")[0]
    names = {"fgl": fgl, "task": task}
    if recipe not in names:
        names[recipe] = __import__(recipe)
    value = eval(call, names)
    return (value.fedavg, value) if isinstance(value, fgl.tasks.Task) else (value, task)


def runs(call: str, name: str, settings: dict[str, Any]) -> None:
    """Raise unless two rounds run, each upload counts, and the models stay finite."""
    method, task = made(call, task_of(name, tuple(settings.items())))
    result = fgl.run(
        method, task, num_rounds=2 * method.rules.exchange, clients_at_once=1, strict=True
    )
    for record in result.history:
        if record.dropped:
            raise ValueError(next(iter(record.dropped.values())))
    for message in result.outbox.values():
        if bad := fgl.federation.first_not_finite(message):
            raise ValueError(f"{bad} is not finite")


def place(method: str, name: str) -> tuple[str, str]:
    """The call with which a method runs on a task, or nothing and why it does not."""
    calls, settings = CALLS[method]
    whys = []
    for own in settings:
        for call in calls:
            try:
                runs(call, name, own)
            except Exception as error:
                whys.append(f"{type(error).__name__}: {error}".splitlines()[0][:200])
            else:
                how = ", ".join(f"{key}={value!r}" for key, value in own.items())
                return f"{name}({how}): {call}", ""
    return "", whys[0]


def table(methods: list[str]) -> dict[str, dict[str, str]]:
    """For each method the tasks that it runs on, with the call."""
    found: dict[str, dict[str, str]] = {}
    with patch.object(fgl.data, "load", lambda name, **how: graph()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for method in methods:
            places = {name: place(method, name) for name in TASKS}
            found[method] = {name: call for name, (call, _) in places.items() if call}
            for name, (_, why) in places.items():
                if why:
                    print(f"{method} on {name}: {why}", file=sys.stderr)
    return found


def written(places: dict[str, str]) -> str:
    """The tasks as the page names them."""
    missing = [name for name in TASKS if name not in places]
    if len(missing) > 3:
        return ", ".join(f"`{name}`" for name in places)
    without = ", ".join(f"`{name}`" for name in missing)
    return f"every task except {without}" if missing else "every task"


def needs_table(rows: dict[str, dict[str, str]]) -> str:
    """Markdown of the methods that do not run on every task, with their needs and their tasks."""
    lines = ["| method | needs | so it runs on |", "|---|---|---|"]
    for title, needs in NEEDS.items():
        first, *others = (rows[name] for name in title.split(", "))
        common = {name: first[name] for name in first if all(name in other for other in others)}
        lines.append(f"| {title} | {needs} | {written(common)} |")
    lines += [f"| {title} | {needs} | {where} |" for title, (needs, where) in FURTHER.items()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    rows = json.loads(FILE.read_text(encoding="utf-8")) if sys.argv[1:] else {}
    rows |= table(sys.argv[1:] or list(CALLS))
    FILE.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
