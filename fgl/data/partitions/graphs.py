"""Graphs of the clients of a partition, each alone or all together."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch
from torch import Tensor

from ...graph import Graph
from ...graph.arguments import takes_graph
from ...graph.checks import check_index
from ..features_on_disk import map_features


@takes_graph
def partition_graph(
    graph: Graph, parts: Sequence[Tensor], *, folder: str | os.PathLike[str] | None = None
) -> list[Graph]:
    """The clients' graphs: induced subgraphs, each with `node_id`, or graphs of a collection.

    Edges between clients are lost; parts may overlap.

    Args:
        graph: the whole graph, or a collection.
        parts: int64 ids of nodes, or of a collection's graphs, one tensor per client, without
            repeats.
        folder: where each client's features go, to a file of its own (``0.x``, ``1.x``, ...), of
            which they are mapped: see `map_features`. Default: they stay in memory.

    Returns:
        One graph per part, its nodes in the order of the part.

    Example:
        >>> graph = fgl.Graph(torch.ones(3, 1), torch.tensor([[0, 1], [1, 2]]))
        >>> clients = fgl.data.partition_graph(graph, [torch.tensor([1, 2]), torch.tensor([0])])
        >>> [(client.num_edges, client.node_id.tolist()) for client in clients]
        [(1, [1, 2]), (0, [0])]
    """
    if graph.batch is not None:
        return _stored((graph.select(part) for part in parts), folder)
    owner = torch.full((graph.num_nodes,), -1, dtype=torch.int32, device=graph.device)
    for client, part in enumerate(parts):
        check_index("nodes", part, (None,), graph.num_nodes)
        owner[part] = client
    if int((owner >= 0).sum()) != sum(part.numel() for part in parts):  # they overlap
        cuts = (graph.subgraph(part) for part in parts)
    else:
        edges, size = _edges_inside(graph.edge_index, owner, len(parts))
        inside = edges.split(size.tolist())
        cuts = (graph.subgraph(part, own) for part, own in zip(parts, inside, strict=True))
    return _stored(cuts, folder)


def _stored(graphs: Iterable[Graph], folder: str | os.PathLike[str] | None) -> list[Graph]:
    """The graphs, their features in files where there is a folder for them."""
    if folder is None:
        return list(graphs)
    return [map_features(own, Path(folder, f"{client}.x")) for client, own in enumerate(graphs)]


def _edges_inside(edge_index: Tensor, owner: Tensor, num_parts: int) -> tuple[Tensor, Tensor]:
    """Ids of the edges inside disjoint parts, part after part, and how many each has.

    All edges are looked at once, not once per part.
    """
    source, target = owner[edge_index[0]], owner[edge_index[1]]
    edges = ((source == target) & (source >= 0)).nonzero().squeeze(1)
    part = source[edges]
    return edges[part.argsort(stable=True)], part.bincount(minlength=num_parts)


@takes_graph
def union_graph(graph: Graph, parts: Sequence[Tensor]) -> Graph:
    """All that the clients hold together: their nodes, and the edges that at least one holds.

    Args:
        graph: the whole graph.
        parts: int64 node ids, one tensor per client.

    Returns:
        The subgraph, its nodes in order of their id, with `node_id`; an edge between two clients'
        nodes that none of them holds as a whole is lost.

    Example:
        >>> graph = fgl.Graph(torch.ones(4, 1), torch.tensor([[0, 1, 2], [1, 2, 3]]))
        >>> union = fgl.data.union_graph(graph, [torch.tensor([0, 1]), torch.tensor([2])])
        >>> union.num_nodes, union.edge_index.tolist()
        (3, [[0], [1]])

    Source: FedGL, Information Sciences 2024
    """
    seen = torch.zeros(graph.num_edges, dtype=torch.bool, device=graph.device)
    nodes = torch.zeros(graph.num_nodes, dtype=torch.bool, device=graph.device)
    for part in parts:
        own = torch.zeros_like(nodes)
        own[part] = True
        nodes |= own
        seen |= own[graph.edge_index].all(0)
    union: Graph = graph.with_edges(seen).subgraph(nodes.nonzero().squeeze(1))
    return union
