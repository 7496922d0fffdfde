"""Messages between clients and server (dicts of named tensors), and a round's inbox and outbox."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from operator import attrgetter, methodcaller
from typing import Any, TypeVar

import torch
from torch import Tensor

from ...checks import reject_if

Params = dict[str, Tensor]
Message = dict[str, Any]  # key to a tensor or to a dict of tensors
State = Message
Outbox = Mapping[int, Message]  # the server's next message to each client
Key = TypeVar("Key")
Entry = TypeVar("Entry")
FORM, STRIDE = attrgetter("__class__", "shape", "dtype"), methodcaller("stride")


def pick(entries: Mapping[Key, Entry], names: Collection[Key]) -> dict[Key, Entry]:
    """A dict with only the keys in `names`, in the order of the given dict.

    Example:
        >>> pick({"w": 1, "b": 2, "mask": 3}, ["b", "w", "scale"])
        {'w': 1, 'b': 2}
    """
    return {name: entry for name, entry in entries.items() if name in names}


def drop(entries: Mapping[Key, Entry], names: Collection[Key]) -> dict[Key, Entry]:
    """A dict without the keys in `names`, in the order of the given dict.

    Example:
        >>> drop({"w": 1, "b": 2, "mask": 3}, ["mask"])
        {'w': 1, 'b': 2}
    """
    return {name: entry for name, entry in entries.items() if name not in names}


def combine(function: Any, first: Mapping[str, Tensor], *others: Mapping[str, Tensor]) -> Params:
    """For each name in the first model, combine the tensors of this name from all models.

    Example:
        >>> combine(torch.sub, {"w": torch.ones(2)}, {"w": torch.tensor([0.0, 3.0])})
        {'w': tensor([ 1., -2.])}
    """
    return {name: function(first[name], *(each[name] for each in others)) for name in first}


def leaves(message: Mapping[str, Any]) -> Iterator[tuple[str, Tensor]]:
    """Pairs of a path and a tensor, in a message's order: ``("model/convs.0.bias", tensor)``.

    Example:
        >>> [path for path, _ in leaves({"model": {"w": torch.zeros(1)}, "n": torch.tensor(3)})]
        ['model/w', 'n']
    """
    for key, value in message.items():
        if isinstance(value, Mapping):
            yield from ((f"{key}/{name}", tensor) for name, tensor in value.items())
        else:
            yield key, value


def num_bytes(message: Mapping[str, Any]) -> int:
    """Size in bytes of the tensors in a message; names are not counted.

    Args:
        message: dict whose values are tensors or dicts of tensors.

    Returns:
        Bytes.

    Example:
        >>> num_bytes({"model": {"w": torch.zeros(3)}, "num_examples": torch.tensor(7)})
        20
    """
    total = 0
    for value in message.values():
        for tensor in value.values() if isinstance(value, Mapping) else (value,):
            total += tensor.numel() * tensor.element_size()
    return total


def compact(message: Any) -> Any:
    """Replace views in a message by copies, so that the larger tensors behind them can be freed.

    Example:
        >>> kept = compact({"w": torch.zeros(100, 3)[7]})
        >>> kept["w"].untyped_storage().nbytes()
        12
    """
    if isinstance(message, Mapping):
        return {key: compact(value) for key, value in message.items()}
    if message.layout != torch.strided:
        return message
    size = message.numel() * message.element_size()
    return message.clone() if message.untyped_storage().nbytes() > size else message


def to(message: Any, device: torch.device) -> Any:
    """Move all tensors of a nested dict, such as a message or a state, to a device.

    Example:
        >>> to({"w": torch.zeros(1)}, torch.device("cpu"))
        {'w': tensor([0.])}
    """
    if isinstance(message, Mapping):
        return {key: to(value, device) for key, value in message.items()}
    return message.to(device)


def check_message(
    message: Any, *, model: Mapping[str, Tensor] | None = None, name: str = "message"
) -> None:
    """Check a message between a client and the server.

    Args:
        message: the object to check. It must be a dict whose values are tensors or dicts of
            tensors.
        model: the tensors of the method's model. Each tensor of ``message["model"]`` must have the
            name, the shape and the dtype of one of these tensors. So a tensor of shape ``[1]`` is
            never broadcast.
        name: name of the message in errors.

    Raises:
        TypeError: if the message is not a dict of tensors, or if a dtype differs from the dtype in
            `model`.
        ValueError: if a key is missing or extra, if a shape differs from the shape in `model`, or
            if a tensor is not detached.

    Example:
        >>> check_message({"model": {"w": torch.zeros(1)}}, model={"w": torch.zeros(3)})
        Traceback (most recent call last):
        ValueError: Expected message['model']['w'] to have shape [3], but got [1]
    """
    _check_tensors(message, name, depth=1)
    # They would keep the autograd graph, and lose it in a checkpoint.
    attached = " and ".join(repr(path) for path, t in leaves(message) if t.requires_grad)
    reject_if(attached, f"{name}'s {attached} to be detached", "one that requires a gradient")
    if model is not None and "model" in message:
        received = message["model"]
        want = f"{name}['model'] to be a dict of tensors"
        reject_if(not isinstance(received, Mapping), want, "a Tensor", TypeError)
        for key, tensor in received.items():
            if key not in model:
                names = f"keys of {list(model)}"
                raise ValueError(
                    f"Expected {name}['model'] to have {names}, but got extra [{key!r}]"
                )
            check_like(tensor, model[key], f"{name}['model'][{key!r}]")


def check_model(received: Any, model: Mapping[str, Tensor], name: str = "message['model']") -> None:
    """Check that `received` is a complete model, with the names, shapes and dtypes of `model`.

    Raises:
        TypeError: if `received` is not a dict of tensors, or if a dtype differs from the dtype in
            `model`.
        ValueError: if a name is missing or extra, or if a shape differs from the shape in `model`.

    Example:
        >>> check_model({}, {"w": torch.zeros(3)})
        Traceback (most recent call last):
        ValueError: Expected message['model'] to have keys ['w'], but got missing ['w']
    """
    if isinstance(received, dict) and list(received) == list(model):
        with suppress(AttributeError):  # compare all at once if everything is valid
            if [*map(FORM, received.values())] == [*map(FORM, model.values())]:
                return
    _check_tensors(received, name, depth=0)
    check_keys(received, model, name)
    for key, tensor in received.items():
        check_like(tensor, model[key], f"{name}[{key!r}]")


def first_not_finite(message: Mapping[str, Any]) -> str | None:
    """Path of the first tensor that has a NaN or an infinity; None if all entries are finite.

    Example:
        >>> first_not_finite({"model": {"w": torch.tensor([1.0, float("nan")])}})
        'model/w'
    """
    for path, tensor in leaves(message):
        if not tensor.is_floating_point() or math.isfinite(tensor.sum()):
            continue  # with a NaN or an infinity in an entry the sum is not finite
        if not torch.isfinite(tensor).all():
            return path
    return None


def _check_tensors(value: Any, name: str, depth: int) -> None:
    if not isinstance(value, Mapping):
        raise TypeError(f"Expected {name} to be a dict of tensors, but got {type(value).__name__}")
    for key, item in value.items():
        if not isinstance(key, str):
            raise TypeError(f"Expected the keys of {name} to be strings, but got {key!r}")
        if isinstance(item, Tensor):
            continue
        if depth and isinstance(item, Mapping):
            _check_tensors(item, f"{name}[{key!r}]", depth - 1)
        else:
            raise TypeError(
                f"Expected {name}[{key!r}] to be a tensor, but got {type(item).__name__}"
            )


def check_keys(got: Mapping[str, Any], want: Collection[str], name: str) -> None:
    """Check that `got` has exactly the keys of `want`; the error names missing and extra keys.

    Example:
        >>> check_keys({"a": 1}, ["b"], "message")
        Traceback (most recent call last):
        ValueError: Expected message to have keys ['b'], but got missing ['b'] and extra ['a']
    """
    missing = [key for key in want if key not in got]
    extra = [key for key in got if key not in want]
    if not missing and not extra:
        return
    parts = [f"{word} {keys}" for word, keys in (("missing", missing), ("extra", extra)) if keys]
    raise ValueError(f"Expected {name} to have keys {list(want)}, but got {' and '.join(parts)}")


def check_like(tensor: Tensor, other: Tensor, name: str) -> None:
    """Raise an error if two tensors differ in shape or dtype.

    Example:
        >>> check_like(torch.zeros(2), torch.zeros(3), "client 1's w")
        Traceback (most recent call last):
        ValueError: Expected client 1's w to have shape [3], but got [2]
    """
    want = f"{name} to have shape {list(other.shape)}"
    reject_if(tensor.shape != other.shape, want, list(tensor.shape))
    reject_if(tensor.dtype != other.dtype, f"{name} to be {other.dtype}", tensor.dtype, TypeError)


def check_names(what: str, metrics: Any) -> None:
    """Raise an error unless a value is a dict that maps names to metrics.

    Args:
        what: name of the function that returned the value, for errors.
        metrics: the value.

    Raises:
        TypeError: if the value is not a mapping, or if a name is not a string.

    Example:
        >>> check_names("score", {3: 0.5})
        Traceback (most recent call last):
        TypeError: Expected score to name metrics by strings, but got 3
    """
    got, named = type(metrics).__name__, f"{what} to name metrics by strings"
    want = f"{what} to return a dict of metrics"
    reject_if(not isinstance(metrics, Mapping), want, got, TypeError)
    for key in metrics:
        reject_if(not isinstance(key, str), named, repr(key), TypeError)


def as_number(name: str, value: Any) -> float:
    """A metric as a float. The metric may be any number, or a tensor with one entry.

    Example:
        >>> as_number("accuracy", torch.tensor(0.5))
        0.5
    """
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"Expected {name} to be a number, but got {value!r}") from error


class Inbox(Mapping[int, Message]):
    """The messages that the server received in a round, as a mapping from client to message.

    Args:
        messages: dict from client to message; clients that dropped out are missing.
        num_clients: number of clients in the federation, including absent ones.
        sent: the messages that the server sent in this round, by client; None if they are unknown.
        round: number of the round, from 0; None if it is unknown.
        asked: the clients that received a request in this round, including clients whose answers
            did not arrive. The default is the clients of `messages`. If a request was repeated, a
            remote client may have given several different answers. The client is then listed once
            for each answer that may have had a privacy cost.

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
        """The clients that sent a message, in order.

        Row i of a stack belongs to ``clients[i]``.
        """
        return list(self._messages)

    def __getitem__(self, client: int) -> Message:
        return self._messages[client]

    def __iter__(self) -> Iterator[int]:
        return iter(self._messages)

    def __len__(self) -> int:
        return len(self._messages)

    def with_messages(self, messages: Mapping[int, Message]) -> Inbox:
        """A copy of the inbox in which `messages` replace the old messages."""
        return Inbox(messages, self.num_clients, self.sent, self.round, self.asked)

    def stack(self, key: str) -> Any:
        """Stack the clients' entries under `key`: a tensor ``[K, ...]``, or a dict of tensors.

        The stack is a copy, so it may be changed in place.

        Raises:
            TypeError: if an entry is not a tensor, or if its dtype differs from the first client's
                entry.
            ValueError: if the inbox is empty, if a client's message lacks the key, or if two
                clients' entries differ in keys or shapes.
        """
        return self._entries(key, stacked)

    def each(self, key: str) -> Any:
        """Like `stack`, but without a copy: the result is a view or a list of tensors.

        Do not change the result in place.

        The result is a view if the messages are rows of one tensor, as with the batch executor.
        """
        return self._entries(key, whole)

    def joined(self, key: str) -> Tensor:
        """Concatenate the clients' rows in order: ``[n_1 + ... + n_K, ...]``.

        Raises:
            ValueError: if the inbox is empty, or if a message lacks the key.

        Example:
            >>> inbox = Inbox({k: {"rows": torch.full((k, 1), k)} for k in (1, 2)}, num_clients=3)
            >>> inbox.joined("rows").flatten()
            tensor([1, 2, 2])
        """
        return torch.cat(list(self._of_each(key).values()))

    def changes(self, key: str) -> Any:
        """The clients' changes of an entry, stacked as ``[K, ...]``: sent minus received values.

        Raises:
            TypeError: if `stack` raises a TypeError, or if a client received a tensor but sent a
                dict.
            ValueError: if `stack` raises a ValueError, if a client did not receive an entry `key`,
                or if the shapes of a client's received and sent entries differ.

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
            want = f"client {client} to have been sent all of {key} that it sends"
            reject_if(missing, want, f"no {missing}")
        return {
            name: stack
            - self._before({c: v[name] for c, v in went.items()}, stack, f"{key}/{name}")
            for name, stack in stacks.items()
        }

    def _sent(self, client: int, key: str) -> Any:
        message = self.sent.get(client, {})
        reject_if(key not in message, f"client {client} to have been sent {key!r}", list(message))
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
        """Split stacks into one message for each client of the inbox.

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
        want = f"{path} to have {len(self)} rows, one per client"
        reject_if(stack.shape[:1] != (len(self),), want, f"shape {list(stack.shape)}")
        return stack.unbind()

    def _of_each(self, key: str) -> dict[int, Any]:
        """Each client's entry.

        Raise an error if a client lacks the entry.
        """
        reject_if(not self, "the inbox to have a message", "none")
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
    """A view ``[K, ...]`` with the tensors as rows; the given tensors if no such view is possible.

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


def stacked(tensors: Sequence[Tensor]) -> Tensor:
    """Stack tensors of one shape; the stack keeps the storage order (rows or columns) of matrices.

    Example:
        >>> stacked([torch.zeros(2, 3).mT, torch.zeros(2, 3).mT]).stride()
        (6, 1, 3)
    """
    first = tensors[0]
    if first.dim() == 2 and first.mT.is_contiguous() and not first.is_contiguous():
        return torch.stack([tensor.mT for tensor in tensors]).mT
    return torch.stack(list(tensors))


@dataclass(eq=False)
class Broadcast(Mapping[int, Message]):
    """An outbox with the same message for every client.

    Args:
        message: the message to every client.
        num_clients: number of clients in the federation.

    Example:
        >>> outbox = Broadcast({"w": torch.zeros(1)}, num_clients=3)
        >>> outbox[0] is outbox[2]
        True
    """

    message: Message
    num_clients: int

    def __getitem__(self, client: int) -> Message:
        if not 0 <= client < self.num_clients:
            raise KeyError(client)
        return self.message

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.num_clients))

    def __len__(self) -> int:
        return self.num_clients


def changed_messages(
    outbox: Mapping[int, Message], change: Callable[[Message], Message]
) -> Mapping[int, Message]:
    """Apply `change` to every message of an outbox.

    If the outbox is a `Broadcast`, its single message is changed only once.

    Example:
        >>> outbox = Broadcast({"w": torch.zeros(1)}, num_clients=2)
        >>> changed_messages(outbox, lambda message: {**message, "n": torch.tensor(3)})[1]
        {'w': tensor([0.]), 'n': tensor(3)}
    """
    if isinstance(outbox, Broadcast):
        return Broadcast(change(outbox.message), len(outbox))
    messages = {**outbox}  # an outbox may build a message anew at each access
    once = {id(message): message for message in messages.values()}  # a common message stays common
    new = {key: change(message) for key, message in once.items()}
    return {client: new[id(message)] for client, message in messages.items()}


def one_for_all(sent: Sequence[Mapping[str, Any]], what: str) -> Any:
    """Return the message, or the part of a message, that is equal for all clients.

    If two clients received different messages, an error is raised.

    Args:
        sent: for each client a message, or a part of a message.
        what: the name that errors use for the message or part.

    Raises:
        ValueError: if two clients' messages or parts differ.

    Example:
        >>> one_for_all([{"w": torch.zeros(1)}, {"w": torch.zeros(1)}], "model")
        {'w': tensor([0.])}
    """
    first = dict(leaves(sent[0]))
    differ = any(each is not sent[0] and not same(dict(leaves(each)), first) for each in sent)
    want = f"everybody to have been sent the same {what}"
    reject_if(differ, want, "one for each: this server does not average")
    return sent[0]


def same(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> bool:
    """Whether two dicts hold equal tensors under the same names.

    Example:
        >>> same({"w": torch.zeros(1)}, {"w": torch.ones(1)})
        False
    """
    return one.keys() == other.keys() and all(one[name].equal(other[name]) for name in one)


Aggregate = Callable[[Inbox, State], tuple[Mapping[int, Message], State]]
