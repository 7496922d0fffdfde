"""The accountant: the epsilon that noise is worth after so many rounds, by Renyi's divergence."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ..checks import check_count, check_number, check_share, check_weight

OPACUS: tuple[float, ...] = (*(1 + tenth / 10 for tenth in range(1, 100)), *range(12, 64))
ORDERS = (*OPACUS, 96, 128, 256, 512, 1024)  # without these nothing is below log(1 / delta) / 62


def epsilon(
    *,
    noise_multiplier: float,
    rounds: int,
    delta: float,
    sample_rate: float = 1.0,
    orders: Sequence[float] = ORDERS,
) -> float:
    """The epsilon of the Gaussian mechanism, so many times, at a delta.

    ``min_a rounds R_a + log((a - 1) / a) - (log delta + log a) / (a - 1)``, where the order a has
    ``R_a = a / (2 noise_multiplier^2)``; with a `sample_rate` that of Poisson sampling (Mironov et
    al. 2019). dp-accounting computes it.

    Args:
        noise_multiplier: the noise's standard deviation over the most that one party can change
            the sum that it is added to (the sensitivity); 0 protects nothing. Epsilon is for the
            neighbours that this change is between: adding or removing a party, or replacing its
            data, which may change a sum by twice as much.
        rounds: how often the party took part.
        delta: the probability with which the bound may fail, in (0, 1); far below one over the
            number of parties.
        sample_rate: probability with which a party takes part in a round, drawn where nobody sees
            it; default 1. Below 1 neighbours add or remove a party. A run's `participation` is
            drawn from its seed, and is no such sampling.
        orders: a, to take the best of; default Opacus' 151 and five larger ones, which an epsilon
            below 1 needs. Where the series of a sampled one at
            a broken order does not converge, that order is left out: epsilon is no smaller for it.

    Returns:
        Epsilon; 0 for no round, infinite without noise.

    Raises:
        ImportError: without the extra `private`.
        ValueError: if a number is out of range.

    Example:
        >>> round(epsilon(noise_multiplier=1.0, rounds=10, delta=1e-5), 2)
        19.05

    Source: Mironov 2017, https://arxiv.org/abs/1702.07476; Canonne et al. 2020 (Proposition 12),
    https://arxiv.org/abs/2004.00010
    """
    check_weight(noise_multiplier=noise_multiplier)
    check_number("rounds", rounds, at_least=0, integer=True)
    check_number("delta", delta, above=0, below=1)
    check_share(sample_rate=sample_rate)
    if not rounds or not sample_rate:
        return 0.0
    if not noise_multiplier:
        return math.inf
    accounting, rdp = _dp_accounting()
    event = accounting.GaussianDpEvent(noise_multiplier)
    if sample_rate < 1:
        event = accounting.PoissonSampledDpEvent(sample_rate, event)
    accountant = rdp.RdpAccountant(list(orders))
    with _quiet_about("Excluding this order"):  # a line for each, which says what is documented
        accountant.compose(event, rounds)
    return float(accountant.get_epsilon(delta))


_spent = epsilon  # `noise_for` has an argument of this name


def noise_for(*, epsilon: float, rounds: int, delta: float, sample_rate: float = 1.0) -> float:
    """The noise multiplier that gives an epsilon after so many rounds: the inverse of `epsilon`.

    Args:
        epsilon: to stay at or just below, above 0.
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
    check_number("epsilon", epsilon, above=0)
    check_count(rounds=rounds)
    how: dict[str, Any] = {"rounds": rounds, "delta": delta, "sample_rate": sample_rate}
    low, high = 0.0, 1.0
    while _spent(noise_multiplier=high, **how) > epsilon:
        low, high = high, 2 * high
        if high > 1e9:
            raise ValueError(f"Expected epsilon to be one that noise can give, but got {epsilon}")
    if not _spent(noise_multiplier=high, **how):  # as 0 it is below all that the orders can tell
        raise ValueError(f"Expected epsilon to be one that noise can give, but got {epsilon}")
    while high - low > 1e-3 * high:
        middle = (low + high) / 2
        if _spent(noise_multiplier=middle, **how) > epsilon:
            low = middle
        else:
            high = middle
    return high


@contextmanager
def _quiet_about(text: str) -> Iterator[None]:
    """Keep dp-accounting's log lines with a text back; it logs with absl."""

    def unsaid(record: logging.LogRecord) -> bool:
        return text not in record.getMessage()

    logger = logging.getLogger("absl")
    logger.addFilter(unsaid)
    try:
        yield
    finally:
        logger.removeFilter(unsaid)


def _dp_accounting() -> Any:
    """dp-accounting, which only an epsilon needs."""
    try:
        import dp_accounting
        from dp_accounting import rdp
    except ImportError as error:
        raise ImportError(
            "Expected dp-accounting 0.6 to be installed, which computes epsilon, but it is not: "
            "pip install -e '.[private]' in a checkout of fgl"
        ) from error
    return dp_accounting, rdp
