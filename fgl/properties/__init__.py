"""Properties: numbers that describe a graph, for one graph or for thousands at once."""

from .encodings import degree_one_hot, structure_encoding, walk_returns
from .measures import (
    PROPERTIES,
    average_degree,
    closeness,
    degree_variance,
    density,
    graph_properties,
    mean_properties,
    negative_scale_free_exponent,
    network_entropy,
)
from .spectrum import laplacian_spectrum

__all__ = [
    "PROPERTIES",
    "average_degree",
    "closeness",
    "degree_one_hot",
    "degree_variance",
    "density",
    "graph_properties",
    "laplacian_spectrum",
    "mean_properties",
    "negative_scale_free_exponent",
    "network_entropy",
    "structure_encoding",
    "walk_returns",
]
