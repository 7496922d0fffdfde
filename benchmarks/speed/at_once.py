"""The choice of ``clients_at_once="auto"``: its rounds beside the loop, 10, 20 and all at once.

    python benchmarks/speed/at_once.py --json benchmarks/results/at_once.json
    python benchmarks/speed/at_once.py --cases NCI1 gpfl       these alone, the others stay

Asked: within `ASKED` of the best of the four on every case of `cases.py`. All take turns in one
process; a number is the median over the turns, of processor time unless ``--clock`` says ``wall``.
"""

from __future__ import annotations

import gc
import statistics
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from harness.flags import arguments, flag, some
from harness.machine import kept, machine, write
from speed.cases import CASES, rounds

from fgl.federation import choose

ASKED = 1.1
FIXED = (1, 10, 20, "all")
LARGE = 200_000_000  # numbers of all models at once, where "all" is left out


def compare(name: str, repeats: int, cpu: bool) -> dict[str, Any]:
    """Milliseconds of a round by clients at once, and auto's over the best."""
    method, clients = CASES[name]()
    numbers = sum(p.numel() for p in method.model.parameters()) * len(clients)
    choice = choose(method, clients)
    sizes = [n for n in FIXED if (numbers < LARGE if n == "all" else n <= len(clients))]
    sizes = [n for n in sizes if n != len(clients)]  # that is all
    auto = "all" if choice.clients_at_once == len(clients) else choice.clients_at_once
    variants = list(dict.fromkeys([*sizes, auto]))
    few = len(clients) >= 1000
    taken: dict[Any, list[float]] = {size: [] for size in variants}
    for _ in range(min(repeats, 3) if few else repeats):
        for size in variants:
            taken[size].append(1e3 * rounds(method, clients, size, 1 if few else 2, cpu))
            gc.collect()
    found = {size: statistics.median(times) for size, times in taken.items()}
    best = min(found[size] for size in sizes)
    return {
        "ms": {str(size): round(value, 2) for size, value in found.items()},
        "auto": choice.clients_at_once,
        "why": choice.why,
        "auto_over_best": round(found[auto] / best, 3),
    }


def main(argv: list[str] | None = None) -> int:
    args = arguments(
        argv, cases=some(CASES), repeats=5, threads=1, clock=flag("cpu", choices=["cpu", "wall"])
    )
    torch.set_num_threads(args.threads)
    found: dict[str, Any] = kept(args.json).get("cases", {})
    for name in args.cases:
        found[name] = compare(name, args.repeats, args.clock == "cpu")
        print(name, found[name], flush=True)
        report = {"benchmark": "at_once", "asked": ASKED, "clock": args.clock}
        cases = {each: found[each] for each in CASES if each in found}
        write({**report, "machine": machine(), "cases": cases}, args.json)
    return int(any(each["auto_over_best"] > ASKED for each in found.values()))


if __name__ == "__main__":
    sys.exit(main())
