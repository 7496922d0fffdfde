"""Reports: a table of a paper as text, and where a text stands in the documents."""

import functools
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from scipy.stats import wilcoxon

from fgl.study.statistics import holm

from .machine import ROOT
from .rows import FOLDS, Row, Table

LABELS = {
    "best_val": "test, best validation",
    "best_test": "each client's best test round",
    "last": "test, last round",
    "mean_last5": "test, mean of the last five rounds",
    "val": "validation",
}
SIGNIFICANT = 0.05
SCALE = {"bytes_up": 1e-6, "bytes_down": 1e-6}  # megabytes; other fields stand as they are
Runs = Mapping[int, dict[str, float]]  # by their number
Scored = dict[tuple[str, str, int], dict[int, dict[str, float]]]


def publish(name: str, text: str) -> None:
    """Put a text between ``<!-- name -->`` and ``<!-- end -->``, on the page that has them.

    A page of the site has the marks, or a file of long tables beside the raw results.
    """
    mark = f"<!-- {name} -->\n"
    pages = [*(ROOT / "docs").rglob("*.md"), *(ROOT / "benchmarks/results/tables").glob("*.md")]
    page = next(p for p in sorted(pages) if mark in p.read_text(encoding="utf-8"))
    before, rest = page.read_text(encoding="utf-8").split(mark)
    after = rest.split("<!-- end -->", 1)[1]
    page.write_text(f"{before}{mark}{text}<!-- end -->{after}", encoding="utf-8")


def scores(table: Table, entry: dict[str, Any]) -> dict[str, float]:
    """A run's scores: ``"last"``, ``"best_val"``, ... in percent, and the table's further columns.

    A further column that is no metric is a field of the entry, such as ``"bytes_down"``.
    """
    metrics = entry["metrics"]
    found = dict(metrics[table.metric])
    fields = {}
    for head, other in table.also.items():
        if other in metrics:
            found[head] = metrics[other][table.key]
        elif other in entry:
            fields[head] = entry[other] * SCALE.get(other, 1)
    if table.validation:
        found["val"] = metrics[table.validation.removeprefix("-")]["best_val"]
    return {name: 100 * value for name, value in found.items()} | fields


def markdown(table: Table, found: Scored, datasets: Sequence[str]) -> str:
    """The table with the paper's cells, means with their spread, and the paired test.

    Where runs are folds, errors and p are over repetitions, each the mean of its folds, since folds
    share their training graphs. One repetition has no error; the spread of its folds is named so.

    Args:
        table: what stands in it.
        found: ``(row, dataset, clients) -> run -> scores``.
        datasets: those to show.
    """
    if not found:
        return "No runs yet.\n"
    keys = [table.key, *(key for key in LABELS if key != table.key), *table.also]
    keys = [key for key in keys if any(key in v for m in found.values() for v in m.values())]
    head = ["dataset", "clients", "method", "paper", *(LABELS.get(key, key) for key in keys)]
    head += ["repetitions x folds" if table.folds else "seeds", f"against {table.base}", "p"]
    lines = [head, ["---"] * len(head)]
    for dataset in datasets:
        for clients in sorted({1, *table.clients}):
            for row in table.rows:
                mine = found.get((row.name, dataset, clients))
                if mine:
                    other = found.get((row.base or table.base, dataset, clients), {})
                    lines.append(_line(table, row, (dataset, clients), mine, other, keys))
    for name, count, gain, p in pooled(table, found):
        lines.append(["all", "", name, "", *[""] * len(keys), count, gain, p])
    rule = "|---" * len(head) + "|"
    text = [f"| {' | '.join(line)} |" if i != 1 else rule for i, line in enumerate(lines)]
    return "\n".join(text) + "\n" + corrected(table, found, datasets)


def corrected(table: Table, found: Scored, datasets: Sequence[str]) -> str:
    """How many differences a table tests, which stay below .05 by `holm`; "" for one or none."""
    tested: dict[str, float] = {}
    for (name, dataset, clients), mine in found.items():
        row = table.row(name)
        base = found.get((row.base or table.base, dataset, clients), {})
        p = p_value(gains(mine, base, table.key), table.folds)
        if dataset in datasets and name != (row.base or table.base) and p is not None:
            tested[f"{name} on {dataset} with {clients} clients"] = p
    for name, values in _pooled(table, found).items():
        p = p_value(dict(enumerate(values)))
        if p is not None:
            tested[f"{name} on all"] = p
    if len(tested) < 2:
        return ""
    adjusted = holm(list(tested.values()))
    each = zip(tested, adjusted, strict=True)
    left = [f"{name} ({said_of(p)})" for name, p in each if p < SIGNIFICANT]
    said = "none is below .05" if not left else f"these are below .05: {'; '.join(left)}"
    return f"\n{len(tested)} differences were tested. Corrected for their number (Holm), {said}.\n"


def _line(
    table: Table, row: Row, cell: tuple[str, int], mine: Runs, base: Runs, keys: Sequence[str]
) -> list[str]:
    means = [spread({n: v[key] for n, v in mine.items() if key in v}, table.folds) for key in keys]
    paper = row.paper.get(cell)
    itself = row.name == (row.base or table.base)
    gain, p = ("", "") if itself else paired(gains(mine, base, table.key), table.folds)
    printed = f"{paper:.2f}" if paper else ""
    count = counted(mine) if table.folds else str(len(mine))
    return [cell[0], str(cell[1]), row.name, printed, *means, count, gain, p]


def pooled(table: Table, found: Scored) -> list[list[str]]:
    """A line per method over all settings: its name, how many, the mean gain, p.

    Where runs are folds, a setting (dataset, clients, row) is one number, its mean gain, and the
    error is over settings; else every pair of runs is.
    """
    what = " settings" if table.folds else ""
    return [
        [name, f"{len(values)}{what}", *paired(dict(enumerate(values)))]
        for name, values in _pooled(table, found).items()
    ]


def _pooled(table: Table, found: Scored) -> dict[str, list[float]]:
    """The gains of a method over all settings, by its name."""
    if not table.pooled:
        return {}
    each: dict[str, list[float]] = {}
    for row in table.rows:
        base = row.base or table.base
        for (name, dataset, clients), mine in found.items():
            pairs = gains(mine, found.get((base, dataset, clients), {}), table.key)
            if name != row.name or name == base or not pairs:
                continue
            values = list(pairs.values())
            values = [statistics.mean(by_repetition(pairs))] if table.folds else values
            each.setdefault(row.pool or name, []).extend(values)
    return each


def gains(mine: Runs, base: Runs, key: str) -> dict[int, float]:
    """By how much a run is above the other row's run of the same number."""
    return {n: mine[n][key] - base[n][key] for n in sorted(mine.keys() & base.keys())}


def by_repetition(values: Mapping[int, float]) -> list[float]:
    """The mean of each repetition's folds."""
    numbers = sorted({number // FOLDS for number in values})
    return [
        statistics.mean(value for n, value in values.items() if n // FOLDS == number)
        for number in numbers
    ]


def counted(runs: Mapping[int, Any]) -> str:
    """How many repetitions of how many folds: ``"3 x 5"``, ``"2 x 3 to 5"``."""
    folds = [sum(n // FOLDS == number for n in runs) for number in {n // FOLDS for n in runs}]
    least, most = min(folds), max(folds)
    return f"{len(folds)} x {least}" + (f" to {most}" if most > least else "")


def spread(values: Mapping[int, float], folds: bool = False, digits: int = 2) -> str:
    """Mean and standard deviation: over seeds, or over repetitions, or of the only one's folds."""
    if not values:
        return ""
    each = by_repetition(values) if folds else list(values.values())
    mean = f"{statistics.mean(each):.{digits}f}"
    if len(each) > 1:
        return f"{mean} ± {statistics.stdev(each):.{digits}f}"
    inside = statistics.stdev(values.values()) if len(values) > 1 else None
    return mean if inside is None else f"{mean} (folds {inside:.{digits}f})"


def p_value(values: Mapping[int, float], folds: bool = False) -> float | None:
    """Two-sided Wilcoxon's p of gains; of one repetition there is none."""
    each = by_repetition(values) if folds else list(values.values())
    return wilcoxon_p(tuple(each)) if len(each) > 1 else None


@functools.cache
def wilcoxon_p(gains: tuple[float, ...]) -> float:
    """Two-sided Wilcoxon's p; a table asks for each twice."""
    return float(wilcoxon(gains).pvalue) if any(gains) else 1.0


def paired(values: Mapping[int, float], folds: bool = False) -> tuple[str, str]:
    """Mean gain with its standard error, two-sided Wilcoxon's p; the spread of one's folds."""
    if not values:
        return "", ""
    each = by_repetition(values) if folds else list(values.values())
    gain = f"{statistics.mean(each):+.2f}"
    if len(each) == 1:
        inside = f" (folds {statistics.stdev(values.values()):.2f})" if len(values) > 1 else ""
        return f"{gain}{inside}", ""
    error = statistics.stdev(each) / len(each) ** 0.5
    p: Any = p_value(values, folds)
    return f"{gain} ± {error:.2f}", said_of(p)


def said_of(p: float) -> str:
    """A p-value as it is printed."""
    return f"{p:.3f}" if p >= 0.0005 else "< 0.001"
