"""Clients that overlap: each draws a share of its community (FED-PUB)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ...checks import check_count, check_share
from ...kinds import typed


@typed
def community_clients(
    communities: Sequence[Tensor], clients: int, *, share: float = 0.5, seed: int = 0
) -> list[Tensor]:
    """Several clients of every community, each with a share of its nodes, drawn by itself.

    Clients of one community overlap: of two that draw half of it, half of their nodes are common.

    Args:
        communities: int64 node ids, one tensor per community, such as `metis_partition` returns.
        clients: of each community.
        share: of the nodes of its community that a client draws, rounded down.
        seed: of the draws.

    Returns:
        One sorted int64 tensor of node ids per client: those of the first community, of the second,
        and so on.

    Raises:
        ValueError: if `clients` or `share` is out of range.

    Example:
        >>> communities = [torch.arange(5), torch.arange(5, 12)]
        >>> [part.tolist() for part in community_clients(communities, 2)]
        [[0, 4], [3, 4], [5, 8, 9], [6, 7, 8]]

    Source: Baek et al. 2023, https://arxiv.org/abs/2206.10206
    """
    check_count(clients=clients)
    check_share(share=share)
    generator = torch.Generator().manual_seed(seed)
    parts = []
    for community in communities:
        n = community.numel()
        for _ in range(clients):
            chosen = torch.randperm(n, generator=generator)[: int(share * n)].sort().values
            parts.append(community[chosen.to(community.device)])
    return parts
