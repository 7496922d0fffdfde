"""Transforms, ``Method -> Method``: what stands between the clients of a method and its server."""

from .attacks import (
    attacked,
    flipped_labels,
    heavy,
    little_is_enough,
    negated_models,
    noise,
    scaled_updates,
)
from .robust import robust
from .secure_sum import clients_summed, secure_sum, summed_rounds

__all__ = [
    "attacked",
    "clients_summed",
    "flipped_labels",
    "heavy",
    "little_is_enough",
    "negated_models",
    "noise",
    "robust",
    "scaled_updates",
    "secure_sum",
    "summed_rounds",
]
