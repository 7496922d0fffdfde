"""What half-precision losses are computed in: a float16 ends at 65,504 and at 6e-8."""

from __future__ import annotations

from torch import Tensor

from ..sparse.rows import widened as widened


def weighted_mean(each: Tensor, weight: Tensor | None = None) -> Tensor:
    """``sum_i w_i each_i / sum_i w_i``; 0, with a gradient, where nothing counts."""
    given, each = each.dtype, widened(each)
    if weight is None:
        return (each.sum() / max(each.numel(), 1)).to(given)
    weight = weight.to(each.dtype)
    total = weight.sum()
    return ((each * weight).sum() / (total + (total == 0))).to(given)
