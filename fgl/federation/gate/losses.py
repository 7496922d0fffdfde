"""Losses that clients tell of their rounds: the mean, and who cannot be part of it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

FARTHEST = 300.0  # times the median client's, or this


def mean_loss(losses: Mapping[int, Sequence[float]]) -> tuple[float, dict[int, str]]:
    """The mean over clients of each one's mean loss, and who is left out of it.

    However many losses a client tells, it weighs as any other. Let m be the size of the mean loss
    of the median client, the larger one of two. Left out are losses that are not finite, or whose
    mean is larger than 300 m and than 300: one client in three cannot decide what a history shows.

    Args:
        losses: client to the loss of each of its steps; who tells none has no say.

    Returns:
        The mean, NaN where nobody is left; and for each client that was left out, why.

    Example:
        >>> mean_loss({0: [1.0, 3.0], 1: [4.0], 2: [1e9, 1e9]})
        (3.0, {2: 'a mean loss of 1e+09, where the median client has 4'})
        >>> mean_loss({0: [0.5], 1: [math.inf]})
        (0.5, {1: 'a loss that is not finite'})
    """
    reported = {client: values for client, values in losses.items() if values}
    odd = {
        client: "a loss that is not finite"
        for client, values in reported.items()
        if not all(map(math.isfinite, values))
    }
    each = {c: sum(value / len(v) for value in v) for c, v in reported.items() if c not in odd}
    if not each:
        return math.nan, odd
    median = statistics.median_high(map(abs, each.values()))
    for client, value in each.items():
        if abs(value) > FARTHEST * max(median, 1.0):
            odd[client] = f"a mean loss of {value:.3g}, where the median client has {median:.3g}"
    usual = [value for client, value in each.items() if client not in odd]
    return sum(usual) / len(usual), dict(sorted(odd.items()))
