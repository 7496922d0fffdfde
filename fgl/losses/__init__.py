"""Losses: pure functions of tensors."""

from .contrastive import node_contrast, unit_rows
from .distillation import structure_distillation
from .penalty import proximal
from .supervised import cross_entropy

__all__ = [
    "cross_entropy",
    "node_contrast",
    "proximal",
    "structure_distillation",
    "unit_rows",
]
