"""The first twelve minutes on a machine with a GPU: what is asked first, and in which order.

    python benchmarks/speed/first_minutes.py --list             the commands
    python benchmarks/speed/first_minutes.py --part 1           tests and the captured step
    python benchmarks/speed/first_minutes.py --part 2           rounds, FGSSL, beside PyG
    python benchmarks/speed/first_minutes.py --part 3           kernels, and the processor's rounds
    python benchmarks/speed/first_minutes.py --only tests       these alone
    python benchmarks/speed/first_minutes.py --pretended        small, without a GPU

Each step is a command of its own, which leaves what it said in ``out/gpu/NAME.txt``, its numbers in
``out/gpu/NAME.json``, and at its end ``out/gpu/NAME.done``. A step that has ended is not repeated;
one that the time did not suffice for is stopped and begins again in the next call. So the same line
is called until it says that all have ended. ``--again NAME`` forgets that a step has; ``--publish``
puts the numbers where docs/speed.md is written from.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
SPEED = "benchmarks/speed"
MODULES = ("torch", "numpy", "scipy", "networkx", "filelock", "cloudpickle")  # of the library
MODULES += ("pytest", "hypothesis", "tyro", "torch_geometric", "cryptography", "Crypto")  # of tests
RESULTS = {  # of which steps a published file is made
    "speed-gpu.json": ("rounds", "rounds-100", "fgssl-100"),
    "kernels-gpu.json": ("kernels",),
    "cuda_graph.json": ("cuda_graph",),
}


class Step(NamedTuple):
    """A command: its words after ``python``, and those that replace its sizes without a GPU."""

    words: tuple[str, ...]
    sizes: tuple[str, ...] = ()
    small: tuple[str, ...] = ()
    json: bool = True


CUDA = ("--device", "cuda")
FEW = ("--clients", "3", "--repeats", "1")
STEPS = {
    "about": Step((f"{SPEED}/first_minutes.py", "--about"), json=False),
    "tests": Step(
        ("-m", "pytest", "-q", "-W", "default", "tests/test_cuda.py"),
        small=("-k", "captured or gin"),
        json=False,
    ),
    "cuda_graph": Step(
        (f"{SPEED}/cuda_graph.py",),
        ("--clients", "10", "100"),
        ("--clients", "3", "--nodes", "30", "--steps", "2", "--repeats", "1"),
    ),
    "rounds": Step((f"{SPEED}/rounds.py", *CUDA), ("--clients", "10", "--repeats", "5"), FEW),
    "kernels": Step(
        (f"{SPEED}/kernels.py", *CUDA),
        ("--repeats", "7"),
        ("--sizes", "1000", "--repeats", "1"),
    ),
    "rounds-100": Step(
        (f"{SPEED}/rounds.py", *CUDA, "--only", "gcn_fedavg"),
        ("--clients", "100", "--repeats", "3"),
        FEW,
    ),
    "fgssl-100": Step(  # its loop takes seconds a round
        (f"{SPEED}/rounds.py", *CUDA, "--only", "fgssl"),
        ("--clients", "100", "--repeats", "1"),
        FEW,
    ),
    "processor": Step((f"{SPEED}/rounds.py",), ("--clients", "10", "100", "--repeats", "2"), FEW),
}
PARTS = {  # of four minutes each
    "1": ["about", "tests", "cuda_graph"],
    "2": ["rounds", "rounds-100"],
    "3": ["kernels", "fgssl-100", "processor"],
}


def about() -> None:
    """What the machine has, and what it lacks."""
    print("missing:", [m for m in MODULES if importlib.util.find_spec(m) is None])
    import torch  # its absence is told first

    print("torch", torch.__version__, "python", platform.python_version())
    print(torch.cuda.get_device_name(), torch.cuda.mem_get_info())
    matrix = torch.eye(3, device="cuda").to_sparse_csr()
    print("a sparse product:", float((matrix @ torch.ones(3, 2, device="cuda")).sum()))


def publish(folder: Path) -> None:
    """Copy numbers that a GPU has made to ``benchmarks/results``."""
    for file, names in RESULTS.items():
        paths = [folder / f"{name}.json" for name in names]
        paths = [path for path in paths if path.exists()]
        if not paths:
            print(f"{file}: none of {list(names)} are there")
            continue
        made = {key: value for path in paths for key, value in json.loads(path.read_text()).items()}
        if made["machine"].get("gpu", "pretended") == "pretended":
            raise ValueError(f"Expected {file} to be of a GPU, but got numbers without one")
        (ROOT / "benchmarks" / "results" / file).write_text(json.dumps(made, indent=1) + "\n")
        print(f"{file}: written")


def command(name: str, folder: Path, pretended: bool) -> list[str]:
    """A step as it is called."""
    step = STEPS[name]
    words = [*step.words, *(step.small if pretended else step.sizes)]
    if step.json:
        words += ["--json", str(folder / f"{name}.json")]
    return [sys.executable, *(["-m", "pretended_device"] if pretended else []), *words]


def take(name: str, folder: Path, left: float, pretended: bool) -> str:
    """Take a step, within so many seconds; what became of it."""
    done = folder / f"{name}.done"
    if done.exists():
        return f"has ended before: {done.read_text().strip()}"
    if left < 5:
        return "no time is left"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(["tests", "."])}
    start = time.monotonic()
    with (folder / f"{name}.txt").open("w") as file:
        try:
            made = subprocess.run(
                command(name, folder, pretended),
                cwd=ROOT,
                env=env,
                stdout=file,
                stderr=subprocess.STDOUT,
                timeout=left,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return "stopped, since the time is over"
    told = {"code": made.returncode, "seconds": round(time.monotonic() - start, 1)}
    done.write_text(json.dumps(told) + "\n")
    last = (folder / f"{name}.txt").read_text().strip().splitlines()[-3:]
    return "\n  ".join([json.dumps(told), *(line[:300] for line in last)])


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=ROOT / "out" / "gpu")
    parser.add_argument("--minutes", type=float, default=4.0, help="of this call")
    parser.add_argument("--part", choices=list(PARTS), help="the steps of one call")
    parser.add_argument("--only", nargs="+", default=list(STEPS), choices=list(STEPS))
    parser.add_argument("--again", nargs="+", default=[], choices=list(STEPS))
    parser.add_argument("--pretended", action="store_true", help="small, without a GPU")
    parser.add_argument("--list", action="store_true", help="print the commands")
    parser.add_argument("--about", action="store_true", help="what is there and what is missing")
    parser.add_argument("--publish", action="store_true", help="copy the numbers to the results")
    args = parser.parse_args(argv)
    args.only = PARTS[args.part] if args.part else args.only
    folder, end = args.out.absolute(), time.monotonic() + 60 * args.minutes
    if args.about or args.publish:
        about() if args.about else publish(folder)
        return 0
    if args.list:
        for name in args.only:
            print(f"{name}: {shlex.join(command(name, folder, args.pretended))}")
        return 0
    folder.mkdir(parents=True, exist_ok=True)
    for name in args.again:
        (folder / f"{name}.done").unlink(missing_ok=True)
    for name in args.only:
        said = take(name, folder, end - time.monotonic(), args.pretended)
        print(f"{name}: {said}", flush=True)
    left = [name for name in args.only if not (folder / f"{name}.done").exists()]
    print(f"left: {left}" if left else "all have ended")
    return len(left)


if __name__ == "__main__":
    sys.exit(main())
