"""Splits of edges: which of them train, validate and test, and pairs that are no edge."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ...graph import EDGE_FIELDS, Graph
from ...graph.checks import check_index
from ...transfer import to_device


@dataclass(frozen=True, eq=False)
class EdgeSplit:
    """A graph of training edges, and the pairs that are kept from it.

    Args:
        graph: the same nodes; training edges in both directions, and no other.
        train_edges: int64 ``[2, *]``, every training edge once, as (smaller, larger) node.
        val_edges, test_edges: int64 ``[2, *]``, likewise.
        val_negatives, test_negatives: int64 ``[2, *]``, as many pairs that are no edge of the whole
            graph, all different.

    Example:
        >>> empty = torch.zeros(2, 0, dtype=torch.int64)
        >>> EdgeSplit(None, empty, empty, empty, empty, empty).trains_only
        True
    """

    graph: Graph
    train_edges: Tensor
    val_edges: Tensor
    val_negatives: Tensor
    test_edges: Tensor
    test_negatives: Tensor

    @property
    def trains_only(self) -> bool:
        """Whether there were too few edges, or too few pairs without one, to keep any."""
        return self.val_edges.shape[1] + self.test_edges.shape[1] == 0


def edge_split(graph: Graph, *, val: float = 0.05, test: float = 0.1, seed: int = 0) -> EdgeSplit:
    """Keep some undirected edges from a graph, for validation and for the test.

    The graph that is returned has the other edges only, so that message passing never sees an edge
    that is asked for, in either direction. The pairs without an edge are drawn here, once.

    Args:
        graph: taken as undirected; self-loops and weights are dropped.
        val, test: shares of the edges, rounded to whole edges; 0 keeps none for that.
        seed: of edges and pairs.

    Returns:
        The split; one with training edges only where a share above 0 comes to no edge, where none
        would be left to train on, or where there are fewer pairs without an edge than are kept with
        one (`EdgeSplit.trains_only`).

    Raises:
        ValueError: unless the shares are at least 0 and their sum below 1.

    Example:
        >>> graph = fgl.data.load("synthetic")
        >>> parts = fgl.data.edge_split(graph)
        >>> graph.num_edges, parts.graph.num_edges, parts.val_edges.shape[1]
        (10562, 8978, 264)

    Source: Kipf and Welling 2016, https://arxiv.org/abs/1611.07308
    """
    if not (val >= 0 and test >= 0 and val + test < 1):
        raise ValueError(
            f"Expected val and test to be at least 0 and their sum below 1, but got {val} and "
            f"{test}"
        )
    generator = torch.Generator().manual_seed(seed)
    n = graph.num_nodes
    pairs = _pairs(_keys(graph.edge_index.cpu()))
    m = pairs.shape[1]
    num_val, num_test = round(val * m), round(test * m)
    kept = num_val + num_test
    few = (val and not num_val) or (test and not num_test) or kept == m
    if few or kept > n * (n - 1) // 2 - m:
        num_val = num_test = kept = 0
    order = torch.randperm(m, generator=generator)
    own = pairs[:, order[kept:].sort().values]
    held = pairs[:, order[:kept]]
    negatives = negative_edges(pairs, n, kept, generator=generator)
    both = torch.cat([own, own.flip(0)], 1)
    both = both[:, (both[1] * n + both[0]).argsort()]
    split = [held[:, :num_val], negatives[:, :num_val], held[:, num_val:], negatives[:, num_val:]]
    given = [name for name in EDGE_FIELDS[1:] if graph.has(name)]
    if given or graph.edge_label_index is not None:
        got = given or ["edge_label_index"]
        raise ValueError(f"Expected a graph whose edges have no fields, but got {got}")
    training = graph.replace(edge_index=both.to(graph.device), edge_weight=None)
    return EdgeSplit(training, *(part.to(graph.device) for part in (own, *split)))


def subgraph_split(split: EdgeSplit, nodes: Tensor, *, seed: int = 0) -> EdgeSplit:
    """A client's part of a split: what lies between its own nodes.

    So held-out edges can be drawn before anybody decides who holds which node, and cannot shape
    that decision. An edge between two clients is lost, to train on as to score. How many of the
    kept edges a client gets is left to chance: `edge_split`'s shares are those of the whole graph.

    Args:
        split: of the whole graph.
        nodes: int64 ``[m]`` without repeats, the client's; may be empty.
        seed: of the pairs without an edge, which are drawn among the client's nodes.

    Returns:
        The split of ``split.graph.subgraph(nodes)``; one with training edges only where no kept
        edge, or fewer pairs without an edge than kept ones, lie between the nodes. It may have
        edges for the test and none for validation.

    Example:
        >>> whole = fgl.data.edge_split(fgl.data.load("synthetic"))
        >>> half = subgraph_split(whole, torch.arange(1354))
        >>> half.val_edges.shape[1] < whole.val_edges.shape[1], int(half.val_edges.max()) < 1354
        (True, True)

    Source: FedVGAE, IEEE Transactions on Big Data 2024, whose order of the two is not told
    """
    graph = split.graph.subgraph(nodes)
    n = graph.num_nodes
    position = torch.full((split.graph.num_nodes,), -1, dtype=torch.int64)
    position[nodes.cpu()] = torch.arange(n)

    def inside(edges: Tensor) -> Tensor:
        ends = position[edges.cpu()]
        return _pairs(_keys(ends[:, (ends >= 0).all(0)]))

    train, val, test = (inside(e) for e in (split.train_edges, split.val_edges, split.test_edges))
    edges, kept = torch.cat([train, val, test], 1), val.shape[1] + test.shape[1]
    if kept > n * (n - 1) // 2 - edges.shape[1]:
        val, test, kept = val[:, :0], test[:, :0], 0
    generator = torch.Generator().manual_seed(seed)
    negatives = negative_edges(edges, n, kept, generator=generator)
    val_negatives, test_negatives = negatives.split([val.shape[1], test.shape[1]], 1)
    parts = (train, val, val_negatives, test, test_negatives)
    return EdgeSplit(graph, *(part.to(graph.device) for part in parts))


def each_once(edge_index: Tensor) -> Tensor:
    """Undirected edges once each, by their larger node; no self-loops.

    Args:
        edge_index: int64 ``[2, num_edges]``, in one direction or both.

    Returns:
        int64 ``[2, *]``, as (smaller, larger) node: `EdgeSplit.train_edges` of a split's graph.

    Example:
        >>> each_once(torch.tensor([[2, 1, 0, 1], [0, 2, 2, 1]]))
        tensor([[0, 1],
                [2, 2]])
    """
    return _pairs(_keys(edge_index))


def negative_edges(
    edge_index: Tensor,
    num_nodes: int,
    num: int,
    *,
    replacement: bool = False,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Pairs of two different nodes without an edge, each equally likely.

    The pairs that are free are counted off between the sorted edges, so nothing is drawn in vain:
    O((num_edges + num) log num_edges) time, also where nearly all nodes are joined.

    Args:
        edge_index: int64 ``[2, num_edges]``, in one direction or both; self-loops do not matter.
        num_nodes: nodes 0 to ``num_nodes - 1``.
        num: how many.
        replacement: whether a pair may be drawn twice.
        generator: of the draws, on the CPU; default torch's global one.

    Returns:
        int64 ``[2, num]``, as (smaller, larger) node, on the device of `edge_index`.

    Raises:
        ValueError: if the shape is another one, a node is out of range, `num` or `num_nodes` is
            negative, or too few pairs have no edge.
        TypeError: if `edge_index` is not int64.

    Example:
        >>> path = torch.tensor([[0, 1, 2], [1, 2, 3]])
        >>> pairs = negative_edges(path, 4, 3)
        >>> sorted(map(tuple, pairs.t().tolist()))
        [(0, 2), (0, 3), (1, 3)]

    Source: FedVGAE, IEEE Transactions on Big Data 2024; sampling as in Kipf and Welling 2016
    """
    return FreePairs(edge_index, num_nodes)(num, replacement=replacement, generator=generator)


class FreePairs:
    """The pairs of nodes without an edge, to be drawn from more than once.

    Args:
        edge_index, num_nodes: as for `negative_edges`, which draws once.

    Raises:
        ValueError: if the shape is another one, a node is out of range or `num_nodes` is negative.
        TypeError: if `edge_index` is not int64.

    Example:
        >>> FreePairs(torch.tensor([[0, 1], [1, 2]]), 3)(1)
        tensor([[0],
                [2]])
    """

    def __init__(self, edge_index: Tensor, num_nodes: int) -> None:
        check_index("edge_index", edge_index, (2, None), num_nodes)
        if num_nodes < 0:
            raise ValueError(f"Expected num_nodes to be at least 0, but got {num_nodes}")
        keys = _keys(edge_index)
        self.num_nodes = num_nodes
        self.count = num_nodes * (num_nodes - 1) // 2 - keys.numel()
        self._before = keys - torch.arange(keys.numel(), device=keys.device)  # each edge

    def __call__(
        self, num: int, *, replacement: bool = False, generator: torch.Generator | None = None
    ) -> Tensor:
        """So many of them, as `negative_edges` draws them."""
        if num < 0 or num > self.count * (num if replacement else 1):
            raise ValueError(
                f"Expected num to be in [0, {self.count}], the pairs of {self.num_nodes} nodes "
                f"without an edge, but got {num}"
            )
        rank = to_device(_ranks(self.count, num, replacement, generator), self._before.device)
        return _pairs(rank + torch.searchsorted(self._before, rank, right=True))


def _ranks(free: int, num: int, replacement: bool, generator: torch.Generator | None) -> Tensor:
    """`num` of the numbers below `free`, in random order."""
    if num == 0:
        return torch.zeros(0, dtype=torch.int64)
    if replacement:
        return torch.randint(free, (num,), generator=generator)
    if free <= 4 * num:
        return torch.randperm(free, generator=generator)[:num]
    rank = torch.zeros(0, dtype=torch.int64)
    while rank.numel() < num:
        rank = torch.cat([rank, torch.randint(free, (2 * num,), generator=generator)]).unique()
    return rank[torch.randperm(rank.numel(), generator=generator)[:num]]


def _keys(edge_index: Tensor) -> Tensor:
    """Undirected edges as sorted numbers ``v (v - 1) / 2 + u`` with u < v; no self-loops."""
    u, v = edge_index.min(0).values, edge_index.max(0).values
    key: Tensor = (v * (v - 1) // 2 + u)[u != v].unique()
    return key


def _pairs(keys: Tensor) -> Tensor:
    """The edges of `_keys`, in order: ``[2, *]``, rows u and v."""
    v = ((1 + (1 + 8 * keys.double()).sqrt()) / 2).long()
    v = v - (v * (v - 1) // 2 > keys).long()  # the root may be off by one
    v = v + (v * (v + 1) // 2 <= keys).long()
    return torch.stack([keys - v * (v - 1) // 2, v])
