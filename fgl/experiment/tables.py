"""Tables of comparisons: means, deviations and paired differences, in several formats."""

import math
import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .report import DESCRIBED


@dataclass(frozen=True)
class Line:
    """A line of a table: the results of a method.

    Args:
        method: name of the method.
        mean, deviation: mean and sample standard deviation of the metric; both are computed over
            seeds.
        difference: this method's value minus the first method's value for the same seed, averaged
            over seeds.
        error: standard error of `difference`.
        bytes: number of bytes that a run sends up and down, averaged over seeds.
        seconds: duration of all rounds of a run in seconds, averaged over seeds.
        seeds: number of seeds.

    Undefined numbers are NaN: the deviation for a single seed, and the first method's difference
    from itself.

    Example:
        >>> Line("FedAvg", 0.81, 0.01, seeds=5).mean
        0.81
    """

    method: str
    mean: float
    deviation: float = math.nan
    difference: float = math.nan
    error: float = math.nan
    bytes: float = 0.0
    seconds: float = 0.0
    seeds: int = 0


def lines(
    reports: Mapping[str, Mapping[int, Mapping[str, Any]]], metric: str, at: str
) -> list[Line]:
    """A line per method, see `Line`."""
    scores = {
        name: {seed: float(run["metrics"].get(metric, {}).get(at, math.nan)) for seed, run in runs}
        for name, runs in ((name, runs.items()) for name, runs in reports.items())
    }
    first, rows = next(iter(scores)), []
    for name, mine in scores.items():
        base = {} if name == first else scores[first]
        gains = [mine[seed] - base[seed] for seed in mine if seed in base]
        difference, deviation = mean_and_deviation(gains)
        error = deviation / math.sqrt(len(gains)) if gains else math.nan
        runs = list(reports[name].values())
        sent = statistics.mean(sum(run["bytes"]) for run in runs)
        seconds = statistics.mean(run["seconds"] for run in runs)
        own = mean_and_deviation(list(mine.values()))
        rows.append(Line(name, *own, difference, error, sent, seconds, len(mine)))
    return rows


def mean_and_deviation(values: Sequence[float]) -> tuple[float, float]:
    """The mean and the sample standard deviation; NaN if there are too few values.

    Example:
        >>> mean_and_deviation([1.0, 3.0]), mean_and_deviation([2.0])
        ((2.0, 1.4142135623730951), (2.0, nan))
    """
    mean = statistics.fmean(values) if values else math.nan
    if len(values) < 2 or any(math.isnan(value) for value in values):
        return mean, math.nan
    return mean, statistics.stdev(values)


def aligned(rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> str:
    """Format rows of cells as columns of plain text; columns in `right` are aligned to the right.

    Example:
        >>> print(aligned([["a", "b"], ["10", "2"]], right=[0]))
         a  b
        10  2
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    ways = [(str.rjust if i in right else str.ljust, width) for i, width in enumerate(widths)]
    padded = [[way(cell, w) for cell, (way, w) in zip(row, ways, strict=True)] for row in rows]
    return "\n".join("  ".join(row).rstrip() for row in padded)


def tabular(rows: Iterable[Sequence[str]], kinds: str) -> str:
    """Format rows of cells as a LaTeX tabular with booktabs' rules; the first row is the header."""
    head, *body = [" & ".join(row) + r" \\" for row in rows]
    top = [rf"\begin{{tabular}}{{{kinds}}}", r"\toprule", head, r"\midrule"]
    return "\n".join([*top, *body, r"\bottomrule", r"\end{tabular}"]) + "\n"


def to_text(table: Sequence[Line], metric: str, at: str) -> str:
    """The table as plain text in columns."""
    return aligned(_cells(table, metric, at), right=(3, 4, 5))


def to_markdown(table: Sequence[Line], metric: str, at: str) -> str:
    """The table in Markdown."""
    head, *rows = [[cell.replace("|", r"\|") for cell in row] for row in _cells(table, metric, at)]
    text = [f"| {' | '.join(row)} |" for row in (head, *rows)]
    return "\n".join([text[0], "|---|---|---|---:|---:|---:|", *text[1:]]) + "\n"


def to_latex(table: Sequence[Line], metric: str, at: str) -> str:
    """The table as a LaTeX tabular with booktabs' rules."""
    return tabular([list(map(escaped, row)) for row in _cells(table, metric, at)], "lllrrr")


ESCAPES = {c: rf"\{c}" for c in "&%$#_{}"} | {
    **{"±": r"$\pm$", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"},
    **{"\\": r"\textbackslash{}", "<": "$<$", ">": "$>$"},
}


def escaped(cell: str) -> str:
    return "".join(ESCAPES.get(letter, letter) for letter in cell)


def _cells(table: Sequence[Line], metric: str, at: str) -> list[list[str]]:
    """The header, and a row of cells per line."""
    numbers = f"{metric} ({DESCRIBED[at]})"
    rows = [["method", numbers, f"against {table[0].method}", "MB", "s", "seeds"]]
    for line in table:
        gain = "" if math.isnan(line.difference) else plus_minus(line.difference, line.error, "+")
        sent = f"{line.bytes / 1e6:.3f}" if line.bytes else "-"
        cells = [line.method, plus_minus(line.mean, line.deviation), gain, sent]
        rows.append([*cells, f"{line.seconds:.1f}", str(line.seeds)])
    return rows


def plus_minus(mean: float, deviation: float, sign: str = "", *, digits: int = 4) -> str:
    """A mean; if there is a deviation, ± and the deviation follow.

    Example:
        >>> plus_minus(0.5, 0.01), plus_minus(0.5, float("nan"), "+")
        ('0.5000 ± 0.0100', '+0.5000')
    """
    text = f"{mean:{sign}.{digits}f}"
    return text if math.isnan(deviation) else f"{text} ± {deviation:.{digits}f}"
