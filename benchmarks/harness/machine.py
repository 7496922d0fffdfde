"""The machine that results are measured on: processor, threads, versions, commit; timers."""

import contextlib
import functools
import gc
import importlib.util
import json
import os
import platform
import statistics
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

import fgl

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"


def machine() -> dict[str, Any]:
    """Processor, threads and versions, with every result."""
    cpu = platform.processor() or platform.machine()
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        cpu = next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    gpu = {"gpu": torch.cuda.get_device_name()} if torch.cuda.is_available() else {}
    return {
        "cpu": cpu,
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        **gpu,
        "torch": torch.__version__,
        **{name: version(name) for name in ("numpy", "scipy", "networkx")},
        "python": platform.python_version(),
        "commit": commit(),
    }


def commit() -> str:
    """Of the code that ran, where it is a git checkout."""
    folder = Path(fgl.__file__).parent
    found = subprocess.run(
        ["git", "-C", folder, "rev-parse", "--short", "HEAD"], capture_output=True, text=True
    )
    return found.stdout.strip()


def forked(work: Callable[[], object]) -> int:
    """The number of a process that does this and nothing else."""
    sys.stdout.flush()
    if child := os.fork():
        return child
    try:
        work()
        sys.stdout.flush()
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


@functools.cache
def example(name: str) -> Any:
    """A recipe of ``examples`` as a module."""
    path = ROOT / "examples" / f"{name}.py"
    spec: Any = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def pyplot() -> Any:
    """matplotlib without a screen; only pictures need it, so it is asked for late."""
    import matplotlib

    matplotlib.use("Agg")
    return importlib.import_module("matplotlib.pyplot")


def write(report: dict[str, Any], path: Path | None) -> None:
    """A report as JSON, if it is wanted."""
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def kept(path: Path | None) -> Any:
    """What `write` has written there; an empty dict where nothing is."""
    return json.loads(path.read_text("utf-8")) if path is not None and path.exists() else {}


def seconds(function: Callable[[], Any], device: str = "cpu") -> float:
    """How long one call takes."""
    if device != "cpu":
        torch.cuda.synchronize()
    start = time.perf_counter()
    function()
    if device != "cpu":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def ratio(above: Sequence[float], below: Sequence[float]) -> tuple[float, list[float]]:
    """The median of one over the other, turn by turn, and the least and the most."""
    ratios = [a / b for a, b in zip(above, below, strict=True)]
    return round(statistics.median(ratios), 2), [round(min(ratios), 2), round(max(ratios), 2)]


def alternated(functions: dict[str, Callable[[], float]], repeats: int) -> dict[str, float]:
    """Median of what each function returns (its seconds), all called in turn after a warm-up."""
    return {name: statistics.median(v) for name, v in in_turn(functions, repeats).items()}


def in_turn(functions: dict[str, Callable[[], float]], repeats: int) -> dict[str, list[float]]:
    """What each function returns in each turn, all called after a warm-up."""
    for function in functions.values():
        function()
    found: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(repeats):
        for name, function in functions.items():
            found[name].append(function())
    return found


def process_memory(field: str) -> float:
    """Megabytes that the kernel has noted of this process: ``"VmRSS"`` now, ``"VmHWM"`` at most."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) * 1024 / 1e6


def spent(function: Callable[[], Any]) -> tuple[Any, float, float]:
    """What a function returns, its processor seconds, the MB by which it raises what is held."""
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts again from what is held now
    before, start = process_memory("VmRSS"), time.process_time()
    result = function()
    return result, time.process_time() - start, process_memory("VmHWM") - before


# An environment in which freed memory goes back at once, so that what is resident is in use.
FREED_AT_ONCE = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "0"}
