"""Properties: numbers that describe a graph, for one graph or for thousands at once."""

from .encodings import structure_encoding
from .measures import graph_properties, mean_properties
from .spectrum import laplacian_spectrum

__all__ = [
    "graph_properties",
    "laplacian_spectrum",
    "mean_properties",
    "structure_encoding",
]
