"""Weighted means, and the weights of a mask."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from ..checks import reject_if
from ..sparse.rows import widened


def weighted_mean(each: Tensor, weight: Tensor | None = None) -> Tensor:
    """``sum_i w_i each_i / sum_i w_i``; 0, with a gradient, where nothing counts."""
    dtype, each = each.dtype, widened(each)
    if weight is None:
        return (each.sum() / max(each.numel(), 1)).to(dtype)
    weight = weight.to(each.dtype)
    total = weight.sum()
    return ((each * weight).sum() / (total + (total == 0))).to(dtype)


def mask_weight(name: str, mask: Tensor | None, shape: Sequence[int], like: Tensor) -> Tensor:
    """A mask as numbers of the dtype of `like`; ones where there is no mask.

    Raises:
        ValueError: if the mask called `name` does not have this shape.
    """
    if mask is None:
        return like.new_ones(shape)
    reject_if(mask.shape != shape, f"{name} to have shape {list(shape)}", list(mask.shape))
    return mask.to(like.dtype)
