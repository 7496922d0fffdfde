"""Networks of clients (GPFL, GCFL): their features, who learns from whom, who goes apart."""

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
from .features import functional_embedding, marginal_parameters, pooled_features, probe_graphs
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
    "dtw_distances",
    "encode",
    "functional_embedding",
    "init_encoder",
    "link_cost",
    "link_entropy",
    "link_loss",
    "link_probability",
    "marginal_parameters",
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
