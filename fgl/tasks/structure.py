"""Structural features: columns that a model reads together with a node's own features."""

import torch

from ..graph import Graph
from ..kinds import typed
from ..properties import laplacian_spectrum, structure_encoding


@typed
def with_structure(graph: Graph) -> Graph:
    """The graph or collection with 32 more feature columns: its `structure_encoding`.

    Features become dense. The encodings use only edges of the graph itself, so a client's encodings
    reveal nothing about edges to other clients.

    Args:
        graph: a graph, or a collection whose graphs are encoded separately.

    Returns:
        A graph with ``x`` of shape ``[num_nodes, num_features + 32]`` and the same dtype.

    Example:
        >>> graph = fgl.Graph(torch.ones(3, 4), torch.tensor([[0, 1], [1, 0]]))
        >>> with_structure(graph).x.shape
        torch.Size([3, 36])

    Source: Tan et al. 2023, https://arxiv.org/abs/2211.13009
    """
    x = graph.x.to_dense()
    nodes = graph.num_nodes if graph.batch is None else graph.batch
    return graph.replace(x=torch.cat([x, structure_encoding(graph.edge_index, nodes).to(x)], dim=1))


@typed
def with_spectrum(graph: Graph, width: int | None = None) -> Graph:
    """The graph or collection with more feature columns: its `laplacian_spectrum`.

    Features become dense. The spectrum uses only edges of the graph itself.

    Args:
        graph: a graph, or a collection, for which each graph's spectrum is computed separately.
        width: number of columns for eigenvectors; default the number of nodes of the largest graph.

    Returns:
        A graph with ``x`` of shape ``[num_nodes, num_features + 1 + width]`` and the same dtype.

    Example:
        >>> graph = fgl.Graph(torch.ones(3, 4), torch.tensor([[0, 1], [1, 0]]))
        >>> with_spectrum(graph).x.shape
        torch.Size([3, 8])

    Source: Tan et al. 2024 (FedSSP), https://arxiv.org/abs/2410.20105
    """
    x = graph.x.to_dense()
    nodes = graph.num_nodes if graph.batch is None else graph.batch
    spectrum = laplacian_spectrum(graph.edge_index, nodes, width=width)
    return graph.replace(x=torch.cat([x, spectrum.to(x)], dim=1))
