"""The draw in GPFL's Table 2: the local majority's share over many Dirichlet draws.

    python benchmarks/papers/dirichlet_draws.py --json benchmarks/results/dirichlet_draws.json

A client that always says its most frequent class scores that class's share, which depends on the
draw of the classes over the clients alone: no model is trained here. ``authors`` is the draw of the
paper, which the public code makes with seed 0; ``seed0`` is `dirichlet_partition`'s, that of the
tables of other draws; mean, standard deviation (``sd``), ``min`` and ``max`` are over its seeds 0
to 99, in percent.
"""

from __future__ import annotations

import statistics
import sys
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from harness.flags import arguments
from harness.machine import machine, write
from torch import Tensor

import fgl


def majority(y: Tensor, parts: list[Tensor]) -> float:
    """The most frequent class's share of a client's graphs, mean over clients, in percent."""
    return 100 * statistics.mean(float(y[part].bincount().max()) / len(part) for part in parts)


def main(argv: list[str] | None = None) -> dict[str, Any]:
    args = arguments(argv, draws=100)
    report: dict[str, Any] = {"benchmark": "dirichlet_draws", "draws": args.draws}
    for dataset in ("PROTEINS", "NCI1"):
        y = fgl.Graph.join(*fgl.data.load_graphs(dataset)).y
        for clients in (15, 25):
            for alpha in (5, 0.5, 1):
                authors = fgl.data.partitions.gpfl_partition(y, clients, alpha=alpha)
                drawn = partial(fgl.data.partitions.dirichlet_partition, y, clients, alpha=alpha)
                shares = [majority(y, drawn(seed=seed)) for seed in range(args.draws)]
                report[f"{dataset}/k={clients}/alpha={alpha}"] = {
                    "authors": majority(y, authors),
                    "seed0": shares[0],
                    "mean": statistics.mean(shares),
                    "sd": statistics.stdev(shares),
                    "min": min(shares),
                    "max": max(shares),
                }
    report["machine"] = machine()
    write(report, args.json)
    return report


if __name__ == "__main__":
    for key, value in main().items():
        print(key, value)
