"""Sums of distances in many graphs: breadth-first search from 64 nodes in one word.

A node's word holds one bit per source: whether the source is within `l` hops. One hop is an OR over
the neighbours' words; how many bits are set, added up over the hops, is the sum of the distances.
"""

from __future__ import annotations

from itertools import accumulate

import numpy as np
import torch
from torch import Tensor

WORDS = 2**15  # words that are searched at a time: they stay in a processor's cache
HOPS = 3  # between two looks at whether all is done; 3 x 64 bits still fit into a byte


def hops(crow: Tensor, col: Tensor, sizes: Tensor, *, words: int = WORDS) -> tuple[Tensor, Tensor]:
    """For every node, how many nodes reach it (itself too), and the sum of their distances.

    Graphs of about the same size are searched together, a large one a few of its sources at a time.

    Args:
        crow, col: int64 ``[num_nodes + 1]`` and ``[num_edges]``, each node's neighbours as CSR, on
            the CPU, as everything here.
        sizes: int64 ``[num_graphs]``; the nodes are numbered graph after graph.
        words: how many words to search at a time, unless a graph has more nodes.

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
    # By block; inside it by degree, so that those with a j-th neighbour are the first ones.
    key = ((block + 1) * (degree.max() + 1)).index_select(0, graph) - degree
    # numpy sorts small integers by their digits, in a tenth of the time.
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
    """The graphs by size; the block of each; how many words a node of each block needs."""
    size, order = sizes.sort(stable=True)
    width = (size + 63) // 64
    wide = 2 ** width.clamp(min=1).double().log2().ceil().long()  # a block has widths up to this
    apart = wide * (2**40) + (size * wide).cumsum(0) // words
    block = torch.unique_consecutive(apart, return_inverse=True)[1]
    count = int(block[-1]) + 1
    return order, block, width.new_zeros(count).scatter_reduce(0, block, width, "amax").tolist()


def _neighbours(column: Tensor, start: Tensor, degree: Tensor, at: int) -> tuple[Tensor, list[int]]:
    """All first neighbours, then all second ones, and so on; and the number of each.

    Of nodes sorted by degree. A node without neighbours is its own first one.
    """
    having = (degree.numel() - degree.bincount().cumsum(0)).tolist()[:-1]
    index = [column.index_select(0, start[:n] + j) - at for j, n in enumerate(having)]
    alone = torch.arange(having[0] if having else 0, degree.numel())
    return torch.cat([*index[:1], alone, *index[1:]]), [degree.numel(), *having[1:]]


def _search(
    index: Tensor, having: list[int], within: Tensor, word: int, width: int
) -> tuple[Tensor, Tensor]:
    """Count sources ``64 word`` to ``64 (word + width)`` that reach each node; sum their hops."""
    # All words in one row, a node's beside each other: torch gathers numbers faster than rows.
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
        if torch.equal(now, after):  # hops that meet nobody do not change the sum
            count = _bits(now).long()
            missing.add_(count, alpha=hop)
            return count.view(-1, width).sum(1), missing.view(-1, width).sum(1)


def _bits(words: Tensor) -> Tensor:
    """Number of bits of each word that are set."""
    if hasattr(np, "bitwise_count"):  # numpy 2
        return torch.from_numpy(np.bitwise_count(words.numpy().view(np.uint64)))
    count = words - (words >> 1 & 0x5555555555555555)
    count = (count & 0x3333333333333333) + (count >> 2 & 0x3333333333333333)
    return (count + (count >> 4) & 0x0F0F0F0F0F0F0F0F) * 0x0101010101010101 >> 56
