"""The leaderboard: every method on FED-PUB's protocol, five datasets, disjoint and overlapping.

A trial is a learning rate and a value of the method's own; a method with nothing of its own to
choose gets four learning rates. All have four trials of half the rounds, on a seed of their own;
the one of the best validation score runs on three more seeds.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from harness.rows import BUILDERS, Experiment, Make, changed, flat, of_baseline

from fgl import tasks
from fgl.data import Damage
from fgl.data.partitions import Skew
from fgl.experiment import Run

from .matrix import ENTRIES, SMALL, TUNING_SEED

Values = Mapping[str, Any]
Cell = tuple[str, str, str]  # method, dataset, layout
ROUNDS = 100
LRS = (0.003, 0.01, 0.03, 0.1)  # the two in the middle go with values of a method
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
# The most telling come first.
BLOCKS = [(d, "disjoint") for d in ("cora", "amazon_photo", "citeseer")]
BLOCKS += [(d, "overlapping") for d in ("cora", "amazon_photo", "citeseer")]
BLOCKS += [(d, "disjoint") for d in ("pubmed", "amazon_computers")]
BLOCKS += [(d, "overlapping") for d in ("pubmed", "amazon_computers")]
WORSE_BLOCKS = [("cora", name) for name in WORSE]
BESIDE_BLOCKS = [("cora", "overlapping-30"), ("amazon_photo", "five-steps")]
DATASETS = list(dict.fromkeys(dataset for dataset, _ in BLOCKS))

# (method, dataset, layout) -> test accuracy in %, its deviation, over how many runs.
# Read from the outputs in evaluations/analysis.ipynb of https://github.com/JinheonBaek/FED-PUB at
# 302980d, column "Acc @ Best Val All": the round of the best validation of each run.
PUBLISHED: dict[Cell, tuple[float, float, int]] = {
    ("FedAvg", "cora", "disjoint"): (68.80, 1.36, 2),
    ("FED-PUB", "cora", "disjoint"): (80.89, 0.05, 2),
    ("FedAvg", "cora", "overlapping-30"): (54.44, 0.0, 1),
    ("FED-PUB", "cora", "overlapping-30"): (75.70, 0.0, 1),
}
NAMES = {  # of methods that the matrix lacks, as their papers write them
    "adafgl": "AdaFGL",
    "ditto": "Ditto",
    "fedaux": "FedAux",
    "feddc": "FedDC",
    "feddep": "FedDEP",
    "feddyn": "FedDyn",
    "fedgm": "FedGM",
    "fedgta": "FedGTA",
    "fedhgn": "FedHGN",
    "fedproto": "FedProto",
    "fedspa": "FedSPA",
    "fedssp": "FedSSP",
    "fedtad": "FedTAD",
    "fedtgp": "FedTGP",
    "fggp": "FGGP",
    "opfgl": "O-pFGL",
    "s2fgl": "S2FGL",
}
WORDS = {  # the matrix's name of a method of the library
    "Local": "local",
    "FedOpt, Adam": "fedopt",
    "FED-PUB": "fedpub",
    "GCFL+": "gcfl-plus",
    "D-FedGNN": "ring",
    "FedSage+": "fedsage-plus",
}
# GCFL's bounds: once and twice the norm of FedAvg's mean update, and half of the longest one's, on
# Cora's disjoint clients at the tuning seed: .58 and 3.5 from round 20 on, at learning rate .01.
SPLITS = ({"eps1": 1.2, "eps2": 1.7}, {"eps1": 0.6, "eps2": 1.7})
# FedAMP: as it is published; and with a sigma near the squared distances of models there (3,500 to
# 5,400 at the tuning seed), steps of its size and a tenth of the pull, of three that were tried.
ATTENTIONS = ({"penalty": 1.0}, {"sigma": 4000.0, "server_lr": 1000.0, "penalty": 100.0})
OWN: dict[str, tuple[Values, ...]] = {  # by words; the others have the matrix' values
    "fedamp": ATTENTIONS,
    "fedpub": ({"scale": 3.0, "penalties": False}, {"scale": 10.0}),  # the public code, the paper
    "gcfl": SPLITS,
    "gcfl-plus": SPLITS,
}
FIXED: dict[str, Values] = {"fedper": {"shared": ("convs",)}, "fedsage-plus": SMALL}
FIXED |= {"feddep": {"gen_epochs": 20}}  # of 200, as FedSage+ has fewer
NEITHER = ("centralized",)  # is no federation


@dataclass(frozen=True)
class Entrant:
    """A method: how it is made, the word of its preset, its two values, what is fixed."""

    make: Make
    word: str = ""
    own: tuple[Values, ...] = ()
    fixed: Values = field(default_factory=dict)

    def trials(self) -> list[dict[str, Any]]:
        """Four trials."""
        if not self.own:
            return [{"lr": lr, **self.fixed} for lr in LRS]
        return [{"lr": lr, **self.fixed, **own} for lr in LRS[1:3] for own in self.own]

    def at(self, dataset: str, layout: str, values: Values, seed: int, rounds: int) -> Experiment:
        """A run; trials have half the rounds."""
        rounds = max(1, rounds // 2) if seed == TUNING_SEED else rounds
        run = Run(rounds=rounds, seed=seed)
        kind = tasks.SubgraphNodes
        setting = tasks.preset(self.word, kind, dataset=dataset, **SETTINGS[layout])
        known = flat(setting) | flat(run)
        options = {name: value for name, value in values.items() if name not in known}
        return Experiment(changed(setting, values), self.make, options, run)


def own_of(name: str, word: str) -> tuple[Values, ...]:
    """The two values of a method's own, if any."""
    own = OWN.get(word) or (ENTRIES[name].own if name in ENTRIES else None)
    return own if isinstance(own, tuple) else ()


@functools.cache
def entrants() -> dict[str, Entrant]:
    """Every method of the library by its name; a new one of `examples/baseline.py` is the last."""
    words = [word for word in BUILDERS if word not in NEITHER]
    named = {WORDS.get(name, name.lower()): name for name in ENTRIES}
    words.sort(key=lambda word: list(named).index(word) if word in named else 99)
    found = {}
    for word in words:
        name = named.get(word, NAMES.get(word, word))
        found[name] = Entrant(of_baseline(word), word, own_of(name, word), FIXED.get(word, {}))
    for name in ("FGSSL", "uniform", "GPFL"):  # those of the papers that run on any task
        found[name] = Entrant(ENTRIES[name].make, own=own_of(name, ""))
    first = ["FedAvg", "Local", "FED-PUB", "FedProx"]
    return {name: found[name] for name in dict.fromkeys([*first, *found])}


@functools.cache
def refusal(name: str, layout: str) -> str:
    """Why a method cannot run on this task, "" where it can: it is made once, on a small graph."""
    if name == "FedSage+":  # making it is training its generators
        return ""
    entrant = entrants()[name]
    trial = {**entrant.trials()[0], "hidden": 4}
    try:
        entrant.at("synthetic", layout, trial, 0, 1).load()
    except (TypeError, ValueError) as error:
        return str(error).splitlines()[0]
    return ""


def key(cell: Cell, rounds: int = ROUNDS) -> dict[str, Any]:
    """What a recorded cell is known by."""
    name, dataset, layout = cell
    return {"method": name, "dataset": dataset, "layout": layout, "rounds": rounds}


def cells() -> list[Cell]:
    """All cells, block after block; those with worse data and those beside them are the last."""
    blocks = [*BLOCKS, *WORSE_BLOCKS, *BESIDE_BLOCKS]
    return [(name, *block) for block in blocks for name in entrants()]
