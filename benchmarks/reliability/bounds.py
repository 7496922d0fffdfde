"""Distances of honest uploads from each other: what `Method.rules.max_change` must leave alone.

    python benchmarks/reliability/bounds.py --json benchmarks/results/bounds.json

Short runs of every method of the conformance table, and of methods on real data. For each: the
largest change of an upload over the round's median (`change`; only those above their own size are
compared with 300), the same of entries of which nothing was sent (`other`), the
largest change over what was sent, or over 1 (`own`), the largest growth of the server's outbox or
state (`growth`), and how many uploads were refused (`refused`).
"""

from __future__ import annotations

import statistics
import sys
import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

import torch
from conformance import CASES, case, later
from harness.flags import arguments, flag
from harness.machine import machine, write

import fgl
from fgl import methods, tasks
from fgl.federation import unsealed
from fgl.federation.gate.distances import changes


def watched(method: fgl.Method, found: dict[str, float]) -> fgl.Method:
    """The method; its server notes how far uploads are from each other, and how it grows."""

    def note(name: str, value: float) -> None:
        found[name] = max(found.get(name, 0.0), value)

    def aggregate(inbox: fgl.federation.Inbox, state: Any) -> Any:
        moved = changes(inbox, inbox.sent)[0].values()
        for key in {key for each in moved for key in each}:
            far = [each[key] for each in moved if key in each and each[key].moved > 0]
            if far:
                median = statistics.median_high(value for value, _ in far)
                for value, was in far:
                    note("other" if was is None else "change", value / median)
                    if was is not None:
                        note("own", value / max(was, 1.0))
        outbox, new = method.aggregate(inbox, state)
        pairs = [(new, state), *((outbox[k], inbox.sent.get(k, {})) for k in outbox)]
        for now, before in pairs:
            old = sizes(before)
            for key, size in sizes(now).items():
                note("growth", size / max(old.get(key, 0.0), 1.0))
        return outbox, new

    return replace(unsealed(method), aggregate=aggregate)


def sizes(message: Mapping[str, Any]) -> dict[str, float]:
    """Root mean squares of a message's or a state's entries."""
    return {key: change.moved for key, change in changes({0: dict(message)}, {})[0][0].items()}


def real() -> dict[str, tuple[fgl.Method, Any]]:
    """Methods on real data, at the settings of their tables."""
    cora = tasks.Nodes(dataset="cora", clients=10).load(seed=0)
    proteins = tasks.Graphs(dataset="PROTEINS", clients=10).load(seed=0)
    found: dict[str, tuple[fgl.Method, Any]] = {}
    for name, task in (("Cora", cora), ("PROTEINS", proteins)):
        found[f"fedavg, {name}"] = task.fedavg, task
        found[f"fedopt, {name}"] = methods.fedopt(task.fedavg, rule="adam", server_lr=0.01), task
        found[f"scaffold, {name}"] = methods.scaffold(task.fedavg), task
        found[f"fedamp, {name}"] = methods.fedamp(task.fedavg), task
    found["gcfl, PROTEINS"] = methods.gcfl(proteins.fedavg, eps1=0.1, eps2=0.5), proteins
    return found


def main() -> None:
    args = arguments(
        rounds=flag(20, "of the runs on real data"), real=flag(False, "those on real data alone")
    )
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    runs: dict[str, dict[str, float]] = {}
    for name, (method, task) in real().items():
        found = runs.setdefault(name, {})
        result = fgl.run(watched(method, found), task, num_rounds=args.rounds)
        found["refused"] = sum(len(record.dropped) for record in result.history)
        print(name, runs[name], flush=True)
    for name, kind in () if args.real else CASES:
        if not later(name, kind):
            method, task = case(name, kind)
            found = runs.setdefault(f"{name}, {kind}", {})
            how: Any = {"num_rounds": 4, "participation": 0.75}
            result = fgl.run(watched(method, found), task.clients, **how)
            found["refused"] = sum(len(record.dropped) for record in result.history)
    most = {
        key: max(each.get(key, 0.0) for each in runs.values())
        for key in ("change", "other", "own", "growth", "refused")
    }
    print("largest", most)
    write({"largest": most, "runs": runs, "machine": machine()}, args.json)


if __name__ == "__main__":
    main()
