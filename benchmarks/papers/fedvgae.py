"""FedVGAE's tables: the paper's cells, and the values that docs/papers/fedvgae.md explains.

AUC and average precision of a table come from the same runs, and so do scores before and after
local training and the trigger rate of the fine-tuning.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from harness.machine import example
from harness.rows import (
    Cells,
    Loaded,
    Make,
    Row,
    Table,
    changed,
    fedavg,
    fedper,
    fedprox,
    local,
    moon,
)

from fgl import Method, tasks
from fgl.experiment import Run
from fgl.federation import Evaluate

TEN = 10
LINK = ("cora", "citeseer", "pubmed", "polblogs")
NODE = ("cora", "citeseer", "pubmed")
Cell = tuple[float, ...]
SETTINGS: dict[str, Any] = {"link": tasks.Links(), "node": tasks.OwnNodes()}
RUN = Run(rounds=100, patience=20, clients_at_once="all")
RECIPE = example("fedvgae")


@functools.wraps(RECIPE.fedvgae)
def fedvgae(loaded: Loaded, **options: Any) -> Method:
    return RECIPE.fedvgae(loaded.task.fedavg, loaded.task.validate, **options)


def triggered(task: tasks.Task) -> Evaluate:
    """How often the fine-tuning came into play."""
    return RECIPE.trigger_rate


METHODS: dict[str, tuple[Make, dict[str, Any]]] = {
    "Local": (local, {}),
    "FedAvg": (fedavg, {}),
    "FedProx": (fedprox, {"mu": 0.01}),
    "MOON": (moon, {"contrast": 1.0}),
    "FedPer": (fedper, {"shared": RECIPE.ENCODER}),
    "FedVGAE": (fedvgae, {}),
}

# Cora, CiteSeer, PubMed, PolBlogs: AUC, then average precision.
TABLE3: dict[str, tuple[Cell, Cell]] = {
    "Local": ((0.7479, 0.7546, 0.8583, 0.7092), (0.7306, 0.7801, 0.8624, 0.7577)),
    "FedAvg": ((0.7684, 0.7927, 0.8487, 0.7085), (0.7585, 0.8121, 0.8661, 0.7526)),
    "FedProx": ((0.7382, 0.8086, 0.8535, 0.7039), (0.7178, 0.8273, 0.8508, 0.7503)),
    "MOON": ((0.7598, 0.8194, 0.8629, 0.7208), (0.7748, 0.8385, 0.8684, 0.7654)),
    "FedVGAE": ((0.7881, 0.8460, 0.8635, 0.7235), (0.8043, 0.8659, 0.8815, 0.7675)),
}
# Cora, CiteSeer, PubMed; FedPer is not in the paper.
TABLE4: dict[str, Cell] = {
    "Local": (0.8149, 0.6268, 0.8093),
    "FedAvg": (0.7986, 0.6346, 0.8721),
    "FedProx": (0.7249, 0.6903, 0.8701),
    "MOON": (0.7949, 0.7169, 0.8728),
    "FedPer": (0.0, 0.0, 0.0),
    "FedVGAE": (0.8428, 0.7193, 0.8812),
}
# Cora, CiteSeer, PubMed, PolBlogs (not in the paper): AUC.
TABLE6: dict[str, tuple[Cell, dict[str, Any]]] = {
    "FedVGAE": ((0.7831, 0.8103, 0.8635, 0.0), {}),
    "w/o contrast": ((0.7793, 0.7775, 0.8500, 0.0), {"contrast": 0.0}),
    "w/o fine-tuning": ((0.7704, 0.8038, 0.8607, 0.0), {"max_adjust": 0}),
    "w/o both": ((0.7684, 0.7726, 0.8487, 0.0), {"contrast": 0.0, "max_adjust": 0}),
}
SENSITIVITY: dict[str, tuple[float, ...]] = {
    "contrast": (0.1, 0.4, 1.6, 10.0),
    "phi": (0.0, 0.25, 0.75, 1.0),
    "delta": (0.0, 0.05, 0.1),
}
NORMALIZED = {"features": "normalized"}
# FedVGAE classifies best by validation without dropout and decay, the others with both (Cora).
UNREGULARISED = {"dropout": 0.0, "weight_decay": 0.0}
# What the paper leaves open; what stands first is the default, chosen is by validation.
CHOICES: dict[str, dict[str, dict[str, Any]]] = {
    "link": {"lr 0.001": {"lr": 0.001}, "lr 0.003": {"lr": 0.003}},
    "node": {
        "no dropout, no weight decay": UNREGULARISED,
        "lr 0.003": {"lr": 0.003},
    },
}
CORA = (0.0,)  # no cell of the paper


def cells(datasets: tuple[str, ...], values: Cell) -> Cells:
    """Cells at ten clients, in percent."""
    return {(name, TEN): 100 * value for name, value in zip(datasets, values, strict=False)}


def default_row(
    task: str,
    name: str,
    paper: Cell,
    method: str = "FedVGAE",
    values: Mapping[str, Any] | None = None,
    base: str | None = None,
    **options: Any,
) -> Row:
    """A row with the task's own dropout and weight decay, but for `values`."""
    make, own = METHODS[method]
    return Row(
        name,
        cells(LINK if task == "link" else NODE, paper),
        changed(SETTINGS[task], values or {}),
        make,
        {**own, **options},
        RUN,
        scores=triggered if make is fedvgae else None,
        base=base,
    )


def row(
    task: str,
    name: str,
    paper: Cell,
    method: str = "FedVGAE",
    values: Mapping[str, Any] | None = None,
    base: str | None = None,
    **options: Any,
) -> Row:
    """A row of a task; FedVGAE as chosen for its task."""
    chosen = UNREGULARISED if (task, method) == ("node", "FedVGAE") else {}
    values = {**chosen, **(values or {})}
    return default_row(task, name, paper, method, values, base, **options)


def every_method(task: str, papers: dict[str, Cell]) -> list[Row]:
    """All methods, as they are."""
    return [row(task, name, paper, name) for name, paper in papers.items()]


def ablation(task: str) -> list[Row]:
    """The four ways with and without contrast and fine-tuning."""
    return [
        row(task, name, paper if task == "link" else (0.0,) * 3, **options)
        for name, (paper, options) in TABLE6.items()
    ]


def sensitivity(task: str, option: str) -> list[Row]:
    """FedVGAE with another value of one option, Cora only, beside the default."""
    rows = [
        row(task, f"{option} {value:g}", CORA, **{option: value}) for value in SENSITIVITY[option]
    ]
    return [row(task, "FedVGAE", CORA), *rows]


def features(task: str) -> list[Row]:
    """Row-normalised features, with the default weight of the contrast and a small one."""
    against = "FedAvg, normalised"
    small = "FedVGAE, normalised, lambda 0.1"
    return [
        row(task, "FedAvg", CORA, "FedAvg"),
        row(task, "FedVGAE", CORA),
        row(task, against, CORA, "FedAvg", NORMALIZED),
        row(task, "FedVGAE, normalised", CORA, values=NORMALIZED, base=against),
        row(task, small, CORA, values=NORMALIZED, base=against, contrast=0.1),
    ]


def choices(task: str) -> list[Row]:
    """What the paper leaves open, for three methods; compare validation scores."""
    rows = []
    for name in ("Local", "FedAvg", "FedVGAE"):
        rows.append(default_row(task, name, CORA, name))
        for label, values in CHOICES[task].items():
            base = f"FedAvg, {label}"
            rows.append(default_row(task, f"{name}, {label}", CORA, name, values, base))
    return rows


def table(task: str, rows: list[Row], base: str = "FedAvg") -> Table:
    names = {"link": ("auc", "val_auc"), "node": ("test_accuracy", "val_accuracy")}[task]
    return Table(
        rows,
        base,
        "fedvgae.jsonl",
        rounds=100,
        datasets=LINK if task == "link" else NODE,
        clients=(TEN,),
        metric=names[0],
        validation=names[1],
        also={"before local training": f"{names[0]}_before", "triggered, %": "trigger_rate"},
    )


AUC = table("link", every_method("link", {name: auc for name, (auc, _) in TABLE3.items()}))
AP = replace(
    AUC,
    rows=every_method("link", {name: ap for name, (_, ap) in TABLE3.items()}),
    metric="ap",
    also={"before local training": "ap_before"},
)
THREE = (0.0, 0.0, 0.0)
DEFAULTS = default_row("node", "FedVGAE, with dropout and decay", THREE)
BARE = default_row("node", "FedAvg, no dropout or decay", THREE, "FedAvg", UNREGULARISED)
CALM = default_row("node", "MOON, lambda 0.1", THREE, "MOON", contrast=0.1)
TABLES = {
    "fedvgae-table3": AUC,
    "fedvgae-table3-ap": AP,
    "fedvgae-table4": table("node", [*every_method("node", TABLE4), DEFAULTS, BARE, CALM]),
    "fedvgae-table6": table("link", ablation("link"), "w/o both"),
    "fedvgae-table6-nodes": table("node", ablation("node"), "w/o both"),
}
for _task in ("link", "node"):
    _end = "" if _task == "link" else "-nodes"
    TABLES |= {
        f"fedvgae-table7{_end}": table(_task, sensitivity(_task, "contrast"), "FedVGAE"),
        f"fedvgae-table8{_end}": table(_task, sensitivity(_task, "phi"), "FedVGAE"),
        f"fedvgae-delta{_end}": table(_task, sensitivity(_task, "delta"), "FedVGAE"),
        f"fedvgae-features{_end}": table(_task, features(_task)),
        f"fedvgae-choices{_end}": table(_task, choices(_task)),
    }
