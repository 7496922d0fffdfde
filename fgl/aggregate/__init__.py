"""Aggregates: functions that combine the tensors of K clients, stacked as ``[K, ...]``.

Results for equal values are bit-identical. The memory layout, the type of CPU and the number of
threads do not change a result. A stack and a list of the same K tensors give bit-identical results.
"""

from . import robust
from .mean import mean
from .mix import mix
from .server_step import server_step
from .simplex import project_to_simplex

__all__ = ["mean", "mix", "project_to_simplex", "robust", "server_step"]
