"""Reports: a table of a paper as text, and where a text stands in the documents."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from scipy.stats import wilcoxon

from .machine import ROOT
from .rows import Row, Table

LABELS = {
    "best_val": "test, best validation",
    "best_test": "each client's best test round",
    "last": "test, last round",
    "mean_last5": "test, mean of the last five rounds",
    "val": "validation",
}
SCALE = {"bytes_up": 1e-6, "bytes_down": 1e-6}  # megabytes; other fields stand as they are
Scored = dict[tuple[str, str, int], dict[int, dict[str, float]]]


def publish(name: str, text: str) -> None:
    """Put a text between ``<!-- name -->`` and ``<!-- end -->``, on the page that has them."""
    mark = f"<!-- {name} -->\n"
    page = next(p for p in sorted((ROOT / "docs").rglob("*.md")) if mark in p.read_text())
    before, rest = page.read_text().split(mark)
    after = rest.split("<!-- end -->", 1)[1]
    page.write_text(f"{before}{mark}{text}<!-- end -->{after}")


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
        found["val"] = metrics[table.validation]["best_val"]
    return {name: 100 * value for name, value in found.items()} | fields


def markdown(table: Table, found: Scored, datasets: Sequence[str]) -> str:
    """The table with the paper's cells, mean and standard deviation, and the paired test.

    Args:
        table: what stands in it.
        found: ``(row, dataset, clients) -> run -> scores``.
        datasets: those to show.
    """
    keys = [table.key, *(key for key in LABELS if key != table.key), *table.also]
    keys = [key for key in keys if any(key in v for m in found.values() for v in m.values())]
    head = ["dataset", "clients", "method", "paper", *(LABELS.get(key, key) for key in keys)]
    head += ["seeds", f"against {table.base}", "p"]
    lines = [head, ["---"] * len(head)]
    for dataset in datasets:
        for clients in sorted({1, *table.clients}):
            for row in table.rows:
                mine = found.get((row.name, dataset, clients))
                if mine:
                    other = found.get((row.base or table.base, dataset, clients), {})
                    lines.append(_line(table, row, (dataset, clients), mine, other, keys))
    for row in table.rows if table.pooled else []:
        mine, base = _everywhere(found, row.name), _everywhere(found, table.base)
        pairs = len(mine.keys() & base.keys())
        if row.name != table.base and pairs:
            empty = [""] * len(keys)
            end = [str(pairs), *paired(mine, base, table.key)]
            lines.append(["all", "", row.name, "", *empty, *end])
    rule = "|---" * len(head) + "|"
    text = [f"| {' | '.join(line)} |" if i != 1 else rule for i, line in enumerate(lines)]
    return "\n".join(text) + "\n"


def _line(
    table: Table, row: Row, cell: tuple[str, int], mine: Any, base: Any, keys: Sequence[str]
) -> list[str]:
    means = [spread([v[key] for v in mine.values() if key in v]) for key in keys]
    paper = row.paper.get(cell)
    itself = row.name == (row.base or table.base)
    gain, p = ("", "") if itself else paired(mine, base, table.key)
    printed = f"{paper:.2f}" if paper else ""
    return [cell[0], str(cell[1]), row.name, printed, *means, str(len(mine)), gain, p]


def _everywhere(found: Scored, name: str) -> dict[Any, dict[str, float]]:
    """A row's runs on all datasets, by dataset, clients and seed."""
    return {
        (*where, seed): value
        for (row, *where), runs in found.items()
        if row == name
        for seed, value in runs.items()
    }


def spread(values: list[float]) -> str:
    """Mean and standard deviation."""
    if not values:
        return ""
    if len(values) == 1:
        return f"{values[0]:.2f}"
    return f"{statistics.mean(values):.2f} ± {statistics.stdev(values):.2f}"


def paired(
    mine: dict[Any, dict[str, float]], base: dict[Any, dict[str, float]], key: str
) -> tuple[str, str]:
    """Mean gain over shared seeds, with its standard error; two-sided Wilcoxon's p."""
    seeds = sorted(mine.keys() & base.keys())
    if not seeds:
        return "", ""
    gains = [mine[seed][key] - base[seed][key] for seed in seeds]
    gain = f"{statistics.mean(gains):+.2f}"
    if len(gains) == 1:
        return gain, ""
    error = statistics.stdev(gains) / len(gains) ** 0.5
    p = wilcoxon(gains).pvalue if any(gains) else 1.0
    return f"{gain} ± {error:.2f}", f"{p:.3f}" if p >= 0.0005 else "< 0.001"
