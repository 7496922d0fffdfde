"""The plan of a cohort's local steps: what each client sees in each of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ...graph import Graph
from ..method import Training
from ..minibatches import local_steps
from ..seeds import set_seed
from .cohort import Cohort


class Plan:
    """What each step of a cohort sees; a client that has no such step sees another and ignores it.

    Args:
        how: how many steps, or `how.batches`.
        cohort: the clients.
        contexts: one per client.
        seeds: one per client; it draws what it would draw alone.
    """

    def __init__(
        self, how: Training, cohort: Cohort, contexts: Sequence[Any], seeds: Sequence[int]
    ) -> None:
        self.cohort = cohort
        self.given: Sequence[Any] = contexts
        self.drawn: list[Sequence[tuple[Graph, Any]]] = []
        for graph, context, seed in zip(cohort.graphs, contexts, seeds, strict=True):
            if how.batches is None:  # nothing is drawn
                self.drawn.append(local_steps(how, graph, context))
                continue
            with torch.random.fork_rng([]):
                set_seed(seed)
                self.drawn.append(local_steps(how, graph, context))
        self.counts = [len(steps) for steps in self.drawn]

    def at(self, step: int) -> tuple[Cohort, Sequence[Any], Tensor | None]:
        """The cohort of a step, its contexts, and training masks ``[K, num_nodes]`` or None.

        Contexts that are those of the step before come as the very same list.
        """
        own = self.cohort.graphs
        pairs = [steps[min(step, len(steps) - 1)] if steps else None for steps in self.drawn]
        idle = next(pair for pair in pairs if pair)  # what a client sees that has no step at all
        given = [(pair or idle)[1] for pair in pairs]
        if any(new is not old for new, old in zip(given, self.given, strict=True)):
            self.given = given
        graphs = [pair[0] if pair else None for pair in pairs]
        if all(g is None or _base(g) is mine for g, mine in zip(graphs, own, strict=True)):
            return self.cohort, self.given, self._masks(graphs)
        seen = [(pair or idle)[0] for pair in pairs]
        return Cohort(seen, self.cohort.clients), self.given, None

    def _masks(self, graphs: Sequence[Graph | None]) -> Tensor | None:
        """Which examples each client trains on, where a step sees some of them."""
        own = self.cohort.graphs
        if all(graph is None or graph is mine for graph, mine in zip(graphs, own, strict=True)):
            return None
        shape = (len(own), self.cohort.num_examples)
        masks = torch.zeros(shape, dtype=torch.bool, device=self.cohort.index.device)
        for row, graph in zip(masks, graphs, strict=True):
            if graph is not None:
                mask = graph.training_mask
                row[: mask.numel()] = mask
        return masks


def _base(graph: Graph) -> Graph:
    """The graph that `with_train_mask` was given, or the graph itself."""
    base: Graph = graph.__dict__.get("masked", graph)
    return base
