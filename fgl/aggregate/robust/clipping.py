"""Clipping: shorten clients' vectors that are too long, then average all vectors."""

from collections.abc import Mapping

import torch
from torch import Tensor

from ...checks import check_count, check_number, reject_if
from ..mean import as_dtype, mean
from .median import median
from .stacks import Stack, TooManyBad, flat, lengths, stacked


def norm_bound(stack: Stack, *, bound: float | None = None) -> dict[str, Tensor]:
    """Mean of updates whose lengths are limited to b: ``mean_k x_k min(1, b / ||x_k||)``.

    A bad client changes the mean by at most ``b / K``, and no client is removed. Drawback: honest
    updates longer than b are also shortened, which slows down learning.

    Args:
        stack: updates (new minus old): a dict from each name to a tensor ``[K, ...]`` or to K
            tensors ``[...]``.
        bound: b, above 0; by default the median norm of the clients' updates. If fewer than half of
            the clients are bad, this median lies between the smallest and the largest norm of the
            honest clients' updates.

    Returns:
        Dict from name to tensor ``[...]``, with the dtypes of the stack.

    Raises:
        ValueError: if `bound` is not positive.

    Example:
        >>> norm_bound({"w": torch.tensor([[3.0, 4.0], [-1e9, 0.0]])}, bound=1.0)
        {'w': tensor([-0.2000,  0.4000])}

    Source: Sun et al. 2019, https://arxiv.org/abs/1911.07963
    """
    return _clipped(stack, bound, "bound", None, 1)


def centred_clipping(
    stack: Stack,
    *,
    radius: float | None = None,
    bad: int = 0,
    centre: Mapping[str, Tensor] | None = None,
    steps: int = 3,
) -> dict[str, Tensor]:
    """Mean of vectors, each clipped to a ball around a moving centre (centred clipping).

    ``v <- v + mean_k (x_k - v) min(1, radius / ||x_k - v||)``, repeated `steps` times.

    A bad client changes v by at most ``radius / K`` in a step. Drawback: an honest client also
    loses influence if its distance from the centre exceeds the radius.

    Args:
        stack: dict from name to ``[K, ...]``, or to K tensors ``[...]``; integers are rounded.
        radius: above 0. By default each step computes the median of the clients' distances from v.
        bad: largest number of bad clients; used only for a check.
        centre: the initial v, a dict from name to ``[...]``. The default is 0. If the vectors are
            updates of a model, 0 means that the model does not change.
        steps: number of updates of v, at least 1.

    Returns:
        Dict from name to tensor ``[...]``, with the dtypes of the stack.

    Raises:
        TooManyBad: if ``10 bad > K``. The theorem assumes that at most a tenth of the clients are
            bad.
        ValueError: if `radius` or `steps` is out of range.

    Example:
        >>> centred_clipping({"w": torch.tensor([[1.0], [1.0], [1e9]])}, radius=1.0, steps=2)
        {'w': tensor([1.3333])}

    Source: Karimireddy et al. 2021, https://arxiv.org/abs/2012.10333
    """
    check_count(steps=steps)
    check_number("bad", bad, at_least=0, integer=True)
    clients = stacked(stack)[1]
    expected = f"bad to be at most a tenth of the {clients} clients"
    reject_if(10 * bad > clients, expected, bad, TooManyBad)
    return _clipped(stack, radius, "radius", centre, steps)


def _clipped(
    stack: Stack, radius: float | None, name: str, centre: Mapping[str, Tensor] | None, steps: int
) -> dict[str, Tensor]:
    """Take `steps` steps of ``v <- v + mean_k share_k (x_k - v)``."""
    if radius is not None:
        check_number(name, radius, above=0)
    whole, clients = stacked(stack)
    around = {key: value.to(torch.float64) for key, value in whole.items()}
    start = {} if centre is None else centre
    v = {key: start.get(key, torch.zeros_like(value[0])).double() for key, value in around.items()}
    for _ in range(steps):
        apart = {key: value - v[key] for key, value in around.items()}
        counted = {key: apart[key] for key, value in whole.items() if value.is_floating_point()}
        length = lengths(flat(counted)) if counted else torch.zeros(clients, dtype=torch.float64)
        limit = median({"": length})[""] if radius is None else radius
        share = (limit / length).clamp(max=1.0)
        share = torch.where(length > 0, share, 1.0)
        equal = torch.ones(clients)
        change = mean({key: _times(share, each) for key, each in apart.items()}, equal)
        v = {key: v[key] + change[key] for key in v}
    return {key: as_dtype(value, whole[key].dtype) for key, value in v.items()}


def _times(share: Tensor, stack: Tensor) -> Tensor:
    return stack * share.to(stack.device).view(-1, *[1] * (stack.dim() - 1))
