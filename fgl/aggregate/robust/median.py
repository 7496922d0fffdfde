"""The coordinate-wise median over clients."""

from __future__ import annotations

from torch import Tensor

from ...kinds import explained
from ..mean import as_dtype
from .stacks import Stack, check_minority, in_order, stacked


@explained
def median(stack: Stack, *, bad: int = 0) -> dict[str, Tensor]:
    """Median over clients, entry by entry; of an even number the mean of the two in the middle.

    With fewer than half bad every entry lies between two honest ones. Price: where honest
    clients differ it is far from their mean, and what a minority of them knows is lost.

    Args:
        stack: name to ``[K, ...]``, or to K tensors ``[...]``; integers are rounded.
        bad: how many clients may be bad; it changes nothing but the check.

    Returns:
        Name to ``[...]``, of the stack's dtypes; the same bits in any order of the clients.

    Raises:
        TooManyBad: if ``2 bad >= K``.

    Example:
        >>> median({"w": torch.tensor([[0.0], [1.0], [1e9]])}, bad=1)
        {'w': tensor([1.])}

    Source: Yin et al. 2018, https://arxiv.org/abs/1803.01498
    """
    whole, clients = stacked(stack)
    check_minority(bad, clients)
    low, high = (clients - 1) // 2, clients // 2
    out = {}
    for name, value in whole.items():
        each = in_order(value)
        middle = each[low] if low == high else each[low] / 2 + each[high] / 2
        out[name] = as_dtype(middle, value.dtype).clone()
    return out
