"""Groups of clients, by distances between sequences (DTW), clusters (FINCH) or minimum cuts."""

from itertools import combinations
from typing import Any

import torch
from torch import Tensor

from ..checks import check_rows, reject_if
from ..graph.fields import mask_of
from .features import unit


def dtw_distances(sequences: Tensor) -> Tensor:
    """Dynamic time warping distances between sequences, computed for all pairs at once.

    ``d_ij = sqrt(min_path sum_{(a, b) in path} (s_i[a] - s_j[b])^2)``. A path leads from the pair
    of first entries to the pair of last entries. Each step of the path advances by one entry in one
    sequence or in both sequences. The package ``dtaidistance``, which GCFL's code calls, computes
    the same distance.

    Args:
        sequences: float ``[k, L]``, one client's sequence per row.

    Returns:
        float ``[k, k]``, symmetric, with zeros on the diagonal. All entries are 0 if L is 0.

    Raises:
        TypeError: if `sequences` is not floating point.
        ValueError: if `sequences` is not a matrix, or if an entry is not finite. For such an entry
            the error names the client.

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


def finch(rows: Tensor) -> Tensor:
    """Clusters of rows by nearest neighbours (FINCH): the coarsest partition with several clusters.

    Args:
        rows: float ``[n, d]``, n at least 1.

    Returns:
        int64 ``[n]``, the cluster of each row.

    Example:
        >>> finch(torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0]]))
        tensor([0, 0, 1, 1])

    Source: Sarfraz et al. 2019, https://arxiv.org/abs/1902.11266
    """
    labels = linked(rows)
    while True:
        size = int(labels.max()) + 1
        if size == 1:
            return labels
        centres = torch.stack([rows[labels == c].mean(0) for c in range(size)])
        coarser = linked(centres)[labels]
        left = int(coarser.max()) + 1
        if left == 1 or left == size:
            return labels
        labels = coarser
        if size - left == 1:
            return labels


def linked(rows: Tensor) -> Tensor:
    """Clusters of linked rows.

    Rows i and j are linked if j is the row nearest to i, if i is the row nearest to j, or if a
    third row is nearest to both.

    Example:
        >>> linked(torch.tensor([[1.0, 0.0], [1.0, 0.1]]))
        tensor([0, 0])
    """
    if len(rows) == 1:
        return torch.zeros(1, dtype=torch.int64, device=rows.device)
    from scipy.sparse import csr_matrix  # slow to import
    from scipy.sparse.csgraph import connected_components

    nearest = nearest_rows(rows, 1)[:, 0].cpu().numpy()
    ones = torch.ones(len(nearest)).numpy()
    edges = csr_matrix((ones, (range(len(nearest)), nearest)), shape=(len(nearest),) * 2)
    labels = connected_components(edges, directed=False)[1]
    return torch.from_numpy(labels).long().to(rows.device)


def nearest_rows(rows: Tensor, count: int) -> Tensor:
    """For each row, the indices of at most `count` other rows with the largest cosine to this row.

    The dtype and shape are int64 ``[n, min(count, n - 1)]``.

    Example:
        >>> nearest_rows(torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]]), 1).flatten()
        tensor([1, 0, 1])
    """
    directions = unit(rows)
    cosine = directions @ directions.T
    most = min(count, len(rows) - 1)
    return cosine.fill_diagonal_(-2).topk(most, dim=1).indices


def min_cut(weight: Tensor) -> Tensor:
    """Divide a network by a minimum cut (Stoer and Wagner), and return the smaller part.

    ``argmin_S sum_{i in S, j not in S} w_ij`` over all sets S except the empty set and the full
    set.

    Args:
        weight: float ``[k, k]``, symmetric and non-negative, for two or more clients. The diagonal
            is ignored. An entry between -1e-6 and 0 counts as a rounding error and is set to 0.

    Returns:
        bool ``[k]``, True for the clients in the smaller part. If both parts have the same size,
        the part without the first client is marked True.

    Raises:
        TypeError: if `weight` is not floating point.
        ValueError: if `weight` is not square or not symmetric (up to rounding), if an entry is not
            finite or is negative, or if there are fewer than two clients.

    Example:
        >>> min_cut(torch.tensor([[0.0, 5.0, 1.0], [5.0, 0.0, 2.0], [1.0, 2.0, 0.0]]))
        tensor([False, False,  True])

    Source: Stoer and Wagner 1997; ``networkx.stoer_wagner`` uses the same algorithm
    """
    import networkx

    check_rows("weight", weight, "k, k")
    clients = len(weight)
    reject_if(clients < 2, "weight to be of two clients or more", clients)
    wrong = not torch.allclose(weight, weight.T, atol=1e-6 * float(weight.abs().max()))
    reject_if(wrong, "weight to be symmetric", "a matrix that is not")
    reject_if(float(weight.min()) < -1e-6, "weight to be at least 0", float(weight.min()))
    network: Any = networkx.Graph()
    values = weight.clamp(min=0).tolist()
    for i, j in combinations(range(clients), 2):  # edges of weight 0 are included
        network.add_edge(i, j, weight=values[i][j])
    _, parts = networkx.stoer_wagner(network)
    smaller = min(parts, key=lambda part: (len(part), 0 in part))
    return mask_of(torch.tensor(smaller), clients)
