"""Privacy: bounds on a client's change, noise and its epsilon, and sums that hide uploads."""

from . import masks, signatures
from .accountant import ORDERS, epsilon, noise_for
from .clip import clip, clipped_gradient
from .composed import composed_epsilon
from .discrete_gaussian import discrete_gaussian, gap_of_sum
from .fixed_point import DoesNotFit, decode, encode, largest_weight, wrapped_sum
from .gaussian import gaussian, noisy_shares, on_grid
from .shares import CannotUnmask

__all__ = [
    "ORDERS",
    "CannotUnmask",
    "DoesNotFit",
    "clip",
    "clipped_gradient",
    "composed_epsilon",
    "decode",
    "discrete_gaussian",
    "encode",
    "epsilon",
    "gap_of_sum",
    "gaussian",
    "largest_weight",
    "masks",
    "noise_for",
    "noisy_shares",
    "on_grid",
    "signatures",
    "wrapped_sum",
]
