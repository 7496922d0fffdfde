"""Labels made of numbers, for partitions and splits that are skewed by label."""

from __future__ import annotations

import torch
from torch import Tensor

from ...checks import check_number, reject_if
from ...kinds import typed


@typed
def quantile_labels(y: Tensor, bins: int) -> Tensor:
    """Range of each number, among `bins` ranges that hold equally many of the known numbers.

    ``dirichlet_partition(quantile_labels(y, 4), num_clients, alpha=0.5)`` gives each client its own
    mix of small and large numbers.

    Args:
        y: float ``[n]``, NaN where unknown.
        bins: how many ranges, at least 2.

    Returns:
        int64 ``[n]``: 0 for the smallest up to ``bins - 1``, and `bins` where a number is unknown;
        equal numbers have equal labels, so where many are equal some labels stay empty.

    Raises:
        TypeError: if `y` is not floating point.
        ValueError: if `y` has another shape, or `bins` is less than 2.

    Example:
        >>> quantile_labels(torch.tensor([0.1, 9.0, 0.3, torch.nan, 4.0]), bins=2)
        tensor([0, 1, 0, 2, 1])
    """
    reject_if(not y.is_floating_point(), "y to be floating point", y.dtype, TypeError)
    reject_if(y.dim() != 1, "y to have shape [n], one column", list(y.shape))
    check_number("bins", bins, at_least=2, integer=True)
    unknown = y.isnan()
    ordered = y[~unknown].sort().values
    first = torch.arange(1, bins, device=y.device) * ordered.numel() // bins  # of each range
    if not ordered.numel():
        return torch.full_like(unknown, bins, dtype=torch.int64)
    labels = torch.searchsorted(ordered[first], y, right=True)
    return torch.where(unknown, bins, labels)
