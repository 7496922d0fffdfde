"""Discrete Gaussian noise: whole numbers whose sum over clients protects like Gaussian noise."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..checks import check_count, check_number
from ..kinds import explained
from .gaussian import standard_normal

COARSEST = 16.0  # standard deviation in steps of the grid: `gap_of_sum` is then 0 in any float
FARTHEST = 9.2  # standard deviations: no number made of 64 random bits lies beyond
LARGEST = 2.0**48  # so that noise is a whole float, and 1,000 of them fit a word


@explained
def discrete_gaussian(
    shape: torch.Size, *, sigma: float, unprotected: torch.Generator | None = None
) -> Tensor:
    """Whole numbers with the probabilities of a Gaussian: ``P(k) ~ exp(-k^2 / (2 sigma^2))``.

    They are normal numbers from the operating system, rounded. A probability differs
    from the definition by a factor of about ``1 + (k^2 / sigma^2 - 1) / (24 sigma^2)``. Since the
    numbers were normal before they were rounded, their sum is accounted as normal (`gap_of_sum`).

    Args:
        shape: shape of the tensor.
        sigma: standard deviation, from 16 to 2^48.
        unprotected: a generator to take the bits from instead; such noise protects nothing.

    Returns:
        int64, on the CPU.

    Raises:
        ValueError: if `sigma` is out of range.

    Example:
        >>> noise = discrete_gaussian(torch.Size([10_000]), sigma=100.0)
        >>> noise.dtype, bool((noise.double().std() - 100).abs() < 5)
        (torch.int64, True)

    Source: Kairouz et al. 2021, https://arxiv.org/abs/2102.06387
    """
    check_number("sigma", sigma, at_least=COARSEST, at_most=LARGEST)
    return (standard_normal(shape, unprotected) * sigma).round().long()


@explained
def gap_of_sum(number: int, *, sigma: float) -> float:
    """Distance of a sum of discrete Gaussians from one Gaussian, in the logarithm of a density.

    Let n clients hold whole numbers, add rounded normal numbers, and publish the sum. The sum and
    the rounding errors together have the density of the Gaussian mechanism's result with
    ``sqrt(n) sigma`` and of errors that do not depend on the data, times a factor from ``e^-tau``
    to ``e^tau``. Here ``tau = 10 (n - 1) exp(-pi^2 sigma^2)``, which is at least Kairouz et al.'s
    (Theorem 11). So a sum of P entries is ``(epsilon + 2 P tau, e^(P tau) delta)``-private
    where the Gaussian mechanism is ``(epsilon, delta)``-private.

    Args:
        number: n, the clients whose noise is in the sum.
        sigma: standard deviation of one client's noise, at least 1/2.

    Returns:
        tau; 0 if it is below the smallest float, as from a sigma of 16 on.

    Raises:
        ValueError: if a number is out of range.

    Example:
        >>> f"{gap_of_sum(100, sigma=1.5):.0e}", gap_of_sum(10**6, sigma=16.0)
        ('2e-07', 0.0)

    Source: Kairouz et al. 2021, https://arxiv.org/abs/2102.06387
    """
    check_count(number=number)
    check_number("sigma", sigma, at_least=0.5)
    return 10 * (number - 1) * math.exp(-((math.pi * sigma) ** 2))
