"""Losses: pure functions of tensors."""

from .contrastive import node_contrast, unit_rows
from .distillation import structure_distillation
from .model_contrast import model_contrast
from .penalty import distance_per_entry, proximal
from .reconstruction import (
    dense_reconstruction,
    kl_divergence,
    pair_scores,
    reconstruction_loss,
    sampled_reconstruction,
)
from .supervised import cross_entropy, soft_cross_entropy

__all__ = [
    "cross_entropy",
    "dense_reconstruction",
    "distance_per_entry",
    "kl_divergence",
    "model_contrast",
    "node_contrast",
    "pair_scores",
    "proximal",
    "reconstruction_loss",
    "sampled_reconstruction",
    "soft_cross_entropy",
    "structure_distillation",
    "unit_rows",
]
