"""Servers that say what they read: means or sums over clients, and entries of uploads by name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from ...aggregate import mean
from ...kinds import check_takes, explained
from ...warn import warn
from .describe import short_name
from .message import Aggregate, Inbox, Message, Params, State


class Means(Mapping[str, Params]):
    """The means over the clients of a round, as a mapping from key to mean.

    Args:
        values: the means by key. ``"model"`` is missing if no client has an example.
        inbox: the clients in the means. Its messages have only the entries that the server reads
            client by client; most servers read none.

    Example:
        >>> means = Means({"model": {"w": torch.ones(1)}}, fgl.federation.Inbox({2: {}, 4: {}}, 5))
        >>> means["model"], means.clients, means.num_clients
        ({'w': tensor([1.])}, [2, 4], 5)
    """

    def __init__(self, values: Mapping[str, Params], inbox: Inbox) -> None:
        self._values = dict(values)
        self.inbox = inbox

    @classmethod
    def over(
        cls,
        inbox: Inbox,
        *,
        model: Params | None = None,
        equally: Collection[str] = (),
        reads: Collection[str] = (),
    ) -> Means:
        """The given mean of the models, the plain means of `equally`, and the entries in `reads`.

        Raises:
            TypeError: if an entry of `equally` is no dict of tensors.
            ValueError: if an upload lacks it.

        Example:
            >>> inbox = fgl.federation.Inbox({k: {"n": {"w": torch.tensor(k)}} for k in (1, 3)}, 4)
            >>> means = Means.over(inbox, equally=["n"])
            >>> means["n"], dict(means.inbox)
            ({'w': tensor(2)}, {1: {}, 3: {}})
        """
        values = {} if model is None else {"model": model}
        values |= {key: _plain_mean(inbox, key) for key in equally}
        entries: dict[int, Message] = {
            client: {key: message[key] for key in reads if key in message}
            for client, message in inbox.items()
        }
        sent, payers = inbox.sent, inbox.asked
        return cls(values, Inbox(entries, inbox.num_clients, sent, inbox.round, payers))

    @property
    def clients(self) -> list[int]:
        """The clients in the means, in order."""
        return self.inbox.clients

    @property
    def num_clients(self) -> int:
        """Number of clients in the federation, including absent ones."""
        return self.inbox.num_clients

    def __getitem__(self, key: str) -> Params:
        if key not in self._values:
            raise KeyError(f"Expected a mean of {key!r}, but got those of {list(self._values)}")
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


Made = tuple[Mapping[int, Message], State]
Serve = Callable[[Means, State], Made]
ServeSums = Callable[[Params, int, State], Made]
Change = Callable[[Mapping[int, Message], State, Means, State], Made]


@dataclass(frozen=True)
class OfMeans:
    """A method's `aggregate` that reads the means of its clients' uploads, and no single upload.

    ``means["model"] = sum_k n_k theta_k / sum_k n_k``, n_k being ``"num_examples"``. What a server
    reads is known before a run: `fgl.transforms.secure_sum` shows it the means of masked uploads,
    `fgl.transforms.robust` another mean of the models.

    Args:
        serve: ``(means, state) -> outbox, state``, the server's part. `means` is a `Means`. It has
            no ``"model"`` in a round in which no client has an example.
        equally: further keys of an upload, dicts of tensors, whose plain means `serve` reads.
        reads: keys of an upload that `serve` reads client by client, from ``means.inbox``. No
            secure sum shows them, and no robust mean protects them.
        averages: whether `serve` does no more than send every client the mean of the models. A
            method with a server of its own takes only such a method.

    Raises:
        TypeError: if `serve` does not take two arguments, or keys are one string.
        ValueError: if `equally` names ``"model"`` or ``"num_examples"``.

    Example:
        >>> def serve(means, state):
        ...     message = {"model": {name: value / 2 for name, value in means["model"].items()}}
        ...     return dict.fromkeys(range(means.num_clients), message), message
        >>> one = {"model": {"w": torch.ones(1)}, "num_examples": torch.tensor(3)}
        >>> OfMeans(serve)(fgl.federation.Inbox({1: one}, num_clients=2), {})[0][0]
        {'model': {'w': tensor([0.5000])}}
    """

    serve: Serve
    equally: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    averages: bool = False

    def __post_init__(self) -> None:
        _check_takes("serve", self.serve, ("means", "state"))
        for name in ("equally", "reads"):
            object.__setattr__(self, name, _keys(name, getattr(self, name)))
        for name in ("__name__", "__qualname__"):  # a checkpoint compares functions by their names
            object.__setattr__(self, name, short_name(self.serve))
        weighted = [key for key in self.equally if key in ("model", "num_examples")]
        if weighted:
            raise ValueError(
                "Expected equally to name keys beside 'model' and 'num_examples', since the mean "
                f"of the models is weighted by the clients' examples, but got {weighted[0]!r}"
            )

    def __call__(self, inbox: Inbox, state: State) -> Made:
        weight = inbox.stack("num_examples")
        model = mean(inbox.each("model"), weight) if weight.any() else None
        return self.serve_model(model, inbox, state)

    def serve_model(self, model: Params | None, inbox: Inbox, state: State) -> Made:
        """Serve `model` instead of the mean of the inbox's models; None if there is none."""
        return self.serve(
            Means.over(inbox, model=model, equally=self.equally, reads=self.reads), state
        )


@explained
def after(
    aggregate: Aggregate,
    change: Change,
    *,
    equally: Collection[str] = (),
    reads: Collection[str] = (),
    averages: bool = False,
) -> Aggregate:
    """The server's `aggregate`, followed by a change of what it returns.

    If `aggregate` is an `OfMeans`, so is the result, which `fgl.transforms.secure_sum` and
    `fgl.transforms.robust` can then take.

    Args:
        aggregate: the server's function, of any kind.
        change: ``(outbox, new, means, state) -> outbox, state``, called with what `aggregate`
            returned and with the state that `aggregate` was given. `means` has the means of
            `equally`. The outbox is empty in a round in which no client has an example.
        equally: keys of an upload, dicts of tensors, whose plain means `change` reads.
        reads: keys of an upload that `change` reads client by client, from ``means.inbox``.
        averages: whether every client is still sent the mean of the models, if it was before.

    Raises:
        TypeError: if `change` does not take four arguments, or keys are one string.

    Example:
        >>> def count(outbox, new, means, state):
        ...     return outbox, {**new, "count": torch.tensor(len(means.clients))}
        >>> aggregate = after(fgl.federation.average, count)
        >>> one = {"model": {"w": torch.ones(1)}, "num_examples": torch.tensor(3)}
        >>> aggregate(fgl.federation.Inbox({0: one, 2: one}, 3), {})[1]
        {'model': {'w': tensor([1.])}, 'count': tensor(2)}
    """
    _check_takes("change", change, ("outbox", "new", "means", "state"))
    equally, reads = _keys("equally", equally), _keys("reads", reads)
    if not isinstance(aggregate, OfMeans):

        def changed(inbox: Inbox, state: State) -> Made:
            outbox, new = aggregate(inbox, state)
            return change(outbox, new, Means.over(inbox, equally=equally, reads=reads), state)

        changed.__qualname__ = short_name(change)
        return changed
    served = aggregate.serve

    def serve(means: Means, state: State) -> Made:
        outbox, new = served(means, state)
        return change(outbox, new, means, state)

    serve.__qualname__ = short_name(change)
    return OfMeans(
        serve,
        equally=tuple(dict.fromkeys((*aggregate.equally, *equally))),
        reads=tuple(dict.fromkeys((*aggregate.reads, *reads))),
        averages=averages and aggregate.averages,
    )


def _plain_mean(inbox: Inbox, key: str) -> Params:
    stacks = inbox.each(key)
    if not isinstance(stacks, Mapping):
        raise TypeError(f"Expected {key!r} of an upload to be a dict of tensors, but got a tensor")
    return mean(stacks, torch.ones(len(inbox)))


def _keys(name: str, keys: Any) -> tuple[str, ...]:
    if isinstance(keys, str):
        raise TypeError(f"Expected {name} to be several keys, but got the string {keys!r}")
    return tuple(keys)


def _check_takes(name: str, function: Any, arguments: Collection[str]) -> None:
    """Raise unless the function can be called with these arguments by position."""
    if isinstance(function, OfMeans | OfSums):
        call = f"a function of ({', '.join(arguments)})"
        raise TypeError(f"Expected {name} to be {call}, but got {function!r}")
    check_takes(name, function, arguments)


@dataclass(frozen=True)
class OfSums:
    """A method's `aggregate` that gives a function the sums over clients of one key of an upload.

    The function sees no single upload, so `fgl.transforms.secure_sum` takes such a method as it is.
    Under a secure sum clients send this key and ``"num_examples"``. A client without this key is
    sent an empty message and does not count. If layouts differ, only uploads of the most common
    layout count, or none if two layouts tie; a warning names the other clients.

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
    serve: ServeSums

    def __call__(self, inbox: Inbox, state: State) -> tuple[Mapping[int, Message], State]:
        parts = {k: message[self.key] for k, message in inbox.items() if self.key in message}
        odd = _of_odd_layout(parts)
        if odd:
            warn(
                f"Clients {odd} sent {self.key!r} of another layout than most: their uploads do "
                "not count",
            )
        counting = [each for client, each in parts.items() if client not in odd]
        if not counting:
            return {client: {} for client in inbox}, state
        stacks = {name: [each[name] for each in counting] for name in counting[0]}
        means = mean(stacks, torch.ones(len(counting)))
        sums = {name: value * len(counting) for name, value in means.items()}
        return self.serve(sums, inbox.num_clients, state)


def _of_odd_layout(parts: Mapping[int, Params]) -> list[int]:
    """The clients whose layout is not the most common one; all of them if two layouts tie."""
    layouts = {client: _layout(tensors) for client, tensors in parts.items()}
    counts = Counter(layouts.values()).most_common(2)
    tied = len(counts) == 2 and counts[0][1] == counts[1][1]
    return [client for client, layout in layouts.items() if tied or layout != counts[0][0]]


def _layout(tensors: Params) -> frozenset[Any]:
    return frozenset((name, value.shape, value.dtype) for name, value in tensors.items())
