"""The first leaderboard: one step of Adam in a round, four trials and three seeds a cell.

Its runs are in ``benchmarks/results/leaderboard.jsonl``; no command adds to them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from fgl import tasks
from fgl.data import Damage
from fgl.data.partitions import Skew

Cell = tuple[str, str, str]  # method, dataset, layout
ROUNDS = 100
LAYOUTS: dict[str, dict[str, Any]] = {
    "disjoint": {"clients": 10, "overlap": 1},
    "overlapping": {"clients": 10, "overlap": 5},
}
WORSE: dict[str, dict[str, Any]] = {  # disjoint clients on Cora: one thing is worse in each
    "label-noise": {"damage": Damage(label_noise=0.3)},
    "sparse-labels": {"damage": Damage(missing_labels=0.5)},
    "missing-edges": {"damage": Damage(missing_edges=0.5)},
    "missing-features": {"damage": Damage(missing_features=0.8)},
    "edge-noise": {"damage": Damage(edge_noise=0.3)},
    "feature-noise": {"damage": Damage(feature_noise=0.01)},  # a word of a node is about .05
    "label-skew": {"skew": Skew(skew_by="labels", skew_alpha=0.1)},
    "feature-skew": {"skew": Skew(skew_by="features")},
    "degree-skew": {"skew": Skew(skew_by="degrees")},
    "unseen": {"skew": Skew(unseen=2)},
}
BESIDE: dict[str, dict[str, Any]] = {  # what else is compared
    "overlapping-30": {"clients": 30, "overlap": 5},  # the other cell of the authors' notebook
    "five-steps": {**LAYOUTS["disjoint"], "local": replace(tasks.SubgraphNodes().local, steps=5)},
}
SETTINGS = LAYOUTS | {name: LAYOUTS["disjoint"] | how for name, how in WORSE.items()} | BESIDE
BLOCKS = [(d, "disjoint") for d in ("cora", "amazon_photo", "citeseer")]
BLOCKS += [(d, "overlapping") for d in ("cora", "amazon_photo", "citeseer")]
BLOCKS += [(d, "disjoint") for d in ("pubmed", "amazon_computers")]
BLOCKS += [(d, "overlapping") for d in ("pubmed", "amazon_computers")]
BESIDE_BLOCKS = [("cora", "overlapping-30"), ("amazon_photo", "five-steps")]

# (method, dataset, layout) -> test accuracy in %, its deviation, over how many runs.
# Read from the outputs in evaluations/analysis.ipynb of https://github.com/JinheonBaek/FED-PUB at
# 302980d, column "Acc @ Best Val All": the round of the best validation of each run.
PUBLISHED: Mapping[Cell, tuple[float, float, int]] = {
    ("FedAvg", "cora", "disjoint"): (68.80, 1.36, 2),
    ("FED-PUB", "cora", "disjoint"): (80.89, 0.05, 2),
    ("FedAvg", "cora", "overlapping-30"): (54.44, 0.0, 1),
    ("FED-PUB", "cora", "overlapping-30"): (75.70, 0.0, 1),
}


def key(cell: Cell, rounds: int = ROUNDS) -> dict[str, Any]:
    """What a recorded cell is known by."""
    name, dataset, layout = cell
    return {"method": name, "dataset": dataset, "layout": layout, "rounds": rounds}
