"""A server that reads sums over clients and nothing else, which a secure sum can show it."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from ...aggregate import mean
from .inbox import Inbox
from .message import Message, Params
from .method import State

Serve = Callable[[Params, int, State], tuple[Mapping[int, Message], State]]


@dataclass(frozen=True)
class OfSums:
    """A method's `aggregate` that gives a function the sums over clients of one key of an upload.

    The function sees no single upload, so `fgl.transforms.secure_sum` takes such a method as it
    is: nothing has to be tried. Under it clients send this key and ``"num_examples"``. Who sends no
    sums is sent an empty message and counts for nothing. Of several layouts the most common one
    counts, none if two are as common, and a warning names the clients that do not.

    Args:
        key: of an upload, a dict of floating-point tensors.
        serve: ``(sums, num_clients, state) -> outbox, state``.

    Example:
        >>> def serve(sums, num_clients, state):
        ...     return {}, {**state, "heard": sums}
        >>> inbox = fgl.federation.Inbox({k: {"of": {"n": torch.ones(1)}} for k in range(3)}, 3)
        >>> OfSums("of", serve)(inbox, {})
        ({}, {'heard': {'n': tensor([3.])}})
    """

    key: str
    serve: Serve

    def __call__(self, inbox: Inbox, state: State) -> tuple[Mapping[int, Message], State]:
        given: Any = {k: message[self.key] for k, message in inbox.items() if self.key in message}
        layouts = {client: _layout(each) for client, each in given.items()}
        counted = Counter(layouts.values()).most_common(2)
        clear = counted[:1] if len(counted) < 2 or counted[0][1] > counted[1][1] else []
        usual = [layout for layout, _ in clear]
        odd = [client for client, layout in layouts.items() if layout not in usual]
        if odd:
            warnings.warn(
                f"Expected {self.key!r} of one layout, but got others from clients {odd}: these "
                "count for nothing",
                stacklevel=2,
            )
        alike = [each for client, each in given.items() if client not in odd]
        if not alike:
            return {client: {} for client in inbox}, state
        stacks = {name: [each[name] for each in alike] for name in alike[0]}
        means = mean(stacks, torch.ones(len(alike)))
        sums = {name: value * len(alike) for name, value in means.items()}
        return self.serve(sums, inbox.num_clients, state)


def _layout(tensors: Params) -> frozenset[Any]:
    return frozenset((name, value.shape, value.dtype) for name, value in tensors.items())
