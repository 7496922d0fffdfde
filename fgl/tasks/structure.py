"""Structural features: columns that a model reads in addition to a node's features."""

import torch

from ..graph import Graph
from ..properties import laplacian_spectrum, structure_encoding


def with_structure(graph: Graph) -> Graph:
    """A graph or collection with 32 added feature columns, computed by `structure_encoding`.

    Features become dense. The encodings depend only on edges in the given graph. So the encodings
    of a client's graph do not depend on edges between this client and other clients.

    Args:
        graph: a graph, or a collection; every graph of a collection is encoded separately.

    Returns:
        A graph with ``x`` of shape ``[num_nodes, num_features + 32]`` and the dtype of the given
        ``x``.

    Example:
        >>> graph = fgl.Graph(torch.ones(3, 4), torch.tensor([[0, 1], [1, 0]]))
        >>> with_structure(graph).x.shape
        torch.Size([3, 36])

    Source: Tan et al. 2023, https://arxiv.org/abs/2211.13009
    """
    x = graph.x.to_dense()
    nodes = graph.num_nodes if graph.batch is None else graph.batch
    return graph.replace(x=torch.cat([x, structure_encoding(graph.edge_index, nodes).to(x)], dim=1))


def with_spectrum(graph: Graph, width: int | None = None) -> Graph:
    """A graph or collection with added feature columns, computed by `laplacian_spectrum`.

    Features become dense. The spectrum depends only on edges in the given graph.

    Args:
        graph: a graph, or a collection; the spectrum of every graph in a collection is computed
            separately.
        width: number of columns for eigenvectors; by default the number of nodes of the largest
            graph.

    Returns:
        A graph with ``x`` of shape ``[num_nodes, num_features + 1 + width]`` and the dtype of the
        given ``x``.

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
