"""Networks of clients: features of clients, weights for mixing clients, and cuts of a network."""

from .autoencoder import reconstruct
from .features import flat_parameters, functional_embedding, pooled_features, probe_graphs
from .grouping import dtw_distances, finch, min_cut
from .network import (
    discretise,
    normalize_rows,
    property_network,
    running_network,
    select_properties,
    similarity,
)

__all__ = [
    "discretise",
    "dtw_distances",
    "finch",
    "flat_parameters",
    "functional_embedding",
    "min_cut",
    "normalize_rows",
    "pooled_features",
    "probe_graphs",
    "property_network",
    "reconstruct",
    "running_network",
    "select_properties",
    "similarity",
]
