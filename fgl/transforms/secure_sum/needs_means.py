"""Reasons why a method's server needs more of its clients than means: asked before it runs."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ...federation import (
    Inbox,
    Message,
    Method,
    OfSums,
    Params,
    accept_all,
    accept_equally,
    leaves,
    trainable,
)

CLIENTS = 5  # that a server is tried with
NEAR = 1e-4  # means of means are rounded otherwise


class _Watched(Inbox):
    """An inbox that notes what is read of each client alone."""

    def __init__(self, messages: Mapping[int, Message], sent: Mapping[int, Message]) -> None:
        super().__init__(messages, CLIENTS, sent, 0)
        self.read: list[str] = []

    def stack(self, key: str) -> Any:
        if key != "num_examples":
            self.read.append(f"stack({key!r})")
        return super().stack(key)

    def changes(self, key: str) -> Any:
        self.read.append(f"changes({key!r})")
        return Inbox(dict(self), self.num_clients, self.sent).changes(key)

    def joined(self, key: str) -> Tensor:
        self.read.append(f"joined({key!r})")
        return super().joined(key)


def why_not_means(method: Method, equally: tuple[str, ...] = ()) -> list[str]:
    """Why a method's server would not do with means of its clients' uploads; empty if it would.

    It is tried: what the server makes of five uploads must be what it makes of their means. A
    server that is a `fgl.federation.OfSums` sees sums alone, so nothing is tried.

    Args:
        method: asked about.
        equally: keys of plain means, beside the mean of the models by ``num_examples``.

    Returns:
        Sentences.

    Example:
        >>> why_not_means(fgl.fedavg(torch.nn.Linear(1, 1)))
        []
        >>> why_not_means(fgl.methods.fedamp(fgl.fedavg(torch.nn.Linear(1, 1))))[0]
        "its server reads single uploads, by inbox.stack('model')"
    """
    why = []
    sums = isinstance(method.aggregate, OfSums)
    if not sums and method.accept not in (accept_all, accept_equally):  # a sum bounds weights
        why.append("its accept looks at each upload, and masked ones look all alike")
    if method.exchange > 1:
        why.append(f"its own exchange takes {method.exchange} rounds")
    if method.joining is not None:
        why.append("its clients say something when they join, which no sum hides")
    if sums:  # it sees nothing else
        return why
    uploads, means, sent = _uploads(method, equally)
    each, mean = _Watched(uploads, sent), Inbox(means, CLIENTS, sent, 0)
    start = sent[0]
    try:
        with torch.random.fork_rng([]), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.manual_seed(0)
            one = method.aggregate(each, dict(start))
            torch.manual_seed(0)
            other = method.aggregate(mean, dict(start))
    except Exception as error:  # whatever a server does with what it does not know
        known = ["model", "num_examples", *equally]
        why.append(f"its server does not do with the means of {known} alone ({error})")
        return why
    if each.read:
        read = " and ".join(f"inbox.{name}" for name in dict.fromkeys(each.read))
        why.append(f"its server reads single uploads, by {read}")
    far = _differing(one, other)
    if far:
        why.append(f"what its server makes of uploads is not what it makes of their mean: {far}")
    return why


def _uploads(method: Method, equally: tuple[str, ...]) -> tuple[Any, Any, Any]:
    """Five uploads, the same with their means in the place of each, and what all were sent."""
    generator = torch.Generator().manual_seed(0)
    initial, names = method.initial(), trainable(method)
    learned = {name: value for name, value in initial.items() if name in names}

    def near(tensor: Tensor) -> Tensor:
        if not tensor.is_floating_point():
            return tensor
        drawn = torch.randn(tensor.shape, generator=generator, dtype=torch.float64)
        return (tensor.cpu().double() + drawn).to(tensor)

    def some(tensors: Params) -> Params:
        return {name: near(value) for name, value in tensors.items()}

    uploads: dict[int, Any] = {
        client: {
            "model": some(initial),
            "num_examples": torch.tensor(client + 1),
            **{key: some(learned) for key in equally},
        }
        for client in range(CLIENTS)
    }
    weight = torch.arange(1, CLIENTS + 1).double()
    model = {name: _mean([u["model"][name] for u in uploads.values()], weight) for name in initial}
    plain = {
        key: {
            name: _mean([u[key][name] for u in uploads.values()], torch.ones(CLIENTS))
            for name in learned
        }
        for key in equally
    }
    total, first = int(weight.sum()), {"model": initial}
    means = {
        client: {"model": model, "num_examples": torch.tensor(0 if client else total), **plain}
        for client in uploads
    }
    return uploads, means, dict.fromkeys(range(CLIENTS), first)


def _mean(tensors: list[Tensor], weight: Tensor) -> Tensor:
    if not tensors[0].is_floating_point():
        return tensors[0]
    stack = torch.stack(tensors).double()
    mean: Tensor = torch.tensordot(weight.to(stack), stack, 1) / weight.sum()
    return mean.to(tensors[0])


def _differing(one: Any, other: Any) -> str:
    """What differs in two outboxes and states, if anything does."""
    outboxes, states = zip(one, other, strict=True)
    if set(outboxes[0]) != set(outboxes[1]):
        return "who is sent a message"
    for client in outboxes[0]:
        path = _unlike(outboxes[0][client], outboxes[1][client])
        if path:
            return f"{path!r} of what it sends"
    path = _unlike(*states)
    return f"{path!r} of its state" if path else ""


def _unlike(one: Message, other: Message) -> str:
    got, want = dict(leaves(one)), dict(leaves(other))
    for path in got.keys() | want.keys():
        if path not in got or path not in want or got[path].shape != want[path].shape:
            return path
        if not torch.allclose(got[path].double(), want[path].double(), NEAR, NEAR):
            return path
    return ""
