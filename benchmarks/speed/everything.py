"""All that docs/speed.md asks for, measured on a machine that does nothing else.

    python benchmarks/speed/everything.py           hours
    python benchmarks/speed/everything.py --only at_once.py limits.py

Each script in turn writes its file of ``benchmarks/results``; then the page is written. A script
that asks for more than was reached ends with 1, which does not stop the others.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent
RESULTS = FOLDER.parent / "results"
COMMANDS = {
    "rounds.py": ["--json", "speed.json"],
    "rounds.py two": [
        *("--threads", "2", "--clients", "10", "30", "100"),
        *("--json", "speed-2-threads.json"),
    ],
    "growth.py": ["--json", "growth.json"],
    "kernels.py": ["--json", "kernels.json"],
    "recipes.py": ["--json", "recipes.json"],
    "at_once.py": ["--clock", "wall", "--json", "at_once.json"],
    "limits.py": ["--json", "limits.json"],
    "promise.py": ["--json", "promise.json"],
    "loop_and_batch.py": ["--json", "loop_and_batch.json"],
    "graph_speed.py": ["--json", "graph_speed.json"],
    "sampled.py": ["--json", "sampled.json"],
    "partitions.py": ["--json", "partitions.json"],
    "arxiv.py": ["--json", "arxiv.json"],
    "products.py": ["--json", "products.json"],
    "products_sampled.py": ["--json", "products_sampled.json"],
    "cost.py": ["--json", "cost.json"],
}
TABLES = (  # that write their own
    "graph_speed.py",
    "sampled.py",
    "partitions.py",
    "arxiv.py",
    "products.py",
    "products_sampled.py",
    "cost.py",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--only", nargs="+", default=list(COMMANDS), choices=list(COMMANDS))
    for name in parser.parse_args().only:
        words = [str(RESULTS / w) if w.endswith(".json") else w for w in COMMANDS[name]]
        command = [sys.executable, str(FOLDER / name.split()[0]), *words]
        print(*command, flush=True)
        subprocess.run(command, check=False)
        if name in TABLES:
            subprocess.run([*command[:2], "--report"], check=True)
    subprocess.run([sys.executable, str(FOLDER / "report.py")], check=True)


if __name__ == "__main__":
    main()
