"""What half-precision losses are computed in: a float16 ends at 65,504 and at 6e-8."""

from __future__ import annotations

import torch
from torch import Tensor


def widened(x: Tensor) -> Tensor:
    """The tensor in float32 if it is a float16 or bfloat16, else itself."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def weighted_mean(each: Tensor, weight: Tensor | None = None) -> Tensor:
    """``sum_i w_i each_i / sum_i w_i``; 0, with a gradient, where nothing counts."""
    given, each = each.dtype, widened(each)
    if weight is None:
        return (each.sum() / max(each.numel(), 1)).to(given)
    weight = weight.to(each.dtype)
    total = weight.sum()
    return ((each * weight).sum() / (total + (total == 0))).to(given)
