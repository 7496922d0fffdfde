"""Inbox and outbox: the messages that a server received in a round, and its next messages."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from operator import methodcaller
from typing import Any

import torch
from torch import Tensor

from ...kinds import explained
from .message import Message, State, check_keys, check_like, leaves

STRIDE = methodcaller("stride")


class Inbox(Mapping[int, Message]):
    """The messages that the server received in a round, as a mapping from client to message.

    Args:
        messages: the messages by client, without clients that dropped out.
        num_clients: number of clients in the federation, including absent ones.
        sent: the messages that the server sent in this round, by client; default unknown.
        round: number of the round, from 0; default unknown.
        asked: the clients that were asked in this round, whether or not their answers arrived;
            default the clients of `messages`. A client on its own machine is listed once for each
            answer that it can have paid for.

    Example:
        >>> inbox = Inbox({4: {"n": torch.tensor(1)}, 2: {"n": torch.tensor(3)}}, num_clients=5)
        >>> inbox.clients, inbox.stack("n")
        ([2, 4], tensor([3, 1]))
    """

    def __init__(
        self,
        messages: Mapping[int, Message],
        num_clients: int,
        sent: Mapping[int, Message] | None = None,
        round: int | None = None,
        asked: Collection[int] | None = None,
    ) -> None:
        self._messages = {client: messages[client] for client in sorted(messages)}
        self.num_clients = num_clients
        self.sent: Mapping[int, Message] = {} if sent is None else sent
        self.round = round
        self.asked = list(self._messages) if asked is None else sorted(asked)

    @property
    def clients(self) -> list[int]:
        """The clients that sent a message, in order; row i of a stack belongs to ``clients[i]``."""
        return list(self._messages)

    def __getitem__(self, client: int) -> Message:
        return self._messages[client]

    def __iter__(self) -> Iterator[int]:
        return iter(self._messages)

    def __len__(self) -> int:
        return len(self._messages)

    def stack(self, key: str) -> Any:
        """Stack the clients' tensors under `key`: one tensor ``[K, ...]``, or a dict of them.

        The stack is a copy, which may be changed in place.

        Raises:
            TypeError: if an entry is no tensor or has another dtype than the first client's.
            ValueError: if the inbox is empty, a client's message lacks the key, or the keys or
                shapes of two clients differ.
        """
        return self._entries(key, _stack)

    def each(self, key: str) -> Any:
        """Like `stack`, but returns a view or a list of tensors. Do not change it in place.

        It is a view if the messages are rows of one tensor, as the batch executor makes them.
        """
        return self._entries(key, whole)

    def joined(self, key: str) -> Tensor:
        """Concatenate the clients' rows in order: ``[n_1 + ... + n_K, ...]``.

        Raises:
            ValueError: if the inbox is empty or a message lacks the key.

        Example:
            >>> inbox = Inbox({k: {"rows": torch.full((k, 1), k)} for k in (1, 2)}, num_clients=3)
            >>> inbox.joined("rows").flatten()
            tensor([1, 2, 2])
        """
        return torch.cat(list(self._of_each(key).values()))

    def changes(self, key: str) -> Any:
        """Stack of the changes: each client's `key` minus the `key` it was sent, ``[K, ...]``.

        Raises:
            TypeError: as `stack`, or if a client was sent a tensor where it sends a dict.
            ValueError: as `stack`, or if a client was sent no such entry, or one of another shape.

        Example:
            >>> sent = {0: {"w": torch.tensor(1.0)}, 1: {"w": torch.tensor(5.0)}}
            >>> inbox = Inbox({k: {"w": torch.tensor(6.0)} for k in sent}, 2, sent)
            >>> inbox.changes("w")
            tensor([5., 1.])
        """
        stacks, went = self.stack(key), {client: self._sent(client, key) for client in self}
        if isinstance(stacks, Tensor):
            return stacks - self._before(went, stacks, key)
        for client, value in went.items():
            if not isinstance(value, Mapping):
                got = type(value).__name__
                raise TypeError(
                    f"Expected client {client} to have been sent {key} as a dict, but got a {got}"
                )
            missing = [name for name in stacks if name not in value]
            if missing:
                raise ValueError(
                    f"Expected client {client} to have been sent all of {key} that it sends, "
                    f"but got no {missing}"
                )
        return {
            name: stack
            - self._before({c: v[name] for c, v in went.items()}, stack, f"{key}/{name}")
            for name, stack in stacks.items()
        }

    def _sent(self, client: int, key: str) -> Any:
        message = self.sent.get(client, {})
        if key not in message:
            raise ValueError(
                f"Expected client {client} to have been sent {key!r}, but got {list(message)}"
            )
        return message[key]

    def _before(self, went: Mapping[int, Tensor], stack: Tensor, path: str) -> Tensor:
        first = next(iter(went.values()))
        for client, value in went.items():
            if value.shape != stack.shape[1:]:
                raise ValueError(
                    f"Expected client {client} to have been sent {path} of shape "
                    f"{list(stack.shape[1:])}, but got {list(value.shape)}"
                )
        same = all(value is first for value in went.values())
        return first if same else torch.stack(list(went.values()))

    def messages(self, parts: Mapping[str, Any]) -> dict[int, Message]:
        """Split stacks into messages, one for each client of the inbox.

        Args:
            parts: for each key a tensor ``[K, ...]``, or a dict of such tensors.

        Raises:
            ValueError: if a stack does not have one row per client.

        Example:
            >>> inbox = Inbox({k: {"n": torch.tensor(k)} for k in (1, 4)}, num_clients=5)
            >>> inbox.messages({"model": {"w": torch.tensor([5.0, 6.0])}})
            {1: {'model': {'w': tensor(5.)}}, 4: {'model': {'w': tensor(6.)}}}
        """
        out: dict[int, Message] = {client: {} for client in self}
        for key, value in parts.items():
            if isinstance(value, Mapping):
                rows = {name: self._rows(stack, f"{key}/{name}") for name, stack in value.items()}
                for i, message in enumerate(out.values()):
                    message[key] = {name: each[i] for name, each in rows.items()}
            else:
                for message, row in zip(out.values(), self._rows(value, key), strict=True):
                    message[key] = row
        return out

    def _rows(self, stack: Tensor, path: str) -> tuple[Tensor, ...]:
        if stack.shape[:1] != (len(self),):
            raise ValueError(
                f"Expected {path} to have {len(self)} rows, one per client, "
                f"but got shape {list(stack.shape)}"
            )
        return stack.unbind()

    def _of_each(self, key: str) -> dict[int, Any]:
        """The entry of each client; raise if a client lacks it."""
        if not self:
            raise ValueError("Expected the inbox to have a message, but got none")
        for client, message in self.items():
            if key not in message:
                raise ValueError(
                    f"Expected client {client}'s message to have {key!r}, but got {list(message)}"
                )
        return {client: message[key] for client, message in self.items()}

    def _entries(self, key: str, join: Callable[[list[Tensor]], Any]) -> Any:
        values = self._of_each(key)
        first = next(iter(values.values()))
        if not isinstance(first, Mapping):
            return join(_checked(values, key))
        for client, value in values.items():
            if not isinstance(value, Mapping):
                got = type(value).__name__
                raise TypeError(f"Expected client {client}'s {key} to be a dict, but got a {got}")
            if list(value) != list(first):
                check_keys(value, first, f"client {client}'s {key}")
        out = {}
        for name in first:
            path = f"{key}/{name}"
            out[name] = join(_checked({c: v[name] for c, v in values.items()}, path))
        return out


def _checked(values: Mapping[int, Any], path: str) -> list[Tensor]:
    first = next(iter(values.values()))
    for client, value in values.items():
        if not isinstance(value, Tensor):
            got = type(value).__name__
            raise TypeError(f"Expected client {client}'s {path} to be a tensor, but got {got}")
        if value.shape != first.shape or value.dtype != first.dtype:
            check_like(value, first, f"client {client}'s {path}")  # raises
    return list(values.values())


def whole(tensors: Sequence[Tensor]) -> Tensor | Sequence[Tensor]:
    """A view ``[K, ...]`` with these tensors as rows, or the tensors if no view is possible.

    Args:
        tensors: strided tensors of one shape and dtype.

    Example:
        >>> whole(torch.tensor([1.0, 2.0]).unbind())
        tensor([1., 2.])
        >>> whole([torch.tensor(1.0)])
        [tensor(1.)]
    """
    first, places = tensors[0], [tensor.data_ptr() for tensor in tensors]
    step = places[1] - places[0] if len(places) > 1 else 0
    size, last = first.element_size(), step * (len(places) - 1)
    if step < first.numel() * size or not first.numel() or step % size:
        return tensors
    room = first.untyped_storage().nbytes() - first.storage_offset() * size
    of_steps = places == [*range(places[0], places[0] + last + 1, step)]
    if not of_steps or last + first.numel() * size > room or len({*map(STRIDE, tensors)}) > 1:
        return tensors
    return first.as_strided((len(places), *first.shape), (step // size, *first.stride()))


def _stack(tensors: list[Tensor]) -> Tensor:
    if tensors[0].dim() == 2 and tensors[0].mT.is_contiguous():
        return torch.stack([tensor.mT for tensor in tensors]).mT  # in the order of memory
    return torch.stack(tensors)


class Broadcast(Mapping[int, Message]):
    """An outbox with the same message for every client.

    Args:
        message: the message to every client.
        num_clients: clients in the federation.

    Example:
        >>> outbox = Broadcast({"w": torch.zeros(1)}, num_clients=3)
        >>> outbox[0] is outbox[2]
        True
    """

    def __init__(self, message: Message, num_clients: int) -> None:
        self.message = message
        self.num_clients = num_clients

    def __getitem__(self, client: int) -> Message:
        if not 0 <= client < self.num_clients:
            raise KeyError(client)
        return self.message

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.num_clients))

    def __len__(self) -> int:
        return self.num_clients


@explained
def changed_messages(
    outbox: Mapping[int, Message], change: Callable[[Message], Message]
) -> Mapping[int, Message]:
    """Apply `change` to every message of an outbox; a `Broadcast` stays one message.

    Example:
        >>> outbox = Broadcast({"w": torch.zeros(1)}, num_clients=2)
        >>> changed_messages(outbox, lambda message: {**message, "n": torch.tensor(3)})[1]
        {'w': tensor([0.]), 'n': tensor(3)}
    """
    if isinstance(outbox, Broadcast):
        return Broadcast(change(outbox.message), len(outbox))
    return {client: change(message) for client, message in outbox.items()}


@explained
def one_for_all(sent: Sequence[Mapping[str, Any]], what: str) -> Any:
    """The message, or part of a message, that all clients were sent; raise if two differ.

    Args:
        sent: for each client a message, or a part of one.
        what: its name in errors.

    Raises:
        ValueError: if two are not equal.

    Example:
        >>> one_for_all([{"w": torch.zeros(1)}, {"w": torch.zeros(1)}], "model")
        {'w': tensor([0.])}
    """
    want = dict(leaves(sent[0]))
    for other in sent[1:]:
        if other is sent[0]:
            continue
        got = dict(leaves(other))
        if got.keys() != want.keys() or any(not got[path].equal(want[path]) for path in want):
            raise ValueError(
                f"Expected everybody to have been sent the same {what}, but got one for each: "
                "this server does not average"
            )
    return sent[0]


Aggregate = Callable[[Inbox, State], tuple[Mapping[int, Message], State]]
