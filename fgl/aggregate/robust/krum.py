"""Krum and multi-Krum: select clients that are close to their nearest neighbours."""

import torch
from torch import Tensor

from ...checks import check_number
from ..mean import mean
from .stacks import Stack, check_minority, distances, flat, stacked


def krum(stack: Stack, *, bad: int, neighbours: int | None = None) -> dict[str, Tensor]:
    """Tensors of the client with the smallest sum of squared distances to its neighbours (Krum).

    ``argmin_i sum_{j in N_i} ||x_i - x_j||^2``, where N_i holds the clients nearest to client i,
    without i.

    Drawback: the updates of all clients except one are discarded. So all clients continue from one
    client's model, even if this model does not suit the other clients.

    Args:
        stack: dict from name to ``[K, ...]``, or to K tensors ``[...]``.
        bad: largest number of bad clients.
        neighbours: number of clients in N_i; by default ``K - bad - 1``. For the default, Allouah
            and coauthors (2023) prove an error bound if ``2 bad < K``. Blanchard et al. use
            ``K - bad - 2`` and require ``2 bad + 2 < K``.

    Returns:
        Dict from name to ``[...]``, with the stack's dtypes. In a tie the client with the smaller
        entries is selected, so the order of the clients does not matter.

    Raises:
        TooManyBad: if `bad` is at least half of the number K of clients.
        ValueError: if `neighbours` is not between 1 and K - 1.

    Example:
        >>> krum({"w": torch.tensor([[0.0], [1.0], [1.5], [1e9]])}, bad=1)
        {'w': tensor([1.])}

    Source: Blanchard et al. 2017, https://arxiv.org/abs/1703.02757; the bound: Allouah et al. 2023,
    https://arxiv.org/abs/2302.01772
    """
    whole, _ = stacked(stack)
    best = _ranked(whole, bad, neighbours)[0]
    return {name: value[best].clone() for name, value in whole.items()}


def multi_krum(
    stack: Stack, *, bad: int, keep: int | None = None, neighbours: int | None = None
) -> dict[str, Tensor]:
    """The mean of the clients that Krum ranks first.

    Drawback: a client whose tensors are far from all other clients' tensors is ignored, even if the
    client is honest.

    Args:
        stack: dict from name to ``[K, ...]``, or to K tensors ``[...]``; integers are rounded.
        bad: largest number of bad clients.
        keep: number of clients to average, from 1 to K - bad; by default ``K - bad``.
        neighbours: as for `krum`.

    Returns:
        Dict from name to ``[...]``, with the stack's dtypes.

    Raises:
        TooManyBad: if `bad` is at least half of the number K of clients.
        ValueError: if `keep` or `neighbours` is out of range.

    Example:
        >>> multi_krum({"w": torch.tensor([[0.0], [1.0], [2.0], [1e9]])}, bad=1)
        {'w': tensor([1.])}

    Source: Blanchard et al. 2017, https://arxiv.org/abs/1703.02757
    """
    whole, clients = stacked(stack)
    ranked = _ranked(whole, bad, neighbours)
    keep = clients - bad if keep is None else keep
    check_number("keep", keep, at_least=1, at_most=clients - bad, integer=True)
    return mean({name: value[ranked[:keep]] for name, value in whole.items()}, torch.ones(keep))


def _ranked(whole: dict[str, Tensor], bad: int, neighbours: int | None) -> list[int]:
    """Sort clients from most to least central; in a tie, compare the clients' entries."""
    rows = flat(whole)
    clients = len(rows)
    check_minority(bad, clients)
    if neighbours is None:
        neighbours = clients - bad - 1
    else:
        check_number("neighbours", neighbours, at_least=1, at_most=clients - 1, integer=True)
    nearest = distances(rows).sort(1).values[:, 1 : neighbours + 1]  # the first is itself
    score = [sum(row) for row in nearest.tolist()]
    if len(set(score)) < clients:
        return sorted(range(clients), key=lambda k: (score[k], rows[k].tolist()))
    return sorted(range(clients), key=score.__getitem__)
