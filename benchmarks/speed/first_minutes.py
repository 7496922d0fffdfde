"""The first twelve minutes of a machine with a GPU, in three parts of four minutes.

    python benchmarks/speed/first_minutes.py 1                tests, and the CUDA graph of a step
    python benchmarks/speed/first_minutes.py 2                rounds beside a PyG loop
    python benchmarks/speed/first_minutes.py 3                kernels, and FGSSL with 100 clients
    python benchmarks/speed/first_minutes.py 1 --pretended    small, without a GPU

A step leaves what it printed in ``out/gpu/NAME.txt`` and its numbers in ``out/gpu/NAME.json``. A
step that has ended is not repeated; one that was stopped begins again at the next call.
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROUNDS = ("rounds.py", "--device", "cuda", "--clients")
SMALL = {"tests": ["-k", "captured or order"], "cuda_graph": ["--nodes", "30", "--steps", "4"]}
SMALL |= {"kernels": ["--sizes", "1000"]}
PARTS = {
    "1": {
        "tests": ("-m", "pytest", "-q", "-W", "default", "tests/test_cuda.py"),
        "cuda_graph": ("cuda_graph.py", "--clients", "10", "100", "--repeats", "3"),
    },
    "2": {
        "rounds-10": (*ROUNDS, "10", "--repeats", "3"),
        "rounds-100": (*ROUNDS, "100", "--only", "gcn_fedavg", "--repeats", "1"),
    },
    "3": {
        "kernels": ("kernels.py", "--device", "cuda", "--repeats", "3"),
        "fgssl-100": (*ROUNDS, "100", "--only", "fgssl", "--repeats", "1"),
    },
}


def command(name: str, words: tuple[str, ...], folder: Path, pretended: bool) -> list[str]:
    """A step as it is called."""
    script = words[0].endswith(".py")
    more = ["--json", str(folder / f"{name}.json")] if script else []
    if pretended:
        more += SMALL.get(name, ["--clients", "3"]) + (["--repeats", "1"] if script else [])
    words = (f"benchmarks/speed/{words[0]}", *words[1:]) if script else words
    return [sys.executable, *(["-m", "pretended_device"] if pretended else []), *words, *more]


def main() -> int:
    raw = argparse.RawTextHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("part", choices=list(PARTS))
    parser.add_argument("--out", type=Path, default=ROOT / "out" / "gpu")
    parser.add_argument("--minutes", type=float, default=4.0)
    parser.add_argument("--pretended", action="store_true")
    args = parser.parse_args()
    folder, end, left = args.out.absolute(), time.monotonic() + 60 * args.minutes, 0
    folder.mkdir(parents=True, exist_ok=True)
    for name, words in PARTS[args.part].items():
        done = folder / f"{name}.done"
        if not done.exists():
            call = command(name, words, folder, args.pretended)
            env = {**os.environ, "PYTHONPATH": "tests:."}
            try:
                with (folder / f"{name}.txt").open("w") as text:
                    seconds = max(1.0, end - time.monotonic())
                    code = subprocess.call(
                        call, cwd=ROOT, env=env, stdout=text, stderr=text, timeout=seconds
                    )
                done.write_text(f"exit status {code}\n")
            except subprocess.TimeoutExpired:
                left += 1
        print(
            name, done.read_text().strip() if done.exists() else "stopped: call again", flush=True
        )
    return left


if __name__ == "__main__":
    sys.exit(main())
