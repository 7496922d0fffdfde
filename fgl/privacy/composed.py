"""The epsilon of several mechanisms together, such as all runs that one site took part in."""

from __future__ import annotations

import math
from collections.abc import Mapping

from ..kinds import explained
from .accountant import _check, _event, _of_losses, epsilon


@explained
def composed_epsilon(uses: Mapping[tuple[float, float], int], *, delta: float) -> float:
    """The epsilon of Gaussian mechanisms of several kinds, one after the other, at a delta.

    For one kind it is `fgl.privacy.epsilon`. Several kinds without sampling are one mechanism with
    the sum of their ``1 / noise_multiplier^2``; sampled ones are composed by losses on one grid.

    Args:
        uses: (noise multiplier, sample rate) to number of uses; see `fgl.privacy.epsilon` for both.
        delta: the probability with which the bound may fail, in (0, 1).

    Returns:
        Epsilon; 0 for no use, infinite if a use has no noise. It is for the neighbours of every
        kind: replacing all of a client's data covers replacing one of its examples, not the other
        way round.

    Raises:
        ImportError: without the extra `private`.
        ValueError: if a number is out of range.

    Example:
        >>> one = composed_epsilon({(1.0, 1.0): 10}, delta=1e-5)
        >>> one == fgl.privacy.epsilon(noise_multiplier=1.0, rounds=10, delta=1e-5)
        True
        >>> composed_epsilon({(1.0, 1.0): 5, (1.0 + 1e-9, 1.0): 5}, delta=1e-5) - one < 1e-6
        True
    """
    for (noise, rate), times in uses.items():
        _check(noise, times, delta, rate)
    used = {(noise, rate): times for (noise, rate), times in uses.items() if times and rate}
    if not used:
        return 0.0
    if not all(noise for noise, _ in used):
        return math.inf
    if len(used) == 1:
        (((noise, rate), times),) = used.items()
        return epsilon(noise_multiplier=noise, sample_rate=rate, rounds=times, delta=delta)
    if all(rate == 1 for _, rate in used):  # together one with the sum of the inverse squares
        whole = math.sqrt(1 / sum(times / noise**2 for (noise, _), times in used.items()))
        return epsilon(noise_multiplier=whole, rounds=1, delta=delta)
    accountant = _of_losses(min(noise for noise, _ in used))
    for (noise, rate), times in used.items():
        accountant.compose(_event(noise, rate), times)
    return float(accountant.get_epsilon(delta))
