"""Metrics as numbers of the processor, all brought there in one copy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from ..kinds import explained
from ..transfer import to_host
from .classes import f1_of, share

NUMBER: Any = (float, share, f1_of)  # of a tensor by its dimensions: a number, hits, classes


@explained
def on_host(*metrics: Mapping[str, Any]) -> list[dict[str, float]]:
    """Metrics as numbers, so that a GPU is waited for once.

    Args:
        metrics: name to a number, a scalar, or what `hit_counts` or `class_counts` returns.

    Returns:
        The same names with a number each: of `hit_counts` the `share`, of `class_counts` `f1_of`.

    Example:
        >>> on_host({"accuracy": torch.tensor([3, 4])}, {"loss": 0.5})
        [{'accuracy': 0.75}, {'loss': 0.5}]
    """
    numbers = [dict(each) for each in metrics]
    tensors = [
        (named, name, value)
        for named in numbers
        for name, value in named.items()
        if isinstance(value, Tensor)
    ]
    values = to_host(*(value for _, _, value in tensors))
    for (named, name, _), value in zip(tensors, values, strict=True):
        named[name] = NUMBER[value.dim()](value)
    return numbers
