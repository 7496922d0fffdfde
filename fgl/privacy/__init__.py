"""Privacy: what hides one client's upload in the sum of many."""

from . import secure_sum
from .fixed_point import DoesNotFit, decode, encode, largest_weight, wrapped_sum

__all__ = ["DoesNotFit", "decode", "encode", "largest_weight", "secure_sum", "wrapped_sum"]
