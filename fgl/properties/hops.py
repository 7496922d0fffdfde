"""Sums of distances in many graphs, found by breadth-first search from 64 nodes at a time.

A node's word holds one bit per source. The bit says whether the source is within `l` hops. One hop
is an OR over the neighbours' words. The sum of distances follows from the number of set bits after
each hop.
"""

from itertools import accumulate

import numpy as np
import torch
from torch import Tensor

WORDS = 2**15  # words that are searched at a time: they fit in a CPU's cache
HOPS = 3  # hops between checks whether the search is complete; 3 x 64 bits still fit into a byte


def hops(crow: Tensor, col: Tensor, sizes: Tensor, *, words: int = WORDS) -> tuple[Tensor, Tensor]:
    """For every node, how many nodes reach it (including itself), and the sum of their distances.

    Graphs of similar size are searched together. A large graph is searched from only some of its
    nodes at a time.

    Args:
        crow, col: int64 ``[num_nodes + 1]`` and ``[num_edges]``, each node's neighbours as CSR. All
            tensors are on the CPU.
        sizes: int64 ``[num_graphs]``; the nodes are numbered graph after graph.
        words: number of words to search at a time; the number is larger if a graph has more nodes.

    Returns:
        Two int64 ``[num_nodes]``.
    """
    if len(crow) == 1:
        return crow[:0], crow[:0]
    order, block, widths = _blocks(sizes, words)
    size = sizes[order]
    graph = torch.arange(size.numel()).repeat_interleave(size)
    within = torch.arange(graph.numel())
    within -= (size.cumsum(0) - size).index_select(0, graph)
    nodes = within + (sizes.cumsum(0) - sizes)[order].index_select(0, graph)
    degree = crow.diff().index_select(0, nodes)
    # Nodes are sorted by block, then by degree, so that nodes with a j-th neighbour come first.
    key = ((block + 1) * (degree.max() + 1)).index_select(0, graph) - degree
    # numpy uses radix sort for small integers, which takes a tenth of the time.
    turn = torch.from_numpy(
        key.numpy().astype(np.min_scalar_type(key.max())).argsort(kind="stable")
    )
    nodes, within, degree = (v.index_select(0, turn) for v in (nodes, within, degree))
    place = torch.empty_like(nodes)
    place[nodes] = torch.arange(nodes.numel())
    neighbours, start = place.index_select(0, col), crow.index_select(0, nodes)
    counts = torch.zeros(len(widths), dtype=torch.int64).index_add(0, block, size).tolist()
    number, far = torch.zeros(2, nodes.numel(), dtype=torch.int64)
    for end, count, width in zip(accumulate(counts), counts, widths, strict=True):
        at = end - count
        part = slice(at, end)
        index, having = _neighbours(neighbours, start[part], degree[part], at)
        step = max(1, words // max(count, 1))
        for word in range(0, width, step):
            wide = min(step, width - word)
            reached, distance = _search(index, having, within[part], word, wide)
            number[part] += reached
            far[part] += distance
    return number[place], far[place]


def _blocks(sizes: Tensor, words: int) -> tuple[Tensor, Tensor, list[int]]:
    """Graphs sorted by size, each graph's block, and each block's words per node."""
    size, order = sizes.sort(stable=True)
    width = (size + 63) // 64
    wide = 2 ** width.clamp(min=1).double().log2().ceil().long()  # a block has widths up to this
    apart = wide * (2**40) + (size * wide).cumsum(0) // words
    block = torch.unique_consecutive(apart, return_inverse=True)[1]
    count = int(block[-1]) + 1
    return order, block, width.new_zeros(count).scatter_reduce(0, block, width, "amax").tolist()


def _neighbours(column: Tensor, start: Tensor, degree: Tensor, at: int) -> tuple[Tensor, list[int]]:
    """All first neighbours, then all second neighbours, and so on; and the size of each group.

    The nodes are sorted by degree. A node without neighbours is its own first neighbour.
    """
    having = (degree.numel() - degree.bincount().cumsum(0)).tolist()[:-1]
    index = [column.index_select(0, start[:n] + j) - at for j, n in enumerate(having)]
    alone = torch.arange(having[0] if having else 0, degree.numel())
    return torch.cat([*index[:1], alone, *index[1:]]), [degree.numel(), *having[1:]]


def _search(
    index: Tensor, having: list[int], within: Tensor, word: int, width: int
) -> tuple[Tensor, Tensor]:
    """Count the sources that reach each node, and sum their hops.

    The sources are the nodes from ``64 word`` to ``64 (word + width)``.
    """
    # All words are in one row, with a node's words adjacent: gathering numbers beats rows in torch.
    words = torch.arange(width)
    index, having = (index[:, None] * width + words).flatten(), [n * width for n in having]
    bit = torch.bitwise_left_shift(torch.ones_like(within), within % 64)
    now = torch.where(words + word == (within // 64)[:, None], bit[:, None], 0).flatten()
    after, met = torch.empty_like(now), torch.empty_like(index)
    neighbours = met.split(having)
    missing, hop = torch.zeros_like(now), 0
    while True:
        fewer = _bits(now)
        for step in range(HOPS):
            if step:
                fewer += _bits(now)
            torch.index_select(now, 0, index, out=met)
            torch.bitwise_or(now, neighbours[0], out=after)
            for more in neighbours[1:]:
                after[: more.shape[0]].bitwise_or_(more)
            now, after = after, now
        missing -= fewer
        hop += HOPS
        if torch.equal(now, after):  # hops that reach no new node do not change the sum
            count = _bits(now).long()
            missing.add_(count, alpha=hop)
            return count.view(-1, width).sum(1), missing.view(-1, width).sum(1)


def _bits(words: Tensor) -> Tensor:
    """Number of set bits in each word."""
    if hasattr(np, "bitwise_count"):  # numpy 2
        return torch.from_numpy(np.bitwise_count(words.numpy().view(np.uint64)))
    count = words - (words >> 1 & 0x5555555555555555)
    count = (count & 0x3333333333333333) + (count >> 2 & 0x3333333333333333)
    return (count + (count >> 4) & 0x0F0F0F0F0F0F0F0F) * 0x0101010101010101 >> 56
