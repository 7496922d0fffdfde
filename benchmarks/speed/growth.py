"""Growth of a round: in nodes and edges of a client, in clients, and in columns of the features.

    python benchmarks/speed/growth.py --json benchmarks/results/growth.json
    python benchmarks/speed/growth.py --only edges features     these alone, the others stay
    python benchmarks/speed/report.py                           docs/speed.md and its picture

FedAvg of a GCN with 16 hidden units, Adam and 3 local steps on random graphs; 10 clients of 1,000
nodes, average degree 8 and 100 columns, of which a node has 10, where it is not these that grow;
50 nodes where clients do. Each case is a process of its own, of one thread. Seconds are of the
processor, the median of the rounds after the first; slopes are of the logarithms, without the
smallest size, where the overhead of a launch counts.
"""

from __future__ import annotations

import gc
import itertools
import json
import statistics
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
import torch
from harness.flags import SUPPRESS, arguments, flag, some
from harness.machine import kept, machine, write
from speed.rounds import synthetic

import fgl

SIZES = {  # what grows, and how
    "nodes": (100, 1_000, 10_000, 100_000),
    "edges": (2_000, 8_000, 32_000, 128_000, 512_000),
    "clients": (10, 100, 1_000, 10_000),
    "features": (100, 1_000, 10_000, 100_000),
}
NODES = 1_000


def case(what: str, size: int) -> tuple[int, int, int, int, int]:
    """Clients, nodes and degree of each, features, clients at once."""
    if what == "nodes":
        return 10, size, 8, 100, 10
    if what == "edges":
        return 10, NODES, size // NODES, 100, 10
    if what == "features":
        return 10, NODES, 8, size, 10
    return size, 50, 8, 100, min(size, 100)


def growth(
    num_clients: int, num_nodes: int, degree: int, features: int, at_once: int, rounds: int
) -> dict[str, Any]:
    """Seconds and memory of every round (this process should do nothing else)."""
    torch.set_num_threads(1)
    clients = [synthetic(num_nodes, seed, features, degree) for seed in range(num_clients)]
    torch.manual_seed(0)
    model = fgl.nn.GCN(features, 16, 7, dropout=0.5)
    method = fgl.fedavg(model, train=fgl.Training(partial(torch.optim.Adam, lr=0.01), num_steps=3))
    resident: list[float] = []
    stamps: list[float] = []

    def watch(record: Any, result: Any) -> None:
        resident.append(memory("VmRSS"))
        stamps.append(time.process_time())

    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    start = memory("VmRSS")
    fgl.run(method, clients, num_rounds=rounds, clients_at_once=at_once, callbacks=[watch])
    return {
        "seconds": statistics.median(b - a for a, b in itertools.pairwise(stamps)),
        "megabytes_over_data": memory("VmHWM") - start,
        "megabytes_gained_after_round_2": resident[-1] - resident[1],
    }


def memory(field: str) -> float:
    """Megabytes that the kernel has noted of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) / 1e3


def grow(what: str, variants: list[str], rounds: int) -> dict[str, Any]:
    """One kind of growth: a row of sizes by variant, and the slopes."""
    out: dict[str, Any] = {"machine": machine()}
    for variant in variants:
        found: dict[str, dict[str, float]] = {}
        for size in SIZES[what]:
            *given, at_once = case(what, size)
            count = rounds if variant == "batch" else 3
            numbers = (*given, at_once if variant == "batch" else 1, count)
            command = [sys.executable, __file__, "--one", *map(str, numbers)]
            made = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
            found[str(size)] = {name: round(value, 5) for name, value in made.items()}
            print(what, variant, size, found[str(size)], flush=True)
        sizes = SIZES[what][1:]
        slopes = {}
        for value in ("seconds", "megabytes_over_data"):
            y = [max(found[str(size)][value], 1e-3) for size in sizes]
            slopes[value] = round(float(np.polyfit(np.log(sizes), np.log(y), 1)[0]), 3)
        out[variant] = {"sizes": found, "slopes": slopes}
    return out


def main(argv: list[str] | None = None) -> dict[str, Any]:
    args = arguments(
        argv,
        only=some(SIZES),
        variants=["loop", "batch"],
        rounds=6,
        one=flag(int, SUPPRESS, nargs=6),
    )
    if args.one:
        print(json.dumps(growth(*args.one)))
        return {}
    found: dict[str, Any] = kept(args.json).get("growing", {})
    report: dict[str, Any] = {}
    torch.set_num_threads(1)
    for what in args.only:
        found[what] = {**found.get(what, {}), **grow(what, args.variants, args.rounds)}
        report = {"benchmark": "growth", "clock": "process", "machine": machine()}
        report["growing"] = {name: found[name] for name in SIZES if name in found}
        write(report, args.json)
    return report


if __name__ == "__main__":
    main()
