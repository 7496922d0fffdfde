"""Pairs without an edge, as negative examples for training, validation and test."""

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from ...checks import reject_if
from ...graph import MASKS, Graph
from ...graph.fields import mask_of, present
from ...warn import warn
from .free_pairs import Draws, FreeCells, sides_of
from .reverses import symmetric


def with_negatives(
    graph: Graph, *, seed: int = 0, negatives: Literal["uniform", "degree"] = "uniform"
) -> Graph:
    """Add pairs without an edge, with label 0, to a graph's validation and test pairs.

    For each validation or test pair with label 1, one pair is added. The added pair has the source
    of the original pair and a new target. The new target has the node type of the original target.
    Neither an edge nor a pair leads from the source to the new target. If every message edge has
    its reverse, the directions of edges and pairs are ignored. The new target must also occur in a
    message edge, or in a pair of the same window or an earlier window. Nodes that occur only in
    later windows are therefore never drawn.

    Suppose that a graph without node types has edges only from users to items. Each new target is
    then an item.

    Args:
        graph: a graph with pairs and masks, such as the result of `split_by_time`. If the graph has
            `edge_label_type`, a new pair may be an edge of a different relation.
        seed: random seed.
        negatives: how the new target of an added (negative) pair is drawn. With "uniform", all
            targets are equally likely. True edges lead to nodes of high degree more often than the
            new pairs do, so a model can recognise true edges by the target's degree. With "degree",
            the original targets of the window are randomly reassigned to the sources.

    Returns:
        The graph with the new pairs at the end. A new pair is in the mask of its original pair.
        Self-loops are removed from both masks, since no drawn pair is a self-loop.

    Raises:
        ValueError: if the label `y` of a pair is neither 0 nor 1.

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
                "already: average precision depends on their number, and more are drawn now"
            )
        window = Window(graph, MASKS[: which + 1], by_degree=negatives == "degree")
        new, like = window(positive, generator)
        if new.shape[1] < int(positive.sum()) / 2:
            warn(
                f"Expected most of the {int(positive.sum())} pairs of {name} to have a source that "
                f"is not joined to every target, but got {new.shape[1]}: the others have no pair "
                "to be compared with"
            )
        graph = _longer(graph, name, new, like)
    return graph


def _without_loops(graph: Graph, mask: Tensor) -> Graph:
    """Remove self-loops from validation and test masks, since no negative pair is a self-loop."""
    source, target = graph.edge_label_index  # type: ignore[misc]  # checked
    loops = mask & (source == target)
    if not loops.any():
        return graph
    return graph.replace(**{n: own & ~loops for n, own in present(graph, MASKS[1:]).items()})


def _longer(graph: Graph, mask: str, pairs: Tensor, like: Tensor) -> Graph:
    """Append unlinked pairs to the graph's pairs, and mark them in the mask named `mask`."""
    rows = torch.zeros_like(like, dtype=torch.bool)
    masks = present(graph, MASKS).items()
    longer = {name: torch.cat([own, rows | (name == mask)]) for name, own in masks}
    if graph.edge_label_type is not None:
        longer["edge_label_type"] = torch.cat([graph.edge_label_type, graph.edge_label_type[like]])
    y: Any = graph.y
    return graph.replace(
        edge_label_index=torch.cat([graph.edge_label_index, pairs], 1),  # type: ignore[list-item]
        y=torch.cat([y, y.new_zeros(len(like))]),
        **longer,
    )


def checked_answers(graph: Graph) -> Tensor:
    """The pairs' labels `y`; raise an error unless each label is 1 (an edge) or 0 (no edge)."""
    y = graph.y
    if graph.edge_label_index is None or y is None:
        raise ValueError("Expected a graph with pairs and their y, but got none: see split_by_time")
    wrong = not y.is_floating_point() or y.dim() != 1 or bool(((y != 0) & (y != 1)).any())
    reject_if(wrong, "y to be 1. for pairs that are an edge and 0. for others", "other values")
    return y


class Window:
    """Sampler of pairs without an edge for one window: the validation pairs or the test pairs.

    The targets of drawn pairs occur in this window or in an earlier window. A pair of the graph is
    never drawn, whatever its window and its label are. Otherwise a model that memorises training
    pairs would have an advantage.

    Args:
        graph: a graph with pairs and masks.
        names: names of the masks of this window and of all earlier windows.
        by_degree: whether the drawn targets are a permutation of the given pairs' targets, so that
            nodes of high degree are drawn more often than other nodes. If False, all targets are
            equally likely.
    """

    def __init__(self, graph: Graph, names: Sequence[str], *, by_degree: bool = False) -> None:
        pairs: Any = graph.edge_label_index
        n, self.pairs, self.by_degree = graph.num_nodes, pairs, by_degree
        masks = [*present(graph, names).values()]
        examples = torch.stack(masks).any(0) if masks else graph.example_mask
        active = mask_of(torch.cat([graph.edge_index, pairs[:, examples]], 1).flatten(), n)
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

    def __call__(self, positive: Tensor, generator: Draws = None) -> tuple[Tensor, Tensor]:
        """Draw a new pair for each pair in a mask; also return the ids of the original pairs."""
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
    """Edges and pairs of a relation, and the reverses of both if the relation is undirected.

    A relation counts as undirected if every message edge has its reverse. A relation without
    message edges counts as undirected if no pair of the relation is the reverse of another pair.
    The reason is that `pair_split` stores an undirected edge as a single pair, in only one
    direction.
    """
    edges, pairs, n = graph.edge_index, graph.edge_label_index[:, own], graph.num_nodes  # type: ignore[index]
    if relation is not None:
        reject_if(graph.edge_type is None, "edge_type beside edge_label_type", "none")
        edges = edges[:, graph.edge_type == relation]
    both = torch.cat([edges, pairs], 1)
    directed = not symmetric(edges, n)
    if not directed and edges.shape[1] == 0:
        source, target = pairs[:, pairs[0] != pairs[1]]
        directed = bool(torch.isin(target * n + source, source * n + target).any())
    return both if directed else torch.cat([both, both.flip(0)], 1)
