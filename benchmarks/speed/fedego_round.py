"""Processor time of a whole round of FedEgo beside one of FedAvg with the same network, on Cora.

    python benchmarks/fedego_round.py --json benchmarks/results/fedego_round.json

Five clients, local training, server and scoring included, one thread. A run of `--rounds` rounds
less a run of one, divided; the two methods take turns, and the median of `--repeats` counts.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import time
from pathlib import Path
from typing import Any

import torch
from machine import alternated, example, machine, write

METHODS: dict[str, tuple[str, ...]] = {"fedego": (), "fedavg": ("--baseline", "fedavg")}


def seconds(module: Any, flags: tuple[str, ...], dataset: str, rounds: int) -> float:
    """The process's own seconds of a run."""
    start = time.process_time()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        module.main(["--dataset", dataset, "--clients", "5", "--rounds", str(rounds), *flags])
    return time.process_time() - start


def main(argv: list[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--dataset", default="cora")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path, metavar="PATH", help="write the numbers there")
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    module = example("fedego")

    def one(flags: tuple[str, ...]) -> float:
        whole, first = (seconds(module, flags, args.dataset, n) for n in (args.rounds, 1))
        return (whole - first) / (args.rounds - 1)

    found = alternated(
        {name: lambda f=flags: one(f) for name, flags in METHODS.items()}, args.repeats
    )
    report = {"benchmark": "fedego_round", "clock": "process", "machine": machine()}
    report |= {f"{name}_seconds": value for name, value in found.items()}
    report["fedego_over_fedavg"] = found["fedego"] / found["fedavg"]
    write(report, args.json)
    return report


if __name__ == "__main__":
    for key, value in main().items():
        print(key, value)
