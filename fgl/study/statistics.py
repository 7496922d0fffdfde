"""Statistics for a study: paired differences, Holm's correction, power and improvement."""

import functools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

LEVEL, POWER = 0.05, 0.8
MANY = 1000  # largest number of seeds that is considered
QUANTILES = 2000  # number of quantiles of the estimated deviation


@dataclass(frozen=True)
class Difference:
    """Mean difference between two methods on equal seeds, and a t interval of this mean.

    Args:
        mean, deviation: mean of the differences, and sample standard deviation of the differences.
        low, high: the 95 % confidence interval.
        p: p-value of the two-sided t test.
        count: number of seeds.

    Example:
        >>> Difference(0.02, 0.01, -0.005, 0.045, 0.074, 3).count
        3
    """

    mean: float
    deviation: float
    low: float
    high: float
    p: float
    count: int


def difference(gains: Sequence[float]) -> Difference:
    """The mean ``m`` of paired differences, and the mean's interval ``m ± t s / sqrt(n)``.

    The interval is infinite and ``p`` is 1 if there are fewer than two differences, or if a
    difference is not finite. The same holds if all differences are equal but not 0. In this case,
    the setting usually ignores its seed, so the differences say nothing about other seeds.

    Args:
        gains: the differences, one for each seed.

    Example:
        >>> found = difference([0.01, 0.03, 0.02])
        >>> round(found.low, 4), round(found.high, 4)
        (-0.0048, 0.0448)

    Source: Student's t test of paired samples; `scipy.stats.ttest_1samp` computes the same test
    """
    from scipy import stats

    count = len(gains)
    mean = statistics.fmean(gains) if gains else math.nan
    if count < 2 or not math.isfinite(mean):
        return Difference(mean, math.nan, -math.inf, math.inf, 1.0, count)
    deviation = statistics.stdev(gains)
    if not deviation and mean:
        return Difference(mean, math.nan, -math.inf, math.inf, 1.0, count)
    error = deviation / math.sqrt(count)
    half = float(stats.t.ppf(1 - LEVEL / 2, count - 1)) * error
    p = 2 * float(stats.t.sf(abs(mean) / error, count - 1)) if error else float(mean == 0)
    return Difference(mean, deviation, mean - half, mean + half, p, count)


def holm(values: Sequence[float]) -> list[float]:
    """Holm's adjusted p-values: ``max over j <= i of min(1, (n - j + 1) p_(j))``.

    Example:
        >>> holm([0.01, 0.04, 0.03])
        [0.03, 0.06, 0.06]

    Source: Holm 1979, A Simple Sequentially Rejective Multiple Test Procedure
    """
    adjusted, largest = [1.0] * len(values), 0.0
    for rank, index in enumerate(sorted(range(len(values)), key=lambda i: values[i])):
        largest = max(largest, min(1.0, (len(values) - rank) * values[index]))
        adjusted[index] = largest
    return adjusted


def improvement(mine: Sequence[float], others: Sequence[float], *, less: bool = False) -> float:
    """Fraction of pairs of runs (one of each method) in which the first method beats the second.

    A tie counts as half. The result is NaN if a method has no runs.

    Args:
        mine, others: scores of the first and of the second method.
        less: whether smaller scores are better.

    Example:
        >>> improvement([1.0, 3.0], [1.0, 2.0])
        0.625

    Source: Agarwal et al. 2021, https://arxiv.org/abs/2108.13264
    """
    sign = -1 if less else 1
    pairs = [(sign * a > sign * b) + 0.5 * (a == b) for a in mine for b in others]
    return statistics.fmean(pairs) if pairs else math.nan


@functools.cache
def least_effect(count: int, tests: int = 1) -> float:
    """The smallest difference that a paired t test detects, in standard deviations.

    The power is 80 %.

    The significance level is 5 % divided by the number of tests, as in Holm's first step.

    Args:
        count: number of seeds, at least 2.
        tests: number of tests.

    Example:
        >>> round(least_effect(10), 3)
        0.996
    """
    from scipy import optimize, stats

    critical = float(stats.t.ppf(1 - LEVEL / tests / 2, count - 1))
    # The power is averaged over the estimated deviation, since scipy's nct is NaN in the far tail.
    shares = (np.arange(QUANTILES) + 0.5) / QUANTILES
    bound = critical * np.sqrt(stats.chi2.ppf(shares, count - 1) / (count - 1))

    def lacking(effect: float) -> float:
        centre = effect * math.sqrt(count)
        return (
            float(np.mean(stats.norm.cdf(centre - bound) + stats.norm.cdf(-centre - bound))) - POWER
        )

    return float(optimize.brentq(lacking, 0.0, 10 * (1 + critical), xtol=1e-6))


def seeds_needed(deviation: float, smallest: float, tests: int = 1) -> int:
    """Number of seeds (at most 1000) with which a test detects a difference; the power is 80 %.

    Args:
        deviation: standard deviation of the differences over seeds.
        smallest: the difference to detect.
        tests: number of tests.

    Example:
        >>> seeds_needed(0.02, 0.02), seeds_needed(0.02, 0.01)
        (10, 34)
    """
    low, high = 2, MANY
    while low < high:
        middle = (low + high) // 2
        enough = deviation * least_effect(middle, tests) <= smallest
        low, high = (low, middle) if enough else (middle + 1, high)
    return low
