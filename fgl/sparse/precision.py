"""Full precision under `torch.autocast`, for operations that need more than half precision."""

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import torch
from torch import Tensor

T = TypeVar("T")


def mixed(tensor: Tensor) -> bool:
    """Whether `torch.autocast` is enabled for a tensor's device.

    Under `torch.autocast`, sparse products are computed in float32, like torch's sums. The reason
    is that some backends have no half-precision products.

    Example:
        >>> with torch.autocast("cpu", dtype=torch.bfloat16):
        ...     mixed(torch.ones(1))
        True
    """
    return bool(torch.is_autocast_enabled(tensor.device.type))


def full_precision(function: Callable[..., T]) -> Callable[..., T]:
    """Let a function run without `torch.autocast`; its first argument must be a tensor.

    Example:
        >>> square = full_precision(lambda x: x @ x)
        >>> with torch.autocast("cpu", dtype=torch.bfloat16):
        ...     square(torch.eye(2)).dtype
        torch.float32
    """

    @wraps(function)
    def called(first: Tensor, *rest: Any, **options: Any) -> T:
        if not mixed(first):
            return function(first, *rest, **options)
        with torch.autocast(first.device.type, enabled=False):
            return function(first, *rest, **options)

    return called
