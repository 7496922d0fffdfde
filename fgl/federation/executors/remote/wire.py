"""Packed messages: a message or state is converted to bytes and back without loss."""

import json
from collections.abc import Mapping
from typing import Any

import torch
from safetensors.torch import load, save

from ....checks import reject_if
from ...method.message import Message, leaves


def pack(message: Mapping[str, Any]) -> bytes:
    """Convert a message or state to bytes that keep names, order, dtypes, shapes and exact values.

    The format is safetensors, which contains no code. The header of the format contains the names
    and their nesting.

    Args:
        message: dict whose values are dense tensors or dicts of dense tensors.

    Returns:
        The bytes of the header and of the tensors. The header has about 80 to 100 bytes per
        tensor. The tensors have `num_bytes` bytes.

    Raises:
        TypeError: for a sparse tensor.

    Example:
        >>> message = {"model": {"w": torch.zeros(0, 3)}, "n": torch.tensor(True), "more": {}}
        >>> unpack(pack(message))
        {'model': {'w': tensor([], size=(0, 3))}, 'n': tensor(True), 'more': {}}
    """
    tensors = {}
    for number, (path, tensor) in enumerate(leaves(message)):
        reject_if(tensor.layout != torch.strided, f"{path!r} to be dense", tensor.layout, TypeError)
        copy = tensor.detach().cpu().contiguous()
        tensors[str(number)] = copy.clone() if copy.data_ptr() == tensor.data_ptr() else copy
    return bytes(save(tensors, {"names": json.dumps(names(message))}))


def unpack(data: bytes) -> Message:
    """Read a message from the bytes that `pack` returned; the message's tensors are on the CPU.

    Raises:
        ValueError: if the bytes are not a result of `pack`.

    Example:
        >>> unpack(b"something else")
        Traceback (most recent call last):
        ValueError: Expected the bytes to be a packed message, but got 14 bytes that are not
    """
    try:
        tensors = load(data)
        size = int.from_bytes(data[:8], "little")
        tree = json.loads(json.loads(data[8 : 8 + size])["__metadata__"]["names"])
        numbers = iter(range(len(tensors)))
        message: Message = {}
        for name, inner in tree:  # in a place of its own, as torch aligns it
            if inner is None:
                message[name] = tensors[str(next(numbers))].clone()
            else:
                message[name] = {key: tensors[str(next(numbers))].clone() for key in inner}
    except Exception as error:
        raise ValueError(
            f"Expected the bytes to be a packed message, but got {len(data)} bytes that are not"
        ) from error
    return message


def names(message: Mapping[str, Any]) -> list[list[Any]]:
    """A message's names in order: ``[name, None]`` for a tensor, ``[name, names]`` for a dict.

    Example:
        >>> names({"model": {"w": torch.zeros(1)}, "n": torch.tensor(3)})
        [['model', ['w']], ['n', None]]
    """
    return [
        [name, list(value) if isinstance(value, Mapping) else None]
        for name, value in message.items()
    ]
