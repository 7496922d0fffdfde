"""FINCH: clusters of rows by their first neighbours, without a number of clusters."""

from __future__ import annotations

import torch
from torch import Tensor

from ..kinds import explained
from .rows import unit


@explained
def finch(rows: Tensor) -> Tensor:
    """Clusters of rows by first neighbours: the coarsest partition that is not a single cluster.

    Args:
        rows: float ``[n, d]``, n at least 1.

    Returns:
        int64 ``[n]``, a cluster for each.

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
    """Clusters of rows that are joined by first neighbours, or have the same one.

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


@explained
def nearest_rows(rows: Tensor, count: int) -> Tensor:
    """The nearest other rows of each row by cosine, int64 ``[n, count]``, all if there are fewer.

    Example:
        >>> nearest_rows(torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]]), 1).flatten()
        tensor([1, 0, 1])
    """
    directions = unit(rows)
    cosine = directions @ directions.T
    most = min(count, len(rows) - 1)
    return cosine.fill_diagonal_(-2).topk(most, dim=1).indices
