"""Edges that reveal held-out edges: reverses of edges, and copies of edges in a second relation."""

from typing import Any

import torch
from torch import Tensor

from ...checks import reject_if
from ...graph import Graph
from ...sparse.gather import ranges
from ...warn import warn

SAMPLE = 4096  # number of edges that are checked first


def turned_relations(
    edges: Tensor, relation: Tensor | None, num_nodes: int, *, only: int | None = None
) -> dict[tuple[int, int], float]:
    """Find pairs of relations (r, s) such that most edges of r have a reverse in s.

    Relations r and s may be the same relation. Let d be the fraction of all possible edges that
    relation s contains. If the edges of relation s were random, an edge of relation r would have a
    reverse in relation s with probability d. "Most" therefore means a fraction above the midpoint
    between d and 1, ``(1 + d) / 2``.

    Args:
        edges: int64 ``[2, num_edges]``; repeats are allowed, and self-loops are ignored.
        relation: int64 ``[num_edges]``; None means a single relation, 0.
        num_nodes: number of nodes.
        only: number of the relation r for which relations s are searched. By default all pairs of
            relations are searched.

    Returns:
        ``{(r, s): share}``, where share is the fraction of relation r's distinct edges whose
        reverse is in relation s.

    Example:
        >>> edges = torch.tensor([[0, 1, 2, 3], [1, 2, 0, 4]])
        >>> turned_relations(torch.cat([edges, edges.flip(0)], 1), None, 5)
        {(0, 0): 1.0}
    """
    joins_two = edges[0] != edges[1]
    pair = (edges[0] * num_nodes + edges[1])[joins_two]
    kinds = 1
    if relation is not None and relation.numel():
        kinds = int(relation.max()) + 1
        pair = pair * kinds + relation[joins_two]
    keys = pair.unique()
    own = keys % kinds
    sizes = own.bincount(minlength=kinds)
    queries = keys if only is None else keys[own == only]
    few = (sizes <= SAMPLE)[queries % kinds]
    few[:: queries.numel() // (SAMPLE * kinds) + 1] = True
    maybe = [
        a for (a, _), share in _shares(queries[few], keys, num_nodes, kinds).items() if share > 0.25
    ]
    queries = queries[torch.isin(queries % kinds, torch.tensor(maybe, device=queries.device))]
    most = {}
    for (of, turned), share in _shares(queries, keys, num_nodes, kinds).items():
        if share > 0.5 and 2 * share > 1 + _density(keys[own == turned] // kinds, num_nodes):
            most[of, turned] = share
    return most


def _shares(
    queries: Tensor, keys: Tensor, num_nodes: int, kinds: int
) -> dict[tuple[int, int], float]:
    """For pairs of relations (r, s), the fraction of r's edges whose reverse is in s."""
    if queries.numel() == 0:
        return {}
    ends, relation = queries // kinds, queries % kinds
    back = ((ends % num_nodes) * num_nodes + ends // num_nodes) * kinds
    back, order = back.sort()  # sorted numbers are looked up several times faster
    relation = relation[order]
    first, end = torch.searchsorted(keys, torch.stack([back, back + kinds]))
    place, which = ranges(first, end - first)
    both, counts = (relation[which] * kinds + keys[place] % kinds).unique(return_counts=True)
    sizes = relation.bincount(minlength=kinds)[both // kinds]
    pairs = (divmod(code, kinds) for code in both.tolist())
    return dict(zip(pairs, (counts / sizes).tolist(), strict=True))


def copying_relations(
    edges: Tensor, relation: Tensor, only: int, num_nodes: int
) -> dict[int, float]:
    """Find relations that contain most edges of a given relation, with the same direction.

    The argument `only` is the number of the given relation.

    Returns:
        ``{s: share}`` with one entry for each such relation s. The share is the fraction of the
        distinct edges of the given relation that relation s also contains. `turned_relations`
        defines "most".

    Example:
        >>> edges = torch.tensor([[0, 1, 0, 1, 3], [2, 3, 2, 3, 0]])
        >>> copying_relations(edges, torch.tensor([0, 0, 1, 1, 1]), 0, 4)
        {1: 1.0}
    """
    key = edges[0] * num_nodes + edges[1]
    own = key[relation == only].unique()
    copy = torch.isin(key, own) & (relation != only)
    both = torch.stack([relation[copy], key[copy]]).unique(dim=1)[0]
    most = {}
    for other, count in zip(*both.unique(return_counts=True), strict=True):
        share, ends = int(count) / own.numel(), key[relation == other].unique()
        if share > 0.5 and 2 * share > 1 + _density(ends, num_nodes):
            most[int(other)] = share
    return most


def _density(ends: Tensor, num_nodes: int) -> float:
    """Number of edges, divided by the product of the numbers of sources and targets."""
    sources, targets = (
        (each.bincount() > 0).sum() for each in (ends // num_nodes, ends % num_nodes)
    )
    return ends.numel() / max(int(sources * targets), 1)


def reversed_share(keys: Tensor, num_nodes: int) -> float:
    """Fraction of the edges that have a reverse; 0 unless most edges have a reverse.

    `turned_relations` defines "most".

    Args:
        keys: int64, the edges as sorted distinct numbers ``source * num_nodes + target``.
        num_nodes: number of nodes.

    Example:
        >>> reversed_share(torch.tensor([1, 4, 11, 14]), 4), reversed_share(torch.tensor([1]), 4)
        (1.0, 0.0)
    """
    for step in (keys.numel() // SAMPLE + 1, 1):  # first a sample: few graphs are symmetric
        sample = keys[::step]
        source, target = sample // num_nodes, sample % num_nodes
        back = (target * num_nodes + source)[source != target]
        share = float(_found(back, keys).double().mean()) if back.numel() else 0.0
        if share < 0.25:
            return 0.0
    return share if share > 0.5 and 2 * share > 1 + _density(keys, num_nodes) else 0.0


def _found(numbers: Tensor, keys: Tensor) -> Tensor:
    """Mask of the numbers that occur in the sorted `keys`."""
    numbers, order = numbers.sort()
    place = torch.searchsorted(keys, numbers).clamp(max=max(keys.numel() - 1, 0))
    return torch.empty_like(order, dtype=torch.bool).scatter_(0, order, keys[place] == numbers)


def lacking_reverse(edges: Tensor, num_nodes: int) -> Tensor:
    """Ids of the edges whose reverse is missing.

    Example:
        >>> lacking_reverse(torch.tensor([[0, 1, 1, 2], [1, 0, 2, 2]]), 3)
        tensor([2])
    """
    key, back = (a * num_nodes + b for a, b in (edges, edges.flip(0)))
    return (~torch.isin(back, key)).nonzero().squeeze(1)


def symmetric(edges: Tensor, num_nodes: int) -> bool:
    """Whether every edge has its reverse, ignoring self-loops; True if there are no edges.

    Example:
        >>> symmetric(torch.tensor([[0, 1], [1, 0]]), 2), symmetric(torch.tensor([[0], [1]]), 2)
        (True, False)
    """
    return all_reversed((edges[0] * num_nodes + edges[1]).unique(), num_nodes)


def all_reversed(keys: Tensor, num_nodes: int) -> bool:
    """Whether every edge has its reverse; the arguments are as for `reversed_share`."""
    for step in (keys.numel() // SAMPLE + 1, 1):
        sample = keys[::step]
        back = (sample % num_nodes) * num_nodes + sample // num_nodes
        if step > 1 and not bool(_found(back, keys).all()):
            return False
    return torch.equal(keys, back.unique())


def units_of(keys: Tensor) -> tuple[Tensor, Tensor | None]:
    """The sorted distinct keys, and each edge's index into the distinct keys.

    The index is None if all keys differ.

    Args:
        keys: int64 ``[num_edges]``; edges that belong together have equal keys.

    Example:
        >>> units_of(torch.tensor([4, 7, 4]))
        (tensor([4, 7]), tensor([0, 1, 0]))
    """
    distinct, unit = keys.unique(return_inverse=True)
    return distinct, None if len(distinct) == len(keys) else unit


def heads_of(unit: Tensor, count: int) -> Tensor:
    """The index of the first edge in each group of edges from `units_of`, int64 ``[count]``.

    Example:
        >>> heads_of(torch.tensor([1, 0, 1]), 2)
        tensor([1, 0])
    """
    places: Any = torch.arange(unit.numel(), device=unit.device)
    first: Tensor = unit.new_full((count,), unit.numel())
    return first.scatter_reduce_(0, unit, places, "amin")


def check_relations(
    graph: Graph, edge_type: int | None, rev_edge_type: int | None, is_undirected: bool | None
) -> None:
    """Raise an error if a given relation is not in the graph, or if both relations are equal."""
    alone = rev_edge_type is not None and edge_type is None
    reject_if(alone, "edge_type beside rev_edge_type", "none")
    same = rev_edge_type is not None and rev_edge_type == edge_type
    twice = f"{edge_type} twice: pair_split(graph, edge_type={edge_type}, is_undirected=True)"
    reject_if(same, "rev_edge_type to be another relation than edge_type", twice)
    for name, value in {"edge_type": edge_type, "rev_edge_type": rev_edge_type}.items():
        if value is None:
            continue
        some = [] if graph.edge_type is None else graph.edge_type.unique().tolist()
        reject_if(value not in some, f"{name} to be one of the relations {some}", value)


def check_reverses(
    graph: Graph,
    keys: Tensor,
    edge_type: int | None,
    rev_edge_type: int | None,
    is_undirected: bool | None,
    presence: bool,
) -> None:
    """Raise an error if the reverses of most pairs would be message edges.

    With ``is_undirected=False``, only a warning is given.
    """
    if edge_type is None and (is_undirected or (is_undirected is False and not presence)):
        return
    n, types = graph.num_nodes, graph.edge_type
    if types is None:
        turned = {(0, 0): share} if (share := reversed_share(keys, n)) else {}
    else:
        turned = turned_relations(graph.edge_index, types, n, only=edge_type)
    across = {pair: share for pair, share in turned.items() if pair[0] != pair[1]}
    if rev_edge_type is not None and across.pop((edge_type, rev_edge_type), None) is None:  # type: ignore[arg-type]
        others = [f"rev_edge_type={other}" for _, other in across]
        raise ValueError(
            f"Expected rev_edge_type to have most edges of relation {edge_type} turned round, but "
            f"got {rev_edge_type}, which has not" + (f": {others[0]}" if others else "")
        )
    within = {pair: share for pair, share in turned.items() if pair[0] == pair[1]}
    if across and is_undirected is not False:
        raise ValueError(turned_round(across, rev_edge_type))
    if within and is_undirected is None:
        of = "" if edge_type is None else f"edge_type={edge_type}, "
        raise ValueError(
            f"Expected is_undirected to be given, since {max(within.values()):.0%} of the edges "
            "have their reverse, which tells which pairs are edges, but got None: "
            f"pair_split(graph, {of}is_undirected=True) asks about both as one; "
            "is_undirected=False asks about each, and its reverse may be a message"
        )
    if presence and is_undirected is False and (across or within):
        share = max({**across, **within}.values())
        warn(
            f"Expected few messages to be reverses of pairs, but {share:.0%} of the edges have "
            "their reverse and is_undirected is False: a model can read from the messages which "
            "pairs are edges"
        )


def warn_of_copies(edges: Tensor, relation: Tensor, edge_type: int, num_nodes: int) -> None:
    """Warn if most edges of relation `edge_type` are also message edges of a second relation."""
    for other, share in copying_relations(edges, relation, edge_type, num_nodes).items():
        warn(
            f"Expected few messages to be copies of pairs, but relation {other} has {share:.0%} of "
            f"the edges of relation {edge_type}, which tells which pairs are edges: "
            f"graph.with_edges(graph.edge_type != {other}) leaves it out"
        )


def turned_round(across: dict[tuple[int, int], float], named: int | None = None) -> str:
    """Error text, with advice, for a relation that holds the reverses of another relation."""
    (of, other), share = next(iter(across.items()))
    call = f"pair_split(graph, edge_type={of}, rev_edge_type={other})"
    if named is not None:
        call = f"graph.with_edges(graph.edge_type != {other})"
    return (
        f"Expected no relation but rev_edge_type to have the edges of relation {of} turned round, "
        f"which tells which pairs are edges, but relation {other} has {share:.0%} of them and "
        f"rev_edge_type is {named}: {call} keeps them out of the messages"
    )
