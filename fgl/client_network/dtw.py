"""Dynamic time warping: how far two sequences are apart when either may pause."""

from __future__ import annotations

import torch
from torch import Tensor

from ..checks import check_rows
from ..kinds import explained


@explained
def dtw_distances(sequences: Tensor) -> Tensor:
    """Distance of every two sequences under the best warping, for all pairs at once.

    ``d_ij = sqrt(min_path sum_{(a, b) in path} (s_i[a] - s_j[b])^2)``. A path leads from the first
    entries to the last, and goes on in one sequence or in both with each step. That is the distance
    of the package ``dtaidistance``, which GCFL's code calls.

    Args:
        sequences: float ``[k, L]``, one client's sequence per row.

    Returns:
        float ``[k, k]``, symmetric, 0 on the diagonal; all 0 where L is 0.

    Raises:
        TypeError: if `sequences` is not floating point.
        ValueError: if it is not a matrix, or not finite; the error names the client.

    Example:
        >>> dtw_distances(torch.tensor([[0.0, 0.0, 3.0], [0.0, 3.0, 3.0], [0.0, 0.0, 5.0]]))
        tensor([[0.0000, 0.0000, 2.0000],
                [0.0000, 0.0000, 2.8284],
                [2.0000, 2.8284, 0.0000]])

    Source: Sakoe and Chiba 1978; Xie et al. 2021, https://arxiv.org/abs/2106.13423
    """
    check_rows("sequences", sequences, "k, L")
    clients, length = sequences.shape
    start = sequences.new_zeros(clients, clients)
    never = start + torch.inf
    before = [start, *[never] * length]  # the best costs of paths that end one entry earlier
    for own in sequences.T:
        now = [never]
        for place, other in enumerate(sequences.T):
            reached = torch.minimum(torch.minimum(before[place], before[place + 1]), now[place])
            now.append((own[:, None] - other).square() + reached)
        before = now
    return before[-1].sqrt()
