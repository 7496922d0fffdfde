"""Pairs of nodes as numbers, and those without an edge, to be drawn from."""

from __future__ import annotations

import torch
from torch import Tensor

from ...graph.checks import check_index
from ...transfer import to_device


class FreePairs:
    """The pairs of different nodes without an edge, to be drawn from more than once.

    Args:
        edge_index, num_nodes, directed: as for `negative_edges`, which draws once.

    Raises:
        ValueError: if the shape is another one, a node is out of range or `num_nodes` is negative.
        TypeError: if `edge_index` is not int64.

    Example:
        >>> FreePairs(torch.tensor([[0, 1], [1, 2]]), 3)(1)
        tensor([[0],
                [2]])
    """

    def __init__(self, edge_index: Tensor, num_nodes: int, *, directed: bool = False) -> None:
        check_index("edge_index", edge_index, (2, None), num_nodes)
        if num_nodes < 0:
            raise ValueError(f"Expected num_nodes to be at least 0, but got {num_nodes}")
        keys = directed_keys(edge_index, num_nodes) if directed else keys_of(edge_index)
        self.num_nodes, self.directed = num_nodes, directed
        self.count = num_nodes * (num_nodes - 1) // (1 if directed else 2) - keys.numel()
        self._keys = keys
        self._before = keys - torch.arange(keys.numel(), device=keys.device)  # each edge

    def __call__(
        self, num: int, *, replacement: bool = False, generator: torch.Generator | None = None
    ) -> Tensor:
        """The given number of pairs, as `negative_edges` draws them."""
        if num < 0 or num > self.count * (num if replacement else 1):
            raise ValueError(
                f"Expected num to be in [0, {self.count}], the pairs of {self.num_nodes} nodes "
                f"without an edge, but got {num}"
            )
        return self._ranked(_ranks(self.count, num, replacement, generator))

    def to_targets(self, source: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
        """For each source a target that it has no edge to, each such node equally likely.

        Args:
            source: int64 ``[p]``, nodes, also repeated.
            generator: of the draws, on the CPU; default torch's global one.

        Returns:
            int64 ``[2, *]``, a pair for every source but those that have an edge to all others.

        Raises:
            ValueError: if the pairs have no direction.

        Example:
            >>> FreePairs(torch.tensor([[0], [1]]), 3, directed=True).to_targets(torch.tensor([0]))
            tensor([[0],
                    [2]])
        """
        if not self.directed:
            raise ValueError("Expected directed pairs, but got undirected ones")
        first = source * (self.num_nodes - 1)  # the number of the first pair of a source
        ends = torch.stack([first, first + self.num_nodes - 1])
        skipped = ends - torch.searchsorted(self._keys, ends)  # free pairs before
        free = skipped[1] - skipped[0]
        drawn = to_device(
            torch.rand(source.numel(), dtype=torch.float64, generator=generator), source.device
        )
        rank = skipped[0] + (drawn * free).long()
        return self._ranked(rank[free > 0])

    def _ranked(self, rank: Tensor) -> Tensor:
        """The free pairs of these ranks."""
        rank = to_device(rank, self._before.device)
        keys = rank + torch.searchsorted(self._before, rank, right=True)
        return directed_pairs(keys, self.num_nodes) if self.directed else pairs_of(keys)


def _ranks(free: int, num: int, replacement: bool, generator: torch.Generator | None) -> Tensor:
    """`num` of the numbers below `free`, in random order."""
    if num == 0:
        return torch.zeros(0, dtype=torch.int64)
    if replacement:
        return torch.randint(free, (num,), generator=generator)
    if free <= 4 * num:
        return torch.randperm(free, generator=generator)[:num]
    rank = torch.zeros(0, dtype=torch.int64)
    while rank.numel() < num:
        rank = torch.cat([rank, torch.randint(free, (2 * num,), generator=generator)]).unique()
    return rank[torch.randperm(rank.numel(), generator=generator)[:num]]


def keys_of(edge_index: Tensor) -> Tensor:
    """Undirected edges as sorted numbers ``v (v - 1) / 2 + u`` with u < v; no self-loops."""
    u, v = edge_index.min(0).values, edge_index.max(0).values
    key: Tensor = (v * (v - 1) // 2 + u)[u != v].unique()
    return key


def pairs_of(keys: Tensor) -> Tensor:
    """The edges of `keys_of`, in order: ``[2, *]``, rows u and v."""
    v = ((1 + (1 + 8 * keys.double()).sqrt()) / 2).long()
    v = v - (v * (v - 1) // 2 > keys).long()  # the root may be one too large, never too small
    return torch.stack([keys - v * (v - 1) // 2, v])


def directed_keys(edge_index: Tensor, num_nodes: int) -> Tensor:
    """Directed edges as sorted numbers, source by source; no self-loops, none twice."""
    key: Tensor = key_of_each(edge_index, num_nodes)[edge_index[0] != edge_index[1]].unique()
    return key


def key_of_each(edge_index: Tensor, num_nodes: int) -> Tensor:
    """The number ``u (n - 1) + v - [v > u]`` of every edge, int64; of self-loops none."""
    u, v = edge_index
    key: Tensor = u * (num_nodes - 1) + v - (v > u).long()
    return key


def directed_pairs(keys: Tensor, num_nodes: int) -> Tensor:
    """The edges of `directed_keys`, in order: ``[2, *]``."""
    u, v = keys // (num_nodes - 1), keys % (num_nodes - 1)
    return torch.stack([u, v + (v >= u).long()])
