"""The accountant: the epsilon of noise after a number of rounds, and of several runs together."""

from __future__ import annotations

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
    Positive,
    PositiveShare,
    check_number,
    check_share,
    check_weight,
    imported,
    install,
)
from ..kinds import explained, typed

OPACUS: tuple[float, ...] = (*(1 + tenth / 10 for tenth in range(1, 100)), *range(12, 64))
ORDERS = (*OPACUS, 96, 128, 256, 512, 1024)  # without these no epsilon is below log(1 / delta) / 62
POINTS = 10_000  # of the grid on which the privacy loss of one sampled step lies


@explained
def epsilon(
    *,
    noise_multiplier: float,
    rounds: int,
    delta: float,
    sample_rate: float = 1.0,
    orders: Sequence[float] | None = None,
) -> float:
    """Epsilon after `rounds` uses of the Gaussian mechanism, for a given delta.

    Without sampling it is exact: the epsilon of one Gaussian mechanism with
    ``noise_multiplier / sqrt(rounds)`` (Balle and Wang 2018, Theorem 8). With a `sample_rate` the
    privacy loss of Poisson sampling is put on a grid, rounded up, and composed (Doroshenko et al.
    2022): epsilon is never too small, and too large by a thousandth or so. dp-accounting does both.

    Args:
        noise_multiplier: the noise's standard deviation over the most that one party can change
            the sum that it is added to (the sensitivity); 0 protects nothing. Epsilon is for the
            neighbours that this change is between: adding or removing a party, or replacing its
            data, which may change a sum by twice as much.
        rounds: number of rounds in which the party took part.
        delta: the probability with which the bound may fail, in (0, 1); far below one over the
            number of parties.
        sample_rate: probability with which a party takes part in a round, drawn in secret; default
            1. Below 1 neighbours add or remove a party. A run's `participation` is drawn from its
            seed, and is no such sampling.
        orders: to bound epsilon by Renyi's divergence of these orders instead, as Opacus does, e.g.
            `ORDERS`. It is larger by 1 to 30 %. Orders whose series does not converge are left out.

    Returns:
        Epsilon; 0 for no round, infinite without noise.

    Raises:
        ImportError: without the extra `private`.
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


def _check(noise_multiplier: float, rounds: int, delta: float, sample_rate: float) -> None:
    """Raise a ValueError for numbers that are out of range."""
    check_weight(noise_multiplier=noise_multiplier)
    check_number("rounds", rounds, at_least=0, integer=True)
    check_number("delta", delta, above=0, below=1)
    check_share(sample_rate=sample_rate)


@functools.lru_cache(maxsize=1024)  # a run asks again in every round
def _by_loss(noise_multiplier: float, rounds: int, delta: float, sample_rate: float) -> float:
    """Epsilon by the distribution of the privacy loss."""
    accounting = _dp_accounting("gaussian_mechanism")
    if sample_rate == 1:
        sigma = noise_multiplier / math.sqrt(rounds)
        with np.errstate(divide="ignore"):  # where its search begins, at an epsilon of 0
            return float(accounting.gaussian_mechanism.get_epsilon_gaussian(sigma, delta))
    accountant = _of_losses(noise_multiplier).compose(_event(noise_multiplier, sample_rate), rounds)
    return float(accountant.get_epsilon(delta))


def _by_orders(
    noise_multiplier: float, rounds: int, delta: float, sample_rate: float, orders: list[float]
) -> float:
    """Epsilon by Renyi's divergence.

    ``min_a rounds R_a + log((a - 1) / a) - (log delta + log a) / (a - 1)``, where the order a has
    ``R_a = a / (2 noise_multiplier^2)`` without sampling (Canonne et al. 2020, Proposition 12).
    """
    accountant = _dp_accounting("rdp").rdp.RdpAccountant(orders)
    with _quiet_about("Excluding this order"):  # each of these lines says what is documented
        accountant.compose(_event(noise_multiplier, sample_rate), rounds)
    return float(accountant.get_epsilon(delta))


def _event(noise_multiplier: float, sample_rate: float) -> Any:
    """The event of one use of the mechanism, for dp-accounting."""
    accounting = _dp_accounting()
    event = accounting.GaussianDpEvent(noise_multiplier)
    return accounting.PoissonSampledDpEvent(sample_rate, event) if sample_rate < 1 else event


def _of_losses(noise_multiplier: float) -> Any:
    """An accountant by privacy losses, with a grid that is fine enough for the noise.

    The grid ends at the loss of a step without sampling at 10 standard deviations. The rest is
    dp-accounting's tail, of mass e^-50.
    """
    farthest = 10 / noise_multiplier + 0.5 / noise_multiplier**2
    return _dp_accounting("pld").pld.PLDAccountant(value_discretization_interval=farthest / POINTS)


@typed
def noise_for(
    *, epsilon: Positive, rounds: Count, delta: Chance, sample_rate: PositiveShare = 1.0
) -> float:
    """The noise multiplier that gives an epsilon after `rounds` uses: the inverse of `epsilon`.

    Args:
        epsilon: the largest accepted epsilon, above 0.
        rounds, delta, sample_rate: as in `fgl.privacy.epsilon`; at least one round.

    Returns:
        The noise multiplier, too large by at most a thousandth.

    Raises:
        ImportError: without the extra `private`.
        ValueError: if a number is out of range, or no noise gives so small an epsilon.

    Example:
        >>> noise = noise_for(epsilon=8.0, rounds=30, delta=1e-5)
        >>> 7.9 < fgl.privacy.epsilon(noise_multiplier=noise, rounds=30, delta=1e-5) <= 8
        True
    """
    accounting = _dp_accounting("gaussian_mechanism")
    with np.errstate(divide="ignore"):
        one = accounting.gaussian_mechanism.get_sigma_gaussian(epsilon, delta)
    whole = float(one) * math.sqrt(rounds) * (1 + 1e-9)  # of everybody in every round
    if sample_rate == 1:
        return whole
    how: dict[str, Any] = {"rounds": rounds, "delta": delta, "sample_rate": sample_rate}
    if _spent(noise_multiplier=whole, **how) > epsilon:  # a loss so small has no grid
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
    while _spent(noise_multiplier=multiplier, **how) > epsilon:  # on a grid of its own
        multiplier *= 1 + 1e-4
    return multiplier


_spent = epsilon  # `noise_for` has an argument of this name


@contextmanager
def _quiet_about(text: str) -> Iterator[None]:
    """A context that suppresses dp-accounting's log lines with a text; it logs with absl."""

    def unsaid(record: logging.LogRecord) -> bool:
        return text not in record.getMessage()

    logger = logging.getLogger("absl")
    logger.addFilter(unsaid)
    try:
        yield
    finally:
        logger.removeFilter(unsaid)


def _dp_accounting(part: str = "") -> Any:
    """The package dp-accounting with one of its modules, imported when an epsilon is computed."""
    how = "to compute epsilon", install("private"), "dp-accounting 0.6"
    if part:
        imported(f"dp_accounting.{part}", *how)
    return imported("dp_accounting", *how)


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
