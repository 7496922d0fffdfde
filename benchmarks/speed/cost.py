"""The model of cost beside what was measured: seconds, memory and bytes of a round.

    python benchmarks/speed/cost.py --json benchmarks/results/cost.json
    python benchmarks/speed/cost.py --only "Cora, 10 clients"      the others stay
    python benchmarks/speed/cost.py --report           docs/speed.md, from that file

`predict.calibrate` plays a few rounds of one client, and `predict.cost` predicts a round of the
whole federation. Asked: within `ASKED` of the measurement; bytes are equal.

- Rounds in one process are measured now, in turn with the calibration: processor seconds, one
  thread, the median of the ratios of the turns.
- Rounds of ten clients of products-like, peaks of memory and rounds on Flower are those of
  ``results/products.json``, ``promise.json`` and ``flower.json``, of other days.
- What Flower adds is taken from the cells `KNOWN` of ``flower.json``; the others are predicted.

Then the model is read out for papers100M with 195 clients. Ends with 1 if a case misses.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent / "sized_app"))

import torch
from harness.flags import arguments, some
from harness.machine import RESULTS, kept, machine, write
from harness.report import publish
from sized import graph as sized_graph
from sized import method as sized_method
from speed.cases import on_cora, on_random, rounds
from speed.flower import CELLS, SIZES
from speed.predict.calibrate import calibrate, flower_line
from speed.predict.cost import Rates, cost
from speed.promise import ARXIV, of_task

import fgl
from fgl.data.large import LIKE

ASKED = 0.3
KNOWN = {"deployed": ("deployed-4-0.1M",), "simulated": ("simulated-50-0.1M", "simulated-50-10M")}
CORES = 2  # of the machine that flower.json was measured on
PAPERS = {"nodes": 111_059_956, "edges": 1_615_685_872, "features": 128, "classes": 172}
Made = tuple[fgl.Method, list[fgl.Graph]]

# The case, its clients, the clients that the calibrated one is taken of, and clients at once.
HERE: dict[str, tuple[Callable[[], Made], Callable[[], Made] | None, int]] = {
    "Cora, 10 clients": (partial(on_cora, "gcn_fedavg", 10), None, 1),
    "Cora, 100 clients": (partial(on_cora, "gcn_fedavg", 100), None, 1),
    "Cora, 100 clients, 20 at once": (partial(on_cora, "gcn_fedavg", 100), None, 20),
    "1,000 clients of 50 nodes": (partial(on_random, 1000, 50), None, 1),
    "10 clients of 10,000 nodes": (partial(on_random, 10, 10_000), None, 1),
    "10 clients of 100,000 nodes": (partial(on_random, 10, 100_000), None, 1),
    "10 clients of 100,000 nodes, from one of 10,000": (
        partial(on_random, 10, 100_000),
        partial(on_random, 1, 10_000),
        1,
    ),
    "arxiv-like, 10 clients": (partial(of_task, fgl.tasks.Nodes(**ARXIV), 10), None, 1),
}
# The same of `promise.py`, clients at once, its name there.
MEMORY: dict[str, tuple[Callable[[], Made], int, str]] = {
    "10 clients of 100,000 nodes": (
        partial(on_random, 10, 100_000),
        1,
        "nodes, 10 x 100,000, loop",
    ),
    "10 clients of 100,000 nodes, 10 at once": (
        partial(on_random, 10, 100_000),
        10,
        "nodes, 10 x 100,000, all",
    ),
    "1,000 clients of 50 nodes, 100 at once": (
        partial(on_random, 1000, 50),
        100,
        "nodes, 1,000 x 50, 100",
    ),
    "arxiv-like, 10 clients": (
        partial(of_task, fgl.tasks.Nodes(**ARXIV), 10),
        1,
        "arxiv-like, 10 clients, loop",
    ),
}


def sizes(clients: list[fgl.Graph]) -> dict[str, int]:
    """What `cost` asks for."""
    nodes, edges = (sum(getattr(g, name) for g in clients) for name in ("num_nodes", "num_edges"))
    return {"clients": len(clients), "nodes": nodes, "edges": edges}


def middle(clients: list[fgl.Graph]) -> fgl.Graph:
    """The client of the middle size."""
    return sorted(clients, key=lambda graph: graph.num_nodes + graph.num_edges)[len(clients) // 2]


def case(what: str, predicted: float, measured: float, **more: Any) -> dict[str, Any]:
    """One line of the table."""
    found = {"what": what, "predicted": predicted, "measured": measured}
    return {**found, "ratio": round(predicted / measured, 3), **more}


def seconds_here(name: str, turns: int) -> dict[str, Any]:
    """Processor seconds of a round, predicted and measured in turn; and whether bytes are equal."""
    make, of, at_once = HERE[name]
    method, clients = make()
    own = middle(clients if of is None else of()[1])
    pairs = []
    for _ in range(turns):
        rates = calibrate(method, own, clients_at_once=at_once, modules=())
        made = cost(rates, **sizes(clients))
        pairs.append((made.seconds, rounds(method, clients, at_once, 3)))
    last = fgl.run(method, clients, num_rounds=1, clients_at_once=at_once).history[-1]
    equal = (made.bytes_down, made.bytes_up) == (last.bytes_down, last.bytes_up)
    predicted, measured = (statistics.median(pair[place] for pair in pairs) for place in (0, 1))
    found = case("seconds", predicted, measured, bytes_equal=equal)
    each = [round(a / b, 3) for a, b in pairs]
    return {**found, "ratio": statistics.median(each), "least": min(each), "most": max(each)}


def memory_here(name: str) -> dict[str, Any]:
    """MB over the data and what Python and torch load, beside the peak of promise.json."""
    make, at_once, before = MEMORY[name]
    method, clients = make()
    rates = calibrate(method, middle(clients), clients_at_once=at_once, modules=())
    made = cost(replace(rates, data=(0.0, 0.0, 0.0)), **sizes(clients))
    measured = kept(RESULTS / "promise.json")["cases"][before]["measured"]
    return case("MB over the data", made.memory / 1e6, measured)


def like(name: str, share: float) -> fgl.Graph:
    """A graph like one of OGB's, at a share of its nodes and edges."""
    options = dict(LIKE["products-like"])
    nodes, edges = (options.pop(key) for key in ("num_nodes", "num_edges"))
    if name == "papers":
        nodes, edges = PAPERS["nodes"], PAPERS["edges"]
        options |= {"num_features": PAPERS["features"], "num_classes": PAPERS["classes"]}
    return fgl.data.splits.split(
        fgl.data.large_graph(int(nodes * share), int(edges * share), **options), "random"
    )


def one_step(graph: fgl.Graph, hidden: int) -> fgl.Method:
    """FedAvg of a GCN that takes one step of Adam, as products.py trains it."""
    torch.manual_seed(0)
    model = fgl.nn.GCN(graph.num_features, hidden, graph.num_classes, dropout=0.5)
    train = fgl.Training(partial(torch.optim.Adam, lr=0.01), num_steps=1)
    return fgl.fedavg(model, train=train)


def products() -> dict[str, dict[str, Any]]:
    """Ten clients of products-like, from a client of their size, and of an eighth of it.

    Beside products.json, and the seconds beside two clients that are measured now.
    """
    before, out = kept(RESULTS / "products.json"), {}
    nodes, edges = (10 * before["client"][key] for key in ("nodes", "edges"))
    for said, share in (("one of their size", 1 / 10), ("an eighth of one", 1 / 80)):
        own = like("products", share)
        rates = calibrate(one_step(own, 64), own)
        made = cost(rates, clients=10, nodes=nodes, edges=2 * edges)
        name, stage = f"products-like, 10 clients, from {said}", "all clients/"
        seconds, peak = (before[f"{stage}{key}"] for key in ("round_seconds", "peak_gb"))
        out[f"{name}: seconds"] = case("seconds, another day", made.seconds, seconds)
        out[f"{name}: memory"] = case("GB", made.memory / 1e9, peak)
        if share == 1 / 10:
            two = [own, own.replace()]
            made = cost(rates, **sizes(two))
            taken = rounds(one_step(own, 64), two, 1, 2)
            out["like a tenth of products, 2 clients"] = case("seconds", made.seconds, taken)
    return out


@cache
def sized_rates(size: str) -> Rates:
    """The rates of Flower's benchmark: 50 nodes, one step, so many parameters."""
    features, hidden = SIZES[size]
    return calibrate(sized_method(features, hidden), sized_graph(features, 0), modules=())


def on_flower() -> dict[str, dict[str, Any]]:
    """All cells of flower.json; what Flower adds is taken from the first cells of each kind."""
    cells = {row["cell"]: row for row in kept(RESULTS / "flower.json")["cells"]}
    out: dict[str, dict[str, Any]] = {}
    for place, known in KNOWN.items():
        added = []
        for cell in known:
            _, clients, size = cell.split("-")
            rates, row, k = sized_rates(size), cells[cell], int(clients)
            here = cost(rates, clients=k, nodes=50 * k, edges=200 * k).seconds
            beyond = CORES * (row["seconds"] - rates.start) - (here - rates.start)
            added.append((k, rates.down + rates.up, beyond))
        flower = flower_line(added)
        for cell in CELLS:
            where, clients, size = cell.split("-")
            if where != place or "left_out" in cells[cell]:
                continue
            rates, k = replace(sized_rates(size), flower=flower), int(clients)
            counts = {"clients": k, "nodes": 50 * k, "edges": 200 * k}
            made = cost(rates, **counts, place=place, cores=CORES)  # type: ignore[arg-type]
            equal = made.bytes == cells[cell]["message_bytes"]
            how = {"bytes_equal": equal, "known": cell in known, "place": place}
            out[f"Flower, {k} {place}, {size}"] = case(
                "seconds", made.seconds, cells[cell]["seconds"], flower=flower, **how
            )
    return out


def papers(flower: dict[str, Any]) -> list[dict[str, Any]]:
    """papers100M cut into 195 clients, from a client of half of their size."""
    small = like("papers", 1 / 195 / 2)
    modules = ("fgl", "flwr.serverapp", "flwr.clientapp", "fgl.federation.executors.remote.flower")
    rates = calibrate(one_step(small, 256), small, modules=modules)
    out = []
    for edges in (PAPERS["edges"], 2 * PAPERS["edges"]):
        for place, cores, bandwidth in (
            ("here", 1, None),
            ("simulated", 32, None),
            ("deployed", 195, 125e6),
        ):
            own = replace(rates, flower=tuple(flower.get(place, (0.0, 0.0))))
            how: dict[str, Any] = {"place": place, "cores": cores, "bandwidth": bandwidth}
            made = cost(own, clients=195, nodes=PAPERS["nodes"], edges=edges, **how)
            values = {"seconds": made.seconds, "bytes": made.bytes, **vars(made)}
            out.append({"edges": edges, **how, **values})
    return out


def table(report: dict[str, Any]) -> str:
    """What was predicted and measured, and the reading for papers100M, as text."""
    of = report["machine"]
    out = [
        f"{of['cpu']}, {of['threads']} thread(s), torch {of['torch']}, commit {of['commit']}.\n",
        "| case | what | predicted | measured | ratio (asked 0.7 to 1.3) | bytes equal |",
        "|---" * 6 + "|",
    ]
    for name, row in report["cases"].items():
        ratio = f"{row['ratio']:.2f}"
        ratio = f"**{ratio}**" if missed(row) else ratio
        ratio += f" ({row['least']:.2f} to {row['most']:.2f})" if "least" in row else ""
        ratio += ", calibrated" if row.get("known") else ""
        equal = {True: "yes", False: "**no**", None: ""}[row.get("bytes_equal")]
        numbers = f"{row['predicted']:.4g} | {row['measured']:.4g}"
        out.append(f"| {name.split(':')[0]} | {row['what']} | {numbers} | {ratio} | {equal} |")
    out += [
        "\npapers100M (111 M nodes, 195 clients), computed:\n",
        "| columns of edges | place | cores | seconds a round | training | Flower | sending | "
        "MB sent | GB of the machine or server | GB of a client |",
        "|---" * 10 + "|",
    ]
    for row in report["papers"]:
        seconds = [f"{row[key]:.3g}" for key in ("seconds", "training", "flower", "sending")]
        ends = [f"{row['bytes'] / 1e6:.3g}", f"{row['memory'] / 1e9:.3g}"]
        ends.append(f"{row['client_memory'] / 1e9:.3g}")
        cells = [f"{row['edges'] / 1e9:.1f} G", row["place"], str(row["cores"]), *seconds, *ends]
        out.append(f"| {' | '.join(cells)} |")
    return "\n".join(out) + "\n"


def missed(row: dict[str, Any]) -> bool:
    """Whether a case that was not calibrated on is not what was asked."""
    return abs(row["ratio"] - 1) > ASKED and not row.get("known")


def main() -> int:
    groups = [*HERE, *(f"{name}: memory" for name in MEMORY), "products", "Flower", "papers100M"]
    args = arguments(only=some(groups), turns=3, report=False)
    if args.report:
        publish("cost", table(kept(RESULTS / "cost.json")))
        return 0
    torch.set_num_threads(1)
    before = kept(args.json)
    found, read = before.get("cases", {}), before.get("papers", [])
    for name in args.only:
        if name in HERE:
            found[name] = seconds_here(name, args.turns)
        elif name.endswith(": memory"):
            found[name] = memory_here(name.removesuffix(": memory"))
        elif name == "products":
            found |= products()
        elif name == "Flower":
            found |= on_flower()
        else:
            added = {
                n.split()[2].rstrip(","): row["flower"]
                for n, row in found.items()
                if "flower" in row
            }
            read = papers(added)
        print(name, found.get(name, ""), flush=True)
        write(
            {"benchmark": "cost", "machine": machine(), "cases": found, "papers": read}, args.json
        )
    return int(any(missed(row) or row.get("bytes_equal") is False for row in found.values()))


if __name__ == "__main__":
    sys.exit(main())
