"""Minimum cut: the two parts of a network of clients with the least weight between them."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import torch
from torch import Tensor

from ..checks import check_rows, reject_if
from ..kinds import explained


@explained
def min_cut(weight: Tensor) -> Tensor:
    """The smaller part under the cut of least weight (Stoer and Wagner).

    ``argmin_S sum_{i in S, j not in S} w_ij`` over all sets S but the empty and the whole one.

    Args:
        weight: float ``[k, k]``, symmetric and non-negative, with two clients or more; the diagonal
            does not count. An entry that is negative by rounding, above -1e-6, counts as 0.

    Returns:
        bool ``[k]``, True in the smaller part; of two parts of one size the first client's is
        False.

    Raises:
        TypeError: if `weight` is not floating point.
        ValueError: if it is not square, not finite, not symmetric up to rounding, or negative, or
            there are fewer than two clients.

    Example:
        >>> min_cut(torch.tensor([[0.0, 5.0, 1.0], [5.0, 0.0, 2.0], [1.0, 2.0, 0.0]]))
        tensor([False, False,  True])

    Source: Stoer and Wagner 1997, as ``networkx.stoer_wagner``
    """
    import networkx

    check_rows("weight", weight, "k, k")
    clients = len(weight)
    reject_if(clients < 2, "weight to be of two clients or more", clients)
    if not torch.allclose(weight, weight.T, atol=1e-6 * float(weight.abs().max())):
        raise ValueError("Expected weight to be symmetric, but got a matrix that is not")
    if float(weight.min()) < -1e-6:
        raise ValueError(f"Expected weight to be at least 0, but got {float(weight.min())}")
    network: Any = networkx.Graph()
    values = weight.clamp(min=0).tolist()
    for i, j in combinations(range(clients), 2):  # an edge of weight 0 is one too
        network.add_edge(i, j, weight=values[i][j])
    _, parts = networkx.stoer_wagner(network)
    smaller = min(parts, key=lambda part: (len(part), 0 in part))
    chosen = torch.zeros(clients, dtype=torch.bool)
    chosen[smaller] = True
    return chosen
