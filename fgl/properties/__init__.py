"""Properties: numbers that describe a graph, computed for one graph or for many at once."""

from .encodings import laplacian_spectrum, structure_encoding
from .measures import graph_properties, mean_properties

__all__ = ["graph_properties", "laplacian_spectrum", "mean_properties", "structure_encoding"]
