"""Held-out edges of FedVGAE's links: how many of them lie within a client, and so are scored.

    python benchmarks/papers/held_out_edges.py --json benchmarks/results/held_out_edges.json

No model is trained. Clients are made of the training edges alone, and of the whole graph; in both
cases the edges are the same 85, 5 and 10 %, drawn on the whole graph.
"""

from __future__ import annotations

import statistics
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from harness.flags import arguments
from harness.machine import machine, write

from fgl import data
from fgl.federation import fold_in

DATASETS = ("cora", "citeseer", "pubmed", "polblogs")


def within(edges: torch.Tensor, parts: list[torch.Tensor]) -> float:
    """Which share of the edges has both ends in one part."""
    client = torch.zeros(sum(map(len, parts)), dtype=torch.int64)
    for number, part in enumerate(parts):
        client[part] = number
    ends = client[edges]
    return float((ends[0] == ends[1]).float().mean())


def measured(dataset: str, clients: int, seeds: int) -> dict[str, float]:
    """Means over seeds, in percent: ``"training, held-out"`` by what the clients are made of."""
    found: dict[str, list[float]] = {}
    whole = data.load(dataset)
    for seed in range(seeds):
        kept = data.splits.edge_split(whole, seed=fold_in(seed, "split"))
        held = torch.cat([kept.val_edges, kept.test_edges], 1)
        for made_of, graph in (("training edges", kept.graph), ("whole graph", whole)):
            parts = data.partitions.louvain_partition(graph, clients, seed=seed)
            for kind, edges in (("training", kept.train_edges), ("held-out", held)):
                found.setdefault(f"{made_of}: {kind}", []).append(100 * within(edges, parts))
    return {name: round(statistics.mean(values), 1) for name, values in found.items()}


def main(argv: list[str] | None = None) -> dict[str, Any]:
    args = arguments(argv, clients=10, seeds=5)
    report: dict[str, Any] = {"benchmark": "held_out_edges", "clients": args.clients}
    report["seeds"] = args.seeds
    for name in DATASETS:
        report[name] = measured(name, args.clients, args.seeds)
    report["machine"] = machine()
    write(report, args.json)
    return report


if __name__ == "__main__":
    for key, value in main().items():
        print(key, value)
