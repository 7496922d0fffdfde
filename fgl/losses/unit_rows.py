"""Rows of length 1, with a safe gradient for rows of length 0."""

from __future__ import annotations

import torch
from torch import Tensor

from ..kinds import explained
from ..sparse.rows import widened


@explained
def unit_rows(x: Tensor, eps: float = 1e-6) -> Tensor:
    """Rows scaled to length 1; a row shorter than `eps` becomes 0 and gets no gradient.

    (So does one so long, 1e19 in float32, that its square is infinite.)

    The gradient of a cosine grows as 1 / length, so one all-zero embedding (a node whose features
    and edges an augmentation dropped) would otherwise blow up the model.

    Args:
        x: float ``[rows, width]``.
        eps: the length below which a row counts as zero.

    Returns:
        float ``[rows, width]``.

    Example:
        >>> unit_rows(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
        tensor([[0.6000, 0.8000],
                [0.0000, 0.0000]])
    """
    dtype, x = x.dtype, widened(x)
    length = x.norm(dim=-1, keepdim=True)
    unit = x / torch.where(length > eps, length, torch.inf)  # x / inf: no value and no gradient
    return unit.to(dtype)
