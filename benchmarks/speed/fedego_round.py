"""Processor time of a whole round of FedEgo beside one of FedAvg with the same network, on Cora.

    python benchmarks/speed/fedego_round.py --json benchmarks/results/fedego_round.json

Five clients, local training, server and scoring included, one thread. A run of `--rounds` rounds
less a run of one, divided; the two methods take turns, and the median of `--repeats` counts.
"""

from __future__ import annotations

import contextlib
import io
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from harness.flags import arguments
from harness.machine import alternated, machine, write
from papers.fedego import TABLES

METHODS = {"fedego": "FedEgo", "fedavg": "FedAvg"}


def seconds(row: str, dataset: str, rounds: int) -> float:
    """The process's own seconds of a run."""
    start = time.process_time()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        TABLES["fedego-table2"].row(row).at(dataset, 5, rounds=rounds)()
    return time.process_time() - start


def main(argv: list[str] | None = None) -> dict[str, Any]:
    args = arguments(argv, dataset="cora", rounds=4, repeats=3)
    torch.set_num_threads(1)

    def one(row: str) -> float:
        whole, first = (seconds(row, args.dataset, n) for n in (args.rounds, 1))
        return (whole - first) / (args.rounds - 1)

    found = alternated(
        {name: lambda row=row: one(row) for name, row in METHODS.items()}, args.repeats
    )
    report = {"benchmark": "fedego_round", "clock": "process", "machine": machine()}
    report |= {f"{name}_seconds": value for name, value in found.items()}
    report["fedego_over_fedavg"] = found["fedego"] / found["fedavg"]
    write(report, args.json)
    return report


if __name__ == "__main__":
    for key, value in main().items():
        print(key, value)
