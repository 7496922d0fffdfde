"""The pictures at the head of the results pages: the papers' cells beside the measured ones.

python docs/pictures/results.py          all of docs/images/results-*.png
python docs/pictures/results.py gpfl     one of them

The numbers are read from the tables between the markers of ``benchmarks/results/tables/*.md``.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt

DOCS = Path(__file__).parents[1]
COLORS = ("#1f5a94", "#c0742c", "#3d8b53")
BEST = "test, best validation"


@dataclass(frozen=True)
class Panel:
    """One panel: the rows of a table on one dataset."""

    title: str
    table: str
    dataset: str
    methods: tuple[str, ...]
    series: str = "clients"  # what tells the points of a method apart: a column, or "alpha"
    clients: str = ""  # only rows of so many clients
    column: str = BEST


def rows(page: str, name: str) -> list[dict[str, str]]:
    """The rows of a table of a page, by the heads of its columns."""
    text = (DOCS.parent / f"benchmarks/results/tables/{page}.md").read_text(encoding="utf-8")
    lines = text.split(f"<!-- {name} -->\n")[1].split("<!-- end -->")[0].splitlines()
    table = [line for line in lines if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
    return [dict(zip(cells[0], line, strict=True)) for line in cells[2:]]


def points(page: str, panel: Panel) -> list[tuple[str, str, float | None, float, float]]:
    """Method, series, the paper's cell, the measured mean, its standard deviation."""
    found = []
    for row in rows(page, panel.table):
        method, _, alpha = row["method"].partition(", alpha ")
        fits = row["dataset"] == panel.dataset and panel.clients in ("", row["clients"])
        if not fits or method not in panel.methods:
            continue
        mean, *spread = re.findall(r"[\d.]+", row[panel.column])  # ± or of the folds
        paper = float(row["paper"]) if row["paper"] else None
        series = alpha if panel.series == "alpha" else row[panel.series]
        found.append((method, series, paper, float(mean), float(*spread or [0])))
    return found


def draw_panel(axes: Any, page: str, panel: Panel, colors: dict[str, str]) -> None:
    """Methods from top to bottom; a filled point is measured, a hollow one the paper's."""
    found = points(page, panel)
    count = len({series for _, series, *_ in found if series in colors})
    seen: dict[str, int] = {}
    for method, series, paper, mean, spread in found:
        place = seen.get(method, 0)
        seen[method] = place + 1
        alone = sum(other[0] == method for other in found) == 1
        y = panel.methods.index(method) + (0 if alone else (place - (count - 1) / 2) * 0.24)
        color = colors.get(series, "#444444")
        axes.errorbar(mean, y, xerr=spread, fmt="o", color=color, markersize=5.5, capsize=2.5,
                      linewidth=1.4)  # fmt: skip
        if paper is not None:  # above its point where nothing else is, so that neither hides
            above = y - (0.2 if len(colors) == 1 else 0)
            how = {"markerfacecolor": "white", "markeredgecolor": color, "markersize": 5.5}
            axes.plot(paper, above, "D", zorder=4, **how)
    axes.set_yticks(range(len(panel.methods)), panel.methods)
    axes.set_ylim(len(panel.methods) - 0.5, -0.5)
    axes.set_title(panel.title, fontsize=11)
    axes.grid(axis="x", alpha=0.3)
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)
    for y in range(1, len(panel.methods)):
        axes.axhline(y - 0.5, color="#dddddd", linewidth=0.8)


def draw(
    page: str, panels: list[list[Panel]], series: dict[str, str], unit: str, name: str = ""
) -> None:
    """All panels of a page that have runs; `series` says what its values are called.

    The picture has the page's name, and `name` after it.
    """
    panels = [[p for p in row if points(page, p)] for row in panels]
    panels = [row for row in panels if row]
    colors = dict(zip(series, COLORS, strict=False))
    columns = max(map(len, panels))
    heights = [max(len(panel.methods) for panel in row) for row in panels]
    per_method = 0.5 if len(series) > 1 else 0.36
    figure, grid = plt.subplots(
        len(panels), columns, squeeze=False, layout="constrained",
        figsize=(10, sum(per_method * h + 0.8 for h in heights) + 0.5),
        gridspec_kw={"height_ratios": heights},
    )  # fmt: skip
    for axes_row, row in zip(grid, panels, strict=True):
        for i, axes in enumerate(axes_row):
            if i >= len(row):
                axes.axis("off")
                continue
            draw_panel(axes, page, row[i], colors)
            if i:
                axes.set_yticklabels([])
        axes_row[0].set_xlabel(unit)
    shown = [
        plt.Line2D([], [], marker="o", color="#444444", label="measured, ± standard deviation"),
        plt.Line2D([], [], marker="D", color="#444444", markerfacecolor="white", linestyle="",
                   label="paper"),
    ]  # fmt: skip
    if len(series) > 1:
        shown += [plt.Line2D([], [], marker="s", linestyle="", color=colors[key], label=name)
                  for key, name in series.items()]  # fmt: skip
    figure.legend(handles=shown, loc="outside upper center", ncols=len(shown), frameon=False)
    figure.savefig(DOCS / "images" / f"results-{page}{name}.png", dpi=110)
    plt.close(figure)


def fgssl() -> None:
    methods = ("Global", "FedAvg", "FedProx", "FedOpt", "FGSSL")
    names = {"cora": "Cora", "citeseer": "CiteSeer", "pubmed": "PubMed"}
    series = {"5": "5 clients", "7": "7 clients", "10": "10 clients"}
    for table, name in (("fgssl-table1", ""), ("fgssl-capped-table1", "-capped")):
        panels = [Panel(title, table, dataset, methods) for dataset, title in names.items()]
        draw("fgssl", [panels], series, "accuracy, %", name)


def fedgl() -> None:
    methods = ("Centralized", "Federated", "w/o pseudo graph", "w/o pseudo labels", "FedGL")
    names = {"cora": "Cora", "citeseer": "CiteSeer", "acm": "ACM", "wiki": "Wiki"}
    panels = [Panel(title, "fedgl-table2", name, methods) for name, title in names.items()]
    draw("fedgl", [panels], {"6": "6 clients"}, "accuracy, %")


def fedego() -> None:
    methods = ("Local", "FedAvg", "FedProx", "D-FedGNN", "FedEgo")
    names = {"cora": "Cora", "citeseer": "CiteSeer", "dblp": "DBLP (one split)"}
    rule = "each client's best test round"
    panels = [
        [
            Panel(f"{title}, {what}", table, name, methods, column=rule)
            for name, title in names.items()
        ]
        for table, what in (("fedego-table2", "common graph"), ("fedego-table3", "own nodes"))
    ]
    draw("fedego", panels, {"": ""}, "micro-F1, %")


def fedvgae() -> None:
    methods = ("Local", "FedAvg", "FedProx", "MOON", "FedVGAE")
    names = {"cora": "Cora", "citeseer": "CiteSeer", "pubmed": "PubMed", "polblogs": "PolBlogs"}
    panels = [
        [Panel(f"{title}, {what}", table, name, methods) for name, title in names.items()]
        for table, what in (
            ("fedvgae-table3", "links"),
            ("fedvgae-whole-table3", "links, whole graph"),
            ("fedvgae-table4", "nodes"),
        )
    ]
    draw("fedvgae", panels, {"": ""}, "AUC or accuracy, %")


def gpfl() -> None:
    methods = ("self-train", "FedAvg", "FedProx", "uniform", "GPFL")
    where = [(name, clients) for name in ("PROTEINS", "NCI1") for clients in ("15", "25")]
    series = {alpha: f"alpha {alpha}" for alpha in ("5", "0.5", "1")}
    for table, name in (("gpfl-table2", ""), ("gpfl-other-draw-table2", "-other-draw")):
        each = [
            Panel(f"{dataset}, {clients} clients", table, dataset, methods, "alpha", clients,
                  "test, last round")
            for dataset, clients in where
        ]  # fmt: skip
        draw("gpfl", [each[:2], each[2:]], series, "accuracy, %", name)


PAGES = {"fgssl": fgssl, "fedgl": fedgl, "fedego": fedego, "fedvgae": fedvgae, "gpfl": gpfl}

if __name__ == "__main__":
    for page in sys.argv[1:] or PAGES:
        PAGES[page]()
