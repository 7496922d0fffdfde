"""Aggregates: functions that combine the tensors of K clients, stacked as ``[K, ...]``.

The bits of a result depend only on the values. The bits do not depend on the memory layout, on the
type of CPU or on the number of threads. A stack and a list of the same K tensors give bit-identical
results.
"""

from . import robust
from .mean import mean
from .mix import mix
from .server_step import server_step
from .simplex import project_to_simplex

__all__ = ["mean", "mix", "project_to_simplex", "robust", "server_step"]
