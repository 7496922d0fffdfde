"""Partitions: which client gets which nodes or graphs."""

from .communities import community_clients
from .dirichlet import dirichlet_partition, gpfl_partition
from .graphs import cut_loss, partition_graph, union_graph
from .ldg import ldg_partition
from .louvain import leiden_partition, louvain_partition
from .major_label import major_label_partition
from .metis import metis_partition
from .overlapping import PROPORTIONS, overlapping_partition
from .quantiles import quantile_labels
from .random import random_partition
from .scaffold import scaffold_partition
from .skewed import Skew, sorted_partition

__all__ = [
    "PROPORTIONS",
    "Skew",
    "community_clients",
    "cut_loss",
    "dirichlet_partition",
    "gpfl_partition",
    "ldg_partition",
    "leiden_partition",
    "louvain_partition",
    "major_label_partition",
    "metis_partition",
    "overlapping_partition",
    "partition_graph",
    "quantile_labels",
    "random_partition",
    "scaffold_partition",
    "sorted_partition",
    "union_graph",
]
