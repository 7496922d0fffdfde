"""Undirected graphs as edge lists."""

from __future__ import annotations

import torch
from torch import Tensor

from ..sparse import Pattern, SparseMatrix

DEGREES = 64


def undirected(edges: Tensor, num_nodes: int) -> Tensor:
    """Both directions of every edge once, by target, then source; no self-loops."""
    source, target = torch.cat([edges, edges.flip(0)], dim=1)
    kept = source != target
    pair = (target[kept] * num_nodes + source[kept]).unique()
    return torch.stack([pair % num_nodes, pair // num_nodes])


def one_hot_degree(edge_index: Tensor, num_nodes: int) -> SparseMatrix:
    """Features of nodes that have none: the degree, one-hot, 63 standing for all above too."""
    degree = edge_index[1].bincount(minlength=num_nodes).clamp(max=DEGREES - 1)
    pattern = Pattern(torch.arange(num_nodes + 1), degree, (num_nodes, DEGREES))
    return SparseMatrix(pattern, torch.ones(num_nodes))
