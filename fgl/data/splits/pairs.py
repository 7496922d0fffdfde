"""Splits of directed edges into messages and pairs to answer, by time or at random."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

import torch
from torch import Tensor

from ...checks import check_length
from ...graph import MASKS, Graph
from ...graph.arguments import takes_graph
from ...kinds import typed
from ...transfer import to_device
from .free_pairs import FreePairs

SHARES = (0.5, 0.25, 0.1, 0.15)  # messages, then pairs that train, validate and test


@takes_graph
def split_by_time(
    graph: Graph, y: Tensor | None = None, *, shares: Sequence[float] = SHARES
) -> Graph:
    """The earliest edges as messages; the later ones as pairs that a model is asked about.

    The model reads edges of which all are earlier than any pair. Training pairs are earlier than
    validation pairs, and these earlier than test pairs. No edge is both: a pair whose answer is
    read as a feature of an edge could be copied. Edges of one time are not torn apart; they are in
    the later window.

    Args:
        graph: whose edges have times.
        y: what each edge answers, ``[num_edges]`` or float ``[num_edges, t]``; default 1, that it
            is there.
        shares: of the edges that are messages, train, validate and test; the last is the rest.

    Returns:
        The graph with the earlier edges and their fields, the later ones as `edge_label_index` in
        order of time, `y`, and three masks of them.

    Raises:
        ValueError: if the edges have no times, or so few that a window with a share gets none; if
            the graph has pairs or a `batch`, or the shares are not four of which none is negative
            and whose sum is 1.

    Example:
        >>> edges = torch.tensor([[0, 1, 2, 0], [1, 2, 0, 2]])
        >>> graph = fgl.Graph(torch.eye(3), edges, edge_time=torch.tensor([9, 7, 6, 8]))
        >>> split = split_by_time(graph, shares=(0.5, 0.25, 0.0, 0.25))
        >>> split.edge_time, split.edge_label_index, split.test_mask
        (tensor([7, 6]), tensor([[0, 0],
                [2, 1]]), tensor([False,  True]))
    """
    if not graph.has("edge_time"):
        raise ValueError("Expected the graph to have edge_time, but got none")
    order = graph.edge_time.argsort(stable=True)  # type: ignore[union-attr]  # checked
    times: Any = graph.edge_time[order]  # type: ignore[index]
    bounds = _bounds(graph, y, shares)
    starts = [int(torch.searchsorted(times, times[b])) if b < len(times) else b for b in bounds]
    wanted, given = ([*pairwise([0, *each, len(times)])] for each in (bounds, starts))
    for name, (a, b), (first, end) in zip(("messages", *MASKS), wanted, given, strict=True):
        if a < b and first == end:
            raise ValueError(
                f"Expected edge_time to leave {b - a} of {len(times)} edges to {name}, but got 0, "
                f"since edges of one time are not torn apart and {len(times.unique())} times "
                "differ: give other shares, or split at random by pair_split"
            )
    return _split(graph, y, order, starts)


@takes_graph
def pair_split(
    graph: Graph, y: Tensor | None = None, *, shares: Sequence[float] = SHARES, seed: int = 0
) -> Graph:
    """Some edges as messages, others as pairs that a model is asked about, at random.

    As `split_by_time`, which asks about the future. Here a model may read edges that are later than
    the pairs it answers.

    Args:
        graph: with or without times.
        y, shares: as for `split_by_time`.
        seed: of the order.

    Returns:
        The graph with the edges that are messages, in their order, the others as
        `edge_label_index`, `y`, and three masks of them.

    Raises:
        ValueError: as `split_by_time`.

    Example:
        >>> edges = torch.tensor([[0, 1, 2, 0], [1, 2, 0, 2]])
        >>> split = pair_split(fgl.Graph(torch.eye(3), edges))
        >>> split.num_edges, split.num_examples, split.num_train
        (2, 2, 1)
    """
    bounds = _bounds(graph, y, shares)
    generator = torch.Generator().manual_seed(seed)
    order = to_device(torch.randperm(graph.num_edges, generator=generator), graph.device)
    first = order[: bounds[0]].sort().values
    return _split(graph, y, torch.cat([first, order[bounds[0] :]]), bounds)


def _bounds(graph: Graph, y: Tensor | None, shares: Sequence[float]) -> list[int]:
    """Where the pairs that train, validate and test begin."""
    if graph.edge_label_index is not None or graph.batch is not None:
        got = "a batch" if graph.edge_label_index is None else "edge_label_index"
        raise ValueError(f"Expected a graph whose examples are nodes, but got {got}")
    if y is not None:
        check_length(graph.num_edges, y=y)
    if len(shares) != 4 or min(shares) < 0 or abs(sum(shares) - 1) > 1e-6:
        raise ValueError(
            f"Expected shares to be four numbers of sum 1, none below 0, but got {shares}"
        )
    return [round(share * graph.num_edges) for share in accumulate(shares)][:3]


def _split(graph: Graph, y: Tensor | None, order: Tensor, starts: Sequence[int]) -> Graph:
    """Edges in this order: up to the first start messages, then pairs."""
    messages, pairs = order[: starts[0]], order[starts[0] :]
    place = torch.arange(starts[0], len(order), device=graph.device)
    window = sum((place >= start).long() for start in starts)  # 1, 2, 3
    masks = {name: window == which for which, name in enumerate(MASKS, 1)}
    there = torch.ones(len(pairs), dtype=graph.x.dtype, device=graph.device)
    answers = there if y is None else y.to(graph.device)[pairs]
    asked: Graph = graph.with_edges(messages.sort().values).replace(
        edge_label_index=graph.edge_index[:, pairs], y=answers, num_classes=None, **masks
    )
    return asked


@typed
def with_negatives(graph: Graph, *, seed: int = 0) -> Graph:
    """The graph with pairs that are no edge, to validate and test with; their answer is 0.

    For each pair that validates or tests and whose answer is 1 there is another one with the same
    source, whose target is any node that it has no edge to, of the edges up to this pair's window.
    Both nodes have an edge or a pair up to then: a node that nobody knows yet is never drawn, and
    nothing is said of edges that come later.

    Args:
        graph: with pairs and masks, as `split_by_time` makes it.
        seed: of the draw.

    Returns:
        The graph with more pairs at the end, in the masks of the pairs that they are drawn for.

    Raises:
        ValueError: if `y` of its pairs is not 0 or 1.

    Example:
        >>> edges = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]])
        >>> graph = fgl.Graph(torch.eye(4), edges, edge_time=torch.tensor([9, 7, 6, 8]))
        >>> split = split_by_time(graph, shares=(0.75, 0.0, 0.0, 0.25))
        >>> with_negatives(split).y, with_negatives(split).edge_label_index[0]
        (tensor([1., 0.]), tensor([0, 0]))
    """
    generator = torch.Generator().manual_seed(seed)
    y, masks = checked_answers(graph), {name: getattr(graph, name) for name in MASKS}
    drawn, owner = [], []
    for which, name in enumerate(MASKS[1:], 1):
        if masks[name] is None:
            continue
        wanted = masks[name] & (y == 1)
        new = Window(graph, MASKS[: which + 1])(wanted, generator)
        drawn.append(new)
        owner.append(torch.full((new.shape[1],), which, device=graph.device))
    if not drawn:
        return graph
    new, which_mask = torch.cat(drawn, 1), torch.cat(owner)
    longer = {
        name: torch.cat([mask, which_mask == which])
        for which, (name, mask) in enumerate(masks.items())
        if mask is not None
    }
    return graph.replace(
        edge_label_index=torch.cat([graph.edge_label_index, new], 1),  # type: ignore[list-item]
        y=torch.cat([y, y.new_zeros(new.shape[1])]),
        **longer,
    )


def checked_answers(graph: Graph) -> Tensor:
    """`y` of pairs: 1 for pairs that are an edge, 0 for other pairs."""
    y = graph.y
    if graph.edge_label_index is None or y is None:
        raise ValueError("Expected a graph with pairs and their y, but got none: see split_by_time")
    if not y.is_floating_point() or y.dim() != 1 or bool(((y != 0) & (y != 1)).any()):
        raise ValueError(
            "Expected y to be 1. for pairs that are an edge and 0. for others, but got other values"
        )
    return y


class Window:
    """Pairs without an edge among the nodes that are known in a window, to be drawn from.

    Args:
        graph: with pairs and masks.
        names: of the masks of this window and of those before it.
    """

    def __init__(self, graph: Graph, names: Sequence[str]) -> None:
        pairs: Any = graph.edge_label_index
        given = [mask for name in names if (mask := getattr(graph, name)) is not None]
        seen = torch.stack(given).any(0) if given else graph.example_mask
        edges = torch.cat([graph.edge_index, pairs[:, seen]], 1)
        self.nodes, place = edges.unique(return_inverse=True)
        self.position = self.nodes.new_zeros(graph.num_nodes)
        self.position[self.nodes] = torch.arange(len(self.nodes), device=graph.device)
        self.free = FreePairs(place, len(self.nodes), directed=True)
        self.source = pairs[0]

    def __call__(self, wanted: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Pairs ``[2, *]`` for the pairs of a mask: the same source, another target."""
        source = self.position[self.source[wanted]]
        pairs: Tensor = self.nodes[self.free.to_targets(source, generator=generator)]
        return pairs
