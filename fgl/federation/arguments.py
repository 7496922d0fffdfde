"""Arguments of a run, checked before its first round."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ..checks import check_number, check_share
from .history import Result
from .method import Method
from .round import Dropouts


def check_kinds(method: Any, start: Any, callbacks: Any, **functions: Any) -> None:
    """Raise a TypeError for what is easily mistaken, such as a model in a method's place.

    Example:
        >>> check_kinds(torch.nn.Linear(1, 1), None, [])
        Traceback (most recent call last):
        TypeError: Expected method to be a Method, such as fgl.fedavg(model), but got Linear
    """
    if not isinstance(method, Method):
        got = type(method).__name__
        raise TypeError(f"Expected method to be a Method, such as fgl.fedavg(model), but got {got}")
    if start is not None and not isinstance(start, Result):
        raise TypeError(f"Expected start to be a run's Result, but got {type(start).__name__}")
    if not isinstance(callbacks, Sequence):
        raise TypeError(f"Expected callbacks to be a list of functions, but got {callbacks!r}")
    for name, function in functions.items():
        if function is not None and not callable(function):
            raise TypeError(f"Expected {name} to be a function, but got {function!r}")


def check_numbers(
    num_rounds: int, participation: float, dropouts: Dropouts, config: Mapping[str, Any] | None
) -> None:
    """Raise for numbers out of range, or a config that JSON cannot hold.

    Example:
        >>> check_numbers(3, 0.0, 0.0, None)
        Traceback (most recent call last):
        ValueError: Expected participation to be a number > 0 and <= 1, but got 0.0
    """
    check_number("num_rounds", num_rounds, at_least=0, integer=True)
    check_number("participation", participation, above=0, at_most=1)
    if not callable(dropouts):
        check_share(dropouts=dropouts)
    try:
        json.dumps(dict(config or {}))
    except (TypeError, ValueError) as error:
        raise TypeError(f"Expected config to hold JSON's types only, but got {config}") from error
