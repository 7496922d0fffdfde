"""Clients in this process: their graphs or a task, one after the other or in batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol

import torch

from ...graph import Graph
from ..history import Result
from ..method.method import Evaluate, Method
from .batch.batch import Batch
from .loop import Loop, Score


class Task(Protocol):
    """What a run needs of a task: its clients, and how it scores a method."""

    @property
    def clients(self) -> Sequence[Graph]: ...

    @property
    def evaluate(self) -> Callable[[Method], Evaluate]: ...


def _none_here(
    clients: Any, at_once: int | Literal["all", "auto"], score: Score | None, start: Result | None
) -> Sequence[Graph]:
    """The graphs of this process, where the clients are elsewhere."""
    if clients is not None or at_once not in ("auto", 1) or score is not None:
        raise ValueError(
            "Expected clients, clients_at_once and score to be left out with on, whose clients "
            "have their own, but got one of them"
        )
    if start is not None and start.client_states:
        raise ValueError("Expected start to hold no client's state with on, but got some")
    return []


def unpacked(
    method: Method, clients: Sequence[Graph] | Task | None, evaluate: Evaluate | None
) -> tuple[Sequence[Graph], Evaluate | None]:
    """The graphs of the clients, and who scores.

    Example:
        >>> task = fgl.tasks.Nodes(clients=3, hidden=8).load(seed=0)
        >>> graphs, evaluate = unpacked(task.fedavg, task, None)
        >>> len(graphs), callable(evaluate)
        (3, True)
    """
    if clients is None:
        raise ValueError(
            "Expected clients to be graphs or a task where on is left out, but got none"
        )
    if isinstance(clients, Sequence):
        return clients, evaluate
    if not callable(getattr(clients, "evaluate", None)):
        got = type(clients).__name__
        hint = ", whose load(seed=0) makes one" if hasattr(clients, "load") else ""
        raise TypeError(
            f"Expected clients to be a sequence of graphs or a task, but got a {got}{hint}"
        )
    return clients.clients, evaluate or clients.evaluate(method)


def check_at_once(at_once: Any) -> None:
    """Raise a ValueError unless it is a number of clients, "all" or "auto".

    Example:
        >>> check_at_once(0)
        Traceback (most recent call last):
        ValueError: Expected clients_at_once to be 'all' or at least 1, or 'auto', but got 0
    """
    number = isinstance(at_once, int) and not isinstance(at_once, bool) and at_once >= 1
    if not number and at_once not in ("all", "auto"):
        raise ValueError(
            f"Expected clients_at_once to be 'all' or at least 1, or 'auto', but got {at_once!r}"
        )


def _executor(
    method: Method,
    graphs: Sequence[Graph],
    at_once: int | Literal["all"],
    or_alone: bool,
    given: Mapping[str, Any],
) -> Loop:
    if at_once == 1:
        return Loop(method, graphs, **given)
    size = len(graphs) if at_once == "all" else at_once
    return Batch(method, graphs, size, or_alone=or_alone, **given)


def _device(method: Method, clients: Sequence[Graph]) -> torch.device:
    """Where a checkpoint's tensors go: to the clients, or else to the model."""
    if clients:
        return clients[0].device
    return next((t.device for t in method.model.state_dict().values()), torch.device("cpu"))


def _cuda(clients: Sequence[Graph]) -> list[torch.device]:
    return list({graph.device for graph in clients if graph.device.type == "cuda"})


def _check_dtype(method: Method, clients: Sequence[Graph]) -> None:
    """Features of another floating type than all parameters would fail inside the first layer."""
    known = {p.dtype for p in method.model.parameters() if p.is_floating_point()}
    for client, graph in enumerate(clients):
        if known and graph.x.dtype not in known:
            wanted = " or ".join(sorted(map(str, known)))
            raise TypeError(
                f"Expected client {client}'s features to be {wanted} as the model, "
                f"but got {graph.x.dtype}"
            )


def check_graphs(clients: Sequence[Graph]) -> None:
    """Raise unless these are graphs of one number of features, at least one of them."""
    if not clients:
        raise ValueError("Expected clients to be at least one graph, but got none")
    for client, graph in enumerate(clients):
        if not isinstance(graph, Graph):
            raise TypeError(
                f"Expected client {client} to be a Graph, but got {type(graph).__name__}"
            )
    widths = [graph.num_features for graph in clients]
    for client, width in enumerate(widths):
        if width != widths[0]:
            raise ValueError(
                f"Expected client {client} to have {widths[0]} features as client 0, "
                f"but got {width}"
            )
