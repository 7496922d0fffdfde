"""Undirected edge lists, without self-loops and repeats, in as little memory as a sort needs."""

from __future__ import annotations

import torch
from torch import Tensor


def undirected(edges: Tensor, num_nodes: int) -> Tensor:
    """Both directions of every edge once, by target, then source; no self-loops."""
    one, two = _without_loops(edges)
    pair = one.new_empty(2 * one.numel())
    torch.add(one, two, alpha=num_nodes, out=pair[: one.numel()])
    torch.add(two, one, alpha=num_nodes, out=pair[one.numel() :])
    return _ends(pair.unique(), num_nodes, (1, 0))


def pairs(edges: Tensor, num_nodes: int) -> Tensor:
    """Every edge once, its smaller end first, in order; no self-loops."""
    one, two = _without_loops(edges)
    pair = torch.minimum(one, two).mul_(num_nodes).add_(torch.maximum(one, two))
    return _ends(pair.unique(), num_nodes)


def _without_loops(edges: Tensor) -> Tensor:
    kept = edges[0] != edges[1]
    return edges if bool(kept.all()) else edges[:, kept]


def _ends(pair: Tensor, num_nodes: int, rows: tuple[int, int] = (0, 1)) -> Tensor:
    """Numbers ``one * num_nodes + two`` as int64 ``[2, *]``, the ends in these rows."""
    ends: Tensor = pair.new_empty(2, pair.numel())
    torch.div(pair, num_nodes, rounding_mode="floor", out=ends[rows[0]])
    torch.remainder(pair, num_nodes, out=ends[rows[1]])
    return ends
