"""Graphs of a partition: one graph per client, or the union of all clients' graphs."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from ...checks import check_index, reject_if
from ...graph import Graph
from ...graph.fields import mask_of
from ...warn import warn
from ..features import map_features


def partition_graph(
    graph: Graph, parts: Sequence[Tensor], *, folder: str | os.PathLike[str] | None = None
) -> list[Graph]:
    """Build the clients' graphs: induced subgraphs with `node_id`, or collections of whole graphs.

    An edge or a pair is lost if no client has both of its nodes. `cut_loss` counts lost edges and
    pairs. Parts may overlap.

    Args:
        graph: the whole graph, or a collection.
        parts: for each client, an int64 tensor of node ids, or of graph ids if `graph` is a
            collection. Ids do not repeat within a tensor.
        folder: folder for the clients' features. The features of each client are written to a file
            (``0.x``, ``1.x``, ...) and read from this file when needed: see `map_features`. By
            default features stay in memory.

    Returns:
        One graph per part. The nodes of the graph have the same order as the ids in the part. If
        `graph` is a collection, the graphs of the new collection have this order.

    Warns:
        UserWarning: if more than half of the edges are lost, or more than half of the pairs in
            `edge_label_index`. Edges and pairs with a node that belongs to no client are not
            counted.

    Example:
        >>> graph = fgl.Graph(torch.ones(3, 1), torch.tensor([[0, 1], [1, 2]]))
        >>> clients = partition_graph(graph, [torch.tensor([1, 2]), torch.tensor([0])])
        >>> [(client.num_edges, client.node_id.tolist()) for client in clients]
        [(1, [1, 2]), (0, [0])]
    """
    if graph.batch is not None:
        return _stored((graph.select(part) for part in parts), folder)
    inside = _held(graph, parts)
    cuts = (graph.subgraph(part, own) for part, own in zip(parts, inside, strict=True))
    graphs = _stored(cuts, folder)
    _warn(_counts(graph, parts, inside))
    return graphs


class CutLoss(NamedTuple):
    """Numbers of edges, lost edges, pairs and lost pairs in a partition (see `cut_loss`).

    Example:
        >>> CutLoss(edges=4, lost_edges=1, pairs=0, lost_pairs=0).lost_edges
        1
    """

    edges: int
    lost_edges: int
    pairs: int
    lost_pairs: int


def cut_loss(graph: Graph, parts: Sequence[Tensor]) -> CutLoss:
    """Count the edges, and the pairs of `edge_label_index`, that a partition removes.

    An edge is lost if each of its ends belongs to some client, but no client has both ends.

    Args:
        graph: the whole graph.
        parts: int64 node ids, one tensor per client; parts may overlap.

    Returns:
        Four numbers. `edges` and `pairs` count all edges and pairs, except those with a node that
        belongs to no client. `lost_edges` and `lost_pairs` count the edges and the pairs that are
        lost.

    Raises:
        ValueError: if `graph` is a collection, since its graphs are never cut, or if a node id is
            invalid.

    Example:
        >>> graph = fgl.Graph(torch.ones(3, 1), torch.tensor([[0, 1], [1, 2]]))
        >>> cut_loss(graph, [torch.tensor([0, 1]), torch.tensor([2])])
        CutLoss(edges=2, lost_edges=1, pairs=0, lost_pairs=0)
    """
    reject_if(graph.batch is not None, "a graph without batch, since no graph is cut", "one")
    return _counts(graph, parts, _held(graph, parts))


def _held(graph: Graph, parts: Sequence[Tensor]) -> list[Tensor]:
    """Ids of the edges that each client holds."""
    owner = torch.full((graph.num_nodes,), -1, dtype=torch.int32, device=graph.device)
    for client, part in enumerate(parts):
        check_index("nodes", part, (None,), graph.num_nodes)
        owner[part] = client
    if int((owner >= 0).sum()) != sum(part.numel() for part in parts):  # parts overlap
        masks = (_inside(graph.edge_index, part, graph.num_nodes) for part in parts)
        return [mask.nonzero().squeeze(1) for mask in masks]
    edges, size = _edges_inside(graph.edge_index, owner, len(parts))
    return list(edges.split(size.tolist()))


def _inside(pairs: Tensor, part: Tensor, num_nodes: int) -> Tensor:
    """Bool mask of the pairs that have both ends in a part."""
    own = mask_of(part, num_nodes)
    return own[pairs[0]] & own[pairs[1]]


def _counts(graph: Graph, parts: Sequence[Tensor], inside: Sequence[Tensor]) -> CutLoss:
    questions, n = graph.edge_label_index, graph.num_nodes
    answered = [] if questions is None else [_inside(questions, part, n) for part in parts]
    anybody = torch.cat([*parts]) if parts else graph.edge_index[0, :0]
    counts = []
    for pairs, each in ((graph.edge_index, inside), (questions, answered)):
        if pairs is None:
            counts += [0, 0]
            continue
        covered = torch.zeros(pairs.shape[1], dtype=torch.bool, device=graph.device)
        for own in each:
            covered[own] = True
        whole = int(_inside(pairs, anybody, n).sum())
        counts += [whole, whole - int(covered.sum())]
    return CutLoss(*counts)


def _warn(counts: CutLoss) -> None:
    # Without numbers, Python shows the warning once per line of code, not once per seed.
    whole_lost = (("edges", *counts[:2]), ("pairs to answer", *counts[2:]))
    lost = [what for what, whole, lost in whole_lost if 2 * lost > whole]
    if lost:
        warn(
            f"The cut loses most of the {' and '.join(lost)}, whose ends are of two clients: "
            "cut_loss(graph, parts) counts them; metis_partition, or louvain_partition with a "
            "small delta, cuts fewer",
        )


def _stored(graphs: Iterable[Graph], folder: str | os.PathLike[str] | None) -> list[Graph]:
    """Return the graphs; if a folder is given, move the graphs' features to memory-mapped files."""
    if folder is None:
        return list(graphs)
    return [map_features(own, Path(folder, f"{client}.x")) for client, own in enumerate(graphs)]


def _edges_inside(edge_index: Tensor, owner: Tensor, num_parts: int) -> tuple[Tensor, Tensor]:
    """Ids of the edges with both ends in one part, sorted by part, and the number of ids per part.

    The parts must be disjoint. Every edge is then read only once, and not once per part.
    """
    source, target = owner[edge_index[0]], owner[edge_index[1]]
    edges = ((source == target) & (source >= 0)).nonzero().squeeze(1)
    part = source[edges]
    return edges[part.argsort(stable=True)], part.bincount(minlength=num_parts)


def union_graph(graph: Graph, parts: Sequence[Tensor]) -> Graph:
    """The union of the clients' graphs: every node and every edge that at least one client holds.

    Args:
        graph: the whole graph.
        parts: int64 node ids, one tensor per client.

    Returns:
        The subgraph, with nodes sorted by their ids (`node_id`). An edge is missing from the union
        if no client holds both of the edge's ends.

    Example:
        >>> graph = fgl.Graph(torch.ones(4, 1), torch.tensor([[0, 1, 2], [1, 2, 3]]))
        >>> union = union_graph(graph, [torch.tensor([0, 1]), torch.tensor([2])])
        >>> union.num_nodes, union.edge_index.tolist()
        (3, [[0], [1]])

    Source: FedGL, Information Sciences 2024
    """
    covered = torch.zeros(graph.num_edges, dtype=torch.bool, device=graph.device)
    for part in parts:
        covered |= mask_of(part, graph.num_nodes)[graph.edge_index].all(0)
    nodes = torch.cat([graph.edge_index[0, :0], *parts]).unique()
    return graph.with_edges(covered).subgraph(nodes)
