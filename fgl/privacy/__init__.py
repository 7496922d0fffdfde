"""Privacy: clipped updates, noise, epsilon, and sums that hide single uploads."""

from . import masks as masks
from . import signatures as signatures
from .accountant import epsilon, noise_for
from .clip import clip
from .fixed_point import DoesNotFit
from .gaussian import discrete_gaussian, gap_of_sum, gaussian, noisy_shares
from .shares import CannotUnmask

__all__ = [
    "CannotUnmask",
    "DoesNotFit",
    "clip",
    "discrete_gaussian",
    "epsilon",
    "gap_of_sum",
    "gaussian",
    "noise_for",
    "noisy_shares",
]
