"""The matrix: every method on seven tasks, each with four trials, chosen on validation.

    python benchmarks/matrix.py                                   what is not there yet, all of it
    python benchmarks/matrix.py --tasks links --methods FedAvg FedProx
    python benchmarks/matrix.py --seeds 0                         one run of each choice, not three
    python benchmarks/matrix.py --report                          docs/matrix.md and its picture
    python benchmarks/matrix.py --norms                           what GCFL's bounds are made of

Trials run on a seed of their own, for half the rounds. The one of the best validation score runs on
three more seeds. Every run is a line of ``benchmarks/results/matrix.jsonl``; what is there is not
made again, so that a run that was stopped goes on. ``--shard 0/2`` and ``--shard 1/2`` divide the
cells between two processes. Cells come task by task, all methods on Louvain nodes first.
"""

from __future__ import annotations

import argparse
import math
import shlex
import statistics
import sys
import traceback
from typing import Any

from harness.commands import command, find
from harness.flags import arguments, flag, some
from harness.machine import RESULTS, ROOT, kept, machine, pyplot, write
from harness.record import execute, load
from harness.report import gains, paired, publish, spread
from harness.rows import spelled
from papers import TABLES
from papers.matrix import COLUMNS, ENTRIES, NORMS, SEEDS, TUNING_SEED, Column, measured_norms

from fgl.targets import selected

Found = dict[str, dict[str, Any]]


def made(found: Found, name: str, task: str, values: Any, seed: int) -> dict[str, Any] | None:
    """A recorded run, if it is there."""
    return found.get(spelled(ENTRIES[name].at(task, values, seed).key))


def best(found: Found, name: str, task: str) -> dict[str, Any] | None:
    """The trial that validates best; None while one is missing."""
    trials = ENTRIES[name].trials(task)
    runs = [made(found, name, task, values, TUNING_SEED) for values in trials]
    if any(run is None for run in runs):
        return None
    judged = COLUMNS[task].validation

    def value(index: int) -> float:
        metrics = (runs[index] or {})["metrics"]
        score = metrics.get(judged.removeprefix("-"), {}).get("best_val")
        worth = math.nan if score is None else selected({judged.removeprefix("-"): score}, judged)
        return -math.inf if math.isnan(worth) else worth

    return trials[max(range(len(trials)), key=value)]


def run(args: argparse.Namespace) -> None:
    """Make the cells of this shard; one that fails stops no other."""
    index, count = (int(part) for part in args.shard.split("/"))
    cells = [
        (name, task)
        for task in args.tasks or COLUMNS
        for name in args.methods or ENTRIES
        if task in ENTRIES[name].tasks
    ]
    failed = []
    for name, task in (each for i, each in enumerate(cells) if i % count == index):
        try:
            cell(args, name, task)
        except Exception:
            failed.append(f"{name} on {task}")
            traceback.print_exc()
    if failed:
        raise SystemExit(f"These cells failed, the others are there: {'; '.join(failed)}")


def cell(args: argparse.Namespace, name: str, task: str) -> None:
    """Make a method's trials on a task, then the runs of the best one."""
    for values in ENTRIES[name].trials(task):
        one(args, name, task, values, TUNING_SEED)
    chosen = best(load(args.results), name, task)
    for seed in args.seeds:
        one(args, name, task, chosen, seed)


def one(args: argparse.Namespace, name: str, task: str, values: Any, seed: int) -> None:
    """A run, unless it is there."""
    if made(load(args.results), name, task, values, seed) is None:
        experiment = ENTRIES[name].at(task, values, seed)
        elsewhere = find(experiment.key, TABLES)
        here = f"python benchmarks/matrix.py --tasks {task} --methods {shlex.quote(name)}"
        now = command(elsewhere[3], TABLES) if elsewhere else here
        execute(experiment, now, args.results)


def scores(found: Found, name: str, task: str) -> dict[int, dict[str, float]]:
    """Seed to the chosen trial's scores: test, bytes a round, seconds a round."""
    chosen = best(found, name, task)
    if chosen is None:
        return {}
    there = {seed: made(found, name, task, chosen, seed) for seed in SEEDS}
    column = COLUMNS[task]
    scale = 1 if column.less else 100
    return {
        seed: {
            "test": scale * run["metrics"][column.metric]["best_val"],
            "own": scale * run["metrics"][column.own or column.metric]["best_val"],
            "up": run["bytes_up"] / run["rounds"] / run["clients"] / 1e6,
            "down": run["bytes_down"] / run["rounds"] / run["clients"] / 1e6,
            "seconds": run["seconds_per_round"],
            "processor": run["processor_seconds"] / run["rounds"],
            "before": run.get("bytes_before", 0) / run["clients"] / 1e6,
        }
        for seed, run in there.items()
        if run is not None
    }


def table(found: Found, task: str) -> str:
    """A task's methods, a line each."""
    heads = ["method", "test", "seeds", "against its base", "base", "own nodes", "MB up"]
    heads += ["MB down", "MB before", "seconds a round", "processor seconds a round"]
    heads += ["chosen", "found"]
    if not COLUMNS[task].own:
        heads.remove("own nodes")
    if COLUMNS[task].less:
        heads[1] = "test, less is better"
    lines = [heads, ["---"] * len(heads)]
    for name, entry in ENTRIES.items():
        mine = scores(found, name, task) if task in entry.tasks else {}
        if mine:
            lines.append(line(found, name, task, mine))
        else:
            said = "not run" if task in entry.tasks else "does not apply"
            lines.append([name, said, *[""] * (len(heads) - 2)])
    rule = "|---" * len(heads) + "|"
    text = [f"| {' | '.join(cells)} |" for cells in lines]
    return "\n".join([text[0], rule, *text[2:]]) + "\n"


def line(found: Found, name: str, task: str, mine: Any) -> list[str]:
    """A method's cells: scores, the gain, costs of a client and a round, what was chosen."""
    base = ENTRIES[name].base

    def mean(key: str) -> float:
        return statistics.mean(each[key] for each in mine.values())

    values = {seed: each["test"] for seed, each in mine.items()}
    digits = 3 if COLUMNS[task].less else 1
    gain = "" if name == base else paired(gains(mine, scores(found, base, task), "test"))[0]
    values_of = best(found, name, task) or {}
    chosen = ", ".join(f"{key} {value}" for key, value in values_of.items())
    own = [f"{mean('own'):.{digits}f}"] if COLUMNS[task].own else []
    cost = [f"{mean(key):.3g}" for key in ("up", "down", "before")]
    cost += [f"{mean(key):.2g}" for key in ("seconds", "processor")]
    other = "" if name == base else base
    first = [name, spread(values, digits=digits), str(len(mine)), gain, other]
    return [*first, *own, *cost, chosen, noted(found, name, task, values_of)]


def noted(found: Found, name: str, task: str, chosen: Any) -> str:
    """What a method did on each seed, where its score does not tell: clusters, new nodes."""
    runs = [made(found, name, task, chosen, seed) for seed in SEEDS]
    there = [run for run in runs if run is not None]
    clusters = [run["metrics"]["clusters"]["last"] for run in there if "clusters" in run["metrics"]]
    new = [run["new_nodes"] for run in there if "new_nodes" in run]
    each = {"clusters": clusters, "new nodes": new}
    return "; ".join(
        f"{word} {', '.join(f'{value:g}' for value in values)}"
        for word, values in each.items()
        if values
    )


def measure_norms() -> None:
    """FedAvg's norms by task and learning rate, for GCFL's bounds."""
    tasks = kept(NORMS).get("tasks", {})
    for task, column in COLUMNS.items():
        if task not in tasks and task in ENTRIES["GCFL"].tasks:
            tasks[task] = {f"{lr:g}": measured_norms(task, lr) for lr in column.lrs[1:3]}
    write(
        {"now": "python benchmarks/matrix.py --norms", "tasks": tasks, "machine": machine()}, NORMS
    )


def begun(found: Found) -> dict[str, Column]:
    """The tasks that have runs."""
    return {task: column for task, column in COLUMNS.items() if scores(found, "FedAvg", task)}


def text(found: Found) -> str:
    """All tasks that have runs, and the names of the others."""
    there = begun(found)
    parts = [f"### {column.title}\n\n{table(found, task)}" for task, column in there.items()]
    parts += [f"Not run: {c.title}.\n" for task, c in COLUMNS.items() if task not in there]
    return "\n" + "\n".join(parts) + "\n"


def draw(found: Found) -> None:
    """A panel a task that has runs: every method's test score."""
    there = begun(found)
    if not there:
        return
    plt = pyplot()
    figure, panels = plt.subplots(1, len(there), figsize=(13, 0.34 * len(ENTRIES) + 1.4),
                                  sharey=True, layout="constrained", squeeze=False)  # fmt: skip
    grid = panels[0]
    for axes, (task, column) in zip(grid, there.items(), strict=True):
        for y, name in enumerate(ENTRIES):
            if task not in ENTRIES[name].tasks:
                continue
            values = [each["test"] for each in scores(found, name, task).values()]
            if values:
                color = {"FedAvg": "#c0742c", "Local": "#777777"}.get(name, "#1f5a94")
                error = statistics.stdev(values) if len(values) > 1 else 0
                axes.errorbar(statistics.mean(values), y, xerr=error, fmt="o", color=color,
                              markersize=5, capsize=2.5)  # fmt: skip
        base = [each["test"] for each in scores(found, "FedAvg", task).values()]
        axes.axvline(statistics.mean(base), color="#c0742c", linewidth=0.8, alpha=0.6)
        told = f"{column.title}{', less is better' * column.less}"
        axes.set_title(told.replace(", ", ",\n"), fontsize=10)
        if column.less:
            axes.invert_xaxis()  # the best stand at the right in every panel
        axes.grid(alpha=0.3)
        axes.spines[["top", "right", "left"]].set_visible(False)
    grid[0].set_yticks(range(len(ENTRIES)), list(ENTRIES))
    grid[0].set_ylim(len(ENTRIES) - 0.5, -0.5)
    figure.supxlabel(
        "test score at the best validation, % or an error; bars are standard deviations of seeds"
    )
    figure.savefig(ROOT / "docs" / "images" / "matrix.png", dpi=110)
    plt.close(figure)


def parsed(argv: list[str] | None = None) -> argparse.Namespace:
    return arguments(
        argv,
        json=False,
        tasks=some(COLUMNS, None, help="default all"),
        methods=some(ENTRIES, None, help="default all", metavar="NAME"),
        seeds=some(SEEDS, metavar="SEED"),
        shard=flag("0/1", metavar="I/N"),
        results=RESULTS / "matrix.jsonl",
        report=False,
        norms=flag(False, "measure FedAvg's norms, nothing else"),
    )


def main(argv: list[str] | None = None) -> None:
    args = parsed(argv)
    if args.norms:
        return measure_norms()
    if not args.report:
        run(args)
    found = load(args.results)
    if args.report:
        publish("matrix", text(found))
        draw(found)
    sys.stdout.write(text(found))


if __name__ == "__main__":
    main()
