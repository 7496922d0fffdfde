"""Comparisons: several methods on the same data over several seeds, as a table."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .tables import Line, lines, to_latex, to_markdown, to_text

Reports = Mapping[str, Mapping[int, Mapping[str, Any]]]


@dataclass(frozen=True, repr=False)
class Comparison:
    """The results of several methods over several seeds, shown as a table.

    Args:
        reports: a report for each method and seed, ``reports[method][seed]``; see
            `fgl.experiment.report`. Each report also contains ``"seconds"`` and ``"bytes"``, two
            lists with one number per round.
        metric: the metric that is compared.
        at: the compared round. ``"best_val"`` means each run's round with the best validation
            score. Other values are ``"last"`` and ``"mean_last5"`` (the mean over the last five
            rounds), which need no validation scores.

    Example:
        >>> runs = {0: {"a": 0.5, "b": 0.7}, 1: {"a": 0.6, "b": 0.7}}
        >>> reports = {
        ...     name: {
        ...         seed: {"metrics": {"auc": {"last": found[name]}}, "bytes": [8], "seconds": 1.0}
        ...         for seed, found in runs.items()
        ...     }
        ...     for name in "ab"
        ... }
        >>> Comparison(reports, "auc", "last")
        method  auc (last)       against a         MB      s  seeds
        a       0.5500 ± 0.0707                    0.000  1.0      2
        b       0.7000 ± 0.0000  +0.1500 ± 0.0500  0.000  1.0      2
    """

    reports: Reports
    metric: str
    at: str

    @property
    def lines(self) -> list[Line]:
        """A line per method: the mean, the deviation, and the difference from the first method."""
        return lines(self.reports, self.metric, self.at)

    def __repr__(self) -> str:
        return self.to_text()

    def _repr_markdown_(self) -> str:
        """The table, as a notebook displays it."""
        return self.to_markdown()

    def to_text(self) -> str:
        """The table as plain text."""
        return to_text(self.lines, self.metric, self.at)

    def to_markdown(self) -> str:
        """The table in Markdown."""
        return to_markdown(self.lines, self.metric, self.at)

    def to_latex(self) -> str:
        """The table in LaTeX with rules of booktabs."""
        return to_latex(self.lines, self.metric, self.at)

    def to_dict(self) -> dict[str, Any]:
        """The table and all reports as a dict of JSON types; a number in the dict may be NaN.

        Returns:
            ``{"metric", "at", "lines", "reports"}``. The value of ``"lines"`` is a list with a dict
            for each row of the table. The keys of this dict are the fields of `Line`.
        """
        reports = {name: dict(runs) for name, runs in self.reports.items()}
        each = [vars(line).copy() for line in self.lines]
        return {"metric": self.metric, "at": self.at, "lines": each, "reports": reports}
