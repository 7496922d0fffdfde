"""Means over known answers; unknown ones are NaN."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ..checks import as_columns
from ..sparse.rows import widened
from .weighted_mean import weighted_mean


def known_mean(
    each: Callable[[Tensor, Tensor], Tensor], output: Tensor, y: Tensor, mask: Tensor | None
) -> Tensor:
    """Mean of a loss over the known entries of the masked rows.

    Both sides are set to 0 where the answer is unknown, before anything is computed: the gradient
    of a NaN times 0 would be NaN.

    Args:
        each: ``(output, y) -> loss`` of every entry, ``[n, t]`` each.
        output: float ``[n]``, ``[n, 1]`` or ``[n, t]``.
        y: float ``[n]`` or ``[n, t]``, NaN where unknown.
        mask: bool or float weights ``[n]``; default all rows.

    Returns:
        Scalar; 0, with a gradient, where nothing is known.

    Raises:
        TypeError: if `y` is not floating point, or `mask` neither bool nor floating point.
        ValueError: for shapes that do not fit.
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
