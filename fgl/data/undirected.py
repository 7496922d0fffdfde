"""Undirected edge lists, without self-loops and repeats."""

from __future__ import annotations

import torch
from torch import Tensor


def undirected(edges: Tensor, num_nodes: int) -> Tensor:
    """Both directions of every edge once, by target, then source; no self-loops."""
    kept = edges[0] != edges[1]
    one, two = edges if bool(kept.all()) else edges[:, kept]
    pair = one.new_empty(2 * one.numel())  # in place: a hundred million edges shall fit
    torch.add(one, two, alpha=num_nodes, out=pair[: one.numel()])
    torch.add(two, one, alpha=num_nodes, out=pair[one.numel() :])
    pair = pair.unique()
    both: Tensor = pair.new_empty(2, pair.numel())
    torch.remainder(pair, num_nodes, out=both[0])
    torch.div(pair, num_nodes, rounding_mode="floor", out=both[1])
    return both
