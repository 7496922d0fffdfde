"""Pairs without an edge, to validate and test with, and to learn from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from ...graph import MASKS, Graph
from ...kinds import typed
from ...warn import warn
from .free_pairs import FreeCells, sides_of
from .reverses import symmetric


@typed
def with_negatives(
    graph: Graph, *, seed: int = 0, negatives: Literal["uniform", "degree"] = "uniform"
) -> Graph:
    """The graph with pairs without an edge, to validate and test with; their answer is 0.

    For each pair that validates or tests and whose answer is 1 there is another one with the same
    source. Its target is any node of the type that the pair's target has, to which the source has
    no edge and about which it is not asked, in any window. If every message has its reverse, a
    pair and its reverse count as one. Both nodes have an edge or a pair up to this pair's window: a
    node that is not known yet is never drawn.

    If nodes have no types and none is the source of an edge and the target of another one, as
    users and items, targets are drawn among targets.

    Args:
        graph: with pairs and masks, as `split_by_time` makes it. With `edge_label_type` an edge is
            one of the pair's relation.
        seed: of the draw.
        negatives: "uniform" draws each target alike, so that a node's degree tells edges from other
            pairs. "degree" gives the targets of the window's pairs to other sources.

    Returns:
        The graph with more pairs at the end, in the masks of the pairs that they are drawn for. A
        self-loop is in neither mask any more, since no drawn pair is like it.

    Raises:
        ValueError: if `y` of its pairs is not 0 or 1.

    Example:
        >>> edges = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]])
        >>> graph = fgl.Graph(torch.eye(4), edges, edge_time=torch.tensor([9, 7, 6, 8]))
        >>> split = fgl.data.splits.split_by_time(graph, shares=(0.75, 0.0, 0.0, 0.25))
        >>> with_negatives(split).y, with_negatives(split).edge_label_index[0]
        (tensor([1., 0.]), tensor([0, 0]))
    """
    generator = torch.Generator().manual_seed(seed)
    graph = _without_loops(graph, checked_answers(graph) == 1)
    for which, name in enumerate(MASKS[1:], 1):
        mask = getattr(graph, name)
        if mask is None:
            continue
        positive = mask & (graph.y == 1)
        if others := int((mask & (graph.y == 0)).sum()):
            warn(
                f"Expected {name} to have only pairs that are edges, but got {others} others "
                "already: average precision depends on their number, and more are drawn now",
            )
        window = Window(graph, MASKS[: which + 1], by_degree=negatives == "degree")
        new, like = window(positive, generator)
        if new.shape[1] < int(positive.sum()) / 2:
            warn(
                f"Expected most of the {int(positive.sum())} pairs of {name} to have a source that "
                f"is not joined to every target, but got {new.shape[1]}: the others have no pair "
                "to be compared with",
            )
        graph = _longer(graph, name, new, like)
    return graph


def _without_loops(graph: Graph, mask: Tensor) -> Graph:
    """Remove self-loops from the masks for scores, since no negative pair is a self-loop."""
    source, target = graph.edge_label_index  # type: ignore[misc]  # checked
    loops = mask & (source == target)
    masks = {name: own for name in MASKS[1:] if (own := getattr(graph, name)) is not None}
    if not loops.any():
        return graph
    return graph.replace(**{name: own & ~loops for name, own in masks.items()})


def _longer(graph: Graph, mask: str, pairs: Tensor, like: Tensor) -> Graph:
    """The graph with more pairs, which are no edge, in one of its masks."""
    rows = torch.zeros_like(like, dtype=torch.bool)
    masks = {name: own for name in MASKS if (own := getattr(graph, name)) is not None}
    longer = {name: torch.cat([own, rows | (name == mask)]) for name, own in masks.items()}
    if graph.edge_label_type is not None:
        longer["edge_label_type"] = torch.cat([graph.edge_label_type, graph.edge_label_type[like]])
    y: Any = graph.y
    return graph.replace(
        edge_label_index=torch.cat([graph.edge_label_index, pairs], 1),  # type: ignore[list-item]
        y=torch.cat([y, y.new_zeros(len(like))]),
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
    """Sampler of pairs without an edge among the nodes that are known in a window.

    No pair that is asked about is drawn, in this window or another one, whatever its answer: a
    model that remembers what it was told of must not know more of the edges than of the others.

    Args:
        graph: with pairs and masks.
        names: of the masks of this window and of those before it.
        by_degree: whether to draw each target as often as it is one of the given pairs.
    """

    def __init__(self, graph: Graph, names: Sequence[str], *, by_degree: bool = False) -> None:
        pairs: Any = graph.edge_label_index
        n, self.pairs, self.by_degree = graph.num_nodes, pairs, by_degree
        masks = [mask for name in names if (mask := getattr(graph, name)) is not None]
        examples = torch.stack(masks).any(0) if masks else graph.example_mask
        active = torch.zeros(n, dtype=torch.bool, device=graph.device)
        active[graph.edge_index.flatten()] = True
        active[pairs[:, examples].flatten()] = True
        side = sides_of(graph.node_type, torch.cat([graph.edge_index, pairs], 1), n)
        side = torch.zeros_like(active, dtype=torch.int64) if side is None else side
        self.kind, self.relation = side[pairs[1]], torch.zeros_like(pairs[0])
        if graph.edge_label_type is not None:
            self.relation = graph.edge_label_type
        self.free: dict[tuple[int, int], tuple[FreeCells, Tensor]] = {}
        for relation in self.relation.unique().tolist():
            own = self.relation == relation
            edges = _not_free(graph, None if graph.edge_label_type is None else relation, own)
            for kind in self.kind[own].unique().tolist():
                among = (active & (side == kind)).nonzero().squeeze(1)
                place = pairs.new_full((n,), -1)
                place[among] = torch.arange(len(among), device=graph.device)
                column = place[edges[1]]
                cells = torch.stack([edges[0], column])[:, column >= 0]
                itself = torch.stack([among, place[among]])
                self.free[relation, kind] = (
                    FreeCells(torch.cat([cells, itself], 1), n, len(among)),
                    among,
                )

    def __call__(
        self, positive: Tensor, generator: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor]:
        """Pairs ``[2, *]`` for the pairs of a mask, with the same source, and for which ones."""
        chosen = positive.nonzero().squeeze(1)
        target, drawn = torch.zeros_like(chosen), torch.zeros_like(chosen, dtype=torch.bool)
        for (relation, kind), (free, among) in self.free.items():
            own = (self.relation[chosen] == relation) & (self.kind[chosen] == kind)
            rows, targets = self.pairs[:, chosen[own]]
            like = torch.searchsorted(among, targets) if self.by_degree else None
            columns, has = free.of_rows(rows, like, generator=generator)
            rows = own.nonzero().squeeze(1)[has]
            target[rows], drawn[rows] = among[columns], True
        like = chosen[drawn]
        return torch.stack([self.pairs[0, like], target[drawn]]), like


def _not_free(graph: Graph, relation: int | None, own: Tensor) -> Tensor:
    """Edges and pairs of a relation, and their reverses if the relation has no direction.

    They have none where every message has its reverse: `pair_split(is_undirected=True)` leaves
    them so. Without messages, no pair may have its reverse among the pairs.
    """
    edges, pairs, n = graph.edge_index, graph.edge_label_index[:, own], graph.num_nodes  # type: ignore[index]
    if relation is not None:
        if graph.edge_type is None:
            raise ValueError("Expected edge_type beside edge_label_type, but got none")
        edges = edges[:, graph.edge_type == relation]
    both = torch.cat([edges, pairs], 1)
    directed = not symmetric(edges, n)
    if not directed and edges.shape[1] == 0:
        source, target = pairs[:, pairs[0] != pairs[1]]
        directed = bool(torch.isin(target * n + source, source * n + target).any())
    return both if directed else torch.cat([both, both.flip(0)], 1)
