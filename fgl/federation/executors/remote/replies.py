"""Replies: the data beside a client's message, read field by field, whatever they hold."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from reprlib import repr as brief
from typing import Any, NamedTuple

from ....checks import reject_if
from ...gate.uploads import Limits
from .. import Value

Note = Mapping[str, Any]


class Handshake(NamedTuple):
    """A node's answer to the question for its client.

    Args:
        client: the client's number.
        agreement: values that must be equal at client and server.
        scores: whether the client has a score.
    """

    client: int
    agreement: Mapping[str, Any]
    scores: bool


class Told(NamedTuple):
    """The data beside an upload: whether the client keeps a state, its losses, its examples.

    `paid` is the number of answers to this question that its ledger charged; 0 if it has none.
    """

    keeps: bool
    losses: list[float]
    num_examples: int
    paid: int = 0


def handshake(note: Note) -> Handshake:
    """Read a handshake.

    Raises:
        ValueError: naming the first field that is missing, or of another kind.

    Example:
        >>> handshake({"client": "3", "agreement": "{}", "scores": True}).client
        3
    """
    return Handshake(whole(note, "client"), table(note, "agreement"), yes(note, "scores"))


def trained(note: Note) -> Told:
    """Read the data beside an upload.

    Example:
        >>> trained({"keeps": False, "losses": [0.5], "num_examples": "7"})
        Told(keeps=False, losses=[0.5], num_examples=7, paid=0)
    """
    losses = _field(note, "losses")
    if not isinstance(losses, list) or not all(type(loss) in (int, float) for loss in losses):
        raise ValueError(f"Expected losses to be a list of numbers, but got {brief(losses)}")
    number = whole(note, "num_examples")
    reject_if(number < 0, "num_examples to be at least 0", number)
    paid = whole(note, "paid") if "paid" in note else 0
    return Told(yes(note, "keeps"), [float(loss) for loss in losses], number, paid)


def score(note: Note, limits: Limits) -> dict[str, Value]:
    """A client's score: numbers, or pairs of a sum and its divisor.

    Raises:
        ValueError: if there are too many, a name is too long, or a value is no finite number. A
            pair may have divisor 0 if its sum is 0.

    Example:
        >>> score({"metrics": '{"rate": [3, 4]}'}, Limits())
        {'rate': (3.0, 4.0)}
    """
    metrics = table(note, "metrics")
    limits.check_metrics(metrics)
    return {name: _value(name, value) for name, value in metrics.items()}


def whole(note: Note, name: str) -> int:
    """A whole number, which travels as digits."""
    value = _field(note, name)
    if not isinstance(value, str) or not re.fullmatch(r"-?\d{1,20}", value, re.ASCII):
        raise ValueError(f"Expected {name} to be a whole number, but got {brief(value)}")
    return int(value)


def yes(note: Note, name: str) -> bool:
    """A boolean field of a note."""
    value = _field(note, name)
    if not isinstance(value, bool):
        raise ValueError(f"Expected {name} to be True or False, but got {brief(value)}")
    return value


def table(note: Note, name: str) -> Mapping[str, Any]:
    """A dict, which travels as JSON."""
    value = _field(note, name)
    try:
        parsed = json.loads(value) if isinstance(value, str) else None
    except (ValueError, RecursionError):
        parsed = None
    if not isinstance(parsed, dict):
        raise ValueError(f"Expected {name} to be a dict as JSON, but got {brief(value)}")
    return parsed


def _field(note: Note, name: str) -> Any:
    reject_if(name not in note, f"the reply to tell {name}", "nothing of it")
    return note[name]


def _value(name: str, value: Any) -> Value:
    each = value if isinstance(value, list) else [value]
    if not all(type(part) in (int, float) and abs(part) < 2.0**1023 for part in each):
        raise ValueError(f"Expected {name} to be a finite number, but got {brief(value)}")
    if not isinstance(value, list):
        return float(value)
    if len(value) != 2:
        raise ValueError(f"Expected {name} to be a sum and its count, but got {brief(value)}")
    total, count = map(float, value)
    if not math.isfinite(total) or count < 0 or (count == 0 and total):
        raise ValueError(f"Expected {name} to have a count above 0, but got {count:g}")
    return total, count
