"""Splits of edges into message edges and labelled pairs, by time or at random."""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from ...checks import check_length, reject_if
from ...graph import EDGE_FIELDS, MASKS, Graph
from ...graph.fields import mask_of, taken
from ...transfer import to_device
from ...warn import warn
from . import reverses
from .reverses import heads_of, units_of

SHARES = (0.5, 0.25, 0.1, 0.15)  # message edges; training, validation and test pairs
PARTS = ("messages", *MASKS)


def split_by_time(
    graph: Graph,
    y: Tensor | None = None,
    *,
    shares: Sequence[float] = SHARES,
    edge_type: int | None = None,
) -> Graph:
    """Split edges by time: early edges become message edges, later edges become labelled pairs.

    The model reads only the message edges. Every message edge is earlier than every pair. Training
    pairs are earlier than validation pairs, and validation pairs are earlier than test pairs. No
    edge is both a message edge and a pair; otherwise a model could copy the pair's label from the
    features of the edge. Edges with equal times are always in one window. If a boundary between two
    windows falls between edges with equal times, all these edges are in the later window.

    Without `y`, the task is to predict the first edge between two nodes. Later edges between the
    same two nodes never become pairs, since a model that reads the first edge could easily predict
    the later edges. Self-loops never become pairs. Repeated edges and self-loops become message
    edges if they are in the window of the message edges. If every edge has its reverse, the graph
    is treated as undirected: both directions get the time and the fields of the earlier direction.
    With `y`, an edge of an undirected graph is left out if the first edge between the same two
    nodes is in an earlier window.

    Args:
        graph: a graph whose edges have times.
        y: label of each edge, ``[num_edges]`` or float ``[num_edges, t]``. By default every edge
            has label 1, which means that the edge exists.
        shares: fractions of the edges that become message edges, training pairs, validation pairs
            and test pairs; all remaining edges become test pairs.
        edge_type: the relation whose edges are split by `shares`. An edge of any other relation
            becomes a message edge if it is earlier than every pair. Otherwise this edge is left
            out. A second relation may hold the reverses of the split edges. If `y` is None, the
            reverse of a pair is then not a message edge. By default the edges of all relations are
            split.

    Returns:
        The graph with the message edges and their fields. The pairs are in `edge_label_index` in
        order of time, with labels `y` and three masks. If `edge_type` is given, the graph also has
        `edge_label_type`.

    Raises:
        ValueError: if the edges have no times, if a window gets no edge although its fraction is
            positive, or if the graph has pairs or a `batch`. A ValueError is also raised if
            `shares` are not four fractions of at least 0 with sum 1.

    Example:
        >>> edges = torch.tensor([[0, 1, 2, 0], [1, 2, 0, 2]])
        >>> graph = fgl.Graph(torch.eye(3), edges, edge_time=torch.tensor([9, 7, 6, 8]))
        >>> split = split_by_time(graph, shares=(0.5, 0.25, 0.0, 0.25))
        >>> split.edge_time, split.edge_label_index, split.test_mask
        (tensor([7, 6]), tensor([[0, 0],
                [2, 1]]), tensor([False,  True]))
    """
    reject_if(not graph.has("edge_time"), "the graph to have edge_time", "none")
    _check_split(graph, y, shares)
    reverses.check_relations(graph, edge_type, None, None)
    own = torch.arange(graph.num_edges, device=graph.device)
    own = own if edge_type is None else own[graph.edge_type == edge_type]
    if y is None:
        graph, own = _at_once(graph, own)
    order = own[graph.edge_time[own].argsort(stable=True)]  # type: ignore[index]  # checked
    times: Any = graph.edge_time[order]  # type: ignore[index]
    first = _first_of_ends(graph.edge_index[:, order], graph.num_nodes, y is None)
    place = torch.arange(len(times), device=graph.device)
    units = times if first is None else times[first == place]
    bounds = _ends(shares, len(units))
    starts = [
        int(torch.searchsorted(times, units[b])) if b < len(units) else len(times) for b in bounds
    ]
    window: Any = sum((place >= start).long() for start in starts)
    is_example = window > 0
    if first is not None:
        is_example = is_example & ((first == place) if y is None else (window == window[first]))
    _check_windows(bounds, len(units), window, is_example, len(times.unique()))
    messages = order[window == 0].sort().values
    pairs, window = order[is_example], window[is_example]
    if edge_type is None:
        return _split(graph, y, messages, pairs, window)
    messages = _with_other_relations(graph, messages, pairs, edge_type, presence=y is None)
    split = _split(graph, y, messages, pairs, window)
    return split.replace(edge_label_type=torch.full_like(window, edge_type))


def _with_other_relations(
    graph: Graph, messages: Tensor, pairs: Tensor, edge_type: int, *, presence: bool
) -> Tensor:
    """Ids of the message edges.

    Edges of relations that are not split become message edges only if they are earlier than all
    pairs.
    """
    times, relation, n = graph.edge_time, graph.edge_type, graph.num_nodes
    early = mask_of(messages, graph.num_edges)
    early |= (relation != edge_type) & (times < times[pairs].min() if len(pairs) else True)  # type: ignore[index, operator]
    if presence:
        reverses.warn_of_copies(graph.edge_index, graph.edge_type, edge_type, n)  # type: ignore[arg-type]
        for _, other in reverses.turned_relations(
            graph.edge_index, relation, graph.num_nodes, only=edge_type
        ):
            if other != edge_type:
                early &= ~_reverse_of(graph, pairs, other)
    return early.nonzero().squeeze(1)


def _at_once(graph: Graph, own: Tensor) -> tuple[Graph, Tensor]:
    """Set the times of an edge and its reverse to the earlier time; return graph and edge ids."""
    times, n = graph.edge_time[own], graph.num_nodes  # type: ignore[index]  # checked
    source, target = graph.edge_index[:, own]
    key = source * n + target
    if not len(own) or not reverses.all_reversed(key.unique(), n):
        return graph, own
    both = torch.minimum(key, target * n + source)
    late = times[_earliest(key, times)] > times[_earliest(both, times)]
    if not late.any():
        return graph, own
    stays = ~mask_of(own[late], graph.num_edges)
    early = graph.with_edges(stays)
    own = (stays.cumsum(0) - 1)[own[~late]]
    longer, _, own = _with_reverses(early, None, own)
    return longer, own


def _earliest(key: Tensor, times: Any) -> Tensor:
    """Find for each edge the earliest edge with the same key."""
    order = times.argsort(stable=True)
    distinct, unit = units_of(key[order])
    if unit is None:
        return torch.arange(len(key), device=key.device)
    return torch.empty_like(key).scatter_(0, order, order[heads_of(unit, len(distinct))[unit]])


def _first_of_ends(edges: Tensor, num_nodes: int, presence: bool) -> Tensor | None:
    """Find for each edge the first edge that joins the same two nodes.

    The edge itself may be this first edge. The result is None if every edge is its own first edge.

    Args:
        edges: edges in order of time.
        num_nodes: number of nodes.
        presence: whether the task is to predict edges. In that case an edge and its reverse do not
            join the same nodes, and the result for a self-loop is -1. Otherwise the result depends
            on whether the graph is undirected. If some edge lacks its reverse, the result is None.
            If every edge has its reverse, directions are ignored.
    """
    source, target = edges
    distinct, unit = units_of(source * num_nodes + target)
    if not presence:
        if not len(distinct) or not reverses.all_reversed(distinct, num_nodes):
            return None
        low, high = edges.sort(0).values
        distinct, unit = units_of(low * num_nodes + high)
    loops = (source == target) & presence
    if unit is None and not loops.any():
        return None
    place = torch.arange(len(source), device=source.device)
    first = place if unit is None else heads_of(unit, len(distinct))[unit]
    return first.masked_fill(loops, -1)


def _check_windows(
    bounds: Sequence[int], total: int, window: Any, is_example: Tensor, num_times: int
) -> None:
    """Raise an error if a window gets no edge although its fraction is positive."""
    for which, (name, a, b) in enumerate(zip(PARTS, [0, *bounds], [*bounds, total], strict=True)):
        own = window == which if which == 0 else is_example & (window == which)
        expected = f"edge_time to leave {b - a} of {total} edges to {name}"
        cause = f"since edges of one time are not torn apart and {num_times} times differ"
        way = "give other shares, or split at random by pair_split"
        reject_if(a < b and not own.any(), expected, f"0, {cause}: {way}")


def pair_split(
    graph: Graph,
    y: Tensor | None = None,
    *,
    shares: Sequence[float] = SHARES,
    seed: int = 0,
    edge_type: int | None = None,
    rev_edge_type: int | None = None,
    is_undirected: bool | None = None,
) -> Graph:
    """Split edges at random into message edges and labelled pairs.

    This function is like `split_by_time`, but times are ignored: a model may read edges that are
    later than the pairs to predict. Among the edges to split, all edges with the same source and
    the same target go to one part. So no pair has the same source and target as a message edge,
    unless this message edge belongs to a relation that is not split. Without `y`, all edges with
    the same source and target become one pair, and self-loops are always message edges.

    Args:
        graph: a graph with or without times.
        y, shares: as in `split_by_time`.
        seed: random seed.
        edge_type: the relation whose edges are split. All edges that do not have this relation are
            message edges. By default the edges of all relations are split.
        rev_edge_type: the relation that holds the reverses of the split edges. The reverse of each
            pair is removed from the message edges.
        is_undirected: True if the graph or the relation is undirected. In that case an edge and its
            reverse are held out together, and become one pair in a random direction. If a message
            edge lacks its reverse, the reverse is added. False means that an edge and its reverse
            are split separately, so the reverse of a pair may be a message edge. The default None
            has the effect of False, but raises an error if most edges have a reverse.

    Returns:
        The graph with the message edges, which keep their order. The pairs are in
        `edge_label_index`, with labels `y` and three masks. If `edge_type` is given, the graph also
        has `edge_label_type`. A warning is given if a part with a positive fraction gets no edge.

    Raises:
        ValueError: if the graph has pairs or a `batch`, or if `shares` are not four fractions of at
            least 0 with sum 1. A ValueError is also raised if `edge_type` has no edges, or if
            `rev_edge_type` does not hold the reverses of `edge_type`. If neither `rev_edge_type`
            nor `is_undirected` is given, an error is raised for graphs in which most edges have a
            reverse. If `is_undirected` is True, an edge and its reverse must not have different
            labels.

    Example:
        >>> edges = torch.tensor([[0, 1, 2, 0], [1, 2, 0, 3]])
        >>> split = pair_split(fgl.Graph(torch.eye(4), edges), shares=(0.5, 0.25, 0.0, 0.25))
        >>> split.num_edges, split.num_examples, split.num_train
        (2, 2, 1)
        >>> both = fgl.Graph(torch.eye(4), torch.cat([edges, edges.flip(0)], 1))
        >>> split = pair_split(both, shares=(0.5, 0.25, 0.0, 0.25), is_undirected=True)
        >>> split.num_edges, split.num_examples
        (4, 2)

    Source: the last three arguments are named as in PyG's `RandomLinkSplit`
    """
    _check_split(graph, y, shares)
    reverses.check_relations(graph, edge_type, rev_edge_type, is_undirected)
    own = _own_edges(graph, y, edge_type)
    n = graph.num_nodes
    source, target = graph.edge_index[:, own]
    units, unit = units_of(source * n + target)
    # Check before reverses are added: another relation would reverse only half of the edges then.
    reverses.check_reverses(graph, units, edge_type, rev_edge_type, is_undirected, y is None)
    if edge_type is not None and y is None:
        reverses.warn_of_copies(graph.edge_index, graph.edge_type, edge_type, n)  # type: ignore[arg-type]
    if is_undirected:
        graph, y, own = _with_reverses(graph, y, own)
        source, target = graph.edge_index[:, own]
        units, unit = units_of(torch.minimum(source * n + target, target * n + source))
        if y is not None and unit is not None:
            _check_same_answers(y[own], unit, len(units))
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(units), generator=generator)
    turned = torch.rand(len(units), generator=generator) < 0.5
    order, turned = to_device(order, graph.device), to_device(turned, graph.device)
    ends = _ends(shares, len(units))
    rank = torch.empty_like(order)
    rank[order] = torch.arange(len(order), device=graph.device)
    rank = rank if unit is None else rank[unit]
    messages = ~mask_of(own[rank >= ends[0]], graph.num_edges)
    if rev_edge_type is not None:
        messages &= ~_reverse_of(graph, own[rank >= ends[0]], rev_edge_type)
    if unit is None:
        examples = order[ends[0] :]
    else:
        once = is_undirected or y is None
        first = heads_of(unit, len(units)) if once else torch.arange(len(own), device=graph.device)
        examples = first[rank[first] >= ends[0]]
        examples = examples[rank[examples].argsort(stable=True)]
    window: Any = sum((rank[examples] >= end).long() for end in ends)
    _warn_of_empty(shares, window, int(messages.sum()), len(units))
    flipped = turned[examples if unit is None else unit[examples]] if is_undirected else None
    split = _split(graph, y, messages.nonzero().squeeze(1), own[examples], window, flipped)
    if edge_type is None:
        return split
    return split.replace(edge_label_type=torch.full_like(window, edge_type))


def _check_split(graph: Graph, y: Tensor | None, shares: Sequence[float]) -> None:
    """Raise an error unless the graph's edges can be split into these fractions."""
    others = [name for name in ("edge_label_index", "batch") if graph.has(name)]
    reject_if(others, "a graph whose examples are nodes", " and ".join(others))
    if y is not None:
        check_length(graph.num_edges, y=y)
    wrong = len(shares) != 4 or min(shares) < 0 or not abs(sum(shares) - 1) <= 1e-6
    reject_if(wrong, "shares to be four numbers of sum 1, none below 0", shares)


def _ends(shares: Sequence[float], total: int) -> list[int]:
    """Indices at which the training, validation and test pairs start."""
    return [round(share * total) for share in accumulate(shares)][:3]


def _own_edges(graph: Graph, y: Tensor | None, edge_type: int | None) -> Tensor:
    """Ids of the edges that may become pairs."""
    source, target = graph.edge_index
    own = torch.ones_like(source, dtype=torch.bool) if y is not None else source != target
    if edge_type is not None:
        own = own & (graph.edge_type == edge_type)
    return own.nonzero().squeeze(1)


def _with_reverses(
    graph: Graph, y: Tensor | None, own: Tensor
) -> tuple[Graph, Tensor | None, Tensor]:
    """Add to the graph the missing reverse of each given edge, with the edge's fields and label."""
    lacking = own[reverses.lacking_reverse(graph.edge_index[:, own], graph.num_nodes)]
    if lacking.numel() == 0:
        return graph, y, own
    every = torch.arange(graph.num_edges + lacking.numel(), device=graph.device)
    new = every[graph.num_edges :]
    which = torch.cat([every[: graph.num_edges], lacking])
    edges = torch.cat([graph.edge_index, graph.edge_index[:, lacking].flip(0)], 1)
    longer = graph.replace(edge_index=edges, **taken(graph, EDGE_FIELDS, which))
    return longer, None if y is None else y[which.to(y.device)], torch.cat([own, new])


def _check_same_answers(y: Tensor, unit: Tensor, count: int) -> None:
    """Raise an error if a unit (an edge, its copies and their reverses) has unequal labels."""
    first = y[heads_of(unit, count).to(y.device)][unit.to(y.device)]
    same = (first == y) | (first != first) & (y != y)
    if not same.all():
        edge = int((~same).nonzero()[0, 0])
        raise ValueError(
            "Expected y to be the same for an edge and its reverse, since is_undirected=True asks "
            f"about both as one, but got {y[edge].tolist()} and {first[edge].tolist()}: "
            "is_undirected=False asks about each"
        )


def _reverse_of(graph: Graph, edges: Tensor, relation: int) -> Tensor:
    """Mask of the edges that have this relation and are the reverse of a given edge."""
    n, own = graph.num_nodes, graph.edge_type == relation
    source, target = graph.edge_index
    return own & torch.isin(source * n + target, (target * n + source)[edges])


def _warn_of_empty(shares: Sequence[float], window: Any, num_messages: int, total: int) -> None:
    counts = [num_messages, *((window == which).sum() for which in (1, 2, 3))]
    empty = [name for name, s, c in zip(PARTS, shares, counts, strict=True) if s > 0 and not c]
    if empty:
        warn(
            f"Expected shares to leave edges to {empty[0]}, but got 0 of {total}: give it a larger "
            "share, or 0"
        )


def _split(
    graph: Graph,
    y: Tensor | None,
    messages: Tensor,
    pairs: Tensor,
    window: Any,
    flipped: Tensor | None = None,
) -> Graph:
    """Build a graph of message edges, with pairs and three masks of pairs, from ids of edges."""
    masks = {name: window == which for which, name in enumerate(MASKS, 1)}
    ones = torch.ones(len(pairs), dtype=graph.x.dtype, device=graph.device)
    answers = ones if y is None else y.to(graph.device)[pairs]
    ends = graph.edge_index[:, pairs]
    ends = ends if flipped is None else torch.where(flipped, ends.flip(0), ends)
    fields: dict[str, Any] = {"y": answers, "num_classes": None, **masks}
    return graph.with_edges(messages).replace(edge_label_index=ends, **fields)
