"""Commands: the one that makes a run now, of a recipe, a baseline or a table."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from fgl.experiment.cli import defaults_of
from fgl.experiment.words import written

from .machine import example
from .rows import BASELINES, FOLDS, Experiment, Row, Table, flat, spelled

RECIPES = ("fgssl", "fedgl", "fedego", "fedvgae", "gpfl")
VGAE = {"links": "links", "own-nodes": "nodes"}  # the task in FedVGAE's own words
FIRST = ("dataset", "clients", "rounds", "seed", "fold")
ELSEWHERE = ("json", "checkpoint", "device", "sparse", "threads")  # not of what is computed


def command(experiment: Experiment, tables: Mapping[str, Table]) -> str:
    """The command of a recipe, of a baseline, or of the table where the run stands.

    Raises:
        ValueError: if nothing makes the run.
    """
    found = of_examples(experiment) or of_tables(experiment, tables)
    if found is None:
        raise ValueError(f"Expected a run that something makes, but got {experiment.key}")
    return found


def of_examples(experiment: Experiment) -> str | None:
    """``python examples/...``, where its flags can say all that the run is."""
    entry = main_of(experiment)
    if entry is None or type(experiment.setting) is not BASELINES.TASKS[experiment.task]:
        return None
    start, main, presets = entry
    usual = defaults_of(main, presets, experiment.setting.dataset)
    wanted = experiment.all_options | flat(experiment.run) | flat(experiment.setting)
    for name, value in experiment.options.items():
        default = name in experiment.defaults and value == experiment.defaults[name]
        if name not in usual and not default:
            return None
    words = [start]
    for name in sorted(usual, key=lambda name: (*FIRST, name).index(name)):
        if name not in ELSEWHERE and (wanted[name] != usual[name] or name in FIRST[:4]):
            words.append(written(name, wanted[name]))
    return " ".join(words)


def main_of(experiment: Experiment) -> tuple[str, Any, Any] | None:
    """How the command begins, the `main` that it calls, and its own presets."""
    builder = getattr(experiment.method, "__wrapped__", None)
    for name in RECIPES:
        module = example(name)
        if builder is not None and builder is getattr(module, name):
            presets = getattr(module, "PRESETS", {})
            if name != "fedvgae":
                return f"python examples/{name}.py", module.main, presets
            word = VGAE[experiment.task]
            start = f"python examples/fedvgae.py {word}"
            return start, getattr(module, word), presets.get(word, {})
    for name, other in BASELINES.METHODS.items():
        if builder is not None and builder is getattr(other, "func", other):
            main = BASELINES.experiment(name, experiment.task)
            return f"python examples/baseline.py {name} {experiment.task}", main, {}
    return None


def of_tables(experiment: Experiment, tables: Mapping[str, Table]) -> str | None:
    """``python benchmarks/reproduce.py TABLE ...``, of the first table that has the run."""
    found = find(experiment.key, tables)
    return None if found is None else of_row(*found)


def find(
    key: Mapping[str, Any], tables: Mapping[str, Table]
) -> tuple[str, Table, Row, Experiment, int] | None:
    """The first table that has the run of a key: its name, itself, the row, the run, its number."""
    where = key["dataset"], key["clients"]
    for name, table in tables.items():
        number = key["seed"] * FOLDS + key.get("fold", 0) if table.folds else key["seed"]
        for row in table.rows:
            if where not in row.paper or number < table.first:
                continue
            made = table.at(row, *where, number, rounds=key["rounds"])
            if spelled(made.key) == spelled(key):
                return name, table, row, made, number
    return None


def of_row(name: str, table: Table, row: Row, made: Experiment, number: int) -> str:
    """The command of one run of a row."""
    usual = table.at(row, made.setting.dataset, made.clients, number).run.rounds
    rounds = [] if made.run.rounds == usual else ["--rounds", str(made.run.rounds)]
    where = ["--datasets", made.setting.dataset, "--clients", str(made.clients)]
    words = [name, "--methods", row.name, *where, "--seeds", str(number - table.first + 1)]
    return f"python benchmarks/reproduce.py {shlex.join([*words, *rounds])}"
