"""Robust means: aggregates that limit the influence of hostile clients.

Like `fgl.aggregate.mean`, each function takes a dict of stacked tensors ``[K, ...]`` and returns a
dict of tensors ``[...]``. The input must not contain NaN. All functions ignore weights, because a
client can claim any number of examples. Several functions have the argument ``bad``: an upper bound
on the number of hostile clients. These functions raise an error if the robust mean cannot withstand
this number of hostile clients. The distance between two clients is computed in double precision
from all floating-point entries of both clients.
"""

from .clipping import centred_clipping, norm_bound
from .geometric_median import geometric_median
from .krum import krum, multi_krum
from .median import median, trimmed_mean
from .mixing import bucket_means, nearest_means
from .stacks import TooManyBad

__all__ = [
    "TooManyBad",
    "bucket_means",
    "centred_clipping",
    "geometric_median",
    "krum",
    "median",
    "multi_krum",
    "nearest_means",
    "norm_bound",
    "trimmed_mean",
]
