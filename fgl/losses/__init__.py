"""Losses: pure functions of tensors."""

from .contrastive import node_contrast, unit_rows
from .distillation import structure_distillation
from .penalty import distance_per_entry, proximal
from .supervised import cross_entropy, soft_cross_entropy

__all__ = [
    "cross_entropy",
    "distance_per_entry",
    "node_contrast",
    "proximal",
    "soft_cross_entropy",
    "structure_distillation",
    "unit_rows",
]
