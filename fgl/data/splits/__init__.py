"""Training, validation and test splits of nodes, edges and molecules, and folds of graphs."""

from .edges import EdgeSplit, edge_split, negative_edges, subgraph_split
from .folds import balanced_classes, fold_clients, stratified_folds
from .negatives import with_negatives
from .nodes import class_capped_split, public_split, random_split, scaffold_split, split
from .pairs import pair_split, split_by_time
from .windows import windows

__all__ = [
    "EdgeSplit",
    "balanced_classes",
    "class_capped_split",
    "edge_split",
    "fold_clients",
    "negative_edges",
    "pair_split",
    "public_split",
    "random_split",
    "scaffold_split",
    "split",
    "split_by_time",
    "stratified_folds",
    "subgraph_split",
    "windows",
    "with_negatives",
]
