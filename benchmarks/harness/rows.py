"""What a table of a paper is: rows of a recipe's flags, and the paper's cells."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

Cells = dict[tuple[str, int], float]  # by (dataset, clients)


@dataclass(frozen=True)
class Row:
    """A method of a table: a recipe, its flags, the paper's cells (0 where it prints none).

    `tuned` are flags by dataset that were chosen, ``"*"`` for the datasets not named.
    """

    name: str
    recipe: str
    flags: tuple[str, ...]
    paper: Cells
    tuned: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    base: str | None = None  # the row to compare with, where it is not the table's

    def argv(self, dataset: str) -> tuple[str, ...]:
        return (*self.tuned.get(dataset, self.tuned.get("*", ())), *self.flags)


@dataclass(frozen=True)
class Table:
    """Rows, the one that others are compared with, where results lie, how long a run is.

    `metric` at `key` (the round of best validation, the last one, ...) stands beside the paper's
    cell; `validation` is the metric that chose, "" where the protocol has no validation set; `also`
    are further metrics at `key`, by their column's head; `repeat` is the flag that counts runs,
    `first` its first value; `pooled` adds the paired test over all datasets together.
    """

    rows: list[Row]
    base: str
    results: str
    rounds: int = 200
    datasets: tuple[str, ...] = ("cora", "citeseer", "pubmed")
    clients: tuple[int, ...] = (5, 7, 10)
    metric: str = "test_accuracy"
    key: str = "best_val"
    validation: str = "val_accuracy"
    also: Mapping[str, str] = field(default_factory=dict)
    repeat: str = "--seed"
    first: int = 0
    pooled: bool = False
