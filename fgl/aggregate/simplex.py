"""Projection onto the simplex: the nearest rows that are non-negative and sum to 1."""

import torch
from torch import Tensor

from ..checks import check_rows, reject_if


def project_to_simplex(rows: Tensor) -> Tensor:
    """Nearest point of the simplex (x >= 0, sum 1) to each row r: ``argmin_x ||x - r||^2``.

    ``x = max(0, r - t)``, with t such that the sum of x is 1. The threshold t is computed by
    sorting the row (Algorithm 1).

    Args:
        rows: float ``[n, k]``, k at least 1.

    Returns:
        float ``[n, k]``, non-negative; every row sums to 1.

    Raises:
        TypeError: if `rows` is not floating point.
        ValueError: if `rows` is not a matrix, if an entry is not finite, or if there is no column.

    Example:
        >>> project_to_simplex(torch.tensor([[0.5, 0.5, 0.0], [3.0, 1.0, 0.0], [0.8, 0.6, 0.1]]))
        tensor([[0.5000, 0.5000, 0.0000],
                [1.0000, 0.0000, 0.0000],
                [0.6000, 0.4000, 0.0000]])

    Source: Duchi et al. 2008, https://doi.org/10.1145/1390156.1390191
    """
    check_rows("rows", rows, "n, k")
    reject_if(not rows.shape[1], "rows to have a column", f"shape {list(rows.shape)}")
    rows = rows - rows.amax(1, keepdim=True)  # same projection, but more exact for large entries
    down = rows.sort(dim=1, descending=True).values
    count = torch.arange(1, rows.shape[1] + 1, dtype=rows.dtype, device=rows.device)
    shift = (_running_sums(down) - 1) / count  # t, if `count` entries are positive
    last = (down > shift).sum(1, keepdim=True) - 1
    return (rows - shift.gather(1, last)).clamp(min=0)


def _running_sums(rows: Tensor) -> Tensor:
    """Running sums ``out_j = sum_{i <= j} row_i`` whose bits are reproducible."""
    if not rows.is_cuda:
        return rows.cumsum(1)
    size = rows.shape[1]  # on a GPU cumsum has no fixed order
    return rows @ rows.new_ones(size, size).triu()
