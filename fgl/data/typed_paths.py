"""Paths over the relations of a typed graph, as relations (HAN's metapaths)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..graph import Graph
from ..kinds import typed


@typed
def metapaths(graph: Graph, paths: Sequence[Sequence[int]]) -> Graph:
    """A graph whose relations are paths over the relations of a typed graph.

    Relation k joins u to v where a path leads from u to v whose edges have the types
    ``paths[k]``, one after the other: the pattern of ``A_{r_m} ... A_{r_1}``. Pairs are joined
    once, and a node to itself where a path leads back.

    Args:
        graph: with `edge_type`.
        paths: types of edges, each path at least one.

    Returns:
        The graph with these edges, their `edge_type` the number of the path, and no other fields of
        edges.

    Raises:
        ValueError: if edges have no types, or a path is empty.

    Example:
        >>> by = {("paper", "by", "author"): torch.tensor([[0, 1], [0, 0]])}
        >>> graph = fgl.data.typed_graph({"paper": 2, "author": 1}, by, both=True)
        >>> metapaths(graph, [[0, 1]]).edge_index
        tensor([[0, 1, 0, 1],
                [0, 0, 1, 1]])

    Source: Wang et al. 2019, Heterogeneous Graph Attention Network,
    https://arxiv.org/abs/1903.07293
    """
    if graph.edge_type is None or not all(len(path) for path in paths):
        got = "a path without" if graph.edge_type is not None else "none"
        raise ValueError(f"Expected edges with types and paths of them, but got {got}")
    joined = [_composed(graph, path) for path in paths]
    counts = torch.tensor([edges.shape[1] for edges in joined], dtype=torch.int64)
    empty = torch.zeros(2, 0, dtype=torch.int64)
    return graph.replace(
        edge_index=torch.cat([empty, *joined], 1).to(graph.device),
        edge_type=torch.arange(len(joined)).repeat_interleave(counts).to(graph.device),
        edge_weight=None,
        edge_attr=None,
        edge_time=None,
    )


def _composed(graph: Graph, path: Sequence[int]) -> Tensor:
    """The edges ``[2, *]`` of a path, sorted by target."""
    from scipy.sparse import csr_matrix, identity

    edge_index, edge_type = graph.edge_index.cpu(), graph.edge_type.cpu()  # type: ignore[union-attr]
    n = graph.num_nodes
    product = identity(n, dtype=bool, format="csr")
    for relation in path:
        source, target = edge_index[:, edge_type == relation].numpy()
        ones = torch.ones(len(source), dtype=torch.bool).numpy()
        product = csr_matrix((ones, (target, source)), shape=(n, n), dtype=bool) @ product
    product.sum_duplicates()
    entries = product.tocoo()
    return torch.stack([torch.from_numpy(entries.col).long(), torch.from_numpy(entries.row).long()])
