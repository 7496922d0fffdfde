"""Splits of edges into training, validation and test edges, and draws of pairs without an edge."""

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ...checks import check_index, reject_if
from ...graph import EDGE_FIELDS, Graph
from ...warn import warn
from . import free_pairs
from .reverses import reversed_share, symmetric, turned_relations, turned_round

HELD_OUT = ("val_edges", "val_negatives", "test_edges", "test_negatives")


@dataclass(frozen=True, eq=False)
class EdgeSplit:
    """The held-out edges, an equal number of negative pairs, and the graph of the training edges.

    Args:
        graph: a graph with all nodes of the whole graph, but only with the training edges, in both
            directions. In a directed split, each training edge keeps its direction, weight and
            fields.
        train_edges: int64 ``[2, *]``, the distinct training edges. An edge is stored as (smaller
            node, larger node), or as (source, target) in a directed split.
        val_edges, test_edges: int64 ``[2, *]``, the held-out edges, stored like `train_edges`.
        val_negatives, test_negatives: int64 ``[2, *]``, distinct pairs of nodes that no edge joins
            in the whole graph. There are as many pairs as held-out edges. The pairs join the same
            types of nodes as the held-out edges.

    Raises:
        TypeError, ValueError: if edges or pairs are not int64 ``[2, *]`` with nodes of `graph`. A
            ValueError is also raised if a part has both held-out edges and negative pairs, but not
            equally many.

    Example:
        >>> empty = torch.zeros(2, 0, dtype=torch.int64)
        >>> graph = fgl.Graph(torch.eye(2), empty)
        >>> held_out = {"val_edges": empty, "test_edges": empty}
        >>> negatives = {"val_negatives": empty, "test_negatives": empty}
        >>> EdgeSplit(graph, empty, **held_out, **negatives).trains_only
        True
    """

    graph: Graph
    train_edges: Tensor
    _: KW_ONLY
    val_edges: Tensor
    val_negatives: Tensor
    test_edges: Tensor
    test_negatives: Tensor
    directed: ClassVar[bool] = False

    def __post_init__(self) -> None:
        for name in ("train_edges", *HELD_OUT):
            check_index(name, getattr(self, name), (2, None), self.graph.num_nodes)
        for part in ("val", "test"):
            num_edges, num_pairs = (
                getattr(self, f"{part}_{kind}").shape[1] for kind in ("edges", "negatives")
            )
            expected = f"{part}_negatives to have {num_edges} columns, as {part}_edges has"
            reject_if(0 < num_edges != num_pairs > 0, expected, num_pairs)

    @property
    def trains_only(self) -> bool:
        """Whether no edge is held out.

        This happens if the graph has too few edges, or too few pairs of nodes without an edge.
        """
        return self.val_edges.shape[1] + self.test_edges.shape[1] == 0


class DirectedSplit(EdgeSplit):
    """An `EdgeSplit` in which a pair and its reverse are two different pairs."""

    directed = True


def edge_split(
    graph: Graph, *, val: float = 0.05, test: float = 0.1, seed: int = 0, directed: bool = False
) -> EdgeSplit:
    """Split a graph's edges into training, validation and test edges.

    The returned graph has only the training edges, so message passing never uses a held-out edge.
    By default, both directions of a held-out edge are removed. The function also draws negative
    pairs: pairs of nodes that no edge joins. If nodes have types, the negative pairs join the same
    types of nodes as the held-out edges. In some graphs, such as graphs of users and items, edges
    join only nodes of two groups: the sources and the targets. In such a graph, each negative pair
    joins a source and a target, even if edges are stored in both directions.

    Args:
        graph: a graph. If `directed` is False, the graph is taken as undirected, and its self-loops
            and weights are dropped.
        val, test: fractions of the edges to hold out. Numbers of edges are rounded. With 0, no edge
            is held out.
        seed: random seed.
        directed: whether an edge and its reverse are different edges. If True, edges keep their
            weights and fields, and self-loops remain. Repeated edges from one node to a second node
            are held out together. The reverse of a held-out edge remains in the training graph. An
            error is raised if every edge has its reverse, since a model could then read each
            held-out edge from its reverse.

    Returns:
        The split. No edge is held out if a positive fraction is rounded to 0 edges, or if no
        training edge would remain. The same is true if the graph has fewer pairs without an edge
        than edges to hold out. In these cases a warning is given, and `EdgeSplit.trains_only` is
        True.

    Raises:
        ValueError: if a fraction is negative, if the sum of the fractions is 1 or more, or if the
            graph has pairs. If `directed` is False, a ValueError is also raised for edges with
            fields, such as `edge_attr`. If `directed` is True, a ValueError is also raised for
            graphs in which every edge has its reverse, and for graphs in which one relation holds
            the reverses of another relation's edges.

    Example:
        >>> graph = fgl.data.load("synthetic")
        >>> parts = fgl.data.splits.edge_split(graph)
        >>> graph.num_edges, parts.graph.num_edges, parts.val_edges.shape[1]
        (10562, 8978, 264)

    Source: Kipf and Welling 2016, https://arxiv.org/abs/1611.07308
    """
    expected = "val and test to be at least 0 and their sum below 1"
    reject_if(not (val >= 0 and test >= 0 and val + test < 1), expected, f"{val} and {test}")
    wrong = graph.edge_label_index is not None
    reject_if(wrong, "a graph whose edges have no fields", "edge_label_index")
    fields = [name for name in EDGE_FIELDS[1:] if graph.has(name)]
    if fields and not directed:
        raise ValueError(
            f"Expected a graph whose edges have no fields, but got {fields}: "
            f"{_keeps_fields(graph)} keeps them"
        )
    generator = torch.Generator().manual_seed(seed)
    n, edges = graph.num_nodes, graph.edge_index.cpu()
    pairs = _each(edges, n, directed)
    if directed:
        _check_directed(graph, pairs, plain=not fields and graph.edge_weight is None)
    m = pairs.shape[1]
    num_val, num_test = round(val * m), round(test * m)
    num_held = num_val + num_test
    if (val and not num_val) or (test and not num_test) or num_held == m:
        num_held = 0
    order = torch.randperm(m, generator=generator)
    aside = pairs[:, order[:num_held]]
    side = _sides(graph, edges)
    free = free_pairs.FreePairsLike(pairs, n, aside, side=side, directed=directed)
    crowded = not free.enough
    if crowded:
        num_held, aside = 0, aside[:, :0]
        free = free_pairs.FreePairsLike(pairs, n, aside, directed=directed)
    if num_held == 0 and (val or test):
        _warn_of_none(m, val, test, crowded)
    own = pairs[:, order[num_held:].sort().values]
    negatives = free(generator=generator)
    training = _without(graph, aside) if directed else _both_ways(graph, own)
    kind = DirectedSplit if directed else EdgeSplit
    return _split_of(kind, training, own, aside, negatives, num_val)


def _split_of(
    kind: type[EdgeSplit],
    graph: Graph,
    train: Tensor,
    held_out: Tensor,
    negatives: Tensor,
    num_val: int,
) -> EdgeSplit:
    """A split on the graph's device; the first `num_val` held-out edges are validation edges."""
    held_out, negatives = held_out.to(graph.device), negatives.to(graph.device)
    return kind(
        graph,
        train.to(graph.device),
        val_edges=held_out[:, :num_val],
        test_edges=held_out[:, num_val:],
        val_negatives=negatives[:, :num_val],
        test_negatives=negatives[:, num_val:],
    )


def _warn_of_none(num_edges: int, val: float, test: float, crowded: bool) -> None:
    """Warn about a split without held-out edges, and suggest a solution."""
    parts = {name: share for name, share in (("val", val), ("test", test)) if share}
    empty = [f"{name}=0" for name, share in parts.items() if not round(share * num_edges)]
    cause, cure = "would leave no edge to train on", "smaller shares keep some"
    if crowded:
        cause = "are more than the pairs without an edge that could be compared with them"
        cure = "smaller shares, or more nodes, keep some"
    elif empty and len(empty) < len(parts):
        cure = f"{empty[0]} keeps edges for the other part"
        cause = f"come to no edge for {empty[0][:-2]}"
    elif empty:
        cause, cure = "come to no edge", "more edges or larger shares keep some"
    shares = ", ".join(f"{name}={share:g}" for name, share in parts.items())
    warn(
        f"No edge of {num_edges} is kept for validation or the test, and all train, since "
        f"{shares} {cause}: {cure}, and val=0, test=0 keeps none on purpose"
    )


def _sides(graph: Graph, edges: Tensor) -> Tensor | None:
    """The side of each node, on the CPU; `sides_of` explains what a side is."""
    types = None if graph.node_type is None else graph.node_type.cpu()
    return free_pairs.sides_of(types, edges, graph.num_nodes)


def _keeps_fields(graph: Graph) -> str:
    """Text for an error message: code that splits the graph without loss of the edges' fields."""
    for pair in _across(graph):
        return "pair_split(graph, edge_type={}, rev_edge_type={})".format(*pair)
    if symmetric(graph.edge_index, graph.num_nodes):
        return "pair_split(graph, is_undirected=True)"
    return "directed=True"


def _across(graph: Graph) -> dict[tuple[int, int], float]:
    """The result of `turned_relations` without pairs (r, r); empty if edges have no relations."""
    if graph.edge_type is None:
        return {}
    turned = turned_relations(graph.edge_index, graph.edge_type, graph.num_nodes)
    return {pair: share for pair, share in turned.items() if pair[0] != pair[1]}


def _check_directed(graph: Graph, pairs: Tensor, *, plain: bool) -> None:
    """Raise an error if every edge has its reverse; warn if most edges have a reverse.

    Args:
        graph: the graph.
        pairs: the distinct edges, sorted.
        plain: whether the edges have no weights and no fields.
    """
    if across := _across(graph):
        raise ValueError(turned_round(across))
    share = reversed_share(pairs[0] * graph.num_nodes + pairs[1], graph.num_nodes)
    call = "directed=False" if plain else "pair_split(graph, is_undirected=True)"
    way = f"which would stay and tell which pairs are edges: {call} keeps both out together"
    reject_if(share == 1, "directed edges", f"the reverse of every edge, {way}")
    if share:
        warn(
            f"Expected directed edges, but {share:.0%} have their reverse, which stays where they "
            f"are kept out and tells which pairs are edges: {call} keeps both out together"
        )


def _each(edges: Tensor, num_nodes: int, directed: bool) -> Tensor:
    """Sorted distinct edges without self-loops."""
    if directed:
        return free_pairs.directed_pairs(free_pairs.directed_keys(edges, num_nodes), num_nodes)
    return free_pairs.pairs_of(free_pairs.keys_of(edges))


def _both_ways(graph: Graph, own: Tensor) -> Graph:
    both = torch.cat([own, own.flip(0)], 1)
    both = both[:, (both[1] * graph.num_nodes + both[0]).argsort()]
    return graph.replace(edge_index=both.to(graph.device), edge_weight=None)


def _without(graph: Graph, held_out: Tensor) -> Graph:
    """The graph without some of its directed edges."""
    edges, n = graph.edge_index.cpu(), graph.num_nodes
    stays = ~torch.isin(free_pairs.key_of_each(edges, n), free_pairs.directed_keys(held_out, n)) | (
        edges[0] == edges[1]
    )
    return graph.with_edges(stays.to(graph.device))


def subgraph_split(split: EdgeSplit, nodes: Tensor, *, seed: int = 0) -> EdgeSplit:
    """Restrict a split to one client's nodes.

    First split the whole graph, then assign the nodes of the training graph to clients, and then
    call this function for each client. Since the assignment comes after the split, held-out edges
    cannot influence the assignment. An edge between two clients is lost, both for training and for
    evaluation. Clients have different fractions of held-out edges, since `edge_split` applies its
    fractions to the whole graph.

    Args:
        split: the split of the whole graph.
        nodes: int64 ``[m]``, the client's nodes, without repeats; the tensor may be empty.
        seed: random seed of the negative pairs, which join nodes of the client.

    Returns:
        The split of ``split.graph.subgraph(nodes)``. The split has no held-out edge if no held-out
        edge of the whole graph joins two of the client's nodes. The same is true if the client has
        fewer pairs without an edge than held-out edges. A split with test edges may have no
        validation edges.

    Example:
        >>> whole = fgl.data.splits.edge_split(fgl.data.load("synthetic"))
        >>> half = subgraph_split(whole, torch.arange(1354))
        >>> half.val_edges.shape[1] < whole.val_edges.shape[1], int(half.val_edges.max()) < 1354
        (True, True)

    Source: FedVGAE, IEEE Transactions on Big Data 2024, which does not state whether the edges are
    split before or after the partition
    """
    graph = split.graph.subgraph(nodes)
    n = graph.num_nodes
    position = torch.full((split.graph.num_nodes,), -1, dtype=torch.int64)
    position[nodes.cpu()] = torch.arange(n)

    def inside(edges: Tensor) -> Tensor:
        ends = position[edges.cpu()]
        return _each(ends[:, (ends >= 0).all(0)], n, split.directed)

    train, val, test = (inside(e) for e in (split.train_edges, split.val_edges, split.test_edges))
    edges, held_out = torch.cat([train, val, test], 1), torch.cat([val, test], 1)
    generator = torch.Generator().manual_seed(seed)
    side = _sides(graph, edges)
    free = free_pairs.FreePairsLike(edges, n, held_out, side=side, directed=split.directed)
    if not free.enough:
        val = val[:, :0]
        free = free_pairs.FreePairsLike(edges, n, val, directed=split.directed)
        warn(
            f"The {held_out.shape[1]} kept edges between these {n} nodes are left out, since fewer "
            "pairs without an edge could be compared with them: more nodes, or smaller shares in "
            "edge_split, leave some"
        )
        held_out = val
    negatives = free(generator=generator)
    return _split_of(type(split), graph, train, held_out, negatives, val.shape[1])


def negative_edges(
    edge_index: Tensor,
    num_nodes: int,
    num: int,
    *,
    replacement: bool = False,
    directed: bool = False,
    node_type: Tensor | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Draw pairs of different nodes that no edge joins; all such pairs are equally likely.

    Each pair without an edge has a number. The function draws some of these numbers, and finds the
    pair of each drawn number by binary search in the sorted edges. No draw is rejected, so the run
    time is O((num_edges + num) log num_edges), even for nearly complete graphs.

    Args:
        edge_index: int64 ``[2, num_edges]``. An edge may be stored in one direction or in both
            directions. Self-loops are ignored.
        num_nodes: number of nodes, whose ids are 0 to ``num_nodes - 1``.
        num: number of pairs.
        replacement: whether a pair may be drawn twice.
        directed: whether a pair and its reverse are different pairs.
        node_type: int64 ``[num_nodes]``, the types of the nodes. With this argument, a pair is
            drawn only if some edge joins the same two types. The number of drawn pairs between two
            types is roughly proportional to the number of edges between them.
        generator: random generator on the CPU; by default torch's global generator.

    Returns:
        int64 ``[2, num]``, on the device of `edge_index`. A pair is stored as (smaller node, larger
        node), or as (source, target) if `directed` is True.

    Raises:
        ValueError: if the shape of `edge_index` is wrong, if a node is out of range, if `num` or
            `num_nodes` is negative, or if too few pairs have no edge.
        TypeError: if `edge_index` is not int64.

    Example:
        >>> path = torch.tensor([[0, 1, 2], [1, 2, 3]])
        >>> pairs = negative_edges(path, 4, 3)
        >>> sorted(map(tuple, pairs.t().tolist()))
        [(0, 2), (0, 3), (1, 3)]

    Source: FedVGAE, IEEE Transactions on Big Data 2024; sampling as in Kipf and Welling 2016
    """
    if node_type is not None and num > 0:
        check_index("edge_index", edge_index, (2, None), num_nodes)
        check_index("node_type", node_type, (num_nodes,), None)
        edges = edge_index[:, edge_index[0] != edge_index[1]]
        reject_if(not edges.shape[1], "edge_index to have edges, whose types are drawn", "0")
        order = torch.randperm(edges.shape[1], generator=generator)
        like = edges[:, order[torch.arange(num) % len(order)].to(edges.device)]
        own = free_pairs.FreePairsLike(edges, num_nodes, like, side=node_type, directed=directed)
        return own(replacement=replacement, generator=generator)
    free = free_pairs.FreePairs(edge_index, num_nodes, directed=directed)
    return free(num, replacement=replacement, generator=generator)
