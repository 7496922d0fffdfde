"""Tables of the first leaderboard, with t intervals and Holm's correction over all of them.

python -m harness.leaderboard_page     in `benchmarks`: docs/leaderboard.md
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from papers.leaderboard import (
    BESIDE_BLOCKS,
    BLOCKS,
    PUBLISHED,
    SETTINGS,
    WORSE,
    Cell,
    key,
)

from fgl.study import difference, holm

from .machine import RESULTS
from .record import load
from .report import paired, publish, spread
from .rows import spelled

Found = Mapping[str, dict[str, Any]]
Block = tuple[str, str]
TITLES = {
    "cora": "Cora",
    "citeseer": "CiteSeer",
    "pubmed": "PubMed",
    "amazon_photo": "Photo",
    "amazon_computers": "Computers",
}
BASE = "FedAvg"


def made(found: Found, cell: Cell) -> dict[str, Any] | None:
    """A recorded cell, if it is there."""
    return found.get(spelled(key(cell)))


def names_of(found: Found, block: Block) -> list[str]:
    """The methods that have scores in a block, in the order of the file."""
    names = dict.fromkeys(line["key"]["method"] for line in found.values())
    return [name for name in names if scores(found, (name, *block))]


def scores(found: Found, cell: Cell, which: str = "best_val") -> dict[int, float]:
    """Seed to test accuracy in the round of the best validation, or in the ``"last"``, in %.

    Where some clients are unseen, theirs.
    """
    line = made(found, cell)
    if line is None:
        return {}
    metric = "unseen_accuracy" if cell[2] == "unseen" else "test_accuracy"
    each = {run["seed"]: run.get(metric, {}).get(which) for run in line["runs"]}
    return {seed: 100 * value for seed, value in each.items() if value is not None}


def gains(found: Found, cell: Cell) -> dict[int, float]:
    """Differences from FedAvg within seeds."""
    base = scores(found, (BASE, *cell[1:]))
    return {seed: v - base[seed] for seed, v in scores(found, cell).items() if seed in base}


def adjusted(found: Found) -> dict[Cell, tuple[float, float, float]]:
    """The interval of each difference from FedAvg, and its p after Holm's correction over all."""
    cells = [(n, *b) for b in BLOCKS for n in names_of(found, b) if n != BASE]
    tests = {cell: difference(list(gains(found, cell).values())) for cell in cells}
    ps = holm([test.p for test in tests.values()])
    return {c: (t.low, t.high, p) for (c, t), p in zip(tests.items(), ps, strict=True)}


def costs(found: Found, cell: Cell) -> dict[str, float]:
    """Of a run, the mean over seeds: megabytes of a client and a round, processor seconds."""
    runs = (made(found, cell) or {"runs": []})["runs"]
    clients = SETTINGS[cell[2]]["clients"]

    def mean(of: Any) -> float:
        return statistics.mean(of(run) for run in runs)

    return {
        "up": mean(lambda run: run["bytes_up"] / run["rounds"]) / clients / 1e6,
        "down": mean(lambda run: run["bytes_down"] / run["rounds"]) / clients / 1e6,
        "before": mean(lambda run: run.get("bytes_before", 0)) / clients / 1e6,
        "processor": mean(lambda run: run["processor_seconds"]),
        "loading": mean(lambda run: run["processor_before"]),
    }


def table(found: Found, block: Block, tests: Mapping[Cell, tuple[float, float, float]]) -> str:
    """A block's methods, the best first."""
    heads = ["method", "test", "last round", "published", f"against {BASE}", "95 % interval"]
    heads += ["p (Holm)", "chosen", "MB up", "MB down", "MB before", "processor seconds"]
    heads += ["of them before training"]
    names = names_of(found, block)
    names.sort(key=lambda name: -statistics.mean(scores(found, (name, *block)).values()))
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for name in names:
        cell = (name, *block)
        lines.append(f"| {' | '.join([name, *_cells(found, cell, tests.get(cell))])} |")
    return "\n".join(lines) + "\n"


def _cells(found: Found, cell: Cell, test: tuple[float, float, float] | None) -> list[str]:
    mine, cost, line = scores(found, cell), costs(found, cell), made(found, cell) or {}
    score, last = (spread(each, digits=1) for each in (mine, scores(found, cell, "last")))
    lost = len(line["runs"]) - len(mine)
    score += f" ({len(mine)} of its seeds, others diverged)" if lost else ""
    theirs = PUBLISHED.get(cell)
    printed = f"{theirs[0]:.1f}" if theirs else ""
    printed += f" ± {theirs[1]:.1f}" if theirs and theirs[2] > 1 else ""
    gain = "" if cell[0] == BASE else paired(gains(found, cell))[0]
    known = test is not None and math.isfinite(test[0])
    interval, p = (f"{test[0]:+.1f} to {test[1]:+.1f}", f"{test[2]:.2f}") if known else ("", "")
    chosen = ", ".join(f"{key} {value}" for key, value in line["chosen"].items())
    sent = ["-"] * 3  # Local's messages are empty: nobody would send them
    if cell[0] != "Local":
        sent = [f"{cost[key]:.3g}" for key in ("up", "down", "before")]
    spent = [f"{cost['processor'] + cost['loading']:.3g}", f"{cost['loading']:.2g}"]
    return [score, last, printed, gain, interval, p, chosen, *sent, *spent]


def worse(found: Found) -> str:
    """Cora's disjoint clients, and what is left of the accuracy where something is worse."""
    heads = ["method", "whole", *WORSE]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for name in names_of(found, ("cora", "disjoint")):
        each = [scores(found, (name, "cora", how)) for how in ("disjoint", *WORSE)]
        if any(each[1:]):
            lines.append(f"| {' | '.join([name, *(spread(own, digits=1) for own in each)])} |")
    about = "; ".join(f"{name}: {_spelled(SETTINGS[name])}" for name in WORSE)
    return (
        f"Cora's disjoint clients. {about}. A skew takes the place of METIS' cut. Unseen clients, "
        "the last two, never train; they are scored on their own test nodes, with what the others "
        "are sent.\n\n" + "\n".join(lines) + "\n"
    )


def _spelled(setting: Mapping[str, Any]) -> str:
    """What of a setting is worse, as it is written."""
    how = setting.get("damage") or setting["skew"]
    given = {f.name: getattr(how, f.name) for f in fields(how) if getattr(how, f.name) != f.default}
    return ", ".join(f"`{name}={value!r}`" for name, value in given.items())


def text(found: Found) -> str:
    """All that is made from the numbers."""
    tests = adjusted(found)
    survive = [cell for cell, (_, _, p) in tests.items() if p < 0.05]
    parts = [f"Of {len(tests)} differences from {BASE}, {len(survive)} survive Holm's correction."]
    for block in (*BLOCKS, *BESIDE_BLOCKS):
        if names_of(found, block):
            parts += [f"\n## {TITLES[block[0]]}, {block[1]}\n", table(found, block, tests)]
    parts += ["## With worse data\n", worse(found)]
    page = "\n" + "\n".join(parts)
    return page.replace("FedOpt, Adam", "FedOpt (Adam)")  # among other names it reads as two


if __name__ == "__main__":
    publish("leaderboard", text(load(RESULTS / "leaderboard.jsonl")))
