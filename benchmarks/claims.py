"""Claims of the five papers beside their controls: docs/claims.md and its picture.

    python benchmarks/claims.py

Measures nothing. ``papers/claims.py`` says what is claimed, which rows of which tables stand for
it, and the verdict; the figures come from the recorded runs. They are written between the markers
of the page.
"""

import functools
import statistics
from collections.abc import Mapping
from typing import Any

from harness.flags import arguments
from harness.machine import RESULTS, ROOT, pyplot
from harness.record import load
from harness.report import by_repetition, gains, publish
from papers import TABLES
from papers.claims import CLAIMS, VERDICTS, Claim, Figure
from reproduce import MOST_RUNS, parsed, scored

NAMES = {"cora": "Cora", "citeseer": "CiteSeer", "pubmed": "PubMed", "polblogs": "PolBlogs"}
NAMES |= {"acm": "ACM", "dblp": "DBLP"}
COLORS = dict(zip(VERDICTS, ("#3d8b53", "#c0742c", "#a83232", "#777777"), strict=True))


@functools.cache
def runs(table: str) -> Mapping[Any, Mapping[int, Mapping[str, float]]]:
    """``(row, dataset, clients) -> run -> scores`` of all recorded runs of a table."""
    args = parsed([table, "--seeds", str(MOST_RUNS)])
    return scored(table, load(RESULTS / TABLES[table].results), args)


def gained(figure: Figure) -> list[float]:
    """What the row has above its base, in points: a number a shared run, or a repetition of folds.

    Folds of one draw share their training graphs, so they are no sample.
    """
    table, where = TABLES[figure.table], (figure.dataset, figure.clients)
    mine = runs(figure.table).get((figure.row, *where), {})
    base = runs(figure.table).get((figure.base, *where), {})
    found = gains(mine, base, figure.key or table.key)
    return by_repetition(found) if table.folds else list(found.values())


def printed(figure: Figure) -> float | None:
    """The same difference in the paper, where it prints both cells."""
    cell = figure.dataset, figure.clients
    table = TABLES[figure.table]
    mine, base = (table.row(name).paper.get(cell, 0) for name in (figure.row, figure.base))
    return mine - base if mine and base else None


def spread(values: list[float]) -> tuple[float, float]:
    """Mean and its standard error; of a single value the error is 0."""
    error = statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0.0
    return statistics.mean(values), error


def where(figure: Figure) -> str:
    """What a figure was measured on."""
    name = NAMES.get(figure.dataset, figure.dataset)
    return f"{name}, {figure.label}" if figure.label else name


def said(figure: Figure) -> str:
    """A figure as text: what was measured, the gain, its error, runs, the paper's."""
    found, paper = gained(figure), printed(figure)
    if not found:
        return f"{where(figure)}: no runs yet"
    mean, error = spread(found)
    one = "one draw, five folds" if TABLES[figure.table].folds else "one run"
    what = "draws" if TABLES[figure.table].folds else "runs"
    counted = f"± {error:.1f}, {len(found)} {what}" if len(found) > 1 else one
    there = f"; paper {paper:+.1f}" if paper is not None else ""
    return f"{where(figure)} {mean:+.1f} ({counted}{there})"


def text() -> str:
    """All claims, a table for each paper."""
    parts = []
    for paper in dict.fromkeys(claim.paper for claim in CLAIMS):
        lines = [f"### {paper}", "", "| claim | control | here, in points | verdict |"]
        lines.append("|---|---|---|---|")
        for claim in CLAIMS:
            if claim.paper == paper:
                here = "<br>".join([*map(said, claim.figures), *([claim.note] * bool(claim.note))])
                verdict = f"**{claim.verdict}**"
                lines.append(f"| {claim.says} | {claim.control} | {here} | {verdict} |")
        parts.append("\n".join(lines) + "\n")
    return "\n" + "\n".join(parts) + "\n"


def short(claim: Claim) -> str:
    return f"{claim.paper}: {claim.short}"


def draw() -> None:
    """Every claim's gains, coloured by verdict; hollow points are the papers'."""
    plt = pyplot()
    shown = [(c, f) for c in CLAIMS for f in c.figures if gained(f)]
    figure, axes = plt.subplots(figsize=(10, 0.27 * len(shown) + 1.6), layout="constrained")
    labels = []
    for y, (claim, each) in enumerate(shown):
        mean, error = spread(gained(each))
        color = COLORS[claim.verdict]
        how: Any = {"color": color, "fmt": "o", "markersize": 5, "capsize": 2.5}
        axes.errorbar(mean, y, xerr=error, **how)
        paper = printed(each)
        if paper is not None:
            axes.plot(paper, y, "D", markerfacecolor="white", markeredgecolor=color, markersize=5)
        labels.append(f"{short(claim)}, {where(each)}")
        if y and shown[y - 1][0].paper != claim.paper:
            axes.axhline(y - 0.5, color="#bbbbbb", linewidth=0.8)
    axes.axvline(0, color="#444444", linewidth=0.8)
    axes.set_yticks(range(len(labels)), labels, fontsize=8)
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.set_xlabel("gain over the control, points; bars are standard errors of the mean")
    axes.grid(axis="x", alpha=0.3)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    marks = [plt.Line2D([], [], marker="o", ls="", color=COLORS[v], label=v) for v in VERDICTS]
    hollow = {"marker": "D", "ls": "", "color": "#444444", "markerfacecolor": "white"}
    marks.append(plt.Line2D([], [], label="paper", **hollow))
    figure.legend(handles=marks, loc="outside upper center", ncols=len(marks), frameon=False)
    figure.savefig(ROOT / "docs" / "images" / "claims.png", dpi=110)
    plt.close(figure)


def main() -> None:
    arguments(json=False)
    publish("claims", text())
    draw()


if __name__ == "__main__":
    main()
