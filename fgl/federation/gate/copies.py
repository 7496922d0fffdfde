"""Copies: uploads that were visibly not computed by the client that sent them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ..method.message import Message, leaves
from .distances import Change, floats

FAR = 0.5  # of the model's size: what is one number everywhere is further away


def copies(
    uploads: Mapping[int, Message],
    moved: Mapping[int, Mapping[str, Change]],
    counts: Mapping[int, Sequence[float]],
) -> dict[int, str]:
    """The uploads that are copies, as a dict from client to a text that says of what.

    - the unchanged model that the server sent, from a client that reports examples, if another
    client's model changed; - the upload of an earlier client, bit for bit except for
    ``"num_examples"``; - a model whose largest tensor repeats one number.

    The distances are already known and select the uploads to compare: those with exactly equal
    distances, and one whose distance is at least half of the model's size and 1.5 times the next
    client's. So almost nothing is read if there are no copies. Copies may be honest, as from two
    clients with one graph, or from a client whose steps change nothing.

    Args:
        uploads: client to message.
        moved: the distance of each entry from the entry that was sent, by client and key.
        counts: each client's ``"num_examples"``.

    Example:
        >>> came = {k: {"model": {"w": torch.tensor([1.0, 2.0])}} for k in (3, 4)}
        >>> copies(came, dict.fromkeys(came, {"model": Change(1.0, 3.0)}), {})
        {4: "client 3's upload, bit for bit"}
    """
    copied: dict[int, str] = {}
    alike: dict[tuple[float, ...], list[int]] = {}
    far: dict[int, Tensor] = {}
    steps = [each["model"].moved for each in moved.values() if "model" in each]
    least = min((step for step in steps if step), default=0.0)
    for client, message in uploads.items():
        changes = moved.get(client, {})
        model = changes.get("model")
        if model is None or model.moved:
            distances = tuple([change.moved for change in changes.values()])
            alike.setdefault(distances, []).append(client)
        elif least and any(counts.get(client, (1.0,))):
            copied[client] = "the model that was sent, unchanged"
        if model is not None and model.moved >= max(FAR * (model.size or math.inf), 1.5 * least):
            far[client] = _largest(message["model"])
    copied |= dict.fromkeys(_constant(far), "a model of one and the same number")
    for distances, (first, *others) in alike.items():
        for client in others if any(distances) else ():
            if _same(uploads[first], uploads[client]):
                copied.setdefault(client, f"client {first}'s upload, bit for bit")
    return dict(sorted(copied.items()))


def _largest(model: Any) -> Tensor:
    return max(floats(model).values(), key=Tensor.numel, default=torch.zeros(0)).flatten()


def _constant(tensors: Mapping[int, Tensor]) -> list[int]:
    """Whose tensor has one number everywhere; others differ in their first entries already.

    Each question is asked of all at once, since each answer waits for a device.
    """
    some = {client: tensor for client, tensor in tensors.items() if len(tensor) > 1}
    for last in (2, None):
        each = [(tensor[:last] == tensor[0]).all() for tensor in some.values()]
        alike = torch.stack(each).tolist() if each else []
        some = {client: some[client] for client, yes in zip(some, alike, strict=True) if yes}
    return list(some)


def _same(one: Message, other: Message) -> bool:
    """Whether two uploads have the same bits, but for how many examples they say."""
    first, second = (
        {path: tensor for path, tensor in leaves(message) if path != "num_examples"}
        for message in (one, other)
    )
    return first.keys() == second.keys() and all(
        tensor.shape == second[path].shape and torch.equal(tensor, second[path])
        for path, tensor in first.items()
    )
