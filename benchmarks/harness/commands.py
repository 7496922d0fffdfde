"""Commands: the one that makes a run of a table now."""

import shlex
from collections.abc import Mapping

from .rows import FOLDS, Experiment, Table, spelled


def command(experiment: Experiment, tables: Mapping[str, Table]) -> str:
    """``python benchmarks/reproduce.py TABLE ...``, of the first table that has the run.

    Raises:
        ValueError: if no table has it.
    """
    key = experiment.key
    where = key["dataset"], key["clients"]
    for name, table in tables.items():
        number = key["seed"] * FOLDS + key.get("fold", 0) if table.folds else key["seed"]
        for row in table.rows:
            if where not in row.paper or number < table.first:
                continue
            usual = table.at(row, *where, number)
            made = table.at(row, *where, number, rounds=key["rounds"])
            if spelled(made.key) == spelled(key):
                rounds = usual.run.rounds != key["rounds"]
                words = [name, "--methods", row.name, "--datasets", where[0]]
                words += ["--clients", str(where[1]), "--seeds", str(number - table.first + 1)]
                words += ["--rounds", str(key["rounds"])] if rounds else []
                return f"python benchmarks/reproduce.py {shlex.join(words)}"
    raise ValueError(f"Expected a run of a table, but got {key}")
