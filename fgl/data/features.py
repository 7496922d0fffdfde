"""Feature matrices."""

from __future__ import annotations

import torch

from ..graph import Graph
from ..sparse import SparseMatrix, row_sum


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
    if isinstance(graph.x, SparseMatrix):
        pattern = graph.x.pattern
        value = pattern.ones(graph.x.dtype) if graph.x.value is None else graph.x.value
        total = row_sum(pattern, value)
        scale = torch.where(total == 0, 1, total).reciprocal()
        return graph.replace(x=graph.x.with_value(value * scale.index_select(0, pattern.row)))
    total = graph.x.sum(1, keepdim=True)
    return graph.replace(x=graph.x / torch.where(total == 0, 1, total))
