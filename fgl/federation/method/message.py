"""Messages: dicts of named tensors, at most one dict deep. Nothing else crosses the wire."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from operator import attrgetter
from typing import Any, TypeVar

import torch
from torch import Tensor

from ...kinds import explained

Params = dict[str, Tensor]
Message = dict[str, Any]  # a tensor by its key, or a dict of tensors
State = Message
Outbox = Mapping[int, Message]  # the server's next message to each client
Key = TypeVar("Key")
Entry = TypeVar("Entry")
FORM = attrgetter("__class__", "shape", "dtype")


def pick(entries: Mapping[Key, Entry], names: Collection[Key]) -> dict[Key, Entry]:
    """The entries of a dict that have one of these names, in the order of the dict.

    Example:
        >>> pick({"w": 1, "b": 2, "mask": 3}, ["b", "w", "scale"])
        {'w': 1, 'b': 2}
    """
    return {name: entry for name, entry in entries.items() if name in names}


def drop(entries: Mapping[Key, Entry], names: Collection[Key]) -> dict[Key, Entry]:
    """The entries of a dict that have none of these names, in the order of the dict.

    Example:
        >>> drop({"w": 1, "b": 2, "mask": 3}, ["mask"])
        {'w': 1, 'b': 2}
    """
    return {name: entry for name, entry in entries.items() if name not in names}


def combine(function: Any, first: Mapping[str, Tensor], *others: Mapping[str, Tensor]) -> Params:
    """A tensor for each name of the first model, computed from the tensors that have this name.

    Example:
        >>> combine(torch.sub, {"w": torch.ones(2)}, {"w": torch.tensor([0.0, 3.0])})
        {'w': tensor([ 1., -2.])}
    """
    return {name: function(first[name], *(each[name] for each in others)) for name in first}


@explained
def leaves(message: Mapping[str, Any]) -> Iterator[tuple[str, Tensor]]:
    """All tensors of a message with their paths, in order: ``("model/convs.0.bias", tensor)``.

    Example:
        >>> [path for path, _ in leaves({"model": {"w": torch.zeros(1)}, "n": torch.tensor(3)})]
        ['model/w', 'n']
    """
    for key, value in message.items():
        if isinstance(value, Mapping):
            yield from ((f"{key}/{name}", tensor) for name, tensor in value.items())
        else:
            yield key, value


@explained
def num_bytes(message: Mapping[str, Any]) -> int:
    """Size of a message's tensors in bytes, without their names.

    Args:
        message: dict of tensors, at most one dict deep.

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


def compact(message: Message) -> Message:
    """The same message; a tensor that is a view of a larger one is copied, so that memory is freed.

    Example:
        >>> kept = compact({"w": torch.zeros(100, 3)[7]})
        >>> kept["w"].untyped_storage().nbytes()
        12
    """

    def own(tensor: Tensor) -> Tensor:
        if tensor.layout != torch.strided:
            return tensor
        size = tensor.numel() * tensor.element_size()
        return tensor.clone() if tensor.untyped_storage().nbytes() > size else tensor

    return {
        key: {name: own(tensor) for name, tensor in value.items()}
        if isinstance(value, Mapping)
        else own(value)
        for key, value in message.items()
    }


def to(message: Any, device: torch.device) -> Any:
    """Move a message or a state, or a dict of them by client, to a device.

    Example:
        >>> to({"w": torch.zeros(1)}, torch.device("cpu"))
        {'w': tensor([0.])}
    """
    if isinstance(message, Mapping):
        return {key: to(value, device) for key, value in message.items()}
    return message.to(device)


def check_message(
    message: Any,
    *,
    model: Mapping[str, Tensor] | None = None,
    name: str = "message",
) -> None:
    """Check a message that crosses the wire.

    Args:
        message: the object to check; it must be a dict of tensors, at most one dict deep.
        model: the architecture's tensors. Each tensor of ``message["model"]`` must have the name of
            one of them, and exactly its shape and dtype (so ``[1]`` never broadcasts into a model).
        name: name of the message in errors.

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
    if model is not None and "model" in message:
        received = message["model"]
        if not isinstance(received, Mapping):
            raise TypeError(f"Expected {name}['model'] to be a dict of tensors, but got a Tensor")
        for key, tensor in received.items():
            _check_tensor(tensor, model, key, f"{name}['model']")


@explained
def check_model(received: Any, model: Mapping[str, Tensor], name: str = "message['model']") -> None:
    """Check that `received` is a whole model: the same names, shapes and dtypes as `model`.

    Raises:
        TypeError: if it is no dict of tensors, or a dtype differs.
        ValueError: if a name is missing or extra, or a shape differs.

    Example:
        >>> check_model({}, {"w": torch.zeros(3)})
        Traceback (most recent call last):
        ValueError: Expected message['model'] to have keys ['w'], but got missing ['w']
    """
    if isinstance(received, dict) and list(received) == list(model):
        with suppress(AttributeError):  # all at once where nothing is wrong
            if [*map(FORM, received.values())] == [*map(FORM, model.values())]:
                return
    _check_tensors(received, name, depth=0)
    check_keys(received, model, name)
    for key, tensor in received.items():
        _check_tensor(tensor, model, key, name)


@explained
def first_not_finite(message: Mapping[str, Any]) -> str | None:
    """Path of the first tensor with a NaN or an infinity, if there is one.

    Example:
        >>> first_not_finite({"model": {"w": torch.tensor([1.0, float("nan")])}})
        'model/w'
    """
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
        if isinstance(item, Tensor):
            continue
        if depth and isinstance(item, Mapping):
            _check_tensors(item, f"{name}[{key!r}]", depth - 1)
        else:
            raise TypeError(
                f"Expected {name}[{key!r}] to be a tensor, but got {type(item).__name__}"
            )


@explained
def check_keys(got: Mapping[str, Any], want: Collection[str], name: str) -> None:
    """Raise a ValueError if `got` lacks keys of `want` or has others; it names them.

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


def _check_tensor(tensor: Tensor, model: Mapping[str, Tensor], key: str, name: str) -> None:
    if key not in model:
        raise ValueError(f"Expected {name} to have keys of {list(model)}, but got extra [{key!r}]")
    check_like(tensor, model[key], f"{name}[{key!r}]")


def check_like(tensor: Tensor, other: Tensor, name: str) -> None:
    """Raise unless a tensor has the shape and the dtype of another.

    Example:
        >>> check_like(torch.zeros(2), torch.zeros(3), "client 1's w")
        Traceback (most recent call last):
        ValueError: Expected client 1's w to have shape [3], but got [2]
    """
    if tensor.shape != other.shape:
        raise ValueError(
            f"Expected {name} to have shape {list(other.shape)}, but got {list(tensor.shape)}"
        )
    if tensor.dtype != other.dtype:
        raise TypeError(f"Expected {name} to be {other.dtype}, but got {tensor.dtype}")


def check_names(what: str, metrics: Any) -> None:
    """Refuse a value that is not a dict from names to metrics.

    Args:
        what: the function that returned it, as an error names it.
        metrics: the value that it returned.

    Raises:
        TypeError: if it is no mapping, or a name is no string.

    Example:
        >>> check_names("score", {3: 0.5})
        Traceback (most recent call last):
        TypeError: Expected score to name metrics by strings, but got 3
    """
    if not isinstance(metrics, Mapping):
        got = type(metrics).__name__
        raise TypeError(f"Expected {what} to return a dict of metrics, but got {got}")
    for key in metrics:
        if not isinstance(key, str):
            raise TypeError(f"Expected {what} to name metrics by strings, but got {key!r}")


def as_number(name: str, value: Any) -> float:
    """A metric as a float. It may be any number, or a tensor with one entry.

    Example:
        >>> as_number("accuracy", torch.tensor(0.5))
        0.5
    """
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"Expected {name} to be a number, but got {value!r}") from error
