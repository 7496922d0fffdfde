"""Pairs of nodes encoded as numbers, and samplers that draw pairs without an edge.

Nodes may belong to groups, called sides: node types, roles as source or target, or the colours of a
bipartite graph. An edge can join only nodes of certain sides. For example, an edge may join a user
to an item, but never a user to a user. A pair of two users can never be an edge, so this pair is
useless as a negative example.
"""

from typing import Any

import torch
from torch import Tensor

from ...checks import check_index, reject_if
from ...transfer import to_device

Draws = torch.Generator | None
SWAPS = 100  # attempts to swap columns whose cells are taken


class _Free:
    """Sampler of the numbers below `total` that are not in the sorted tensor `keys`."""

    def __init__(self, keys: Tensor, total: int) -> None:
        self._keys, self.count = keys, total - keys.numel()
        self._before = keys - torch.arange(keys.numel(), device=keys.device)  # each key

    def _drawn(self, num: int, replacement: bool, generator: Draws) -> Tensor:
        expected = f"num to be in [0, {self.count}], the pairs without an edge"
        reject_if(num < 0 or num > self.count * (num if replacement else 1), expected, num)
        return self._ranked(_ranks(self.count, num, replacement, generator))

    def _ranked(self, rank: Tensor) -> Tensor:
        """The numbers at the given ranks in the sorted list of numbers that may be drawn."""
        rank = to_device(rank, self._before.device)
        return rank + torch.searchsorted(self._before, rank, right=True)


class FreePairs(_Free):
    """Sampler that repeatedly draws pairs of different nodes that no edge joins.

    Args:
        edge_index, num_nodes, directed: as for `negative_edges`.

    Raises:
        ValueError: if `edge_index` has the wrong shape, if a node is out of range, or if
            `num_nodes` is negative.
        TypeError: if `edge_index` is not int64.

    Example:
        >>> FreePairs(torch.tensor([[0, 1], [1, 2]]), 3)(1)
        tensor([[0],
                [2]])
    """

    def __init__(self, edge_index: Tensor, num_nodes: int, *, directed: bool = False) -> None:
        check_index("edge_index", edge_index, (2, None), num_nodes)
        reject_if(num_nodes < 0, "num_nodes to be at least 0", num_nodes)
        keys = directed_keys(edge_index, num_nodes) if directed else keys_of(edge_index)
        super().__init__(keys, num_nodes * (num_nodes - 1) // (1 if directed else 2))
        self.num_nodes, self.directed = num_nodes, directed

    def __call__(self, num: int, *, replacement: bool = False, generator: Draws = None) -> Tensor:
        """Draw `num` pairs; the arguments are as for `negative_edges`."""
        keys = self._drawn(num, replacement, generator)
        return directed_pairs(keys, self.num_nodes) if self.directed else pairs_of(keys)


class FreeCells(_Free):
    """Sampler that repeatedly draws empty cells of a table.

    Args:
        taken: int64 ``[2, *]``, the row and the column of each nonempty cell; repeats are allowed.
        num_rows, num_columns: size of the table.

    Example:
        >>> free = FreeCells(torch.tensor([[0, 0, 1], [0, 2, 1]]), 2, 3)
        >>> free.count, free.of_rows(torch.tensor([0, 0]))
        (3, (tensor([1, 1]), tensor([True, True])))
    """

    def __init__(self, taken: Tensor, num_rows: int, num_columns: int) -> None:
        super().__init__((taken[0] * num_columns + taken[1]).unique(), num_rows * num_columns)
        self.num_columns = num_columns

    def __call__(self, num: int, *, replacement: bool = False, generator: Draws = None) -> Tensor:
        """Draw empty cells ``[2, num]``; all empty cells are equally likely.

        Raises:
            ValueError: if too few cells of the table are empty.
        """
        key = self._drawn(num, replacement, generator)
        columns = max(self.num_columns, 1)
        return torch.stack([key // columns, key % columns])

    def of_rows(
        self, rows: Tensor, like: Tensor | None = None, *, generator: Draws = None
    ) -> tuple[Tensor, Tensor]:
        """Draw a column for each given row; all empty cells of a row are equally likely.

        Args:
            rows: int64 ``[p]``, the rows for which columns are drawn; repeats are allowed.
            like: int64 ``[p]``, a column of the table for each given row. If `like` is given, the
                result is a random permutation of the columns in `like`. In the permutation, a row
                may get a column in which the row's cell is not empty. If no swap with a second row
                helps, this row gets the column of a random empty cell of the row.
            generator: random generator on the CPU; by default torch's global generator.

        Returns:
            Two tensors: the columns, int64 ``[*]``, and a mask of the rows that got a column, bool
            ``[p]``. A row gets no column if all cells of the row are taken.
        """
        first = rows * self.num_columns
        ends = torch.stack([first, first + self.num_columns])
        skipped = ends - torch.searchsorted(self._keys, ends)  # number of empty cells before
        free = skipped[1] - skipped[0]
        drawn = to_device(
            torch.rand(rows.numel(), dtype=torch.float64, generator=generator), rows.device
        )
        rank = (skipped[0] + (drawn * free).long())[free > 0]
        columns = self._ranked(rank) % self.num_columns  # none is drawn where there is no column
        if like is not None:
            columns = self._reordered(first[free > 0], like[free > 0], columns, generator)
        return columns, free > 0

    def _reordered(
        self, first: Tensor, like: Tensor, otherwise: Tensor, generator: Draws
    ) -> Tensor:
        """Assign the columns in `like` to the rows, as a random permutation.

        If a row's new cell is taken, and no swap helps, the row gets its column in `otherwise`.
        """

        def is_taken(rows: Tensor, columns: Tensor) -> Tensor:
            return torch.isin(first[rows] + columns, self._keys)

        def order() -> Tensor:
            return to_device(torch.randperm(like.numel(), generator=generator), like.device)

        columns = like[order()]
        taken = is_taken(torch.arange(like.numel(), device=like.device), columns)
        for _ in range(SWAPS):
            one = taken.nonzero().squeeze(1)
            if not one.numel():
                break
            two = order()[: one.numel()]
            swaps = ~taken[two] & ~is_taken(one, columns[two]) & ~is_taken(two, columns[one])
            one, two = one[swaps], two[swaps]
            columns[one], columns[two] = columns[two], columns[one]
            taken[one] = False
        return torch.where(taken, otherwise, columns)


class FreePairsLike:
    """Sampler of pairs without an edge; each drawn pair joins the same two sides as a given pair.

    Args:
        edge_index, num_nodes, directed: as for `FreePairs`.
        like: int64 ``[2, p]``, the given pairs. For each given pair (u, v), the drawn pair has one
            node from the side of u and one node from the side of v.
        side: the side (group) of each node, int64 ``[num_nodes]``, at least 0; None if an edge may
            join any two nodes.

    Example:
        >>> edges, side = torch.tensor([[0, 1], [2, 3]]), torch.tensor([0, 0, 1, 1])
        >>> FreePairsLike(edges, 4, edges, side=side)().sort(1).values
        tensor([[0, 1],
                [2, 3]])
    """

    def __init__(
        self,
        edge_index: Tensor,
        num_nodes: int,
        like: Tensor,
        *,
        side: Tensor | None = None,
        directed: bool = False,
    ) -> None:
        self.size, self.directed = like.shape[1], directed
        self.parts: list[tuple[Any, Tensor, Tensor, Tensor]] = []  # sampler, nodes, given pairs
        if side is None:
            free = FreePairs(edge_index, num_nodes, directed=directed)
            nodes = torch.arange(num_nodes, device=like.device)
            self.parts = [(free, nodes, nodes, torch.arange(self.size, device=like.device))]
            return
        of_edges, of_like = (_by_side(each, side, directed) for each in (edge_index, like))
        kinds, which = side[of_like].unique(dim=1, return_inverse=True)
        for number, (one, two) in enumerate(kinds.T.tolist()):
            own = ((side[of_edges[0]] == one) & (side[of_edges[1]] == two)).nonzero().squeeze(1)
            part = _free_between(of_edges[:, own], side == one, side == two, directed)
            self.parts.append((*part, (which == number).nonzero().squeeze(1)))

    @property
    def enough(self) -> bool:
        """Whether there are enough free pairs to draw one for each given pair without repeats."""
        return all(free.count >= len(own) for free, _, _, own in self.parts)

    def __call__(self, *, replacement: bool = False, generator: Draws = None) -> Tensor:
        """Draw one free pair for each given pair, ``[2, *]``; draw none if no free pair exists."""
        drawn, places = [], []
        for free, rows, columns, own in self.parts:
            num = len(own) if free.count else 0
            cells = free(num, replacement=replacement, generator=generator)
            ends = torch.stack([rows[cells[0].to(rows.device)], columns[cells[1].to(rows.device)]])
            drawn.append(ends if self.directed else ends.sort(0).values)
            places.append(own[:num])
        if len(drawn) == 1:
            return drawn[0]
        if not drawn:
            return torch.zeros(2, 0, dtype=torch.int64)
        pairs: Tensor = torch.cat(drawn, 1)[:, torch.cat(places).argsort()]
        return pairs


def _by_side(edges: Tensor, side: Tensor, directed: bool) -> Tensor:
    """Turn each undirected edge so that its first end is on the side with the smaller number."""
    if directed:
        return edges
    turned = side[edges[0]] > side[edges[1]]
    return torch.where(turned, edges.flip(0), edges)


def _free_between(
    edges: Tensor, first: Tensor, second: Tensor, directed: bool
) -> tuple[Any, Tensor, Tensor]:
    """Return a sampler of unlinked pairs between two sets of nodes, and the nodes of both sets."""
    rows, columns = (mask.nonzero().squeeze(1) for mask in (first, second))
    place = torch.stack([(mask.cumsum(0) - 1)[e] for mask, e in zip((first, second), edges)])  # noqa: B905
    if torch.equal(first, second):
        return FreePairs(place, len(rows), directed=directed), rows, columns
    return FreeCells(place, len(rows), len(columns)), rows, columns


def sides_of(node_type: Tensor | None, edges: Tensor, num_nodes: int) -> Tensor | None:
    """The side (type, role or colour) of each node; edges join only nodes of certain sides.

    If nodes have types, the side is the type. If there are no types, and no node is both a source
    and a target, the side is 0 for sources, 1 for targets and 2 for nodes without an edge.
    Otherwise, a connected part of the graph has two sides if it is bipartite: all cycles of the
    part have even lengths. For instance, a graph of users and items with edges in both directions
    is bipartite.

    Returns:
        int64 ``[num_nodes]``, or None if nodes have no sides.

    Example:
        >>> sides_of(None, torch.tensor([[0, 1], [3, 3]]), 4)
        tensor([0, 0, 2, 1])
    """
    if node_type is not None:
        return node_type
    source, target = torch.zeros(2, num_nodes, dtype=torch.bool, device=edges.device)
    source[edges[0]], target[edges[1]] = True, True
    if edges.shape[1] == 0:
        return None
    if bool((source & target).any()):
        return _two_sides(pairs_of(keys_of(edges)), num_nodes)
    return torch.where(source | target, target.long(), 2)


# Least number of independent cycles in a bipartite part; all are even by chance with 2^-20.
CYCLES = 20


def _two_sides(pairs: Tensor, num_nodes: int) -> Tensor | None:
    """Number the two sides of each bipartite part of a graph; nodes of other parts get 0.

    The sides are 1 and 2 in the first bipartite part, 3 and 4 in the second, and so on. The double
    cover of the graph joins ``(u, 0)`` with ``(v, 1)`` and ``(u, 1)`` with ``(v, 0)`` for each
    edge. A connected part is bipartite if its double cover is not connected. All nodes of a part
    with fewer than `CYCLES` independent cycles get 0, since such a small part may be bipartite by
    chance. For example, every tree is bipartite.

    Args:
        pairs: int64 ``[2, *]``, distinct undirected edges without self-loops.
        num_nodes: number of nodes.
    """
    if pairs.shape[1] < CYCLES:
        return None
    import numpy as np
    import scipy.sparse as sp  # slow to import
    from scipy.sparse import csgraph

    u, v = pairs.cpu().numpy()
    ends = np.concatenate([u, u + num_nodes]), np.concatenate([v + num_nodes, v])
    cover = sp.coo_matrix((np.ones(2 * len(u), dtype=bool), ends), shape=(2 * num_nodes,) * 2)
    one, two = csgraph.connected_components(cover, directed=False)[1].reshape(2, num_nodes)
    part = np.minimum(one, two)
    num_edges = np.bincount(part[u], minlength=2 * num_nodes)
    cycles = num_edges - np.bincount(part, minlength=2 * num_nodes) + 1
    clear = (one != two) & (cycles[part] >= CYCLES)
    if not clear.any():
        return None
    side = np.zeros(num_nodes, dtype=np.int64)
    rank = np.unique(part[clear], return_inverse=True)[1]
    side[clear] = 1 + 2 * rank + (one > two)[clear]
    return torch.from_numpy(side).to(pairs.device)


def _ranks(free: int, num: int, replacement: bool, generator: Draws) -> Tensor:
    """Draw `num` integers from 0 to ``free - 1``, in random order."""
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
    """Encode undirected edges without self-loops as sorted numbers ``v (v - 1) / 2 + u``, u < v."""
    u, v = edge_index.min(0).values, edge_index.max(0).values
    key: Tensor = (v * (v - 1) // 2 + u)[u != v].unique()
    return key


def pairs_of(keys: Tensor) -> Tensor:
    """Decode the numbers that `keys_of` returns; edges ``[2, *]`` have u in row 0, v in row 1."""
    v = ((1 + (1 + 8 * keys.double()).sqrt()) / 2).long()
    v = v - (v * (v - 1) // 2 > keys).long()  # the root may be one too large, never too small
    return torch.stack([keys - v * (v - 1) // 2, v])


def directed_keys(edge_index: Tensor, num_nodes: int) -> Tensor:
    """Encode distinct directed edges, without self-loops, as numbers sorted by source."""
    key: Tensor = key_of_each(edge_index, num_nodes)[edge_index[0] != edge_index[1]].unique()
    return key


def key_of_each(edge_index: Tensor, num_nodes: int) -> Tensor:
    """Encode each edge as ``u (n - 1) + v - [v > u]``, int64; codes of self-loops are invalid."""
    u, v = edge_index
    key: Tensor = u * (num_nodes - 1) + v - (v > u).long()
    return key


def directed_pairs(keys: Tensor, num_nodes: int) -> Tensor:
    """Decode the numbers that `directed_keys` returns; edges ``[2, *]`` keep the numbers' order."""
    u, v = keys // (num_nodes - 1), keys % (num_nodes - 1)
    return torch.stack([u, v + (v >= u).long()])
