"""Aggregates: functions of the clients' tensors, stacked as ``[K, ...]``.

The bits of a result depend on values alone: not on where tensors lie in memory, on whether they are
stacked or listed, on the processor or on its threads.
"""

from . import robust
from .mean import mean
from .mix import mix
from .server_step import server_step
from .simplex import project_to_simplex

__all__ = [
    "mean",
    "mix",
    "project_to_simplex",
    "robust",
    "server_step",
]
