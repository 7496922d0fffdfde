"""Labels of training examples that are missing or wrong, also where clients share nodes."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..checks import check_share
from ..graph import Graph
from ..graph.facts import answered, unscored
from ..graph.windows import check_no_series
from ..kinds import typed

Draws = torch.Generator | None


@typed
def lose_labels(graph: Graph, share: float, *, generator: Draws = None) -> Graph:
    """The graph in which ``round(share n)`` of the n training examples do not train.

    Examples of which no answer is known (NaN) do not count.

    Args:
        graph: or a collection; without a training mask all examples train.
        share: in [0, 1].
        generator: of the draw, on the CPU; default torch's global one.

    Example:
        >>> graph = fgl.Graph(torch.eye(4), torch.zeros(2, 0).long(), y=torch.tensor([0, 1, 0, 1]))
        >>> lose_labels(graph, 0.5).num_train
        2

    Source: "random_label_sparsity" of OpenFGL, https://arxiv.org/abs/2408.16288
    """
    check_share(share=share)
    check_no_series(graph, "lose_labels")
    mask = graph.training_mask.clone()
    mask[_drawn(answered(mask, graph.y), share, generator)] = False
    return graph.replace(train_mask=mask)


@typed
def wrong_labels(graph: Graph, share: float, *, generator: Draws = None) -> Graph:
    """The graph in which ``round(share n)`` of the n training examples have another class.

    Every other class is equally likely. Where ``y`` holds answers, 0 and 1, n counts those that are
    known, and yes becomes no. Labels of validation and test examples stay, also where there is no
    training mask; all others train then.

    Args:
        graph: with at least two classes or with answers, or such a collection.
        share: in [0, 1].
        generator: of the draws, on the CPU; default torch's global one.

    Raises:
        ValueError: without labels, or with fewer than two classes.
        TypeError: for other numbers in ``y`` than 0 and 1.

    Example:
        >>> graph = fgl.Graph(torch.eye(4), torch.zeros(2, 0).long(), y=torch.tensor([0, 1, 0, 1]))
        >>> (wrong_labels(graph, 0.5).y != graph.y).sum()
        tensor(2)

    Source: "random_label_noise" of OpenFGL, https://arxiv.org/abs/2408.16288
    """
    check_share(share=share)
    if graph.y is not None and graph.y.is_floating_point():
        return graph.replace(y=_wrong_answers(graph.y, unscored(graph), share, generator))
    classes, labels = int(graph.num_classes or 0), graph.labels.clone()
    if classes < 2:
        raise ValueError(f"Expected graph to have at least two classes, but got {classes}")
    chosen = _drawn(unscored(graph), share, generator)
    step = torch.randint(1, classes, (chosen.numel(),), generator=generator).to(graph.device)
    labels[chosen] = (labels[chosen] + step) % classes
    return graph.replace(y=labels)


def _wrong_answers(y: Tensor, noisy: Tensor, share: float, generator: Draws) -> Tensor:
    answered = ~y.isnan()
    if not bool(((y == 0) | (y == 1) | ~answered).all()):
        raise TypeError(
            "Expected graph.y to be class labels or answers, 0 and 1, of which some can be "
            "another, but got other numbers: they can be left out (missing_labels, lose_labels)"
        )
    mask = answered & noisy.view(-1, *[1] * (y.dim() - 1))
    chosen, wrong = _drawn(mask.flatten(), share, generator), y.flatten().clone()
    wrong[chosen] = 1 - wrong[chosen]
    return wrong.view_as(y)


def _drawn(mask: Tensor, share: float, generator: Draws) -> Tensor:
    """A share of the examples of a mask, int64."""
    own = mask.nonzero().squeeze(1)
    order = torch.randperm(own.numel(), generator=generator)
    return own[order[: round(share * own.numel())].to(own.device)]


def share_nodes(graphs: Sequence[Graph]) -> bool:
    """Whether clients train on the same nodes of one graph, in which a node has one class.

    Example:
        >>> graph = fgl.Graph(torch.eye(2), torch.zeros(2, 0).long(), y=torch.tensor([0, 1]))
        >>> own = graph.subgraph(torch.tensor([1]))
        >>> share_nodes([own, own]), share_nodes([graph, graph])  # the latter has no node_id
        (True, False)
    """
    if not all(map(_has_classes_by_node, graphs)):
        return False
    node = torch.cat([own.node_id[unscored(own)] for own in graphs])  # type: ignore[index]  # checked
    label = torch.cat([own.labels[unscored(own)] for own in graphs])
    different = torch.stack([node, label]).unique(dim=1)[0]
    return len(different) < len(node) and len(different) == len(node.unique())


def _has_classes_by_node(graph: Graph) -> bool:
    of_nodes = graph.batch is None and graph.edge_label_index is None
    classes = graph.y is not None and not graph.y.is_floating_point()
    return of_nodes and classes and graph.node_id is not None


def wrong_nodes(graphs: Sequence[Graph], share: float, seed: int) -> list[Graph]:
    """Like `wrong_labels`, for all training nodes; a node has the same wrong label in every client.

    Example:
        >>> y = torch.tensor([0, 1, 2, 1])
        >>> graph = fgl.Graph(torch.eye(4), torch.zeros(2, 0).long(), y=y)
        >>> one, two = wrong_nodes([graph.subgraph(torch.arange(3))] * 2, 0.7, seed=0)
        >>> (one.y != y[:3]).sum(), torch.equal(one.y, two.y)
        (tensor(2), True)
    """
    chosen = [unscored(own).nonzero().squeeze(1) for own in graphs]
    pairs = [*zip(graphs, chosen, strict=True)]
    node = torch.cat([own.node_id[index] for own, index in pairs])  # type: ignore[index]  # checked
    node, place = node.unique(return_inverse=True)
    y = torch.empty_like(node)
    y[place] = torch.cat([own.labels[index] for own, index in pairs])
    alone = Graph(torch.zeros(len(node), 1), torch.zeros(2, 0, dtype=torch.int64))
    source = alone.to(y.device).replace(y=y, num_classes=graphs[0].num_classes)
    wrong = wrong_labels(source, share, generator=torch.Generator().manual_seed(seed)).labels
    drawn = wrong[place].split([len(index) for index in chosen])
    return [
        own.replace(y=own.labels.index_copy(0, index, new))
        for (own, index), new in zip(pairs, drawn, strict=True)
    ]
