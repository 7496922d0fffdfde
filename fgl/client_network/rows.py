"""Scaling of matrices with one row per client."""

from __future__ import annotations

import torch
from torch import Tensor


def centred(rows: Tensor) -> Tensor:
    """Each row less the rows' mean."""
    return rows - rows.mean(0)


def unit(rows: Tensor) -> Tensor:
    """Each row divided by its length; a row of zeros stays."""
    if not rows.numel():
        return rows
    size = rows.abs().amax(1, keepdim=True)  # else the squares of a small row would vanish
    rows = rows / torch.where(size > 0, size, 1)
    length: Tensor = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    return rows / length.clamp(min=1)


def unit_centred(rows: Tensor) -> Tensor:
    """Centred rows of length 1; rows that equal the mean up to rounding are 0, not noise."""
    info, biggest = torch.finfo(rows.dtype), float(rows.abs().max()) if rows.numel() else 0.0
    if biggest and not info.tiny**0.25 < biggest < info.max**0.25:
        rows = rows / biggest  # else squares would overflow or vanish, and all rows be 0
    apart = centred(rows)
    norm = torch.linalg.vector_norm(apart, dim=1, keepdim=True)
    if not len(rows):
        return apart
    rounding = 16 * torch.finfo(rows.dtype).eps * torch.linalg.vector_norm(rows, dim=1).max()
    return torch.where(norm > rounding, apart / norm, 0.0)
