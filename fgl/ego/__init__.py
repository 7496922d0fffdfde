"""Ego-graphs of one shape: how they are drawn, mixed, trained on and checked (FedEgo)."""

from .trees import EgoSampler, check_steps, levels, mash, resample, training_trees, tree_minibatches
from .uploads import mashed_check

__all__ = [
    "EgoSampler",
    "check_steps",
    "levels",
    "mash",
    "mashed_check",
    "resample",
    "training_trees",
    "tree_minibatches",
]
