"""Ego-graphs of one shape: how they are drawn, mixed, trained on and checked (FedEgo)."""

from .trees import EgoSampler, check_steps, levels, mash, resample, tree_minibatches
from .uploads import check_mashed, mashed_check

__all__ = [
    "EgoSampler",
    "check_mashed",
    "check_steps",
    "levels",
    "mash",
    "mashed_check",
    "resample",
    "tree_minibatches",
]
