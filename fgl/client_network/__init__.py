"""Networks of clients: features of clients, shares in each other's models, and cuts."""

from .attention import distance_attention, softmax_attention
from .autoencoder import (
    encode,
    init_encoder,
    link_cost,
    link_entropy,
    link_loss,
    link_probability,
    reconstruct,
)
from .dtw import dtw_distances
from .features import flat_parameters, functional_embedding, pooled_features, probe_graphs
from .finch import finch, nearest_rows
from .min_cut import min_cut
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
    "distance_attention",
    "dtw_distances",
    "encode",
    "finch",
    "flat_parameters",
    "functional_embedding",
    "init_encoder",
    "link_cost",
    "link_entropy",
    "link_loss",
    "link_probability",
    "min_cut",
    "nearest_rows",
    "normalize_rows",
    "pooled_features",
    "probe_graphs",
    "property_network",
    "reconstruct",
    "running_network",
    "select_properties",
    "similarity",
    "softmax_attention",
]
