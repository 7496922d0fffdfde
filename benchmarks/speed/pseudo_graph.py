"""The pseudo graph in blocks: time and memory by the number of nodes, against the dense way.

    python benchmarks/speed/pseudo_graph.py --json benchmarks/results/pseudo_graph.json

Every case runs in a process of its own; memory is the largest resident size less that before the
call. The dense way is all similarities, a full sort of every row, a dense result.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
import torch
from harness.flags import SUPPRESS, arguments, flag
from harness.machine import machine, write

from fgl.pseudo import pseudo_graph

CASES = (
    ("blocks", 2_708, 7),
    ("dense", 2_708, 7),
    ("blocks", 10_000, 16),
    ("blocks", 19_717, 3),
    ("dense", 19_717, 3),
    ("blocks", 50_000, 16),
    ("blocks", 100_000, 16),
)


def dense(h: torch.Tensor, s: int) -> torch.Tensor:
    """As the formula is written."""
    sim = (h @ h.t()).clamp(min=0)
    order = sim.argsort(dim=1, descending=True)
    kept = torch.zeros_like(sim).scatter(1, order[:, :s], 1.0) * sim
    return kept / kept.sum(1, keepdim=True).clamp(min=1e-12)


def one(way: str, num_nodes: int, width: int, s: int, threads: int) -> dict[str, float]:
    torch.set_num_threads(threads)
    h = torch.randn(num_nodes, width, generator=torch.Generator().manual_seed(0))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.perf_counter()
    made = pseudo_graph(h, s=s) if way == "blocks" else dense(h, s)
    took = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result = {"seconds": round(took, 3), "megabytes": round((peak - before) / 1e3, 1)}
    if way == "blocks":
        result["result_megabytes"] = round(made.nnz * 12 / 1e6, 1)
    return result


def main() -> None:
    args = arguments(neighbours=100, threads=1, one=flag(str, SUPPRESS, nargs=3))
    if args.one:
        way, num_nodes, width = args.one
        print(json.dumps(one(way, int(num_nodes), int(width), args.neighbours, args.threads)))
        return
    torch.set_num_threads(args.threads)
    report: dict[str, Any] = {"benchmark": "pseudo_graph", "machine": machine()}
    report["neighbours"] = args.neighbours
    for case in CASES:
        rest = ["--neighbours", str(args.neighbours), "--threads", str(args.threads)]
        command = [sys.executable, __file__, "--one", *map(str, case), *rest]
        found = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
        report["{}/N={}".format(*case)] = found
        print(*case, found, flush=True)
    fast = report["blocks/N=19717"]["seconds"]
    report["dense_over_blocks/N=19717"] = round(report["dense/N=19717"]["seconds"] / fast, 2)
    sizes = [n for way, n, width in CASES if way == "blocks" and width == 16]
    for value in ("seconds", "megabytes"):
        y = [report[f"blocks/N={n}"][value] for n in sizes]
        slope = np.polyfit(np.log(sizes), np.log(y), 1)[0]
        report[f"blocks/slope_of_{value}"] = round(float(slope), 2)
    write(report, args.json)


if __name__ == "__main__":
    main()
