"""Privacy: bounds on what one client or example can change, noise, and what it is worth."""

from .accountant import ORDERS, epsilon, noise_for
from .clip import clip, clipped_gradient, length_of
from .gaussian import gaussian, noisy_shares, on_grid

__all__ = [
    "ORDERS",
    "clip",
    "clipped_gradient",
    "epsilon",
    "gaussian",
    "length_of",
    "noise_for",
    "noisy_shares",
    "on_grid",
]
