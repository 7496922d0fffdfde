"""Messages between the clients and the server of a secure sum, and the terms they agree on."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ...federation import Message, Params, State
from ...privacy import largest_weight
from ...privacy import masks as parts

ROUNDS = 4  # of an exchange: keys, letters, masked uploads, shares
KEYS, LETTERS, MASKED, SHARES, REST = 0, 1, 2, 3, 4  # what a client is asked for
NAMES = ("keys", "letters", "masked upload", "shares")
ASKED, TOLD = "secure", "told"  # entries of contexts and states beside the method's own
START: dict[str, Tensor] = {"phase": torch.tensor(KEYS)}


@dataclass(frozen=True)
class Terms:
    """What clients and server agree on.

    Args:
        threshold: how many clients must last to the end.
        equally: keys that are summed without weights.
        bits, bound: of the fixed point.

    Example:
        >>> Terms(threshold=3).names
        ('model', 'num_examples')
    """

    threshold: int
    equally: tuple[str, ...] = ()
    bits: int = 28
    bound: float = 1024.0

    @property
    def names(self) -> tuple[str, ...]:
        """The keys of a message that is summed."""
        return ("model", "num_examples", *self.equally)

    def about(self, keys: Tensor) -> bytes:
        """What letters and masks of one exchange are bound to: other terms, other masks."""
        spelled = repr((self.threshold, self.equally, self.bits, float(self.bound))).encode()
        return hashlib.sha256(spelled + parts.as_bytes(keys)).digest()

    def limit(self, num_clients: int) -> int:
        """What a client may weigh."""
        return largest_weight(num_clients, bits=self.bits, bound=self.bound)


def flat(tensors: Mapping[str, Tensor]) -> Tensor:
    """All words in one row, in the order of their names."""
    return torch.cat([tensors[path].flatten() for path in sorted(tensors)])


def unflat(words: Tensor, like: Mapping[str, Tensor]) -> Params:
    """The words in their places, with the names in the order of `like`."""
    order = sorted(like)
    each = dict(zip(order, words.split([like[path].numel() for path in order]), strict=True))
    return {path: each[path].view(value.shape) for path, value in like.items()}


def as_message(paths: Mapping[str, Tensor]) -> Message:
    """A message from its tensors by path."""
    message: dict[str, Any] = {}
    for path, tensor in paths.items():
        key, inside, name = path.partition("/")
        if inside:
            message.setdefault(key, {})[name] = tensor
        else:
            message[key] = tensor
    return message


def split(message: Message, state: State) -> tuple[Message, dict[str, Tensor]]:
    """The method's own message, which a client keeps during an exchange, and what is asked."""
    if "phase" not in message:
        return message, dict(START)
    if TOLD not in state:
        raise ValueError("Expected the state to have the exchange's first message, but got none")
    asked = message["secure"]
    return as_message(state[TOLD]), {"phase": message["phase"], **asked}


def of_method(state: State) -> State:
    """A state without what the secure sum keeps in it."""
    return {key: value for key, value in state.items() if key not in (ASKED, TOLD, "masked")}


def envelope(phase: int, what: Mapping[str, Tensor]) -> Message:
    return {"phase": torch.tensor(phase), "secure": dict(what)}


def part(message: Message) -> Any:
    return message["secure"]


def at(phase: int, **known: Any) -> dict[str, Tensor]:
    return {"phase": torch.tensor(phase)} | {k: torch.as_tensor(v) for k, v in known.items()}


def check_half(threshold: int, number: int) -> None:
    """Two halves of the clients could be told two things, and each give a secret away."""
    if 2 * threshold <= number:
        raise ValueError(
            f"Expected threshold to be more than half of the {number} clients, but got {threshold}"
        )
