"""Weighted means of losses over a mask or over known labels; an unknown label is NaN."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ..checks import as_columns, reject_if
from ..sparse.rows import widened


def weighted_mean(each: Tensor, weight: Tensor | None = None) -> Tensor:
    """Compute ``sum_i w_i each_i / sum_i w_i``, or 0 (with gradient 0) if all weights are 0."""
    dtype, each = each.dtype, widened(each)
    if weight is None:
        return (each.sum() / max(each.numel(), 1)).to(dtype)
    weight = weight.to(each.dtype)
    total = weight.sum()
    return ((each * weight).sum() / (total + (total == 0))).to(dtype)


def mask_weight(name: str, mask: Tensor | None, shape: Sequence[int], like: Tensor) -> Tensor:
    """Convert a mask to the dtype of the tensor `like`; return ones if there is no mask.

    Raises:
        ValueError: if the mask does not have the expected shape. The text of the error contains the
            argument `name`, the mask's name.
    """
    if mask is None:
        return like.new_ones(shape)
    reject_if(mask.shape != shape, f"{name} to have shape {list(shape)}", list(mask.shape))
    return mask.to(like.dtype)


def known_mean(
    each: Callable[[Tensor, Tensor], Tensor], output: Tensor, y: Tensor, mask: Tensor | None
) -> Tensor:
    """Mean of a loss over known entries in masked rows.

    If a label is unknown, the output and the label are first set to 0. Without this step the
    gradient would be NaN, since NaN times 0 is NaN.

    Args:
        each: function ``(output, y) -> loss`` that returns the loss of every entry; output, y and
            loss have shape ``[n, t]``.
        output: float ``[n]``, ``[n, 1]`` or ``[n, t]``.
        y: float ``[n]`` or ``[n, t]``, NaN for unknown labels.
        mask: bool mask or float weights ``[n]``; by default all rows.

    Returns:
        A scalar: the mean. If no label is known, the mean and its gradient are 0.

    Raises:
        TypeError: if `y` is not floating point, or if `mask` is neither bool nor floating point.
        ValueError: if shapes do not match.
    """
    out, answer = as_columns(output, y, mask)
    if mask is not None and mask.dtype != torch.bool and not mask.is_floating_point():
        raise TypeError(f"Expected mask to be bool or float weights, but got {mask.dtype}")
    counts = ~answer.isnan()
    if mask is not None and mask.dtype == torch.bool:
        counts = counts & mask[:, None]
    out = widened(torch.where(counts, out, 0.0))
    answer = torch.where(counts, answer, 0.0).to(out.dtype)
    weight = counts.to(out.dtype)
    if mask is not None and mask.dtype != torch.bool:
        weight = weight * mask.to(out.dtype)[:, None]
    return weighted_mean(each(out, answer), weight).to(output.dtype)
