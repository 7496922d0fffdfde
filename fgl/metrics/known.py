"""Entries that can be scored: known answers of masked rows."""

from __future__ import annotations

import torch
from torch import Tensor

from ..checks import as_columns, check_mask


def known_entries(output: Tensor, y: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Output and answers in float64, 0 for unknown answers, and a mask of known ones, ``[n, t]``.

    Raises:
        TypeError: if `y` is not floating point, or `mask` not bool.
        ValueError: for shapes that do not fit.
    """
    out, answer = as_columns(output, y, mask)
    valid = ~answer.isnan()
    if mask is not None:
        check_mask("mask", mask, len(answer))
        valid = valid & mask[:, None]
    return torch.where(valid, out, 0.0).double(), torch.where(valid, answer, 0.0).double(), valid
