"""The page of a study: the sentences that survive Holm's correction, its tables, a raw file."""

import argparse
import json
import math
import re
import statistics
from collections.abc import Iterator
from typing import Any

import fgl
from fgl.study import Study
from fgl.study.results import Tested
from fgl.targets import less_is_better

from .flags import arguments, flag
from .machine import RESULTS, ROOT
from .report import publish

MOST = 5  # sentences
KEPT = ("id", "setting", "method", "seed", "rounds", "stage", "local", "own", "status", "error")
KEPT += ("validation", "metric", "at", "seconds", "processor", "environment", "command")


def study_flags(argv: list[str] | None, **flags: Any) -> argparse.Namespace:
    """A study's command line: its folder, and how many processes play it."""
    common = {"folder": flag(str, positional=True), "workers": flag(int), "report": False}
    return arguments(argv, json=False, **common, **flags)


def play_study(
    name: str, args: argparse.Namespace, entrants: Any, settings: Any, **how: Any
) -> None:
    """Begin a study or go on with it; with ``--report``, write its part of a page."""
    if args.report:
        return publish_study(Study(args.folder), name)
    how = {"trials": 12, "patience": 20, **how, "workers": args.workers, "folder": args.folder}
    print(fgl.study(entrants, settings, **how))


def publish_study(study: Study, name: str) -> None:
    """Write a study's part of a page, its picture, and its runs without curves as one file."""
    publish(f"{name}-study", text(study, name))
    publish(f"{name}-study-tables", tables(study))
    study.plot(ROOT / "docs" / "images" / f"{name}-study.png", what="differences")
    lines = [json.dumps(record) for record in summaries(study)]
    (RESULTS / f"study_{name}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


def summaries(study: Study) -> Iterator[dict[str, object]]:
    """Every run: its values, both scores and what it cost."""
    for record in study.raw():
        summary = {key: record[key] for key in KEPT if key in record}
        if "command" in summary:  # without the folder's place on a machine
            summary["command"] = re.sub(r"(fgl\.study )\S*/", r"\1", summary["command"])
        if "report" in record:
            ways = record["report"]["metrics"][record["metric"]]
            summary |= {"value": ways[record["at"]], "bytes": sum(record["report"]["bytes"])}
        yield summary


def text(study: Study, name: str) -> str:
    """The page's part: a picture, the sentences that survive, and the scores."""
    base = next(iter(study.plan.methods))
    parts = [f"![Differences from {base}, 95 % intervals](images/{name}-study.png)\n"]
    parts += ["".join(f"- {line}\n" for line in findings(study)), "### Scores\n", table(study)]
    # The left out are in the tables, and in the records of runs.
    lines = [s for s in study.sentences() if " minus " not in s and "different warnings" not in s]
    notes = "".join(f"- {line}\n" for line in lines)
    return "\n" + "\n".join([*parts, "### What this can find\n", notes]) + "\n"


def tables(study: Study) -> str:
    """The long tables: every difference, and every chosen value."""
    title = f"### Differences from {next(iter(study.plan.methods))}\n"
    return "\n" + "\n".join([title, differences(study), "### Chosen\n", chosen(study)]) + "\n"


def of_means(study: Study) -> dict[tuple[str, str], Tested]:
    """The tests over all settings, by their words and method."""
    words = f"the mean of {len(study.plan.settings)} settings"
    return {(words, method): test for method, test in study.headline.items()}


def findings(study: Study) -> list[str]:
    """At most five sentences, each of a test that survives Holm's correction, strongest first."""
    lines = [
        sentence(study, method, where, test, len(tests))
        for tests in (of_means(study), study.tests)
        for (where, method), test in sorted(tests.items(), key=lambda item: item[1].difference.p)
        if test.survives
    ]
    if lines:
        return lines[:MOST]
    needed = [test.needed for test in study.tests.values() if math.isfinite(test.least)]
    tell = f"; one point would need about {statistics.median_low(needed)} seeds" if needed else ""
    return [f"**No difference survives Holm's correction** for {len(study.tests)} tests{tell}."]


def sentence(study: Study, method: str, where: str, test: Tested, family: int) -> str:
    """A test in words, with its interval and its correction."""
    base, own = next(iter(study.plan.methods)), test.difference
    setting = where if where in study.plan.settings else next(iter(study.plan.settings))
    less, points = less_is_better(study.metric(setting)), study.in_points(setting)
    scale, digits = (100, 1) if points else (1, 3)
    better = "better" if (own.mean < 0) == less else "worse"
    name, _, detail = where.partition(", ")
    where = f"{name} ({detail})" if detail else name
    whose, unit = ("", " points") if points else (f"'s {study.metric(setting)}", "")
    low, high = (f"{scale * end:+.{digits}f}" for end in (own.low, own.high))
    return (
        f"**On {where}, {method}{whose} is {scale * abs(own.mean):.{digits}f}{unit} {better} than "
        f"{base}{whose[:2]}** (95 % interval {low} to {high}, paired t test over {own.count} seeds,"
        f" p = {test.holm:.2g} after Holm's correction for {family} comparisons)."
    )


def rows_of(heads: list[str], rows: list[list[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines) + "\n"


def table(study: Study) -> str:
    """A line per method: the mean and deviation on each setting."""

    def cell(setting: str, method: str) -> str:
        points = study.in_points(setting)
        values = [(100 if points else 1) * v for v in study.scores(setting, method).values()]
        if len(values) < 2 or any(map(math.isnan, values)):
            return "-"
        digits = 1 if points else 3
        mean, spread = statistics.fmean(values), statistics.stdev(values)
        return f"{mean:.{digits}f} ± {spread:.{digits}f}"

    settings = list(study.plan.settings)
    rows = [[m, *(cell(s, m) for s in settings)] for m in study.plan.methods]
    return rows_of(["entrant", *settings], rows)


def differences(study: Study) -> str:
    """A line per test: difference, interval, p and probability of improvement, means first."""
    rows, settings = [], list(study.plan.settings)
    for (setting, method), test in (of_means(study) | study.tests).items():
        points = all(map(study.in_points, [setting] if setting in settings else settings))
        own, scale = test.difference, 100 if points else 1
        if math.isfinite(own.low):
            ends = [f"{scale * end:+.{2 if scale == 100 else 3}f}" for end in (own.low, own.high)]
            mean = f"{scale * own.mean:+.{2 if scale == 100 else 3}f}"
            p = f"**{test.holm:.3f}**" if test.survives else f"{test.holm:.3f}"
            rows.append(
                [
                    setting,
                    method,
                    mean,
                    " to ".join(ends),
                    p,
                    f"{test.better:.2f}".replace("nan", "-"),
                ]
            )
    heads = ["setting", "entrant", "difference", "95 % interval", "p (Holm)", "P(better)"]
    return rows_of(heads, rows)


def chosen(study: Study) -> str:
    """A line per cell: what its trials chose, and what is at an edge of them."""
    rows = []
    for setting, method in study.plan.cells():
        if not (values := study.chosen(setting, method)):
            continue
        spelled = ", ".join(f"{n} {' / '.join(map(str, own))}" for n, own in values.items())
        rows.append([setting, method, spelled, "; ".join(study.edges(setting, method))])
    return rows_of(["setting", "entrant", "chosen", "at an edge"], rows)
