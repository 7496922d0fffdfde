"""The geometric median: the point with the smallest sum of distances to all clients."""

from collections.abc import Mapping

import torch
from torch import Tensor

from ...checks import check_count, check_number
from ..mean import mean
from .median import median
from .stacks import Stack, check_minority, flat, lengths, stacked


def geometric_median(
    stack: Stack,
    *,
    bad: int = 0,
    start: Mapping[str, Tensor] | None = None,
    steps: int = 10,
    eps: float = 1e-6,
) -> dict[str, Tensor]:
    """``argmin_z sum_k ||z - x_k||`` by the smoothed Weiszfeld algorithm (RFA).

    ``z <- sum_k b_k x_k / sum_k b_k`` with ``b_k = 1 / max(eps, ||z - x_k||)``, repeated `steps`
    times.

    If fewer than half of the clients are bad, the result stays near the honest clients. Drawbacks:
    the algorithm passes over all clients several times. Honest clients that are far from the other
    clients also get small weights.

    Args:
        stack: dict from name to ``[K, ...]``, or to K tensors ``[...]``; integers are rounded.
        bad: largest number of bad clients; used only for a check.
        start: the initial z, a dict from name to ``[...]``; by default the coordinate-wise median.
        steps: number of updates of z, at least 1.
        eps: lower limit of distances, above 0. A distance below this limit is replaced by the
            limit.

    Returns:
        Dict from name to ``[...]``, with the stack's dtypes.

    Raises:
        TooManyBad: if `bad` is at least half of the number K of clients.
        ValueError: if `steps` or `eps` is out of range.

    Example:
        >>> models = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1e9, 1e9]])
        >>> geometric_median({"w": models}, bad=1, steps=200)["w"].round(decimals=3)
        tensor([0.5000, 0.5000])

    Source: Pillutla et al. 2019, https://arxiv.org/abs/1912.13445
    """
    check_count(steps=steps)
    check_number("eps", eps, above=0)
    whole, clients = stacked(stack)
    check_minority(bad, clients)
    rows = flat(whole)
    first = median(whole) if start is None else start
    z = flat({name: first[name][None] for name in whole})[0]
    weight = torch.ones(clients, dtype=torch.float64)
    for step in range(steps):
        if step:
            z = mean({"z": rows}, weight)["z"]
        weight = 1 / lengths(rows - z).clamp(min=eps)
    return mean(whole, weight)
