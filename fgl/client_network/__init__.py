"""Networks of clients (GPFL): features of the clients, and who should learn from whom."""

from .autoencoder import (
    encode,
    init_encoder,
    link_cost,
    link_entropy,
    link_loss,
    link_probability,
    reconstruct,
)
from .features import functional_embedding, marginal_parameters, pooled_features, probe_graphs
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
    "encode",
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
    "property_network",
    "reconstruct",
    "running_network",
    "select_properties",
    "similarity",
]
