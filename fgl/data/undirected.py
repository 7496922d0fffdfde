"""Undirected edge lists, without self-loops and repeats."""

from __future__ import annotations

import torch
from torch import Tensor


def undirected(edges: Tensor, num_nodes: int) -> Tensor:
    """Both directions of every edge once, by target, then source; no self-loops."""
    source, target = torch.cat([edges, edges.flip(0)], dim=1)
    kept = source != target
    pair = (target[kept] * num_nodes + source[kept]).unique()
    return torch.stack([pair % num_nodes, pair // num_nodes])
