"""Robust means: aggregates that withstand some hostile clients.

Each takes what `fgl.aggregate.mean` takes, a name to ``[K, ...]``, without NaN, and gives a name to
``[...]``. None looks at weights: a client can claim any number of examples. Several need
``bad``, how many of the K clients may be hostile, and refuse more than their theory allows.
Distances are over all floating-point entries of a client together, in double.
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
