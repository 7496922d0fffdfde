"""Networks of clients: features of the clients, and who should learn how much from whom."""

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
from .features import (
    flat_parameters,
    functional_embedding,
    marginal_parameters,
    pooled_features,
    probe_graphs,
)
from .network import (
    discretise,
    normalize_rows,
    property_network,
    running_network,
    select_properties,
    similarity,
)
from .simplex import project_to_simplex

__all__ = [
    "discretise",
    "distance_attention",
    "encode",
    "flat_parameters",
    "functional_embedding",
    "init_encoder",
    "link_cost",
    "link_entropy",
    "link_loss",
    "link_probability",
    "marginal_parameters",
    "normalize_rows",
    "pooled_features",
    "probe_graphs",
    "project_to_simplex",
    "property_network",
    "reconstruct",
    "running_network",
    "select_properties",
    "similarity",
    "softmax_attention",
]
