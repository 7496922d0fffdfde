"""The cost of saving: 500 rounds of 100 metrics, with and without a checkpoint folder.

    python benchmarks/reliability/history.py --json benchmarks/results/history.json

The client takes no step, so that saving is nearly all that happens. If the history were written
anew in every round, the last rounds would be slower than the first. So both are stated.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from harness.flags import arguments
from harness.machine import machine, write

import fgl
from fgl import Training


def rounds(num_rounds: int, num_metrics: int, folder: Path | None) -> list[float]:
    """Seconds of every round, from the end of the one before it."""
    graph = fgl.Graph(torch.ones(4, 2), torch.tensor([[0, 1], [1, 2]]), y=torch.arange(4) % 2)
    torch.manual_seed(0)
    method = fgl.fedavg(fgl.nn.GCN(2, 4, 2), train=Training(num_steps=0))
    scores = {f"metric/{k}": 1 / (k + 3) for k in range(num_metrics)}
    ends = [time.perf_counter()]
    fgl.run(
        method,
        [graph],
        num_rounds=num_rounds,
        evaluate=lambda outbox, states: scores,
        callbacks=[lambda record, result: ends.append(time.perf_counter())],
        checkpoint=folder,
    )
    return [after - before for before, after in pairwise(ends)]


def main(argv: list[str] | None = None) -> int:
    args = arguments(argv, rounds=500, metrics=100)
    torch.set_num_threads(1)
    report: dict[str, Any] = {"benchmark": "history", "rounds": args.rounds}
    report["metrics"] = args.metrics
    rounds(1, args.metrics, None)  # torch loads a good part of itself in the first step
    for saved in (False, True):
        with tempfile.TemporaryDirectory() as folder:
            each = rounds(args.rounds, args.metrics, Path(folder) if saved else None)
        found = {
            "seconds": round(sum(each), 2),
            "ms_per_round_first_50": round(1000 * statistics.median(each[:50]), 2),
            "ms_per_round_last_50": round(1000 * statistics.median(each[-50:]), 2),
        }
        report["saved" if saved else "not_saved"] = found
        print("saved" if saved else "not saved", found, flush=True)
    write({**report, "machine": machine()}, args.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
