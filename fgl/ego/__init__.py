"""Ego-graphs of a fixed shape (FedEgo): sampling, mixing, training and checks."""

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
