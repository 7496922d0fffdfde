"""Messages: dicts of named tensors, at most one dict deep; nothing else crosses the wire."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

Params = dict[str, Tensor]
Message = dict[str, Tensor | Params]


def leaves(message: Mapping[str, Any]) -> Iterator[tuple[str, Tensor]]:
    """Every tensor with its path, in the message's order: ``("model/convs.0.bias", tensor)``."""
    for key, value in message.items():
        if isinstance(value, Mapping):
            yield from ((f"{key}/{name}", tensor) for name, tensor in value.items())
        else:
            yield key, value


def num_bytes(message: Mapping[str, Any]) -> int:
    """Size of a message's tensors in bytes; names are not counted.

    Args:
        message: dict of tensors, at most one dict deep.

    Returns:
        Bytes.

    Example:
        >>> num_bytes({"model": {"w": torch.zeros(3)}, "num_examples": torch.tensor(7)})
        20
    """
    return sum(tensor.numel() * tensor.element_size() for _, tensor in leaves(message))


def check_message(
    message: Any,
    *,
    like: Mapping[str, Any] | None = None,
    model: Mapping[str, Tensor] | None = None,
    name: str = "message",
    whose: str = "",
) -> None:
    """Check what crosses the wire.

    Args:
        message: what should be a dict of tensors, at most one dict deep.
        like: a message with the same keys on both levels, e.g. another client's.
        model: the architecture's tensors; each tensor of ``message["model"]`` must be one of them,
            with its exact shape and dtype (so ``[1]`` never broadcasts into a model).
        name: what an error calls the message.
        whose: what an error calls `like`, e.g. ``"client 3's"``.

    Raises:
        TypeError: if it is something other than tensors in dicts, or a dtype differs.
        ValueError: if a key is missing or extra, a shape differs, or a tensor is not detached.

    Example:
        >>> check_message({"model": {"w": torch.zeros(1)}}, model={"w": torch.zeros(3)})
        Traceback (most recent call last):
        ValueError: Expected message['model']['w'] to have shape [3], but got [1]
    """
    _check_tensors(message, name, depth=1)
    for path, tensor in leaves(message):
        if tensor.requires_grad:  # it would hold the graph, and lose it in a checkpoint
            raise ValueError(
                f"Expected {name}'s {path!r} to be detached, but got one that requires a gradient"
            )
    if like is not None:
        _check_keys(message, like, name, whose)
        for key, value in like.items():
            if isinstance(value, Mapping) != isinstance(message[key], Mapping):
                raise TypeError(
                    f"Expected {name}[{key!r}] to be a {type(value).__name__}, "
                    f"but got a {type(message[key]).__name__}"
                )
            if isinstance(value, Mapping):
                _check_keys(message[key], value, f"{name}[{key!r}]", whose)
    if model is not None and "model" in message:
        received = message["model"]
        if not isinstance(received, Mapping):
            raise TypeError(f"Expected {name}['model'] to be a dict of tensors, but got a Tensor")
        for key, tensor in received.items():
            _check_tensor(tensor, model, key, f"{name}['model']")


def check_model(received: Any, model: Mapping[str, Tensor], name: str = "message['model']") -> None:
    """Check that `received` is a whole model: the same names, shapes and dtypes as `model`.

    Raises:
        TypeError: if it is no dict of tensors, or a dtype differs.
        ValueError: if a name is missing or extra, or a shape differs.
    """
    _check_tensors(received, name, depth=0)
    _check_keys(received, model, name)
    for key, tensor in received.items():
        _check_tensor(tensor, model, key, name)


def first_not_finite(message: Mapping[str, Any]) -> str | None:
    """Path of the first tensor with a NaN or an infinity, if there is one."""
    for path, tensor in leaves(message):
        if not tensor.is_floating_point() or math.isfinite(tensor.sum()):
            continue  # a NaN or an infinity in any entry makes the sum one
        if not torch.isfinite(tensor).all():
            return path
    return None


def _check_tensors(value: Any, name: str, depth: int) -> None:
    if not isinstance(value, Mapping):
        raise TypeError(f"Expected {name} to be a dict of tensors, but got {type(value).__name__}")
    for key, item in value.items():
        if not isinstance(key, str):
            raise TypeError(f"Expected the keys of {name} to be strings, but got {key!r}")
        if isinstance(item, Mapping) and depth:
            _check_tensors(item, f"{name}[{key!r}]", depth - 1)
        elif not isinstance(item, Tensor):
            raise TypeError(
                f"Expected {name}[{key!r}] to be a tensor, but got {type(item).__name__}"
            )


def _check_keys(
    got: Mapping[str, Any], want: Mapping[str, Any], name: str, whose: str = ""
) -> None:
    missing = [key for key in want if key not in got]
    extra = [key for key in got if key not in want]
    if not missing and not extra:
        return
    said = [f"{word} {keys}" for word, keys in (("missing", missing), ("extra", extra)) if keys]
    keys = f"keys {list(want)}" + (f" as {whose}" if whose else "")
    raise ValueError(f"Expected {name} to have {keys}, but got {' and '.join(said)}")


def _check_tensor(tensor: Tensor, model: Mapping[str, Tensor], key: str, name: str) -> None:
    if key not in model:
        raise ValueError(f"Expected {name} to have keys of {list(model)}, but got extra [{key!r}]")
    want = model[key]
    if tensor.shape != want.shape:
        raise ValueError(
            f"Expected {name}[{key!r}] to have shape {list(want.shape)}, "
            f"but got {list(tensor.shape)}"
        )
    if tensor.dtype != want.dtype:
        raise TypeError(f"Expected {name}[{key!r}] to be {want.dtype}, but got {tensor.dtype}")


class Inbox(Mapping[int, Message]):
    """What reached the server in a round: client to message, in the order of the clients.

    Args:
        messages: client to message; clients that dropped out are absent.
        num_clients: clients in the federation, present or not.

    Example:
        >>> inbox = Inbox({4: {"n": torch.tensor(1)}, 2: {"n": torch.tensor(3)}}, num_clients=5)
        >>> list(inbox), inbox.stack("n")
        ([2, 4], tensor([3, 1]))
    """

    def __init__(self, messages: Mapping[int, Message], num_clients: int) -> None:
        self._messages = {client: messages[client] for client in sorted(messages)}
        self.num_clients = num_clients

    def __getitem__(self, client: int) -> Message:
        return self._messages[client]

    def __iter__(self) -> Iterator[int]:
        return iter(self._messages)

    def __len__(self) -> int:
        return len(self._messages)

    def stack(self, key: str) -> Any:
        """One tensor ``[K, ...]`` per entry of `key`: a dict of them, or a single tensor.

        A copy, to be changed at will.

        Raises:
            TypeError: if an entry is no tensor or has another dtype than the first client's.
            ValueError: if the inbox is empty, a client's message lacks the key, or the keys or
                shapes of two clients differ.
        """
        return self._entries(key, _stack)

    def each(self, key: str) -> Any:
        """As `stack` without a copy, not to be changed: where there is none, the K tensors' list.

        The batch executor makes the messages of one cohort as parts of one tensor.
        """
        return self._entries(key, _whole)

    def _entries(self, key: str, join: Callable[[list[Tensor]], Any]) -> Any:
        if not self:
            raise ValueError("Expected the inbox to have a message, but got none")
        values: dict[int, Any] = {}
        for client, message in self.items():
            if key not in message:
                raise ValueError(
                    f"Expected client {client}'s message to have {key!r}, but got {list(message)}"
                )
            values[client] = message[key]
        first = next(iter(values.values()))
        if not isinstance(first, Mapping):
            return join(_checked(values, key))
        for client, value in values.items():
            if not isinstance(value, Mapping):
                got = type(value).__name__
                raise TypeError(f"Expected client {client}'s {key} to be a dict, but got a {got}")
            _check_keys(value, first, f"client {client}'s {key}")
        return {
            name: join(_checked({c: value[name] for c, value in values.items()}, f"{key}/{name}"))
            for name in first
        }


def _checked(values: Mapping[int, Any], path: str) -> list[Tensor]:
    first = next(iter(values.values()))
    for client, value in values.items():
        who = f"client {client}'s {path}"
        if not isinstance(value, Tensor):
            raise TypeError(f"Expected {who} to be a tensor, but got {type(value).__name__}")
        if value.shape != first.shape:
            raise ValueError(
                f"Expected {who} to have shape {list(first.shape)}, but got {list(value.shape)}"
            )
        if value.dtype != first.dtype:
            raise TypeError(f"Expected {who} to be {first.dtype}, but got {value.dtype}")
    return list(values.values())


def _whole(tensors: list[Tensor]) -> Tensor | list[Tensor]:
    """The tensor ``[K, ...]`` whose parts, in order, these are; themselves if there is none."""
    first = tensors[0]
    step = tensors[1].storage_offset() - first.storage_offset() if len(tensors) > 1 else 0
    storage, start = first.untyped_storage().data_ptr(), first.storage_offset()
    if step < first.numel() or first.numel() == 0:
        return tensors
    for i, tensor in enumerate(tensors):
        same = tensor.untyped_storage().data_ptr() == storage and tensor.stride() == first.stride()
        if not same or tensor.storage_offset() != start + i * step:
            return tensors
    return first.as_strided((len(tensors), *first.shape), (step, *first.stride()))


def _stack(tensors: list[Tensor]) -> Tensor:
    if tensors[0].dim() == 2 and tensors[0].mT.is_contiguous():
        return torch.stack([tensor.mT for tensor in tensors]).mT  # in the order of memory
    return torch.stack(tensors)


class Broadcast(Mapping[int, Message]):
    """An outbox with one message for everybody.

    Args:
        message: what every client gets.
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
