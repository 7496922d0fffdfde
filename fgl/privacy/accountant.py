"""Accountant: epsilon for the noisy rounds of one run or of several runs."""

import functools
import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from ..checks import (
    Chance,
    Count,
    Natural,
    Positive,
    PositiveShare,
    Share,
    Weight,
    imported,
    install,
)
from ..kinds import typed

OPACUS: tuple[float, ...] = (*(1 + tenth / 10 for tenth in range(1, 100)), *range(12, 64))
ORDERS = (*OPACUS, 96, 128, 256, 512, 1024)  # OPACUS gives no epsilon below log(1 / delta) / 62
POINTS = 10_000  # points of the grid for the privacy loss of one sampled step


def epsilon(
    *,
    noise_multiplier: float,
    rounds: int,
    delta: float,
    sample_rate: float = 1.0,
    orders: Sequence[float] | None = None,
) -> float:
    """Epsilon after `rounds` uses of the Gaussian mechanism, for a given delta.

    Without sampling, the result is exact: the epsilon of one Gaussian mechanism with
    ``noise_multiplier / sqrt(rounds)`` (Balle and Wang 2018, Theorem 8). With a `sample_rate`, the
    privacy loss of Poisson sampling is rounded up to a grid, and the losses of all rounds are
    composed (Doroshenko et al. 2022). This result is never below the true epsilon, and exceeds it
    by at most about a thousandth. The package dp-accounting computes both kinds of epsilon.

    Args:
        noise_multiplier: standard deviation of the noise, divided by the sensitivity. The
            sensitivity is the largest change of the sum that one party can cause. A multiplier of 0
            gives no protection. Epsilon holds for the change that defines the sensitivity: either a
            party is added or removed, or the data of a party are replaced. The sensitivity can be
            twice as large for a replacement as for a removal.
        rounds: number of rounds in which the party took part.
        delta: the probability with which the bound may fail, above 0 and below 1. Choose a delta
            far below ``1 / (number of parties)``.
        sample_rate: probability with which a party takes part in a round; by default 1. The
            sampling must be secret. If this probability is below 1, epsilon holds for two data sets
            that differ by the addition or removal of one party. A run's `participation` is sampled
            with the run's seed and is not secret.
        orders: orders of Renyi divergence, such as `ORDERS`. If orders are given, the result is a
            bound on epsilon, computed from the Renyi divergences of these orders, as in Opacus.
            This bound is 1 to 30 % larger than the default epsilon. Orders for which the series
            does not converge are omitted.

    Returns:
        Epsilon: 0 without rounds, and infinite without noise.

    Raises:
        ImportError: if the extra `private` is not installed.
        ValueError: if a number is out of range.

    Example:
        >>> round(epsilon(noise_multiplier=1.0, rounds=10, delta=1e-5), 2)
        17.86

    Source: Balle and Wang 2018, https://arxiv.org/abs/1805.06530; Doroshenko et al. 2022,
    https://arxiv.org/abs/2207.04380; Mironov 2017, https://arxiv.org/abs/1702.07476
    """
    _check(noise_multiplier, rounds, delta, sample_rate)
    if not rounds or not sample_rate:
        return 0.0
    if not noise_multiplier:
        return math.inf
    how = float(noise_multiplier), int(rounds), float(delta), float(sample_rate)
    return _by_loss(*how) if orders is None else _by_orders(*how, list(orders))


@typed
def _check(noise_multiplier: Weight, rounds: Natural, delta: Chance, sample_rate: Share) -> None:
    """Raise a ValueError for numbers that are out of range."""


@functools.lru_cache(maxsize=1024)  # a run calls this in every round
def _by_loss(noise_multiplier: float, rounds: int, delta: float, sample_rate: float) -> float:
    """Epsilon, computed from the distribution of the privacy loss."""
    accounting = _dp_accounting("gaussian_mechanism")
    if sample_rate == 1:
        sigma = noise_multiplier / math.sqrt(rounds)
        with np.errstate(divide="ignore"):  # the search for epsilon starts at 0
            return float(accounting.gaussian_mechanism.get_epsilon_gaussian(sigma, delta))
    accountant = _of_losses(noise_multiplier).compose(_event(noise_multiplier, sample_rate), rounds)
    return float(accountant.get_epsilon(delta))


def _by_orders(
    noise_multiplier: float, rounds: int, delta: float, sample_rate: float, orders: list[float]
) -> float:
    """Epsilon, computed from Renyi divergences.

    ``min_a rounds R_a + log((a - 1) / a) - (log delta + log a) / (a - 1)`` over the orders a
    (Canonne et al. 2020, Proposition 12). Without sampling ``R_a = a / (2 noise_multiplier^2)``.
    """
    accountant = _dp_accounting("rdp").rdp.RdpAccountant(orders)
    with _quiet_about("Excluding this order"):  # the documentation already says this
        accountant.compose(_event(noise_multiplier, sample_rate), rounds)
    return float(accountant.get_epsilon(delta))


def _event(noise_multiplier: float, sample_rate: float) -> Any:
    """The event of dp-accounting that stands for one use of the Gaussian mechanism."""
    accounting = _dp_accounting()
    event = accounting.GaussianDpEvent(noise_multiplier)
    return accounting.PoissonSampledDpEvent(sample_rate, event) if sample_rate < 1 else event


def _of_losses(noise_multiplier: float) -> Any:
    """A privacy accountant with a grid of losses that is fine enough for the noise.

    The grid ends at the largest privacy loss of a step whose noise is at most 10 standard
    deviations. The loss is computed without sampling of parties. The package dp-accounting treats
    losses beyond the grid as a tail with mass e^-50.
    """
    farthest = 10 / noise_multiplier + 0.5 / noise_multiplier**2
    return _dp_accounting("pld").pld.PLDAccountant(value_discretization_interval=farthest / POINTS)


@typed
def noise_for(
    *, epsilon: Positive, rounds: Count, delta: Chance, sample_rate: PositiveShare = 1.0
) -> float:
    """Noise multiplier for which epsilon is at most the given value after all rounds.

    This function is the inverse of the function `fgl.privacy.epsilon`.

    Args:
        epsilon: the largest accepted epsilon, above 0.
        rounds, delta, sample_rate: as in `fgl.privacy.epsilon`; at least one round.

    Returns:
        The noise multiplier, at most a thousandth larger than needed.

    Raises:
        ImportError: if the extra `private` is not installed.
        ValueError: if a number is out of range, or if no noise multiplier gives an epsilon that is
            small enough.

    Example:
        >>> noise = noise_for(epsilon=8.0, rounds=30, delta=1e-5)
        >>> 7.9 < fgl.privacy.epsilon(noise_multiplier=noise, rounds=30, delta=1e-5) <= 8
        True
    """
    accounting = _dp_accounting("gaussian_mechanism")
    with np.errstate(divide="ignore"):
        one = accounting.gaussian_mechanism.get_sigma_gaussian(epsilon, delta)
    whole = float(one) * math.sqrt(rounds) * (1 + 1e-9)  # if everybody takes part in every round
    if sample_rate == 1:
        return whole
    how: dict[str, Any] = {"rounds": rounds, "delta": delta, "sample_rate": sample_rate}
    if _spent(noise_multiplier=whole, **how) > epsilon:  # no grid for a loss as small as this
        raise ValueError(f"Expected epsilon to be one that noise can give, but got {epsilon}")
    high = whole
    while _spent(noise_multiplier=high / 2, **how) <= epsilon:
        high /= 2
    multiplier: float = accounting.calibrate_dp_mechanism(
        lambda: _of_losses(high),
        lambda noise: accounting.SelfComposedDpEvent(_event(noise, sample_rate), rounds),
        epsilon,
        delta,
        accounting.ExplicitBracketInterval(high / 2, high),
        tol=5e-4 * high / 2,
    )
    while _spent(noise_multiplier=multiplier, **how) > epsilon:  # each multiplier has its own grid
        multiplier *= 1 + 1e-4
    return multiplier


_spent = epsilon  # `noise_for` has an argument of this name


@contextmanager
def _quiet_about(text: str) -> Iterator[None]:
    """A context that hides log lines that contain `text`; dp-accounting logs through absl."""

    def unsaid(record: logging.LogRecord) -> bool:
        return text not in record.getMessage()

    logger = logging.getLogger("absl")
    logger.addFilter(unsaid)
    try:
        yield
    finally:
        logger.removeFilter(unsaid)


def _dp_accounting(part: str = "") -> Any:
    """Import the package dp-accounting and one of its modules at first use."""
    how = "to compute epsilon", install("private"), "dp-accounting 0.6"
    if part:
        imported(f"dp_accounting.{part}", *how)
    return imported("dp_accounting", *how)


def composed_epsilon(uses: Mapping[tuple[float, float], int], *, delta: float) -> float:
    """Epsilon of a sequence of several Gaussian mechanisms, for a given delta.

    If all uses have the same noise multiplier and sample rate, the result equals
    `fgl.privacy.epsilon`. Without sampling, all uses together are equivalent to one mechanism. The
    ``1 / noise_multiplier^2`` of this mechanism is the sum of ``1 / noise_multiplier^2`` over all
    uses. With sampling, the privacy losses are composed on a common grid.

    Args:
        uses: dict from (noise multiplier, sample rate) to the number of uses; `fgl.privacy.epsilon`
            describes these parameters.
        delta: the probability with which the bound may fail, above 0 and below 1.

    Returns:
        Epsilon: 0 without uses, and infinite if a use has no noise. The result is valid for two
        data sets only if every mechanism hides the difference between them. If a mechanism hides
        the replacement of all data of a client, it also hides the replacement of one example. The
        reverse is not true.

    Raises:
        ImportError: if the extra `private` is not installed.
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
    if all(rate == 1 for _, rate in used):  # equivalent to one mechanism: sum of inverse squares
        whole = math.sqrt(1 / sum(times / noise**2 for (noise, _), times in used.items()))
        return epsilon(noise_multiplier=whole, rounds=1, delta=delta)
    accountant = _of_losses(min(noise for noise, _ in used))
    for (noise, rate), times in used.items():
        accountant.compose(_event(noise, rate), times)
    return float(accountant.get_epsilon(delta))
