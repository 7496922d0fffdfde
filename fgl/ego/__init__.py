"""Ego-graphs of a fixed shape: functions to sample, mix, train on and check them (FedEgo)."""

from .trees import EgoSampler, check_steps, mash, resample, training_trees, tree_minibatches
from .uploads import mashed_check

__all__ = [
    "EgoSampler",
    "check_steps",
    "mash",
    "mashed_check",
    "resample",
    "training_trees",
    "tree_minibatches",
]
