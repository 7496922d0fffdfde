"""Messages: dicts of named tensors, at most one dict deep. Nothing else crosses the wire."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, TypeVar

import torch
from torch import Tensor

Params = dict[str, Tensor]
Message = dict[str, Any]  # a tensor by its key, or a dict of tensors
State = Message
Outbox = Mapping[int, Message]  # the server's next message to each client
Key = TypeVar("Key")
Entry = TypeVar("Entry")


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
    return sum(tensor.numel() * tensor.element_size() for _, tensor in leaves(message))


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
