"""Gaussian noise for privacy, computed from random bits of the operating system."""

import math
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..aggregate import project_to_simplex
from ..checks import check_count, check_number, reject_if
from ..transfer import to_device, to_host
from ..warn import warn

FINE = 20  # the grid's step is at most sigma / 2^FINE
TWISTER = slice(24, 24 + 624 * 8)  # position of the Mersenne twister's words in a CPU state
UNPROTECTED = (
    "Expected noise from the operating system, but got a generator: whoever knows its seed "
    "subtracts the noise. This run protects nothing"
)


def gaussian(
    tensors: Mapping[str, Tensor], *, sigma: float, unprotected: torch.Generator | None = None
) -> dict[str, Tensor]:
    """Add Gaussian noise from the operating system to every entry: ``t + N(0, sigma^2)``.

    Let s be the largest power of two that is at most ``sigma / 2^20``. Entries are rounded towards
    0 to multiples of s, and noise is rounded to the nearest multiple of s. The sum of a rounded
    entry and its rounded noise is exact. So the result is the same as if exact noise were added to
    the rounded entry, and the sum were rounded. The last bits of the result therefore reveal
    nothing about the original entry (Mironov 2012). Two limits remain. The noise of an entry has 64
    random bits, so it never exceeds 9.1 sigma. The running time may depend on the data.

    Args:
        tensors: dict from name to a floating-point tensor; the total length must be bounded
            (`clip`).
        sigma: standard deviation of the noise, above 0.
        unprotected: a generator, for reproducible experiments. Noise from a generator gives no
            protection, so the function then gives a warning.

    Returns:
        Dict from name to tensor, with the shapes, dtypes and devices of `tensors`.

    Raises:
        ValueError: if `sigma` is not positive, or if an entry is not finite.

    Example:
        >>> noisy = gaussian({"w": torch.zeros(10_000)}, sigma=2.0)["w"]
        >>> bool((noisy.std() - 2).abs() < 0.1)
        True

    Source: Mironov 2012, https://doi.org/10.1145/2382196.2382264
    """
    if unprotected is not None:
        warn(UNPROTECTED)
    return plus_noise(tensors, sigma, unprotected)


def plus_noise(
    tensors: Mapping[str, Tensor], sigma: float, unprotected: torch.Generator | None
) -> dict[str, Tensor]:
    """Like `gaussian`, but without a warning about a generator."""
    exact, out = on_grid(tensors, sigma=sigma), {}
    step = grid_step(sigma)
    for name, value in exact.items():
        noise = (standard_normal(value.shape, unprotected) * (sigma / step)).round() * step
        out[name] = (value + to_device(noise, value.device)).to(tensors[name].dtype)
    return out


def on_grid(tensors: Mapping[str, Tensor], *, sigma: float) -> dict[str, Tensor]:
    """Round entries to multiples of `grid_step`, in float64; sums on this grid are exact.

    Entries are rounded towards 0, so that rounding never increases a norm.

    Args:
        tensors: dict from name to a floating-point tensor.
        sigma: standard deviation of the noise that is added later, above 0.

    Raises:
        ValueError: if `sigma` is not positive, or if an entry is not finite.

    Example:
        >>> on_grid({"w": torch.tensor([1.0, -1e-9])}, sigma=1.0)
        {'w': tensor([1., -0.], dtype=torch.float64)}
    """
    check_number("sigma", sigma, above=0)
    finite = to_host(*(value.isfinite().all() for value in tensors.values()))
    for name, fine in zip(tensors, finite, strict=True):
        reject_if(not fine, f"{name} to be finite", "an entry that is not")
    return {name: truncated(value, grid_step(sigma)) for name, value in tensors.items()}


def truncated(value: Tensor, step: float) -> Tensor:
    """Round entries towards 0 to multiples of a step, in float64.

    Example:
        >>> truncated(torch.tensor([0.7, -0.7]), 0.5)
        tensor([ 0.5000, -0.5000], dtype=torch.float64)
    """
    return (value.double() / step).trunc() * step


def grid_step(sigma: float) -> float:
    """The grid's step: the largest power of two that is at most ``sigma / 2^20``.

    Example:
        >>> grid_step(1.5) == 2**-20
        True
    """
    return math.ldexp(1.0, math.floor(math.log2(sigma)) - FINE)


def standard_normal(shape: torch.Size, unprotected: torch.Generator | None = None) -> Tensor:
    """Normal random numbers, each from 64 bits of the operating system; float64 on the CPU.

    ``s Phi^-1((k + 1/2) / 2^64)`` with a uniform sign s and a uniform k in ``[0, 2^63)``.

    Args:
        shape: shape of the tensor.
        unprotected: a generator that replaces the operating system as the source of random bits.
            Numbers from a generator give no protection.

    Example:
        >>> bool(standard_normal(torch.Size([1000])).abs().max() < 9.2)
        True
    """
    from scipy.special import ndtri

    bits = _bits(math.prod(shape), unprotected)
    size = -ndtri(((bits >> np.uint64(1)).astype(np.float64) + 0.5) * 2.0**-64)
    values = np.where(bits & np.uint64(1), size, -size)
    return torch.from_numpy(values).view(shape)


def uniform(shape: torch.Size, unprotected: torch.Generator | None = None) -> Tensor:
    """Uniform random numbers in ``[0, 1)`` from the operating system; float64 on the CPU.

    Args:
        shape: shape of the tensor.
        unprotected: a generator that replaces the operating system as the source of random bits.
            Numbers from a generator give no protection.

    Example:
        >>> bool(uniform(torch.Size([1000])).max() < 1)
        True
    """
    bits = _bits(math.prod(shape), unprotected)
    return torch.from_numpy((bits >> np.uint64(11)).astype(np.float64) * 2.0**-53).view(shape)


def seed_from_system(device: torch.device) -> None:
    """Seed torch's generator with random bits of the operating system, instead of a run's seed.

    On the CPU all 19,937 bits of the Mersenne twister are set. ``torch.manual_seed`` uses only the
    last 32 bits of a seed on the CPU, and an attacker could try all values of these bits.

    Args:
        device: the generator's device.

    Example:
        >>> with torch.random.fork_rng():
        ...     seed_from_system(torch.device("cpu"))
        ...     one = torch.rand(4)
        ...     seed_from_system(torch.device("cpu"))
        ...     bool(one.equal(torch.rand(4)))
        False
    """
    if device.type == "cuda":
        with torch.cuda.device(device):
            torch.cuda.manual_seed(int(_bits(1, None)[0] >> np.uint64(1)))
    state = torch.Generator().manual_seed(0).get_state()
    words = state[TWISTER].view(torch.int64)  # 624 words of 32 bits, each stored in 64 bits
    words.copy_(torch.from_numpy((_bits(len(words), None) >> np.uint64(32)).astype(np.int64)))
    torch.set_rng_state(state)


def _bits(count: int, unprotected: torch.Generator | None) -> Any:
    """Draw `count` random words of 64 bits, uint64 ``[count]``."""
    if unprotected is None:
        return np.frombuffer(os.urandom(8 * count), dtype=np.uint64)
    halves = torch.randint(2**32, (2 * count,), generator=unprotected, device=unprotected.device)
    return halves.cpu().numpy().astype(np.uint32).view(np.uint64)


def noisy_shares(
    shares: Tensor, *, sigma: float, unprotected: torch.Generator | None = None
) -> Tensor:
    """Add Gaussian noise to each distribution, and replace the result by the nearest distribution.

    Args:
        shares: float ``[..., C]``, rows that sum to 1.
        sigma: standard deviation of the noise, above 0.
        unprotected: as in `gaussian`.

    Returns:
        A tensor of the shape and dtype of `shares`; each row is a distribution.

    Raises:
        ValueError: if `sigma` is not positive.

    Example:
        >>> noisy_shares(torch.eye(3), sigma=0.1).sum(1).round(decimals=4)
        tensor([1., 1., 1.])
    """
    noisy = gaussian({"shares": shares}, sigma=sigma, unprotected=unprotected)["shares"]
    return project_to_simplex(noisy.flatten(0, -2)).view_as(shares) if noisy.numel() else noisy


COARSEST = 16.0  # smallest standard deviation in grid steps: from here `gap_of_sum` is 0 in floats
FARTHEST = 9.2  # standard deviations: bound for a Gaussian sample from 64 random bits
LARGEST = 2.0**48  # so that noise is an exact float, and the sum of 1,000 fits a word


def discrete_gaussian(
    shape: torch.Size, *, sigma: float, unprotected: torch.Generator | None = None
) -> Tensor:
    """Sample integers with Gaussian probabilities: ``P(k) ~ exp(-k^2 / (2 sigma^2))``.

    The integers are rounded Gaussian samples from the operating system's random bits. Because of
    the rounding, the exact probability of k is P(k) times a factor of about
    ``1 + (k^2 / sigma^2 - 1) / (24 sigma^2)``. The accountant treats a sum of these integers as if
    the samples had not been rounded, since the error is negligible (`gap_of_sum`).

    Args:
        shape: shape of the tensor.
        sigma: standard deviation, from 16 to 2^48.
        unprotected: a generator that replaces the operating system as the source of random bits.
            Noise from a generator gives no protection.

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


def gap_of_sum(number: int, *, sigma: float) -> float:
    """Distance in log-density between a sum of discrete Gaussians and a single Gaussian.

    Each of n clients holds an integer and adds a rounded Gaussian sample, and the sum is published.
    Consider the joint density of the sum and of all rounding errors. Compare this density with a
    second joint density, in which the sum has Gaussian noise of standard deviation
    ``sqrt(n) sigma``, and the rounding errors do not depend on the data. The two densities differ
    by a factor from ``e^-tau`` to ``e^tau``, with ``tau = 10 (n - 1) exp(-pi^2 sigma^2)``. This tau
    is at least as large as the tau of Kairouz et al. (Theorem 11). So if the Gaussian mechanism is
    ``(epsilon, delta)``-private, a sum of P entries is
    ``(epsilon + 2 P tau, e^(P tau) delta)``-private.

    Args:
        number: n, the number of clients that add noise to the sum.
        sigma: standard deviation of one client's noise, at least 1/2.

    Returns:
        tau. The result is 0 if tau is below the smallest float; this is true for a sigma of 16 or
        more.

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
