"""The tests that `make test` runs, those that a commit draws from the others, and what each costs.

`make test` runs every test that is not marked `slow`; `make nightly` runs the others. Of a function
that is marked `few`, `make test` runs four copies at most, chosen so that they show most values of
the parameters. `.ci/run` runs a tenth of the nightly tests, drawn by the commit's hash, and
the tests of the methods, transforms, pages and test files that the newest commits changed.
"""

import json
import os
import subprocess
import zlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

COPIES = 4  # of a function that is marked `few`
SHARE = 10  # one test of so many is drawn
MOST = 300  # tests of what a change touches
RECORDS = {  # tests of recorded runs and of pages, by the folder that they read
    "benchmarks/": ("reproduce", "leaderboard", "processors", "papers_like"),
    "docs/": ("docs", "site_check", "site_hooks", "notebooks", "leaderboard"),
}


def mark_further_copies(items: Iterable[pytest.Item]) -> None:
    """Mark as slow all but four copies of each function that is marked `few`."""
    copies: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("few") and not item.get_closest_marker("slow"):
            copies[item.nodeid.split("[")[0]].append(item)
    for each in copies.values():
        values = [set(item.callspec.indices.items()) for item in each]  # type: ignore[attr-defined]
        chosen = spread(values, COPIES)
        for index, item in enumerate(each):
            if index not in chosen:
                item.add_marker("slow")


def spread(values: Sequence[set[tuple[str, int]]], count: int) -> set[int]:
    """Indices of `count` sets that greedily cover most elements; the first of equals wins.

    >>> sorted(spread([{("a", 0), ("b", 0)}, {("a", 0), ("b", 1)}, {("a", 1), ("b", 1)}], 2))
    [0, 2]
    """
    chosen: set[int] = set()
    covered: set[tuple[str, int]] = set()
    for _ in range(min(count, len(values))):
        rest = [index for index in range(len(values)) if index not in chosen]
        best = max(rest, key=lambda index: (len(values[index] - covered), -index))
        chosen.add(best)
        covered |= values[best]
    return chosen


def drawn_tests(names: Sequence[str], commit: str) -> set[str]:
    """A tenth of the tests, drawn by the commit, and those of what the last commits changed."""
    order = {name: zlib.crc32(f"{commit} {name}".encode()) for name in names}
    tenth = {name for name in names if order[name] % SHARE == 0}
    files = changed_files()
    touched = sorted((name for name in names if touches(name, files)), key=order.__getitem__)
    return tenth | set(touched[:MOST])


def touches(name: str, files: Sequence[str]) -> bool:
    """Whether a test is of a changed file: its own, a page's, or the row of a method."""
    return any(name.startswith(tests_of(file)) and row_of(file) in name for file in files)


def tests_of(file: str) -> tuple[str, ...]:
    """Return the beginnings of the names of tests that a changed file may break."""
    if file.startswith(("fgl/methods/", "fgl/transforms/", "examples/")):
        return ("tests/test_conformance.py",)
    for folder, names in RECORDS.items():
        if file.startswith(folder):
            return tuple(f"tests/test_{name}.py" for name in names)
    return (file,)


def row_of(file: str) -> str:
    """Return the name of a method or transform in the conformance table, or an empty string."""
    in_table = tests_of(file) == ("tests/test_conformance.py",)
    return Path(file).stem.replace("_", " ") if in_table else ""


def changed_files() -> list[str]:
    """Files that differ from the last commit that is six hours older than the newest one."""

    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], capture_output=True, text=True, check=False)
        return done.stdout.strip()

    newest = git("log", "-1", "--format=%ct")
    if not newest:
        return []
    before = git("rev-list", "-1", f"--before={int(newest) - 6 * 3600}", "HEAD")
    return git("diff", "--name-only", before, "HEAD").splitlines() if before else []


def processor_seconds() -> float:
    """Processor seconds of this process and of the processes that it has waited for."""
    return sum(os.times()[:4])


def write_costs(path: Path, reports: Iterable[object]) -> None:
    """Write the processor seconds and the number of tests of each file, the dearest first."""
    seconds: dict[str, list[float]] = defaultdict(list)
    for report in reports:
        spent = dict(getattr(report, "user_properties", ())).get("processor_seconds")
        if spent is not None:
            seconds[str(getattr(report, "nodeid", "")).split("::")[0]].append(spent)
    files = sorted(seconds, key=lambda file: -sum(seconds[file]))
    table = {
        "tests": sum(map(len, seconds.values())),
        "processor_seconds": round(sum(map(sum, seconds.values())), 1),
        "files": {file: [len(seconds[file]), round(sum(seconds[file]), 2)] for file in files},
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")
