"""Messages: dicts of named tensors, at most one dict deep. Nothing else crosses the wire."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from ...kinds import explained

Params = dict[str, Tensor]
Message = dict[str, Any]  # a tensor by its key, or a dict of tensors


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
