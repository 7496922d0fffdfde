"""Tables of neighbours and of their features; every node has the same number of slots."""

from typing import Any

import torch
from torch import Tensor

from ..sparse.matrix import dense, rows_of
from .fields import mask_of


def neighbour_table(edge_index: Tensor, num_nodes: int, width: int) -> tuple[Tensor, Tensor]:
    """The first neighbours of each node, in the order of the edges that lead to the node.

    Args:
        edge_index: int64 ``[2, num_edges]``.
        num_nodes: number of nodes.
        width: number of slots for neighbours in each row.

    Returns:
        int64 ``[num_nodes, width]``, with 0 for an empty slot; and int64 ``[num_nodes]``, the
        number of used slots in each row.

    Example:
        >>> neighbour_table(torch.tensor([[2, 1, 0], [0, 0, 1]]), num_nodes=3, width=2)
        (tensor([[2, 1],
                [0, 0],
                [0, 0]]), tensor([2, 1, 0]))
    """
    source, target = edge_index[:, edge_index[1].argsort(stable=True)]
    number = target.bincount(minlength=num_nodes)
    start = number.cumsum(0) - number
    place = torch.arange(target.numel(), device=target.device) - start[target]
    fits = place < width
    table = source.new_zeros(num_nodes, width)
    table[target[fits], place[fits]] = source[fits]
    return table, number.clamp(max=width)


def neighbour_features(graph: Any, table: Tensor, number: Tensor) -> Tensor:
    """Dense features of the nodes in a table; the features of an empty slot are 0.

    Args:
        graph: the graph with the features.
        table: int64 ``[n, width]``, nodes.
        number: int64 ``[n]``, the number of used slots in each row.

    Returns:
        float ``[n, width, num_features]``.

    Example:
        >>> graph = fgl.Graph(torch.eye(2), torch.zeros(2, 0, dtype=torch.int64))
        >>> neighbour_features(graph, torch.tensor([[1, 0]]), torch.tensor([1]))
        tensor([[[0., 1.],
                 [0., 0.]]])
    """
    rows = dense(rows_of(graph.x, table.flatten()))
    filled = torch.arange(table.shape[1], device=table.device) < number[:, None]
    features: Tensor = rows.unflatten(0, table.shape) * filled[..., None]
    return features


def hidden_neighbours(
    graph: Any, nodes: Tensor, width: int, rows: Any = None
) -> tuple[Tensor, Tensor, Tensor]:
    """The neighbours that each remaining node loses when the given nodes are removed from a graph.

    Returns:
        Three tensors: the ids of the n remaining nodes, int64 ``[n]``; each remaining node's number
        of removed neighbours, int64 ``[n]``; and the features of each remaining node's first
        removed neighbours, float ``[n, width, num_features]``, padded with zeros. If the graph
        `rows` is given, the features are taken from `rows`.
    """
    hidden = mask_of(nodes, graph.num_nodes)
    stay = (~hidden).nonzero().squeeze(1)
    source, target = graph.edge_index
    lost = graph.edge_index[:, hidden[source] & ~hidden[target]]
    table, number = neighbour_table(lost, graph.num_nodes, width)
    missing = lost[1].bincount(minlength=graph.num_nodes)[stay]
    features = neighbour_features(rows or graph, table[stay], number[stay])
    return stay, missing, features
