"""Projection onto the simplex: the nearest rows of shares."""

from __future__ import annotations

import torch
from torch import Tensor

from ..checks import check_rows, reject_if
from ..kinds import explained


@explained
def project_to_simplex(rows: Tensor) -> Tensor:
    """Each row's nearest point on the simplex: ``argmin_x ||x - r||^2``, x not negative, sum 1.

    ``x = max(0, r - t)``, where t makes the sum 1; it is found by sorting the row (Algorithm 1).

    Args:
        rows: float ``[n, k]``, k at least 1.

    Returns:
        float ``[n, k]``, not negative, its rows with sum 1.

    Raises:
        TypeError: if `rows` is not floating point.
        ValueError: if it is not a matrix, not finite, or has no column.

    Example:
        >>> project_to_simplex(torch.tensor([[0.5, 0.5, 0.0], [3.0, 1.0, 0.0], [0.8, 0.6, 0.1]]))
        tensor([[0.5000, 0.5000, 0.0000],
                [1.0000, 0.0000, 0.0000],
                [0.6000, 0.4000, 0.0000]])

    Source: Duchi et al. 2008, https://doi.org/10.1145/1390156.1390191
    """
    check_rows("rows", rows, "n, k")
    reject_if(not rows.shape[1], "rows to have a column", f"shape {list(rows.shape)}")
    rows = rows - rows.amax(1, keepdim=True)  # the answer stays; now the largest keeps its digits
    down = rows.sort(dim=1, descending=True).values
    count = torch.arange(1, rows.shape[1] + 1, dtype=rows.dtype, device=rows.device)
    shift = (_running_sums(down) - 1) / count  # t, if `count` entries are positive
    last = (down > shift).sum(1, keepdim=True) - 1
    return (rows - shift.gather(1, last)).clamp(min=0)


def _running_sums(rows: Tensor) -> Tensor:
    """``out_j = sum_{i <= j} row_i``, the same bits every time."""
    if not rows.is_cuda:
        return rows.cumsum(1)
    size = rows.shape[1]  # cumsum has no fixed order there
    return rows @ rows.new_ones(size, size).triu()
