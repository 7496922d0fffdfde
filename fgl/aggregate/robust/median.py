"""The coordinate-wise median and trimmed mean over clients."""

import torch
from torch import Tensor

from ..mean import as_dtype, mean
from .stacks import Stack, check_minority, in_order, stacked


def median(stack: Stack, *, bad: int = 0) -> dict[str, Tensor]:
    """Median over clients per entry; for an even number of clients, the mean of the middle two.

    If fewer than half of the clients are bad, two honest clients bound every entry of the result:
    one from below, one from above. Drawback: if honest clients differ, the median can be far from
    their mean. The result then loses information that only a minority of the honest clients has.

    Args:
        stack: dict from name to ``[K, ...]``, or to K tensors ``[...]``; integers are rounded.
        bad: largest number of bad clients; used only for a check.

    Returns:
        Dict from name to ``[...]``, with the stack's dtypes. Another order of the clients gives a
        bit-identical result.

    Raises:
        TooManyBad: if `bad` is at least half of the number K of clients.

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


def trimmed_mean(stack: Stack, *, bad: int) -> dict[str, Tensor]:
    """Mean over clients per entry, after removing the `bad` smallest and `bad` largest values.

    Two honest clients bound every entry of the result: one from below, one from above. Drawback:
    each entry of the result ignores ``2 * bad`` of the K values, even if all clients are honest.
    With the largest possible `bad`, the result is the median.

    Args:
        stack: dict from name to ``[K, ...]``, or to K tensors ``[...]``; integers are rounded.
        bad: largest number of bad clients; with 0 the result is the mean with equal weights.

    Returns:
        Dict from name to ``[...]``, with the stack's dtypes. Another order of the clients gives a
        bit-identical result.

    Raises:
        TooManyBad: if `bad` is at least half of the number K of clients.

    Example:
        >>> trimmed_mean({"w": torch.tensor([[0.0], [1.0], [3.0], [1e9]])}, bad=1)
        {'w': tensor([2.])}

    Source: Yin et al. 2018, https://arxiv.org/abs/1803.01498
    """
    whole, clients = stacked(stack)
    check_minority(bad, clients)
    middle = {name: in_order(value)[bad : clients - bad] for name, value in whole.items()}
    average = mean(middle, torch.ones(clients - 2 * bad))
    return {name: as_dtype(value, whole[name].dtype) for name, value in average.items()}
