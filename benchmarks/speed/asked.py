"""Figures asked of the sparse product and of traced steps, beside those reached.

    git worktree add ../before 820a2c6
    python benchmarks/speed/asked.py ../before        an hour, on a machine that does nothing else
    python benchmarks/speed/asked.py --report         the block of docs/speed.md, from the files

Rounds are beside a PyG loop in the same process (`rounds.py`; `--json results/asked-intel.json`
holds Intel's), or beside the older checkout in alternated pairs of processes (`versus.py`).
A figure that misses is bold, one that was not measured is empty.
"""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from harness.flags import arguments, flag
from harness.machine import RESULTS, kept
from harness.report import publish

FOLDER = Path(__file__).parent
Read = Callable[[dict[str, Any]], float]


def met(asked: str, value: float) -> bool:
    """Whether a value is what was asked, such as ``">= 4"``, or at most that without a sign."""
    sign, _, bound = asked.rpartition(" ")
    return value >= float(bound) if sign == ">=" else value <= float(bound)


def than_before(case: str) -> Read:
    """How many times as fast as the older checkout a round is."""
    return lambda found: float(found["cases"][case]["faster"])


def of_ten_clients(found: dict[str, Any]) -> float:
    """Processor seconds of a round of ten clients of products' size, from those of one client."""
    return round(10 * float(found["cases"]["a tenth of products 1"]["ms"]) / 1e3, 1)


def of_limit(case: str) -> Read:
    """The share of the machine's limit that a local step reaches."""
    return lambda found: float(found["cases"][case]["fraction"])


def graphs_over_pyg(found: dict[str, Any]) -> float:
    """PyG's processor seconds of a round of NCI1 on one thread over the best batch's."""
    taken = {
        run["name"]: run["cpu"]
        for run in found["runs"]
        if run["dataset"] == "NCI1" and run["threads"] == 1
    }
    return round(taken["pyg"] / min(t for name, t in taken.items() if name != "pyg"), 2)


def over_pyg(case: str, way: str = "batch") -> Read:
    return lambda found: float(found[f"{case}/{way}_over_pyg"])


# The figure, what was asked, the file that holds it, and how it is read from there.
ASKED: list[tuple[str, str, str, Read]] = [
    ("K = 10, batch over PyG", ">= 7", "rounds", over_pyg("gcn_fedavg/K=10")),
    ("K = 10 on an Intel Xeon, batch over PyG", ">= 5", "intel", over_pyg("gcn_fedavg/K=10")),
    ("K = 30, batch over PyG", ">= 7", "rounds", over_pyg("gcn_fedavg/K=30")),
    ("K = 100, batch over PyG", ">= 6", "rounds", over_pyg("gcn_fedavg/K=100")),
    ("K = 1000, batch over PyG", ">= 6", "rounds", over_pyg("gcn_fedavg/K=1000")),
    ("K = 10, loop over PyG", ">= 4", "rounds", over_pyg("gcn_fedavg/K=10", "loop")),
    ("FGSSL, K = 10, batch over PyG's FedAvg", ">= 1.7", "rounds", over_pyg("fgssl/K=10")),
    ("FGSSL, K = 100, batch over PyG's FedAvg", ">= 3", "rounds", over_pyg("fgssl/K=100")),
    ("ten clients of 40 nodes, a step", ">= 2.5", "versus", than_before("ten of 40 nodes all")),
    ("1,000 clients of 30 nodes", ">= 1.5", "versus", than_before("1000 of 30 nodes auto")),
    ("GCN on 10^5 nodes, 10^6 edges", ">= 2.2", "versus", than_before("GCN of 10^5 nodes 1")),
    ("SAGE on 10^5 nodes, 10^6 edges", ">= 1.6", "versus", than_before("SAGE of 10^5 nodes 1")),
    ("ten clients of products' size, processor s a round", "<= 25", "versus", of_ten_clients),
    ("K = 10, batch, over before", "", "versus", than_before("gcn_fedavg/K=10 all")),
    ("K = 10, loop, over before", "", "versus", than_before("gcn_fedavg/K=10 1")),
    ("K = 100, over before", "", "versus", than_before("gcn_fedavg/K=100 auto")),
    ("FGSSL, K = 10, over before", "", "versus", than_before("fgssl/K=10 all")),
    ("NCI1, over before", ">= .97", "versus", than_before("NCI1 auto")),
    ("a leaderboard's process", ">= 1.7", "versus", than_before("leaderboard auto")),
    ("share of the limit, K = 10", ">= .25", "limits", of_limit("gcn_fedavg/K=10")),
    ("share of the limit, K = 100", ">= .5", "limits", of_limit("gcn_fedavg/K=100")),
    ("NCI1, best over PyG", ">= 2", "graphs", graphs_over_pyg),
]


def commands(before: Path) -> dict[str, list[str]]:
    """The scripts and their flags, by the name of their file."""
    return {
        "rounds": ["rounds.py", "--clients", "10", "30", "100", "1000"],
        "versus": ["versus.py", str(before)],
        "limits": ["limits.py", "--cases", "gcn_fedavg/K=10", "gcn_fedavg/K=100"],
        "graphs": ["graph_speed.py"],
    }


def file_of(name: str) -> Path:
    return RESULTS / f"asked-{name}.json"


def table() -> list[str]:
    """A line for each figure."""
    out = ["| figure | asked | reached |", "|---|---|---|"]
    for figure, bound, name, read in ASKED:
        try:
            value = read(kept(file_of(name)))
        except (KeyError, ValueError, FileNotFoundError):
            out.append(f"| {figure} | {bound} | |")
            continue
        bold = "**" if bound and not met(bound, value) else ""
        out.append(f"| {figure} | {bound} | {bold}{value:.3g}{bold} |")
    return out


def main() -> None:
    before = flag(Path, "a checkout of commit 820a2c6", positional=True, nargs="?")
    args = arguments(json=False, before=before, report=False)
    if args.before is None and not args.report:
        sys.exit("Expected before to be the folder of another checkout, but got none")
    for name, (script, *flags) in ({} if args.report else commands(args.before)).items():
        command = [sys.executable, str(FOLDER / script), *flags, "--json", str(file_of(name))]
        print(*command, flush=True)
        subprocess.run(command, check=False)
    publish("asked", "\n".join(table()) + "\n")


if __name__ == "__main__":
    main()
