"""Graphs in folds with validation graphs; the tables of the first matrix are a file of results.

The first matrix' runs are in ``benchmarks/results/matrix.jsonl``, its tables in
``benchmarks/results/tables/matrix.md``; no command adds to them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from fgl import Graph, Method, data, tasks
from fgl.federation import Evaluate, together


@dataclass(frozen=True)
class GraphsWithValidation(tasks.Graphs):
    """Graphs in folds; a quarter of what a client would train on validates."""

    def load(self, seed: int = 0) -> tasks.Task:
        """The task; the best round is the one of the best validation."""
        folds, tests = self.folds_of(seed)
        kept, held = zip(*(quartered(own, seed) for own in folds), strict=True)
        made = self.of(kept, tests, seed=seed)
        if self.model == "star":
            held = [tasks.with_structure(own) for own in held]

        def scores(method: Method, clients: Sequence[Graph]) -> Evaluate:
            validate = tasks.evaluate_graphs(method, held, clients)

            def validation(outbox: Any, states: Any) -> dict[str, float]:
                return {"val_accuracy": validate(outbox, states)["test_accuracy"]}

            return together(made.scores(method, clients), validation)

        return replace(made, scores=scores, select="val_accuracy")


def quartered(graph: Graph, seed: int) -> tuple[Graph, Graph]:
    """Three quarters of a collection, and the last one."""
    y: Any = graph.y
    quarter = data.splits.stratified_folds(y, 4, seed=seed)
    last = quarter == 3
    return graph.select((~last).nonzero()[:, 0]), graph.select(last.nonzero()[:, 0])
