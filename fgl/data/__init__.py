"""Datasets, synthetic graphs, partitions into clients, splits into train, validation and test."""

from .asked_rows import asked_rows
from .borders import borders
from .client_folder import open_client, save_client
from .components import largest_component
from .copies import first_copies
from .damage import Damage, damaged, lose_edges, lose_features, move_edges, noisy_features
from .damaged_labels import lose_labels, wrong_labels
from .datasets import load, load_graphs, load_molecules
from .domains import one_space
from .download import download
from .features import degree_features, normalize_features
from .features_on_disk import map_features
from .hetero import from_hetero, to_hetero
from .hidden_nodes import HiddenNodes, hide_nodes
from .large import large_graph
from .made_up import bibliography, ratings
from .neighbour_sums import neighbour_sums
from .partitions import (
    PROPORTIONS,
    CutLoss,
    Skew,
    community_clients,
    cut_loss,
    dirichlet_partition,
    gpfl_partition,
    ldg_partition,
    leiden_partition,
    louvain_partition,
    major_label_partition,
    metis_partition,
    overlapping_partition,
    partition_graph,
    quantile_labels,
    random_partition,
    scaffold_partition,
    sorted_partition,
    union_graph,
)
from .readers.molecules import Molecules
from .readers.wiki_cs import read_wiki_cs
from .scaffolds import murcko_scaffolds
from .splits import (
    EdgeSplit,
    balanced_classes,
    class_capped_split,
    edge_split,
    fold_clients,
    negative_edges,
    pair_split,
    public_split,
    random_split,
    scaffold_split,
    split,
    split_by_time,
    stratified_folds,
    subgraph_split,
    with_negatives,
)
from .synthetic import csbm, small_graphs, small_molecules
from .typed import typed_graph, with_shared
from .typed_paths import metapaths

__all__ = [
    "PROPORTIONS",
    "CutLoss",
    "Damage",
    "EdgeSplit",
    "HiddenNodes",
    "Molecules",
    "Skew",
    "asked_rows",
    "balanced_classes",
    "bibliography",
    "borders",
    "class_capped_split",
    "community_clients",
    "csbm",
    "cut_loss",
    "damaged",
    "degree_features",
    "dirichlet_partition",
    "download",
    "edge_split",
    "first_copies",
    "fold_clients",
    "from_hetero",
    "gpfl_partition",
    "hide_nodes",
    "large_graph",
    "largest_component",
    "ldg_partition",
    "leiden_partition",
    "load",
    "load_graphs",
    "load_molecules",
    "lose_edges",
    "lose_features",
    "lose_labels",
    "louvain_partition",
    "major_label_partition",
    "map_features",
    "metapaths",
    "metis_partition",
    "move_edges",
    "murcko_scaffolds",
    "negative_edges",
    "neighbour_sums",
    "noisy_features",
    "normalize_features",
    "one_space",
    "open_client",
    "overlapping_partition",
    "pair_split",
    "partition_graph",
    "public_split",
    "quantile_labels",
    "random_partition",
    "random_split",
    "ratings",
    "read_wiki_cs",
    "save_client",
    "scaffold_partition",
    "scaffold_split",
    "small_graphs",
    "small_molecules",
    "sorted_partition",
    "split",
    "split_by_time",
    "stratified_folds",
    "subgraph_split",
    "to_hetero",
    "typed_graph",
    "union_graph",
    "with_negatives",
    "with_shared",
    "wrong_labels",
]
