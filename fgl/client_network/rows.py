"""Checks and scaling of matrices with one row per client."""

from __future__ import annotations

import torch
from torch import Tensor


def check_rows(name: str, rows: Tensor, shape: str = "k, *") -> None:
    """Raise unless `rows` is a finite floating-point matrix; the error names the client."""
    if not rows.is_floating_point():
        raise TypeError(f"Expected {name} to be floating point, but got {rows.dtype}")
    if rows.dim() != 2 or (shape == "k, k" and rows.shape[0] != rows.shape[1]):
        raise ValueError(f"Expected {name} to have shape [{shape}], but got {list(rows.shape)}")
    if not torch.isfinite(rows.sum()):  # in doubt: the sum of finite rows may overflow
        bad = ~torch.isfinite(rows).all(1)
        if bad.any():
            client = int(bad.nonzero()[0])
            raise ValueError(
                f"Expected {name} to be finite, but got NaN or infinity in client {client}'s row"
            )


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
