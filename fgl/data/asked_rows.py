"""Rows of sums that clients ask each other for, so that every row is a sum over clients."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ..graph import Graph
from ..kinds import typed
from ..sparse.matrix import dense

Total = Callable[[Sequence[Graph]], tuple[Sequence[Tensor], int]]


@typed
def asked_rows(graph: Graph, parts: Sequence[Tensor], asked: Sequence[Tensor]) -> list[Graph]:
    """Graphs of what each client adds to the rows that all clients ask for.

    Row (k, v) is ``sum_u [x_u / sqrt(d_u), 1]`` over node v, which client k asks for, and its
    neighbours u, with ``d_u`` the edges into u and one. A client's graph has its own nodes, then a
    node without features for each row; edges go from own nodes into the rows that they belong to.
    So what the client adds is ``adj @ x`` of those rows.

    Args:
        graph: the whole graph, without weights.
        parts: int64 node ids, one tensor per client.
        asked: int64 node ids, those whose sums each client asks for.

    Returns:
        A graph per client, with float64 features ``[n + R, F + 1]``; `train_mask` are its own rows.

    Raises:
        ValueError: if the graph has weights.

    Example:
        >>> graph = fgl.Graph(torch.eye(2), torch.tensor([[0, 1], [1, 0]]))
        >>> one, two = asked_rows(graph, [torch.tensor([0]), torch.tensor([1])],
        ...                       [torch.tensor([0]), torch.tensor([], dtype=torch.int64)])
        >>> (two.adj.astype(torch.float64) @ two.x)[1]
        tensor([0.0000, 0.7071, 1.0000], dtype=torch.float64)

    Source: Yao et al., FedGCN, https://arxiv.org/abs/2201.12433
    """
    if graph.edge_weight is not None:
        raise ValueError("Expected a graph without edge_weight, but got one with it")
    source, target = graph.edge_index
    degree = target.bincount(minlength=graph.num_nodes) + 1
    owner, place = torch.full_like(degree, -1), torch.zeros_like(degree)
    for client, part in enumerate(parts):
        owner[part] = client
        place[part] = torch.arange(part.numel(), device=graph.device)
    rows = torch.cat(list(asked))
    # Edges into the nodes of the rows, each node with itself: as often as it is asked for.
    order = target.argsort(stable=True)
    counts = degree - 1
    first = counts.cumsum(0) - counts
    row = torch.arange(len(rows), device=graph.device).repeat_interleave(counts[rows])
    step = torch.arange(len(row), device=graph.device)
    start = first[rows] - (counts[rows].cumsum(0) - counts[rows])
    into = source[order[step + start.repeat_interleave(counts[rows])]]
    into = torch.cat([into, rows])
    row = torch.cat([row, torch.arange(len(rows), device=graph.device)])
    wanting = torch.arange(len(parts), device=graph.device).repeat_interleave(
        torch.tensor([len(ids) for ids in asked], device=graph.device)
    )
    uploads = []
    for client, part in enumerate(parts):
        own = owner[into] == client
        x = dense(graph.x)[part].double() / degree[part].sqrt()[:, None]
        x = torch.cat([x, torch.ones_like(x[:, :1])], 1)
        x = torch.cat([x, x.new_zeros(len(rows), x.shape[1])])
        edges = torch.stack([place[into[own]], part.numel() + row[own]])
        mask = torch.cat([torch.zeros_like(part, dtype=torch.bool), wanting == client])
        uploads.append(Graph(x, edges, train_mask=mask))
    return uploads
