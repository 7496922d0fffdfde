"""Recorded runs: one line of JSON each, found by its key."""

import contextlib
import json
import math
from pathlib import Path
from typing import Any

from .machine import machine
from .rows import Experiment, spelled


def load(path: Path) -> dict[str, dict[str, Any]]:
    """Finished runs by key; a line that an interruption cut short is passed over.

    Of runs with the same key the first counts: they were asked for in two ways.
    """
    found: dict[str, dict[str, Any]] = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        with contextlib.suppress(json.JSONDecodeError):
            entry = renamed(json.loads(line))
            found.setdefault(spelled(entry["key"]), entry)
    return found


def renamed(entry: dict[str, Any]) -> dict[str, Any]:
    """A run with today's names of the metrics of links; older runs have ``auc``."""
    new = {old + end: f"test_{old}{end}" for old in ("auc", "ap") for end in ("", "_before")}
    for part in ("metrics", "curves"):
        entry[part] = {new.get(name, name): own for name, own in entry.get(part, {}).items()}
    return entry


def rounded(value: float | None) -> float | None:
    """A number of a curve, to five digits; JSON has no NaN."""
    return float(f"{value:.5g}") if value is not None and math.isfinite(value) else None


def execute(experiment: Experiment, now: str, path: Path) -> None:
    """Run in this process and append the report; `now` is the command that makes it."""
    report, _ = experiment()
    entry = {
        "key": experiment.key,
        "now": now,
        **report,
        "curves": {name: [rounded(value) for value in v] for name, v in report["curves"].items()},
        "machine": machine(),
    }
    append(entry, path)


def append(entry: dict[str, Any], path: Path) -> None:
    """Write a line in one piece, for another process may write too; after a line that was cut."""
    path.parent.mkdir(parents=True, exist_ok=True)
    cut = path.exists() and path.read_bytes()[-1:] not in (b"", b"\n")
    with path.open("ab", buffering=0) as file:
        file.write((b"\n" if cut else b"") + json.dumps(entry).encode() + b"\n")
