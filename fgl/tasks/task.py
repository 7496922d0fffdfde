"""Tasks: what is learned, from what, and how it is scored; local training's settings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import torch

from ..checks import check_choice, check_number, check_weight
from ..federation import Evaluate, Method, Params
from ..graph import Graph

Scores = Callable[[Method, Sequence[Graph]], Evaluate]
Validate = Callable[[Params, Graph], float]
OPTIMIZERS = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}


@dataclass(frozen=True)
class Task:
    """A learning problem of a federation: its clients, the FedAvg that solves it, its scores.

    Args:
        clients: the clients' graphs.
        fedavg: model, loss and local training of this task; a method is made of it.
        scores: ``(method, clients) -> evaluate``, see `evaluate`.
        select: the metric whose largest value says which round is best; "" where the protocol has
            no validation.
        validate: ``(params, graph) -> score``, a client's own validation of a model; NaN where it
            has nothing to validate on.
        whole: what centralized training sees; default nothing.
        bytes_before: what all clients sent and were sent before the first round.
        new_nodes: how many nodes were generated for all clients; None where none were asked for.

    Example:
        >>> task = fgl.tasks.Nodes(clients=3, hidden=8).load(seed=0)
        >>> len(task.clients), task.select
        (3, 'val_accuracy')
    """

    clients: Sequence[Graph]
    fedavg: Method
    scores: Scores
    select: str
    validate: Validate
    whole: Graph | None = None
    bytes_before: int = 0
    new_nodes: int | None = None

    def evaluate(self, method: Method) -> Evaluate:
        """How a method is scored: ``(outbox, client_states) -> metrics``."""
        return self.scores(method, self.clients)


def centralized(task: Task) -> Task:
    """The same task for one client that has everything, scored as before.

    Raises:
        ValueError: if the task does not say what everything is.

    Example:
        >>> task = fgl.tasks.Nodes(clients=3, hidden=8).load(seed=0)
        >>> [graph.num_nodes for graph in centralized(task).clients]
        [2708]
    """
    if task.whole is None:
        raise ValueError("Expected a task with a whole graph to train on centrally, but got none")
    most = max(task.whole.num_nodes, task.fedavg.max_examples)
    return replace(task, clients=[task.whole], fedavg=replace(task.fedavg, max_examples=most))


@dataclass(frozen=True)
class Local:
    """Local training: a client's optimizer and its steps in a round.

    Raises:
        ValueError: if a number is out of range, or momentum is given beside adam.

    Example:
        >>> Local("adam", lr=0.01).optimizer_factory().keywords
        {'lr': 0.01, 'weight_decay': 0.0005}
    """

    optimizer: Literal["sgd", "adam"] = "sgd"
    """The optimizer of the clients."""
    lr: float = 0.25
    """Its learning rate."""
    momentum: float = 0.0
    """Momentum of sgd."""
    weight_decay: float = 5e-4
    """Weight decay of the optimizer."""
    steps: int = 4
    """Local steps in a round; epochs where a task draws minibatches."""

    def __post_init__(self) -> None:
        check_choice("optimizer", self.optimizer, tuple(OPTIMIZERS))
        check_weight(lr=self.lr, momentum=self.momentum, weight_decay=self.weight_decay)
        check_number("steps", self.steps, at_least=0, integer=True)
        if self.momentum and self.optimizer != "sgd":
            raise ValueError(
                f"Expected momentum to be left out beside {self.optimizer}, but got {self.momentum}"
            )

    def optimizer_factory(self) -> partial[Any]:
        """What makes the optimizer of a list of tensors."""
        options = {"lr": self.lr, "weight_decay": self.weight_decay}
        if self.optimizer == "sgd":
            options["momentum"] = self.momentum
        return partial(OPTIMIZERS[self.optimizer], **options)
