"""What each local step sees: all of a client, a minibatch, or what a method draws."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from ..graph import Graph
from .cohort import Cohort
from .message import Message
from .method import Training, set_seed


def local_steps(how: Training, graph: Graph, context: Message) -> list[tuple[Graph, Message]]:
    """The graph and the context of every step: what `how.batches` draws, a minibatch, or all."""
    if how.batches is not None:
        return list(how.batches(graph, context))
    if how.batch_size is None:
        return [(graph, context)] * how.num_steps
    return [(with_train_mask(graph, mask), context) for mask in batch_masks(how, graph)]


def batch_masks(how: Training, graph: Graph) -> list[Tensor]:
    """A training mask for every step: `num_steps` passes over the training nodes, shuffled."""
    nodes = training_examples(graph)
    masks = []
    for _ in range(how.num_steps):
        order = nodes[torch.randperm(nodes.numel()).to(nodes.device)]
        for batch in order.split(how.batch_size or max(order.numel(), 1)) if order.numel() else ():
            masks.append(torch.zeros_like(graph.example_mask).index_fill(0, batch, True))
    return masks


def training_examples(graph: Graph) -> Tensor:
    """What a client trains on, int64: nodes, or graphs of a collection; all without a mask."""
    mask = graph.example_mask if graph.train_mask is None else graph.train_mask
    return mask.nonzero().squeeze(1)


def with_train_mask(graph: Graph, mask: Tensor) -> Graph:
    """The same graph, its cached adjacency too, with another training mask; unchecked."""
    other = copy.copy(graph)
    other.__dict__["train_mask"] = mask
    return other


class Plan:
    """What each step of a cohort sees; a client that has no such step sees another and ignores it.

    Args:
        how: minibatches, or `how.batches`.
        cohort: the clients.
        contexts: one per client.
        seeds: one per client; it draws what it would draw alone.
    """

    def __init__(
        self,
        how: Training,
        cohort: Cohort,
        contexts: Sequence[Message],
        seeds: Sequence[int],
    ) -> None:
        self.cohort, self.contexts = cohort, contexts
        self.masks: Tensor | None = None
        self.drawn: list[list[tuple[Graph, Message]]] = []
        self.counts = [how.num_steps] * len(cohort)
        if how.batch_size is None and how.batches is None:
            return
        masks = []
        for graph, context, seed in zip(cohort.graphs, contexts, seeds, strict=True):
            with torch.random.fork_rng([]):
                set_seed(seed)
                if how.batches is None:
                    masks.append(batch_masks(how, graph))
                else:
                    self.drawn.append(local_steps(how, graph, context))
        self.counts = [len(each) for each in self.drawn or masks]
        if masks:
            shape = (max(self.counts), len(cohort), cohort.num_examples)
            self.masks = torch.zeros(shape, dtype=torch.bool, device=cohort.index.device)
            for client, own in enumerate(masks):
                for step, mask in enumerate(own):
                    self.masks[step, client, : mask.numel()] = mask

    def at(self, step: int) -> tuple[Cohort, Sequence[Message], Tensor | None]:
        """The cohort of a step, its contexts, and training masks ``[K, num_nodes]`` or None."""
        if self.masks is not None:
            return self.cohort, self.contexts, self.masks[step] if len(self.masks) else None
        if not any(self.drawn):
            return self.cohort, self.contexts, None
        own = self.cohort.graphs
        donor = next(client for client, steps in enumerate(self.drawn) if steps)
        pairs = [steps[min(step, len(steps) - 1)] if steps else None for steps in self.drawn]
        graph, context = pairs[donor]  # type: ignore[misc]
        idle = (None if graph is own[donor] else graph), context
        seen = [pair or (idle[0] or own[client], idle[1]) for client, pair in enumerate(pairs)]
        given = [context for _, context in seen]
        if all(graph is mine for (graph, _), mine in zip(seen, own, strict=True)):
            return self.cohort, given, None
        return Cohort([graph for graph, _ in seen], self.cohort.clients), given, None


def graph_minibatches(
    graph: Graph, context: Message, *, batch_size: int = 128, num_epochs: int = 1
) -> Iterator[tuple[Graph, Message]]:
    """Shuffled minibatches of a collection's training graphs, for ``Training(batches=...)``.

    The last one is kept however small. Where one batch holds all, that is the collection itself,
    whose adjacency is there already.

    Args:
        graph: a collection.
        context: passed on as it is.
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
    if batch_size < 1:
        raise ValueError(f"Expected batch_size to be at least 1, but got {batch_size}")
    chosen = training_examples(graph)
    for _ in range(num_epochs):
        if 0 < chosen.numel() <= batch_size:
            yield graph, context
            continue
        order = torch.randperm(chosen.numel()).to(chosen.device)
        for batch in chosen[order].split(batch_size) if chosen.numel() else ():
            yield graph.select(batch), context
