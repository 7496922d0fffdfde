"""Datasets, synthetic graphs, partitions into clients, splits into train, validation and test."""

from .datasets import load, load_graphs
from .dirichlet import balanced_classes, dirichlet_partition, fold_clients, stratified_folds
from .features import degree_features, normalize_features
from .files import download
from .link import EdgeSplit, edge_split, negative_edges
from .major import major_label_partition
from .partition import (
    PROPORTIONS,
    louvain_partition,
    overlapping_partition,
    partition_graph,
    random_partition,
    union_graph,
)
from .splits import CLASS_CAPPED, class_capped_split, public_split, random_split, split
from .synthetic import csbm, small_graphs
from .wiki_cs import read_wiki_cs

__all__ = [
    "CLASS_CAPPED",
    "PROPORTIONS",
    "EdgeSplit",
    "balanced_classes",
    "class_capped_split",
    "csbm",
    "degree_features",
    "dirichlet_partition",
    "download",
    "edge_split",
    "fold_clients",
    "load",
    "load_graphs",
    "louvain_partition",
    "major_label_partition",
    "negative_edges",
    "normalize_features",
    "overlapping_partition",
    "partition_graph",
    "public_split",
    "random_partition",
    "random_split",
    "read_wiki_cs",
    "small_graphs",
    "split",
    "stratified_folds",
    "union_graph",
]
