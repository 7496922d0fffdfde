"""Properties: numbers that describe a graph, for one graph or for thousands at once."""

from .encodings import degree_one_hot, structure_encoding, walk_returns
from .measures import PROPERTIES, graph_properties, mean_properties
from .spectrum import laplacian_spectrum

__all__ = [
    "PROPERTIES",
    "degree_one_hot",
    "graph_properties",
    "laplacian_spectrum",
    "mean_properties",
    "structure_encoding",
    "walk_returns",
]
