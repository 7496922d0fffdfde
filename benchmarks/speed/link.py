"""Link prediction at scale: memory and time of the sampled reconstruction, time of the metrics.

    python benchmarks/speed/link.py --json benchmarks/results/link.json

The reconstruction is measured as in ``memory.py``, forward and backward in a process of its own,
with as many negatives as edges; "gather" is the formula on autograd, with a row per end of an edge.
"slope" is that of log time over log edges. Exits with 1 if fgl needs more than `LIMIT_MB` at a
million edges, if its time grows faster than `LIMIT_SLOPE`, or a metric takes over `LIMIT_SECONDS`.
"""

from __future__ import annotations

import gc
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from harness.flags import SUPPRESS, arguments, flag
from harness.machine import machine, seconds, write
from speed.memory import MB, resident
from torch import Tensor

import fgl
from fgl.data.splits import negative_edges
from fgl.losses import sampled_reconstruction
from fgl.metrics import auc, average_precision

EDGES = (10_000, 100_000, 1_000_000, 4_000_000)
WIDTH = 32
PAIRS = 1_000_000
LIMIT_MB, LIMIT_SLOPE, LIMIT_SECONDS = 1000, 1.15, 1.0


def gather(z: Tensor, edges: Tensor, negatives: Tensor) -> Tensor:
    """`sampled_reconstruction`, on autograd."""
    pairs = torch.cat([edges, negatives], 1)
    scores = (z[pairs[0]] * z[pairs[1]]).sum(1)
    target = (torch.arange(len(scores)) < edges.shape[1]).to(z.dtype)
    return torch.nn.functional.binary_cross_entropy_with_logits(scores, target)


def work(by: str, num_edges: int) -> dict[str, float]:
    """Measure one case in this process."""
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)

    def prepare(m: int) -> Callable[[], Tensor]:
        n = m // 10
        z = torch.randn(n, WIDTH, generator=generator).div_(WIDTH**0.5).requires_grad_()
        edges, negatives = (torch.randint(n, (2, m), generator=generator) for _ in range(2))
        loss = {"fgl": sampled_reconstruction, "gather": gather}[by]
        return lambda: loss(z, edges, negatives)

    prepare(100)().backward()
    loss = prepare(num_edges)
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")
    before = resident("VmRSS")
    start = time.process_time()
    value = loss()
    value.backward()
    taken = time.process_time() - start
    extra = (resident("VmHWM") - before) / MB
    taken = min([taken, *(cpu(lambda: loss().backward()) for _ in range(4))])
    return {"extra_mb": round(extra, 1), "seconds": round(taken, 4), "loss": value.item()}


def cpu(call: Callable[[], Any]) -> float:
    start = time.process_time()
    call()
    return time.process_time() - start


def measure(by: str, num_edges: int) -> dict[str, float]:
    """Measure one case in a fresh process."""
    environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "0"}
    environment["PYTHONPATH"] = str(Path(fgl.__file__).parents[1])
    command = [sys.executable, __file__, "--case", by, str(num_edges)]
    out = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    result: dict[str, float] = json.loads(out.stdout)
    return result


def metrics() -> dict[str, float]:
    """Seconds for a million pairs, half of them positive, many of them tied; best of five."""
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(PAIRS) < PAIRS // 2
    scores = (100 * (torch.randn(PAIRS, generator=generator) + y)).round()
    found = {}
    for metric in (auc, average_precision):
        found[metric.__name__] = min(seconds(partial(metric, scores, y)) for _ in range(5))
    edges = torch.randint(PAIRS // 10, (2, PAIRS), generator=generator)
    draw = partial(negative_edges, edges, PAIRS // 10, PAIRS)
    found["negative_edges"] = min(seconds(draw) for _ in range(3))
    return {name: round(value, 3) for name, value in found.items()}


def main(argv: list[str] | None = None) -> int:
    args = arguments(argv, case=flag(str, SUPPRESS, nargs=2))
    if args.case:
        print(json.dumps(work(args.case[0], int(args.case[1]))))
        return 0
    print("| edges | MB | seconds | MB, gather | seconds, gather |\n|---|---|---|---|---|")
    rows, failures = [], []
    for num_edges in EDGES:
        found = {by: measure(by, num_edges) for by in ("fgl", "gather")}
        rows += [{"edges": num_edges, "by": by, **values} for by, values in found.items()]
        each = [f"{v[key]:g}" for v in found.values() for key in ("extra_mb", "seconds")]
        print(f"| {num_edges:,} | {' | '.join(each)} |", flush=True)
        if not math.isclose(found["fgl"]["loss"], found["gather"]["loss"], rel_tol=1e-4):
            failures.append(f"losses disagree at {num_edges} edges")
        if num_edges == 1_000_000 and found["fgl"]["extra_mb"] > LIMIT_MB:
            failures.append(f"over {LIMIT_MB} MB at {num_edges} edges")
    own = [row for row in rows if row["by"] == "fgl" and row["edges"] >= 100_000]
    slope = math.log(own[-1]["seconds"] / own[0]["seconds"])
    slope /= math.log(own[-1]["edges"] / own[0]["edges"])
    times = metrics()
    print(f"\nslope {slope:.2f}; seconds at {PAIRS:,} pairs: {times}")
    failures += [f"slope {slope:.2f}"] if slope > LIMIT_SLOPE else []
    failures += [
        f"{name} too slow" for name in ("auc", "average_precision") if times[name] > LIMIT_SECONDS
    ]
    write({"machine": machine(), "slope": slope, "seconds": times, "results": rows}, args.json)
    print(*failures, sep="\n")
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main())
