"""Clients in this process, given as graphs or as a task.

The clients train one at a time or in batches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

import torch
from torch import nn

from ...checks import reject_if
from ...graph import EDGE_FIELDS, NODE_FIELDS, TIME_FIELDS, Graph
from ...graph.facts import check_graphs, kind_of
from ...predict import reads
from ..gate.guard import checked
from ..method.message import State
from ..method.method import Evaluate, Method
from ..saved.identity import fingerprint
from . import Executor
from .batch.batch import Batch
from .batch.choice import choose
from .loop import Loop, Score


class TaskLike(Protocol):
    """The parts of a task that a run needs: the clients, and a function that builds the scores."""

    @property
    def clients(self) -> Sequence[Graph]: ...

    @property
    def evaluate(self) -> Callable[..., Evaluate]: ...


class Place(Protocol):
    """A place where clients run.

    A place states how many clients there are, and creates the executor that runs them.

    Example:
        >>> graph = fgl.Graph(torch.eye(2), torch.tensor([[0], [1]]), y=torch.tensor([0, 1]))
        >>> place: Place = Here([graph] * 3)
        >>> place.num_clients
        3
    """

    @property
    def num_clients(self) -> int: ...

    @property
    def devices(self) -> Sequence[torch.device]:
        """The devices of the clients' tensors.

        The list is empty if the clients run in other processes.
        """

    def check(self, method: Method) -> None:
        """Raise an error if these clients cannot run the method."""

    def evaluate(self, method: Method, *, each: bool = False) -> Evaluate | None:
        """The default score of a method for the clients of this executor.

        The argument `each` is explained in the docstring of `fgl.run`.
        """

    def identity(self, method: Method) -> Mapping[str, Any]:
        """JSON values that must be equal in a saved run and in the run that resumes it."""

    def __call__(
        self, method: Method, *, seed: int, states: Mapping[int, State], config: Mapping[str, Any]
    ) -> Executor: ...


@dataclass(frozen=True)
class Here:
    """Clients in this process.

    ``fgl.run(method, clients)`` runs the method on ``Here(clients)``.

    Args:
        clients: one graph per client, or a task. A task contains the graphs and the metrics that
            score the method.
        at_once: number of clients that train as one batch, or ``"all"``. With 1, clients train one
            at a time. By default `fgl.federation.choose` selects the number.
        score: ``(params, graph) -> metrics``, called for each client with the model that the client
            deploys and with the client's graph.

    Raises:
        TypeError: if `clients` are neither graphs nor a task.
        ValueError: if there are no clients, if two clients have different numbers of features, or
            if `at_once` is invalid.

    Example:
        >>> task = fgl.tasks.Nodes(clients=3, hidden=8).load(seed=0)
        >>> Here(task).num_clients
        3
    """

    clients: Sequence[Graph] | TaskLike | None
    at_once: int | Literal["all", "auto"] = "auto"
    score: Score | None = None

    def __post_init__(self) -> None:
        check_graphs(self.graphs)
        number, want = self.at_once, "clients_at_once to be 'all' or at least 1, or 'auto'"
        fits = number in ("all", "auto") or (type(number) is int and number >= 1)
        reject_if(not fits, want, repr(number))

    @property
    def graphs(self) -> Sequence[Graph]:
        """Every client's graph."""
        if self.clients is None:
            raise ValueError(
                "Expected clients to be graphs, a task or a place such as "
                "fgl.federation.Flower(grid, num_clients=4), but got none"
            )
        if isinstance(self.clients, Sequence):
            return self.clients
        instance = not isinstance(self.clients, type)
        if not (instance and callable(getattr(self.clients, "evaluate", None))):
            got = kind_of(self.clients)
            hint = ", whose load(seed=0) makes one" if hasattr(self.clients, "load") else ""
            raise TypeError(
                f"Expected clients to be a sequence of graphs, a task or a place, but got a {got}"
                f"{hint}"
            )
        return self.clients.clients

    @property
    def first_rounds(self) -> int:
        """Number of rounds before new clients join the task, or new classes appear in it."""
        return getattr(self.clients, "first_rounds", 0)

    def in_round(self, index: int) -> Here:
        """A copy of this object with the graphs that the clients have in a given round."""
        if index >= self.first_rounds:
            return self
        return replace(self, clients=self.clients.first(self.graphs))  # type: ignore[union-attr]

    @property
    def num_clients(self) -> int:
        return len(self.graphs)

    @property
    def devices(self) -> Sequence[torch.device]:
        return list(dict.fromkeys(graph.device for graph in self.graphs))

    def check(self, method: Method) -> None:
        """Raise an error if the clients' graphs do not have the features that the model needs.

        All clients must have equal numbers of features, unless clients have their own modules.
        """
        if not method.own.modules:
            _check_widths(self.graphs)
            _check_fields(self.graphs, method.model)
        for client, graph in enumerate(self.graphs):
            own = method.model
            if method.own.models is not None:
                own = method.own.models(graph, f"client {client}'s model")
            dtypes = {p.dtype for p in own.parameters() if p.is_floating_point()}
            if dtypes and graph.x.dtype not in dtypes:
                listed = " or ".join(sorted(map(str, dtypes)))
                cast = "astype" if hasattr(graph.x, "astype") else "to"
                narrow = f"graph.x.{cast}({min(map(str, dtypes))})"
                raise TypeError(
                    f"Expected client {client}'s features to be {listed} as the model, but got "
                    f"{graph.x.dtype}: graph.replace(x={narrow}), or model.to({graph.x.dtype})"
                )

    def evaluate(self, method: Method, *, each: bool = False) -> Evaluate | None:
        if self.clients is None or isinstance(self.clients, Sequence):
            return None
        return self.clients.evaluate(method, **({"each": True} if each else {}))

    def number_at_once(self, method: Method) -> int | Literal["all"]:
        """The number of clients that train as one batch: `at_once`, or the choice of `choose`."""
        return (
            choose(method, self.graphs).clients_at_once if self.at_once == "auto" else self.at_once
        )

    def identity(self, method: Method) -> Mapping[str, Any]:
        sizes = [[graph.num_nodes, graph.num_edges, graph.num_train] for graph in self.graphs]
        own: dict[str, Any] = {}
        if method.own.models is not None:  # compared first, since the data then also differ
            models = enumerate(map(method.own.models.described, self.graphs))
            own = {"clients' own": {f"client {client}": model for client, model in models}}
        whole = getattr(self.clients, "whole", None)
        if isinstance(whole, Graph):  # it scores the rounds
            own["whole graph"] = fingerprint([whole])
        if self.first_rounds:
            own["first rounds"] = [self.first_rounds, fingerprint(self.in_round(0).graphs)]
        return {
            **own,
            "clients": sizes,
            "clients_at_once": self.number_at_once(method),
            "clients' data": fingerprint(self.graphs),
        }

    def __call__(
        self, method: Method, *, seed: int, states: Mapping[int, State], config: Mapping[str, Any]
    ) -> Executor:
        method, graphs, number = checked(method), self.graphs, self.number_at_once(method)
        how: dict[str, Any] = {"seed": seed, "states": states, "score": self.score}
        if number == 1:
            loop = Loop(method, graphs, **how)
            choice = choose(method, graphs) if self.at_once == "auto" else None
            loop.one_by_one = choice.why if choice is not None and choice.refused else ""
            return loop
        size = len(graphs) if number == "all" else number
        return Batch(method, graphs, size, or_alone=self.at_once == "auto", **how)


def _check_fields(clients: Sequence[Graph], model: nn.Module) -> None:
    """Raise an error if the model reads a field that only some graphs have.

    Missing edge weights count as 1.
    """
    for name in (*EDGE_FIELDS[1:], *NODE_FIELDS, *TIME_FIELDS, "u"):
        lacking = [client for client, graph in enumerate(clients) if not graph.has(name)]
        want = f"all clients to have {name}, which {type(model).__name__} reads, or none of them"
        got = f"none for clients {lacking}"
        reject_if(0 < len(lacking) < len(clients) and name in reads(model).names, want, got)


def _check_widths(clients: Sequence[Graph]) -> None:
    """Raise an error unless all graphs have the same number of features."""
    widths = [graph.num_features for graph in clients]
    for client, width in enumerate(widths):
        want = f"client {client} to have {widths[0]} features as client 0"
        got = f"{width}: fgl.methods.fedper(shared=..., models=...) takes clients that differ"
        reject_if(width != widths[0], want, got)
