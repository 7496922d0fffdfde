"""Borders: the edges between clients that a partition cuts, and the degrees before the cut."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ..graph import Graph
from ..graph.checks import check_index
from ..kinds import typed


class Borders(NamedTuple):
    """The edges into one client's nodes that come from other clients, and its nodes' degrees.

    Args:
        edge: int64 ``[m]``, which edges of the whole graph they are.
        node: int64 ``[m]``, the client's own node, its place in the client's part.
        client: int64 ``[m]``, whose the other node is.
        neighbour: int64 ``[m]``, the other node, its place in that client's part.
        degree: int64 ``[num_nodes]``, the edges into each own node in the whole graph.

    Example:
        >>> none = torch.zeros(0, dtype=torch.int64)
        >>> Borders(none, none, none, none, torch.tensor([2])).degree
        tensor([2])
    """

    edge: Tensor
    node: Tensor
    client: Tensor
    neighbour: Tensor
    degree: Tensor


@typed
def borders(graph: Graph, parts: Sequence[Tensor]) -> list[Borders]:
    """Edges into each client of a disjoint partition that come from other clients.

    An undirected edge is two, one into each of its ends, so both clients have it. An edge from a
    node that no client holds is no border, but counts in the degree.

    Args:
        graph: the whole graph.
        parts: int64 node ids, one tensor per client; no node is in two of them.

    Returns:
        One `Borders` per client, in the order of the graph's edges.

    Raises:
        TypeError: if a part is not int64.
        ValueError: if a node id is out of range, or in two parts or twice in one.

    Example:
        >>> graph = fgl.Graph(torch.ones(3, 1), torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]))
        >>> first, second = borders(graph, [torch.tensor([0, 1]), torch.tensor([2])])
        >>> first.node, first.client, first.neighbour, first.degree
        (tensor([1]), tensor([1]), tensor([0]), tensor([1, 2]))

    Source: the cross-client edges of Yao et al., FedGCN, https://arxiv.org/abs/2201.12433
    """
    owner = torch.full((graph.num_nodes,), -1, dtype=torch.int64, device=graph.device)
    place = torch.full_like(owner, -1)
    for client, part in enumerate(parts):
        check_index("parts", part, (None,), graph.num_nodes)
        if part.unique().numel() != part.numel() or (owner[part] >= 0).any():
            raise ValueError("Expected parts to be disjoint, but got a node twice")
        owner[part] = client
        place[part] = torch.arange(part.numel(), device=graph.device)
    source, target = graph.edge_index
    degree = target.bincount(minlength=graph.num_nodes)
    cut = (owner[source] >= 0) & (owner[source] != owner[target])
    sides = []
    for client, part in enumerate(parts):
        edge = (cut & (owner[target] == client)).nonzero().squeeze(1)
        far = source[edge]
        sides.append(Borders(edge, place[target[edge]], owner[far], place[far], degree[part]))
    return sides
