"""Mixing: average groups of clients before a robust mean, to make the honest inputs more alike."""

import torch
from torch import Tensor

from ...checks import check_count
from ..mean import mean
from .stacks import Stack, check_minority, distances, flat, stacked


def bucket_means(
    stack: Stack, *, size: int, generator: torch.Generator | None = None
) -> dict[str, Tensor]:
    """Means of random buckets of clients (bucketing).

    Drawbacks: each bad client can corrupt one bucket, and there are fewer buckets than clients. So
    a robust mean of the buckets must withstand a larger fraction of bad inputs. Results also depend
    on the random buckets of each round.

    Args:
        stack: dict from name to ``[K, ...]``, or to K tensors ``[...]``.
        size: number of clients in a bucket, at least 1; the last bucket may have fewer. If `size`
            is 1, no clients are averaged.
        generator: source of randomness for the buckets; by default torch's global generator.

    Returns:
        Dict from name to ``[ceil(K / size), ...]``.

    Raises:
        ValueError: if `size` is not positive.

    Example:
        >>> bucket_means({"w": torch.tensor([1.0, 1.0, 1.0])}, size=2)
        {'w': tensor([1., 1.])}

    Source: Karimireddy et al. 2022, https://arxiv.org/abs/2006.09365
    """
    check_count(size=size)
    whole, clients = stacked(stack)
    if size == 1:
        return whole
    buckets = torch.randperm(clients, generator=generator).split(size)
    return _means(whole, [bucket.tolist() for bucket in buckets])


def nearest_means(stack: Stack, *, bad: int) -> dict[str, Tensor]:
    """Replace every client by the mean of the ``K - bad`` clients nearest to it (NNM).

    A client counts as the nearest client to itself. After this step, honest clients are closer to
    each other and to the honest clients' mean than before. Drawbacks: if a bad client is near all
    honest clients, it is part of every honest client's mean. The function also has to compute
    ``K^2`` distances.

    Args:
        stack: dict from name to ``[K, ...]``, or to K tensors ``[...]``.
        bad: largest number of bad clients. If `bad` is 0, every client is replaced by the mean of
            all clients.

    Returns:
        Dict from name to ``[K, ...]``, which can be passed to a robust mean.

    Raises:
        TooManyBad: if `bad` is at least half of the number K of clients.

    Example:
        >>> nearest_means({"w": torch.tensor([0.0, 1.0, 2.0, 1e3])}, bad=1)
        {'w': tensor([  1.0000,   1.0000,   1.0000, 334.3333])}

    Source: Allouah et al. 2023, https://arxiv.org/abs/2302.01772
    """
    whole, clients = stacked(stack)
    check_minority(bad, clients)
    order = distances(flat(whole)).sort(dim=1, stable=True).indices
    return _means(whole, [sorted(chosen) for chosen in order[:, : clients - bad].tolist()])


def _means(whole: dict[str, Tensor], groups: list[list[int]]) -> dict[str, Tensor]:
    each = [
        mean({name: value[group] for name, value in whole.items()}, torch.ones(len(group)))
        for group in groups
    ]
    return {name: torch.stack([model[name] for model in each]) for name in whole}
