"""The leaderboard: every method on FED-PUB's protocol, with four trials, chosen on validation.

    python benchmarks/leaderboard.py                                      what is not there yet
    python benchmarks/leaderboard.py --datasets cora --layouts disjoint --methods FedAvg FED-PUB
    python benchmarks/leaderboard.py --minutes 60                         begin no cell after that
    python benchmarks/leaderboard.py --layouts label-noise label-skew --methods FedAvg Local
    python benchmarks/leaderboard.py --report                             docs/leaderboard.md

A cell is a method on a dataset and a layout: four trials of 50 rounds on a seed of their own, then
three seeds of 100 rounds with the trial that validates best. It is one line of
``benchmarks/results/leaderboard.jsonl``, written when it is whole; what is there is not made again,
so a run that was stopped goes on. Cells come block after block, Cora's disjoint clients first.
Those with worse data (Cora's disjoint clients with noise, gaps or skew) are made where their layout
is named. ``--shard 0/2`` and ``--shard 1/2`` divide them between two processes.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import math
import shlex
import sys
import time
import traceback
from typing import Any

from harness.flags import arguments, flag, some
from harness.leaderboard_page import draw, text
from harness.machine import RESULTS, machine
from harness.record import append, load, rounded
from harness.report import publish
from harness.rows import said, spelled
from papers.leaderboard import (
    DATASETS,
    LAYOUTS,
    ROUNDS,
    SETTINGS,
    Cell,
    cells,
    entrants,
    key,
    refusal,
)
from papers.matrix import SEEDS, TUNING_SEED

KEPT = ("test_accuracy", "val_accuracy", "test_accuracy_before", "unseen_accuracy")


def one(cell: Cell, values: Any, seed: int, rounds: int) -> dict[str, Any]:
    """A run: its scores at the best validation and in the last round, and what it cost."""
    name, dataset, layout = cell
    start = time.perf_counter()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        report, _ = entrants()[name].at(dataset, layout, values, seed, rounds)()
    scores = {
        metric: {which: rounded(value) for which, value in report["metrics"][metric].items()}
        for metric in KEPT
        if metric in report["metrics"]
    }
    spent = {n: report[n] for n in ("bytes_up", "bytes_down")}
    spent |= {n: round(report[n], 3) for n in ("processor_seconds", "processor_before")}
    before = {"bytes_before": report["bytes_before"]} if "bytes_before" in report else {}
    wall = round(time.perf_counter() - start, 3)
    return {"seed": seed, "rounds": report["rounds"], **scores, **spent, **before, "seconds": wall}


def validated(run: dict[str, Any]) -> float:
    """The best validation score of a run; one that is no number is the worst."""
    value = run.get("val_accuracy", {}).get("best_val")
    return -math.inf if value is None else value


def shown(score: float | None) -> str:
    """An accuracy in %, or what a diverged run has in its place."""
    return "diverged" if score is None else f"{100 * score:.2f}"


def make(cell: Cell, rounds: int) -> dict[str, Any]:
    """A cell's line: the trials, the one that was chosen, its three seeds."""
    trials = [
        {"values": values, **one(cell, values, TUNING_SEED, rounds)}
        for values in entrants()[cell[0]].trials()
    ]
    chosen = max(trials, key=validated)["values"]
    runs = [one(cell, chosen, seed, rounds) for seed in SEEDS]
    name, dataset, layout = cell
    now = "python benchmarks/leaderboard.py"
    now += f" --methods {shlex.quote(name)} --datasets {dataset} --layouts {layout}"
    now += "" if rounds == ROUNDS else f" --rounds {rounds}"
    trials = [{**trial, "values": said(trial["values"])} for trial in trials]
    seconds = round(sum(run["seconds"] for run in (*trials, *runs)), 1)
    told = {"chosen": said(chosen), "trials": trials, "runs": runs}
    return {"key": key(cell, rounds), "now": now, **told, "seconds": seconds, "machine": machine()}


def run(args: argparse.Namespace) -> None:
    """Make the cells that are not there; one that fails stops no other."""
    index, count = (int(part) for part in args.shard.split("/"))
    begin, failed = time.monotonic(), []
    wanted = [
        cell
        for cell in cells()
        if cell[0] in (args.methods or entrants())
        and cell[1] in args.datasets
        and cell[2] in args.layouts
    ]
    for number, cell in enumerate(wanted):
        if number % count != index or spelled(key(cell, args.rounds)) in load(args.results):
            continue
        if args.minutes and time.monotonic() - begin > 60 * args.minutes:
            break
        why = refusal(cell[0], cell[2])
        if why:
            print(f"{', '.join(cell)}: does not apply: {why}", flush=True)
            continue
        try:
            made = make(cell, args.rounds)
        except Exception:
            failed.append(", ".join(cell))
            traceback.print_exc()
            continue
        append(made, args.results)
        best = [shown(r["test_accuracy"]["best_val"]) for r in made["runs"]]
        print(f"{', '.join(cell)}: {' '.join(best)} in {made['seconds']:.0f} s", flush=True)
    if failed:
        raise SystemExit(f"These cells failed, the others are there: {'; '.join(failed)}")


def parsed(argv: list[str] | None = None) -> argparse.Namespace:
    return arguments(
        argv,
        json=False,
        datasets=some(DATASETS),
        layouts=some(SETTINGS, list(LAYOUTS), help="default disjoint and overlapping"),
        methods=some(entrants(), None, help="default all", metavar="NAME"),
        rounds=flag(ROUNDS, "of the runs that count; trials have half"),
        minutes=flag(0.0, "begin no cell after so many; 0 is without end"),
        shard=flag("0/1", metavar="I/N"),
        results=RESULTS / "leaderboard.jsonl",
        report=False,
    )


def main(argv: list[str] | None = None) -> None:
    args = parsed(argv)
    if not args.report:
        return run(args)
    found = load(args.results)
    page = text(found)
    publish("leaderboard", page)
    draw(found)
    sys.stdout.write(page)


if __name__ == "__main__":
    main()
