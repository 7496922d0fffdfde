"""Datasets, synthetic graphs, partitions into clients, splits into train, validation and test."""

from .datasets import load
from .files import download
from .partition import louvain_partition, partition_graph, random_partition
from .splits import CLASS_CAPPED, class_capped_split, public_split, random_split, split
from .synthetic import csbm

__all__ = [
    "CLASS_CAPPED",
    "class_capped_split",
    "csbm",
    "download",
    "load",
    "louvain_partition",
    "partition_graph",
    "public_split",
    "random_partition",
    "random_split",
    "split",
]
