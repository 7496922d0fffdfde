"""Keys for runs that were recorded by their command, and the command that makes each of them now.

    python benchmarks/harness/add_keys.py

The first recipes had flags for their baselines and ablations, and a run was known by its command.
This reads such a command as the method and the task that it meant. A line keeps its ``command``,
and gets ``key`` and ``now``; its ``machine`` names the commit that made it. Of a line without a
command the key stays, and ``now`` becomes the command of today, since presets may have changed.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from papers import TABLES, fedego, fedgl, fedvgae, fgssl, gpfl

from fgl import tasks
from fgl.experiment import Run
from harness.commands import command, find
from harness.machine import RESULTS
from harness.rows import (
    PUBLISHED,
    Experiment,
    centralized,
    changed,
    fedavg,
    fedopt,
    fedper,
    fedprox,
    flat,
    local,
    moon,
    ring,
)

Flags = dict[str, Any]
RENAMED = {"tau": "temperature"}
CAPPED = tasks.Nodes(split="class_capped")  # the first default
# Defaults that were given as flags: these runs were made a second time.
AGAIN = {
    "table2": "--proportions D4 ",
    "beta 0.1, s 100": "--beta 0.1 --neighbours 100 ",
    "local strong, global weak": "--local-view strong --global-view weak ",
}


def old_run(text: str) -> Experiment:
    """What a command of the first recipes ran: ``examples/fedavg.py --dataset cora --local``.

    Raises:
        ValueError: for a flag that nothing of today stands for.
    """
    script, *argv = shlex.split(text)
    recipe, flags = Path(script).stem, read(argv)
    again = next((name for name, said in AGAIN.items() if f" {said}" in f"{text} "), "")
    made = replace(READERS[recipe](flags), again=again)
    if flags:
        raise ValueError(f"Expected flags that are known, but got {flags} of {text}")
    return made


def read(argv: Iterable[str]) -> Flags:
    """Name of a flag to its value: a number, a word, a list, or True for a switch."""
    flags: dict[str, list[Any]] = {}
    name = ""
    for word in argv:
        if word.startswith("--"):
            name = word.removeprefix("--").replace("-", "_")
            flags[name] = []
        else:
            flags[name].append(_value(word))
    return {
        name: True if not values else values[0] if len(values) == 1 else tuple(values)
        for name, values in flags.items()
    }


def _value(word: str) -> Any:
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            continue
    return word


def of(
    flags: Flags, setting: Any, run: Run, method: Any, options: Any = None, scores: Any = None
) -> Experiment:
    """An experiment that takes the flags of its setting and its run."""
    known = flat(setting) | flat(run)
    values = {name: flags.pop(name) for name in list(flags) if name in known}
    if values.get("patience") == 0:
        values["patience"] = None
    return Experiment(changed(setting, values), method, options or {}, changed(run, values), scores)


def some(flags: Flags, *names: str) -> Flags:
    """Those of these flags that are given."""
    return {RENAMED.get(name, name): flags.pop(name) for name in names if name in flags}


def old_fedavg(flags: Flags) -> Experiment:
    method, options = fedavg, {}
    if flags.pop("local", False):
        method = local
    elif flags.pop("centralized", False):
        method, flags["clients"] = centralized, 1
    elif "fedprox" in flags:
        method, options = fedprox, {"mu": flags.pop("fedprox")}
    elif "fedopt" in flags:
        method, options = fedopt, {"rule": flags.pop("fedopt"), **some(flags, "server_lr")}
    return of(flags, CAPPED, PUBLISHED, method, options)


def old_fgssl(flags: Flags) -> Experiment:
    options = some(flags, "lambda_c", "lambda_d", "omega", "keys", "denominator", "direction")
    if "tau" in flags:
        options["tau"] = flags.pop("tau")
    if flags.pop("fnsc_only", False):
        options["lambda_d"] = 0.0
    if flags.pop("fgsd_only", False):
        options["lambda_c"] = 0.0
    for view in ("local_view", "global_view"):
        if view in flags:
            options[view] = fgssl.VIEW[flags.pop(view)]
    return of(flags, CAPPED, PUBLISHED, fgssl.fgssl, options)


def old_fedgl(flags: Flags) -> Experiment:
    options = some(flags, "alpha", "beta", "threshold", "neighbours")
    labels, graph = not flags.pop("no_labels", False), not flags.pop("no_graph", False)
    if flags.pop("no_symmetric", False):
        options["symmetric"] = False
    if flags.pop("literal", False):
        options |= {"beta": 1.0, "symmetric": False}
    if "similarity" in flags:
        options["alike"] = getattr(fedgl, flags.pop("similarity"))
    if "proportions" in flags:
        given = tuple(str(flags["proportions"]).split(","))
        flags["proportions"] = ("table2",) if given == ("D4",) else given  # its first name
    options |= ({} if labels else {"alpha": 0.0}) | ({} if graph else {"neighbours": 0})
    alone = local if flags.pop("local", False) else None
    alone = centralized if flags.pop("centralized", False) else alone
    if alone is None and not labels and not graph:
        alone = fedavg
    if alone is None:
        return of(flags, fedgl.NODES, fedgl.RUN, fedgl.fedgl, options, fedgl.quality)
    return of(flags, fedgl.NODES, fedgl.RUN, alone)


def old_fedego(flags: Flags) -> Experiment:
    baseline = flags.pop("baseline", None)
    if baseline is not None:
        method = {
            "local": local,
            "fedavg": fedavg,
            "fedprox": fedego.adaptive_fedprox,
            "dfedgnn": ring,
        }[baseline]
        return of(flags, fedego.PLAIN, PUBLISHED, method)
    method, options = fedego.fedego, fedego.RECORDED | some(flags, "gamma")
    flags |= {name: True for name in ("linear",) if flags.pop(name, False)}
    if flags.pop("no_mixup", False):
        options["mash"] = fedego.first_of_each_batch
    if flags.pop("no_pl", False):
        options["weight"] = fedego.Always(1.0)
    if "fixed_lambda" in flags:
        options["weight"] = fedego.Always(float(flags.pop("fixed_lambda")))
    if flags.pop("no_rl", False):
        method, options = fedego.without_rl, {}
    if flags.pop("no_ego", False):
        method, options = fedego.averaged_heads, {}  # what the flag did
    return of(flags, fedego.EGO, PUBLISHED, method, options)


def old_fedvgae(flags: Flags) -> Experiment:
    task, name = flags.pop("task", "link"), flags.pop("method", "fedvgae")
    first = {"link": "whole", "node": "node"}  # communities of the whole graph, then the split
    setting, run = fedvgae.SETTINGS[first[task]], fedvgae.RUN
    if name == "fedvgae":
        options = some(flags, "contrast", "max_adjust", "phi", "delta", "tau", "queue")
        return of(flags, setting, run, fedvgae.fedvgae, options, fedvgae.triggered)
    method, options = {
        "local": (local, {}),
        "fedavg": (fedavg, {}),
        "fedprox": (fedprox, {"mu": 0.01}),
        "moon": (moon, {"contrast": 1.0, **some(flags, "contrast", "tau", "queue")}),
        "fedper": (fedper, {"shared": fedvgae.RECIPE.ENCODER}),
    }[name]
    return of(flags, setting, run, method, options)


def old_gpfl(flags: Flags) -> Experiment:
    setting, run = gpfl.OTHER_DRAW, Run(clients_at_once=8)  # the first draw of the clients
    if "flip" in flags:
        setting = gpfl.TWO_GROUPS
    for name, method in (("local", local), ("fedavg", fedavg)):
        if flags.pop(name, False):
            return of(flags, setting, run, method)
    if "fedprox" in flags:
        return of(flags, setting, run, fedprox, {"mu": flags.pop("fedprox")})
    if flags.pop("uniform", False):
        return of(flags, setting, run, gpfl.uniform, some(flags, "rho"))
    options = some(flags, "rho", "beta")
    if flags.pop("no_learn", False):
        options["learn"] = None
    if flags.pop("start", "property") == "random":
        options["start"] = gpfl.random_start
    return of(flags, setting, run, gpfl.gpfl, options)


READERS: dict[str, Callable[[Flags], Experiment]] = {
    "fedavg": old_fedavg,
    "fgssl": old_fgssl,
    "fedgl": old_fedgl,
    "fedego": old_fedego,
    "fedvgae": old_fedvgae,
    "gpfl": old_gpfl,
}


def with_key(entry: dict[str, Any]) -> dict[str, Any]:
    """A line with its key first, and the command that makes it now."""
    if "command" not in entry:
        entry = {**entry, "key": _renewed(entry)}
        found = find(entry["key"], TABLES)
        return entry if found is None else {**entry, "now": command(found[3], TABLES)}
    made = old_run(entry["command"])
    rest = {name: value for name, value in entry.items() if name not in ("key", "now", "command")}
    now = command(made, TABLES)
    return {"key": made.key, "now": now, "command": entry["command"], **rest}


def _renewed(entry: dict[str, Any]) -> dict[str, Any]:
    """The key of a run whose method has an option more now, which it did not report."""
    key: dict[str, Any] = entry["key"]
    if key["method"] == "augmented_fedavg" and "reduction" not in entry["config"]:
        return {**key, "settings": {**key["settings"], "reduction": "sum"}}
    return key


def main() -> None:
    for path in sorted(RESULTS.glob("*.jsonl")):
        entries = [
            with_key(json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()
        ]
        path.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
        print(path.name, len(entries))


if __name__ == "__main__":
    main()
