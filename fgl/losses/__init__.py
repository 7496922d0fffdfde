"""Losses: pure functions of tensors."""

from .cross_entropy import binary_cross_entropy, cross_entropy, soft_cross_entropy
from .errors import absolute_error, huber, squared_error
from .model_contrast import model_contrast
from .nearest_features import nearest_features
from .node_contrast import node_contrast
from .pair_scores import pair_scores
from .proximal import distance_per_entry, proximal
from .ranking import ranking
from .reconstruction_loss import kl_divergence, reconstruction_loss, sampled_reconstruction
from .structure_distillation import structure_distillation
from .unit_rows import unit_rows

__all__ = [
    "absolute_error",
    "binary_cross_entropy",
    "cross_entropy",
    "distance_per_entry",
    "huber",
    "kl_divergence",
    "model_contrast",
    "nearest_features",
    "node_contrast",
    "pair_scores",
    "proximal",
    "ranking",
    "reconstruction_loss",
    "sampled_reconstruction",
    "soft_cross_entropy",
    "squared_error",
    "structure_distillation",
    "unit_rows",
]
