"""A square root whose bits are the same on every processor."""

from __future__ import annotations

import torch
from torch import Tensor


def root(value: Tensor) -> Tensor:
    """``1 / (1 / sqrt(x))``, entry by entry: within two units of the last digit.

    `torch.sqrt` asks MKL on a processor, whose last digit depends on the kind of processor. `rsqrt`
    and `reciprocal` are a root and divisions of IEEE arithmetic, which are the same everywhere.

    Args:
        value: floating point ``[...]``; halves are computed in float32.

    Returns:
        ``[...]``, of its dtype.

    Example:
        >>> root(torch.tensor([0.0, 4.0, torch.inf]))
        tensor([0., 2., inf])
    """
    wide = value.to(torch.promote_types(value.dtype, torch.float32))
    return wide.rsqrt().reciprocal().to(value.dtype)
