"""Datasets, synthetic graphs, partitions into clients, and training, validation and test splits."""

from . import partitions, splits
from .client_folder import open_client, save_client
from .copies import first_copies
from .damage import (
    Damage,
    damaged,
    lose_edges,
    lose_features,
    lose_labels,
    move_edges,
    noisy_features,
    wrong_labels,
)
from .datasets import load, load_graphs, load_molecules
from .download import download
from .features import degree_features, map_features, normalize_features, one_space
from .hetero import from_hetero, from_link_split, to_hetero
from .large import large_graph
from .neighbour_sums import asked_rows, borders, neighbour_sums
from .scaffolds import murcko_scaffolds
from .synthetic import bibliography, csbm, ratings, small_graphs, small_molecules
from .tables import from_tables, typed_tables
from .triples import load_triples
from .typed import metapaths, typed_graph, with_shared
from .undirected import largest_component

__all__ = [
    "Damage",
    "asked_rows",
    "bibliography",
    "borders",
    "csbm",
    "damaged",
    "degree_features",
    "download",
    "first_copies",
    "from_hetero",
    "from_link_split",
    "from_tables",
    "large_graph",
    "largest_component",
    "load",
    "load_graphs",
    "load_molecules",
    "load_triples",
    "lose_edges",
    "lose_features",
    "lose_labels",
    "map_features",
    "metapaths",
    "move_edges",
    "murcko_scaffolds",
    "neighbour_sums",
    "noisy_features",
    "normalize_features",
    "one_space",
    "open_client",
    "partitions",
    "ratings",
    "save_client",
    "small_graphs",
    "small_molecules",
    "splits",
    "to_hetero",
    "typed_graph",
    "typed_tables",
    "with_shared",
    "wrong_labels",
]
