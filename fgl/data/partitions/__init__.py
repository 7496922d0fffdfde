"""Partitions: assignments of nodes or graphs to clients."""

from ..scaffolds import scaffold_partition
from ..triples import relation_partition
from .cuts import ldg_partition, leiden_partition, louvain_partition, metis_partition
from .graphs import cut_loss, partition_graph, union_graph
from .major_label import major_label_partition
from .random import PROPORTIONS, community_clients, overlapping_partition, random_partition
from .skewed import Skew, dirichlet_partition, gpfl_partition, quantile_labels, sorted_partition

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
    "relation_partition",
    "scaffold_partition",
    "sorted_partition",
    "union_graph",
]
