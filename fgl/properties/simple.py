"""Many simple undirected graphs in one structure that is built from checked edges."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from operator import index
from typing import Any, SupportsIndex

import numpy as np
import torch
from torch import Tensor

from ..checks import check_index, reject_if

COLUMNS = 128  # nodes that are searched from at a time


@dataclass(frozen=True)
class Simple:
    """Many simple undirected graphs in one structure.

    Args:
        crow, col: int64 ``[num_nodes + 1]`` and ``[2 m]``, the neighbours of each node in CSR
            format.
        batch: int64 ``[num_nodes]``, the index of each node's graph, sorted.
        sizes: int64 ``[num_graphs]``, number of nodes of each graph.
    """

    crow: Tensor
    col: Tensor
    batch: Tensor
    sizes: Tensor

    @cached_property
    def degree(self) -> Tensor:
        """Degree of every node, int64 ``[num_nodes]``."""
        return self.crow.diff()

    @cached_property
    def double_edges(self) -> Tensor:
        """Twice the number of edges, float64 ``[num_graphs]``."""
        return self.total(self.degree)

    def total(self, value: Tensor) -> Tensor:
        """Sum over each graph's nodes, float64 ``[num_graphs]``."""
        out = torch.zeros(self.sizes.numel(), dtype=torch.float64)
        return out.index_add(0, self.batch, value.double())

    def adjacency(self, value: Any) -> Any:
        """The entries `value` of all edges as one `scipy.sparse` array."""
        from scipy.sparse import csr_array

        parts = (value, self.col.numpy(), self.crow.numpy())
        return csr_array(parts, shape=(self.batch.numel(), self.batch.numel()))

    def blocks(self) -> Iterator[tuple[slice, slice]]:
        """Divide the nodes into blocks, and yield two slices for each block.

        The first slice contains the block's nodes, at most `COLUMNS`. The second slice contains all
        nodes of the graphs to which the block's nodes belong.
        """
        ends = self.sizes.cumsum(0)
        last = ends[self.batch].tolist()
        first = (ends - self.sizes)[self.batch].tolist()
        for start in range(0, len(first), COLUMNS):
            stop = min(start + COLUMNS, len(first))
            yield slice(start, stop), slice(first[start], last[stop - 1])


def simple(edge_index: Tensor, nodes: int | Tensor) -> Simple:
    """Convert graphs to undirected graphs without self-loops or repeated edges.

    Both directions of each edge are stored.

    Raises:
        TypeError, ValueError: if a dtype or a shape is invalid, if an index is out of range, if
            nodes are not sorted by graph, or if an edge joins two graphs.
    """
    edge_index, one = edge_index.cpu(), not isinstance(nodes, Tensor)
    batch = nodes.cpu() if isinstance(nodes, Tensor) else _one_graph(nodes)
    check_index("batch", batch, (None,), None)
    reject_if((batch.diff() < 0).any(), "batch to be in order", "a graph whose nodes are apart")
    _check_edges(edge_index, batch)
    crow, col = _neighbours(edge_index, batch.numel())
    return Simple(crow, col, batch, batch.bincount(minlength=int(one)))


def _one_graph(nodes: Any) -> Tensor:
    """The ``batch`` tensor of a single graph, from its number of nodes."""
    wrong = isinstance(nodes, bool) or not isinstance(nodes, SupportsIndex) or index(nodes) < 0
    reject_if(wrong, "nodes to be a number >= 0 or a batch", repr(nodes))
    return torch.zeros(index(nodes), dtype=torch.int64)


def _check_edges(edge_index: Tensor, batch: Tensor) -> None:
    check_index("edge_index", edge_index, (2, None), batch.numel())
    ends = batch.index_select(0, edge_index.reshape(-1)).view(2, -1)
    if not torch.equal(ends[0], ends[1]):
        edge = int((ends[0] != ends[1]).nonzero()[0])
        one, two = ends[:, edge].tolist()
        raise ValueError(
            f"Expected edge_index to have edges inside a graph, but got edge {edge} between "
            f"graphs {one} and {two}"
        )


def _neighbours(edge_index: Tensor, num_nodes: int) -> tuple[Tensor, Tensor]:
    """Row pointers and columns of the symmetric adjacency matrix, sorted by scipy."""
    from scipy.sparse import csr_array

    source, target = edge_index.numpy()
    apart = source != target
    if not apart.all():
        source, target = source[apart], target[apart]
    one = np.ones(len(source), dtype=np.bool_)
    shape = (num_nodes, num_nodes)
    key = target * num_nodes + source
    if (key[1:] > key[:-1]).all():  # sorted, without repeats, as a graph's edges often are
        crow = np.bincount(target + 1, minlength=num_nodes + 1).cumsum()
        half = csr_array((one, source, crow), shape=shape)
    else:
        half = csr_array((one, (target, source)), shape=shape)
    turned = half.tocsc()
    same = [np.array_equal(getattr(turned, k), getattr(half, k)) for k in ("indptr", "indices")]
    both = half if all(same) else half + half.T
    return torch.from_numpy(both.indptr).long(), torch.from_numpy(both.indices).long()
