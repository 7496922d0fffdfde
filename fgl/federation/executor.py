"""Who trains with whom: one client after the other, or cohorts of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, Literal

import torch
from torch import Tensor

from ..graph import Graph
from .batch import SCALARS, train_cohort
from .cohort import Cohort
from .message import Message, Params, check_message, check_model, leaves
from .method import Method, State, fold_in
from .result import Result
from .stage import stage
from .train import Trained, train


class Executor:
    """Trains a round's clients, `clients_at_once` of them at a time.

    Clients of about the same size share a cohort, so that padding is cheap; what a round has built
    is kept for the next one.

    Args:
        clients: every client's graph.
        clients_at_once: the largest cohort; ``"all"``: one cohort; 1: no cohorts, a plain loop.

    Raises:
        ValueError: if `clients_at_once` is neither.
    """

    def __init__(self, clients: Sequence[Graph], clients_at_once: int | Literal["all"]) -> None:
        if clients_at_once != "all" and (
            not isinstance(clients_at_once, int) or clients_at_once < 1
        ):
            raise ValueError(
                f"Expected clients_at_once to be 'all' or at least 1, but got {clients_at_once!r}"
            )
        self.clients = clients
        self.clients_at_once = len(clients) if clients_at_once == "all" else clients_at_once
        self.padding = 0.0
        self._checked: set[str] = set()  # kinds of padding that a loss was compared with
        self._cohorts: dict[tuple[int, ...], Cohort] = {}

    def updates(
        self,
        method: Method,
        group: tuple[int, ...],
        result: Result,
        index: int,
        seed: int,
        sent: Sent,
    ) -> list[tuple[int, Message, State, list[float]]]:
        """What each client of a group sends, its new state and its losses."""
        states = [result.client_states.get(client, {}) for client in group]
        messages = [result.outbox[client] for client in group]
        model, received = method.model.state_dict(), []
        for client, message, state in zip(group, messages, states, strict=True):
            with stage(seed, index, client, "receive"):
                with unchanged(message, state):
                    params, context = method.receive(message, state, self.clients[client])
                check_model(params, model, "receive's params")
            received.append((params, context))
        seeds = [fold_in(seed, index, client) for client in group]
        with stage(seed, index, group, "loss"), unchanged(*messages, *states):
            trained = self._train(method, group, received, states, seeds)
        made = []
        for client, message, state, (_, context), done in zip(
            group, messages, states, received, trained, strict=True
        ):
            with stage(seed, index, client, "send"):
                with unchanged(message, state):
                    upload, new = method.send(done.params, context, state, self.clients[client])
                check_message(upload)
                check_message(new, name="state")
                sent.add(client, upload, new)
            if method.train.keep_optimizer:
                new = {**new, "optimizer": done.optimizer}
            made.append((client, upload, new, done.losses))
        return made

    def _train(
        self,
        method: Method,
        group: tuple[int, ...],
        received: Sequence[tuple[Params, Message]],
        states: Sequence[State],
        seeds: Sequence[int],
    ) -> list[Trained]:
        params, contexts = zip(*received, strict=True)
        kept: list[Any] = [state.get("optimizer", {}) for state in states]
        if not method.train.keep_optimizer:
            kept = [{}] * len(group)
        if len(group) == 1:
            graph = self.clients[group[0]]
            own = train(method, params[0], graph, contexts[0], seed=seeds[0], optimizer=kept[0])
            return [own]
        if group not in self._cohorts:
            self._cohorts[group] = Cohort([self.clients[client] for client in group], group)
        cohort = self._cohorts[group]
        return train_cohort(
            method, params, cohort, contexts, seeds=seeds, optimizers=kept, checked=self._checked
        )

    def groups(self, ready: Sequence[int], result: Result) -> list[tuple[int, ...]]:
        """Clients of about the same size, whose optimisers are as old, in groups of equal count."""
        if self.clients_at_once == 1:
            self.padding = 0.0
            return [(client,) for client in ready]
        alike: dict[Any, list[int]] = {}
        for client in sorted(ready, key=lambda client: self.clients[client].num_nodes):
            alike.setdefault(_age(result.client_states.get(client, {})), []).append(client)
        groups: list[tuple[int, ...]] = []
        for members in alike.values():
            count = -(-len(members) // self.clients_at_once)
            bounds = [len(members) * i // count for i in range(count + 1)]
            groups += [tuple(sorted(members[a:b])) for a, b in pairwise(bounds)]
        size = [graph.num_nodes for graph in self.clients]
        slots = sum(len(group) * max(size[c] for c in group) for group in groups)
        self.padding = 1 - sum(size[c] for c in ready) / slots if slots else 0.0
        kept = self._cohorts  # those that this round does not use again would grow without bound
        self._cohorts = {group: kept[group] for group in groups if group in kept}
        return groups


@contextmanager
def unchanged(*messages: Mapping[str, Any]) -> Iterator[None]:
    """Raise if a message or a state is changed in place: others hold the same tensors.

    As torch counts changes; what goes through ``.data`` or numpy is not counted.
    """
    once = {id(message): message for message in messages}
    held = [tensor for message in once.values() for _, tensor in leaves(message)]  # ids stay theirs
    before = {key: _versions(message) for key, message in once.items()}
    yield
    del held
    for key, message in once.items():
        now, then = _versions(message), before[key]
        changed = [path for path in then | now if then.get(path) != now.get(path)]
        if changed:
            raise ValueError(
                f"Expected the message and the state to stay as they are, but got {changed[0]!r} "
                "changed in place: others see it too, make a copy"
            )


class Sent:
    """What a round's clients have sent and kept, to see that none overwrites another's.

    As torch counts changes; what goes through ``.data`` or numpy is not counted.
    """

    def __init__(self) -> None:
        self._last: dict[int, tuple[int, Tensor, int]] = {}  # the tensor keeps its place taken

    def add(self, client: int, *parts: Message) -> None:
        """Raise if a tensor is one that another client gave, and changed since."""
        for path, tensor in (leaf for part in parts for leaf in leaves(part)):
            if tensor.layout != torch.strided or not tensor.numel() or tensor.is_inference():
                continue
            place = tensor.data_ptr()
            other, given, version = self._last.get(place, (client, tensor, tensor._version))
            if other != client and given._version != version:
                raise ValueError(
                    f"Expected clients {other} and {client} to have tensors of their own, but got "
                    f"one {path!r} for both, changed in between: give a copy"
                )
            self._last[place] = client, tensor, tensor._version


def _versions(message: Mapping[str, Any]) -> dict[str, tuple[int, int]]:
    """Which tensor is where, and how often it was changed (an inference tensor does not count)."""
    return {path: (id(t), t.is_inference() or t._version) for path, t in leaves(message)}


def _age(state: State) -> tuple[tuple[str, float], ...]:
    """What a kept optimiser holds and counts: one serves a cohort, so all must agree."""
    kept: Any = state.get("optimizer", {})
    if isinstance(kept, Tensor):  # a method's own
        return ()
    return tuple((k, float(v) if k.split("/")[0] in SCALARS else 0.0) for k, v in kept.items())
