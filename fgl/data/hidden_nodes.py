"""Removal of nodes from a graph; the removed neighbours of each remaining node are recorded."""

from typing import NamedTuple

from torch import Tensor

from ..checks import check_index
from ..graph import Graph
from ..graph.neighbours import hidden_neighbours
from ..kinds import typed


class HiddenNodes(NamedTuple):
    """The graph of the remaining nodes, and the hidden neighbours of each remaining node.

    Args:
        graph: the graph of the n remaining nodes.
        missing: int64 ``[n]``, the number of hidden neighbours of each node.
        features: float ``[n, width, num_features]``; entry i holds the features of the first
            `width` hidden neighbours of node i. If node i has fewer than `width` hidden neighbours,
            the rest of entry i is 0.

    Example:
        >>> graph = fgl.Graph(torch.eye(2), torch.tensor([[0, 1], [1, 0]]))
        >>> HiddenNodes(*hide_nodes(graph, torch.tensor([1]), width=1)).missing
        tensor([1])
    """

    graph: Graph
    missing: Tensor
    features: Tensor


@typed
def hide_nodes(graph: Graph, nodes: Tensor, *, width: int = 5) -> HiddenNodes:
    """Remove `nodes` from a graph and record the hidden neighbours of the remaining nodes.

    Args:
        graph: a graph with dense or sparse features.
        nodes: int64 ``[m]``, ids of the nodes to remove, without repeats.
        width: the features of at most `width` hidden neighbours are recorded for each node.

    Raises:
        TypeError, ValueError: if `nodes` contains anything except ids of nodes in the graph.

    Example:
        >>> graph = fgl.Graph(torch.eye(3), torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]))
        >>> made = hide_nodes(graph, torch.tensor([2]), width=1)
        >>> made.graph.num_nodes, made.missing, made.features[1]
        (2, tensor([0, 1]), tensor([[0., 0., 1.]]))

    Source: Zhang et al. 2021, FedSage+, https://arxiv.org/abs/2106.13430
    """
    check_index("nodes", nodes, (None,), graph.num_nodes)
    stay, missing, features = hidden_neighbours(graph, nodes, width)
    return HiddenNodes(graph.subgraph(stay), missing, features)
