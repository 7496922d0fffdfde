"""FedSage+: do generated neighbours help the nodes that lost some to other clients?

    python benchmarks/papers/missing_edges.py --json benchmarks/results/missing_edges.json

FedSage and FedSage+ as the matrix chose them, Louvain nodes of Cora. Each client's model is asked
on the client's own graph, FedSage+'s with the generated neighbours, at the round of the best
validation score: for its test nodes with a neighbour at another client, and for the others. Shares
of right answers are over the nodes of all clients.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from harness.flags import arguments
from harness.machine import RESULTS, machine, write
from harness.record import load
from torch import Tensor
from torch.func import functional_call

from fgl import Graph, Method, data
from fgl.federation import Evaluate, deployed, in_mode, together
from papers.matrix import ENTRIES, SEEDS, best

TASK = "louvain-nodes"
METHODS = ("FedSage", "FedSage+")


def at_borders(whole: Graph, parts: Sequence[Tensor]) -> list[Tensor]:
    """For each client which of its nodes have a neighbour at another one, bool."""
    found = []
    for part, border in zip(parts, data.borders(whole, parts), strict=True):
        found.append(torch.zeros(len(part), dtype=torch.bool).index_fill(0, border.node, True))
    return found


def by_border(method: Method, clients: Sequence[Graph], lost: Sequence[Tensor]) -> Evaluate:
    """The share of right answers at test nodes that lost a neighbour, and at the others."""
    models = deployed(method, clients)

    @torch.no_grad()
    def evaluate(outbox: Any, states: Any) -> dict[str, float]:
        used, right = models(outbox, states), {"lost": [], "kept": []}
        with in_mode(method.model, False):
            for k, (own, cut) in enumerate(zip(clients, lost, strict=True)):
                hit = functional_call(method.model, used[k], own.inputs).argmax(1) == own.y
                test, hit = own.test_mask[: len(cut)], hit[: len(cut)]  # generated ones come last
                right["lost"].append(hit[test & cut])
                right["kept"].append(hit[test & ~cut])
        share = {kind: torch.cat(each).double().mean() for kind, each in right.items()}
        return {f"{kind}_accuracy": float(value) for kind, value in share.items()}

    return evaluate


def measured(name: str, seed: int) -> dict[str, float]:
    """In percent, at the round of the best validation score."""
    values = best(load(RESULTS / "matrix.jsonl"), name, TASK)
    if values is None:
        raise ValueError(f"Expected the matrix to have the trials of {name}, but got fewer")
    experiment = ENTRIES[name].at(TASK, values, seed)
    task, method = experiment.load()
    parts = data.louvain_partition(task.whole, experiment.clients, seed=seed)
    score = by_border(method, task.clients, at_borders(task.whole, parts))
    _, result = experiment.run(method, task, evaluate=together(task.evaluate(method), score))
    chosen = max(result.history, key=lambda record: record.metrics["val_accuracy"]).metrics
    return {kind: round(100 * chosen[f"{kind}_accuracy"], 2) for kind in ("lost", "kept")}


def compared(runs: Mapping[str, Sequence[Mapping[str, float]]]) -> dict[str, float]:
    """FedSage+ less FedSage, the mean over seeds with its standard error."""
    out = {}
    for kind in ("lost", "kept"):
        gains = [b[kind] - a[kind] for a, b in zip(*(runs[name] for name in METHODS), strict=True)]
        out[f"{kind}_gain"] = round(statistics.mean(gains), 2)
        out[f"{kind}_error"] = round(statistics.stdev(gains) / len(gains) ** 0.5, 2)
    return out


def main(argv: list[str] | None = None) -> dict[str, Any]:
    args = arguments(argv, seeds=list(SEEDS))
    runs = {name: [measured(name, seed) for seed in args.seeds] for name in METHODS}
    report = {"benchmark": "missing_edges", "seeds": args.seeds, "runs": runs, **compared(runs)}
    write({**report, "machine": machine()}, args.json)
    return report


if __name__ == "__main__":
    for key, value in main().items():
        print(key, value)
