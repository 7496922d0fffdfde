"""Minibatches: the graph and the context for each of a client's local steps."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any, overload

import torch
from torch import Tensor

from ...checks import check_count, reject_if
from ...graph import Graph
from ...graph.facts import answered
from ...graph.windows import by_answer, check_no_series
from ...progress import shown
from ..method.method import Training

Step = tuple[Graph, Any]


class Steps(Sequence[Step]):
    """Local steps that are built one at a time.

    Each step is built just before its use and then freed.

    Use `Steps` in ``Training(batches=...)`` if the steps of a round do not all fit into memory.

    Args:
        count: number of steps.
        make: ``number -> graph, context``, called with the number of a step. Two calls with the
            same number must return equal values.

    Example:
        >>> graph = fgl.Graph(torch.ones(5, 1), torch.zeros(2, 0, dtype=torch.int64))
        >>> steps = Steps(2, lambda number: (graph, {"number": number}))
        >>> len(steps), steps[1][1], [context for _, context in steps]
        (2, {'number': 1}, [{'number': 0}, {'number': 1}])
    """

    def __init__(self, count: int, make: Callable[[int], Step]) -> None:
        self.size = count
        self.make = make

    def __len__(self) -> int:
        return self.size

    @overload
    def __getitem__(self, number: int) -> Step: ...
    @overload
    def __getitem__(self, number: slice) -> Steps: ...
    def __getitem__(self, number: int | slice) -> Step | Steps:
        chosen = range(self.size)[number]
        if isinstance(chosen, range):
            return Steps(len(chosen), lambda other: self.make(chosen[other]))
        return self.make(chosen)


def local_steps(how: Training, graph: Graph, context: Any) -> Sequence[Step]:
    """A pair (graph, context) for each step; the graph is a minibatch or the client's whole graph.

    Example:
        >>> graph = fgl.Graph(torch.ones(5, 1), torch.zeros(2, 0, dtype=torch.int64))
        >>> len(local_steps(fgl.Training(num_steps=3), graph, {}))
        3
    """
    if how.batches is None:
        return [(graph, context)] * num_steps(how)
    drawn = how.batches(graph, context)
    if isinstance(drawn, Sequence):
        return drawn
    steps = []
    with shown("drawing", unit="minibatches") as advance:
        for step in drawn:
            steps.append(step)
            advance(1)
    return steps


def heard(steps: Sequence[Step]) -> Iterator[Step]:
    """Yield the given steps one at a time.

    A progress bar is shown if the steps take long.

    Example:
        >>> graph = fgl.Graph(torch.ones(5, 1), torch.zeros(2, 0, dtype=torch.int64))
        >>> len(list(heard([(graph, {})] * 3)))
        3
    """
    with shown("local training", len(steps)) as advance:
        for number in range(len(steps)):
            yield steps[number]
            advance(1)


def num_steps(how: Training) -> int:
    """Number of local steps without `batches`, where each step uses the client's whole graph.

    Example:
        >>> num_steps(fgl.Training())
        1
    """
    return 1 if how.num_steps is None else how.num_steps


def node_minibatches(
    graph: Graph, context: Any, *, batch_size: int = 128, num_epochs: int = 1
) -> Iterator[tuple[Graph, Any]]:
    """Shuffled minibatches of training nodes, for ``Training(batches=...)``.

    The loss gets the whole graph, in which `train_mask` selects the minibatch. The last minibatch
    is kept, even if it is small.

    Args:
        graph: a graph; if it has no training node, there are no steps.
        context: the client's context, which every step receives unchanged.
        batch_size: training nodes per step.
        num_epochs: passes over the training nodes.

    Raises:
        ValueError: if `batch_size` is not positive.

    Example:
        >>> graph = fgl.Graph(torch.ones(5, 1), torch.zeros(2, 0, dtype=torch.int64))
        >>> [seen.num_train for seen, _ in node_minibatches(graph, {}, batch_size=2)]
        [2, 2, 1]
    """
    check_count(batch_size=batch_size)
    check_no_series(graph, "node_minibatches")
    nodes = training_examples(graph)
    for _ in range(num_epochs):
        order = nodes[torch.randperm(nodes.numel()).to(nodes.device)]
        for batch in order.split(batch_size) if order.numel() else ():
            mask = torch.zeros_like(graph.example_mask).index_fill(0, batch, True)
            yield with_train_mask(graph, mask), context


def training_examples(graph: Graph) -> Tensor:
    """Indices (int64) of the training examples: nodes, graphs or windows.

    If there is no mask, all examples are training examples. Examples without any known label are
    left out, as in `Graph.num_train`.

    Example:
        >>> graph = fgl.Graph(torch.ones(2, 1), torch.zeros(2, 0, dtype=torch.int64))
        >>> training_examples(graph)
        tensor([0, 1])
    """
    _, y, mask = by_answer(graph, graph.training_mask)
    rows = answered(mask, y)
    if graph.has("window_index"):
        rows = rows.reshape(graph.num_examples, graph.num_nodes).any(1)
    return rows.nonzero().squeeze(1)


def with_train_mask(graph: Graph, mask: Tensor) -> Graph:
    """The given graph with a new training mask.

    The mask is not checked. Both graphs share the cached adjacency.

    Example:
        >>> graph = fgl.Graph(torch.ones(2, 1), torch.zeros(2, 0, dtype=torch.int64))
        >>> with_train_mask(graph, torch.tensor([True, False])).num_train
        1
    """
    other = copy.copy(graph)
    other.__dict__["train_mask"] = mask
    other.__dict__["masked"] = graph  # so that a batch of clients stacks the graph one time only
    return other


def graph_minibatches(
    graph: Graph, context: Any, *, batch_size: int = 128, num_epochs: int = 1
) -> Iterator[tuple[Graph, Any]]:
    """Shuffled minibatches of a collection's training graphs, for ``Training(batches=...)``.

    The last minibatch is kept, even if it is small. If one minibatch contains all graphs, the
    minibatch is the collection itself, and its cached adjacency is used. Graphs outside the
    training mask are in no minibatch, so these graphs do not affect batch norm. With
    ``Training(num_steps=...)``, each step uses the whole collection, so graphs outside the training
    mask affect batch norm.

    Args:
        graph: a collection.
        context: the client's context, which every step receives unchanged.
        batch_size: graphs per step.
        num_epochs: passes over the training graphs.

    Raises:
        ValueError: if `batch_size` is not positive.

    Example:
        >>> none = torch.zeros(2, 0, dtype=torch.int64)
        >>> graph = fgl.Graph(torch.ones(5, 1), none, batch=torch.arange(5))
        >>> [seen.num_graphs for seen, _ in graph_minibatches(graph, {}, batch_size=2)]
        [2, 2, 1]
    """
    check_count(batch_size=batch_size)
    chosen = training_examples(graph)
    for _ in range(num_epochs):
        if 0 < chosen.numel() <= batch_size:
            yield graph if chosen.numel() == graph.num_examples else graph.select(chosen), context
            continue
        order = torch.randperm(chosen.numel()).to(chosen.device)
        for batch in chosen[order].split(batch_size) if chosen.numel() else ():
            yield graph.select(batch), context


def window_minibatches(
    graph: Graph, context: Any, *, batch_size: int = 64, num_epochs: int = 1
) -> Iterator[tuple[Graph, Any]]:
    """Shuffled minibatches of the training windows of a series, for ``Training(batches=...)``.

    All minibatches share the series, the edges of the series, and the matrices cached for these
    edges. Windows without any known label are left out. The last minibatch is kept, even if it is
    small.

    Args:
        graph: a series with windows, see `fgl.data.splits.windows`.
        context: the client's context, which every step receives unchanged.
        batch_size: windows per step.
        num_epochs: passes over the training windows.

    Raises:
        ValueError: if `batch_size` is not positive, or if the graph has no windows.

    Example:
        >>> series = fgl.Graph(torch.rand(3, 8, 1), torch.tensor([[0], [1]]), y=torch.rand(3, 8))
        >>> graph = fgl.data.splits.windows(series, 3, horizons=(1, 2), shares=(1, 0, 0))
        >>> [seen.num_examples for seen, _ in window_minibatches(graph, {}, batch_size=3)]
        [3, 1]
    """
    got = f"{graph!r}: fgl.data.splits.windows(graph)"
    reject_if(graph.window_index is None, "graph to have windows", got)
    return graph_minibatches(graph, context, batch_size=batch_size, num_epochs=num_epochs)
