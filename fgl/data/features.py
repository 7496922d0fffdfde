"""Features of nodes: rows of sum 1, and degrees for nodes that have none."""

from __future__ import annotations

import torch
from torch import Tensor

from ..graph import Graph
from ..graph.windows import check_no_series
from ..kinds import typed
from ..sparse import SparseMatrix, row_sum
from ..sparse.pattern import Pattern

DEGREES = 64


@typed
def normalize_features(graph: Graph) -> Graph:
    """Rows of the features divided by their sums, as in Kipf & Welling's GCN.

    Args:
        graph: features non-negative; a row of zeros stays.

    Returns:
        The graph with float features of row sums 1 or 0.

    Example:
        >>> graph = fgl.Graph(torch.tensor([[1.0, 3.0], [0.0, 0.0]]), torch.tensor([[0], [1]]))
        >>> normalize_features(graph).x
        tensor([[0.2500, 0.7500],
                [0.0000, 0.0000]])

    Source: https://arxiv.org/abs/1609.02907
    """
    check_no_series(graph, "normalize_features")
    if isinstance(graph.x, SparseMatrix):
        pattern = graph.x.pattern
        value = graph.x.values
        total = row_sum(pattern, value)
        scale = torch.where(total == 0, 1, total).reciprocal()
        return graph.replace(x=graph.x.with_value(value * scale.index_select(0, pattern.row)))
    total = graph.x.sum(1, keepdim=True)
    return graph.replace(x=graph.x / torch.where(total == 0, 1, total))


@typed
def degree_features(graph: Graph) -> Graph:
    """Features for nodes that have none: the degree in this very graph, one-hot.

    So a graph of training edges reveals no other edge; degrees in the whole graph would.

    Args:
        graph: both directions of every edge.

    Returns:
        The graph with features `SparseMatrix` ``[num_nodes, 64]``, the last column for 63 and more.

    Example:
        >>> edges = torch.tensor([[0, 1], [1, 0]])
        >>> degree_features(fgl.Graph(torch.ones(3, 1), edges)).x.to_dense()[:, :3]
        tensor([[0., 1., 0.],
                [0., 1., 0.],
                [1., 0., 0.]])

    Source: FedVGAE, IEEE Transactions on Big Data 2024, for PolBlogs
    """
    x = one_hot_degree(graph.edge_index.cpu(), graph.num_nodes).to(graph.device)
    return graph.replace(x=x.using(str(graph.backend)))


def one_hot_degree(edge_index: Tensor, num_nodes: int) -> SparseMatrix:
    """Features of nodes that have none: the degree, one-hot, 63 standing for all above too."""
    degree = edge_index[1].bincount(minlength=num_nodes).clamp(max=DEGREES - 1)
    pattern = Pattern(torch.arange(num_nodes + 1), degree, (num_nodes, DEGREES))
    return SparseMatrix(pattern, torch.ones(num_nodes))
