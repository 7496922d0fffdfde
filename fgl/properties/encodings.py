"""Structural encodings: vectors that describe a node's neighbourhood without node features."""

import numpy as np
import torch
from torch import Tensor

from ..checks import check_count, check_number
from .simple import Simple, simple


def structure_encoding(
    edge_index: Tensor, nodes: int | Tensor, *, steps: int = 16, max_degree: int = 16
) -> Tensor:
    """Structural encoding of nodes for FedStar: random-walk return probabilities, and degrees.

    ``s_v = [RW_vv, (RW^2)_vv, ..., (RW^steps)_vv, one-hot of min(max(degree_v, 1), max_degree)]``
    (FedStar, Eq. 2 to 4), with the probabilities of `walk_returns`.

    Args:
        edge_index: int64 ``[2, num_edges]``; directions, repeats and self-loops are ignored.
        nodes: number of nodes of a single graph; or the index of each node's graph, int64
            ``[num_nodes]``, sorted.
        steps: length of the longest walk, at least 1.
        max_degree: the largest degree that has a separate column, at least 1.

    Returns:
        float32 ``[num_nodes, steps + max_degree]``, on the device of `edge_index`.

    Raises:
        TypeError, ValueError: if a dtype or a shape is invalid, if an index or a number is out of
            range, or if an edge joins two graphs.

    Example:
        >>> structure_encoding(torch.tensor([[0, 1], [1, 2]]), 4, steps=2, max_degree=2)
        tensor([[0.0000, 0.5000, 1.0000, 0.0000],
                [0.0000, 1.0000, 0.0000, 1.0000],
                [0.0000, 0.5000, 1.0000, 0.0000],
                [0.0000, 0.0000, 1.0000, 0.0000]])

    Source: Tan et al. 2023, https://arxiv.org/abs/2211.13009
    """
    check_count(steps=steps, max_degree=max_degree)
    graphs = simple(edge_index, nodes)
    place = graphs.degree.clamp(1, max_degree) - 1
    both = [_walk_returns(graphs, steps), torch.nn.functional.one_hot(place, max_degree).float()]
    return torch.cat(both, dim=1).to(edge_index.device)


def walk_returns(edge_index: Tensor, nodes: int | Tensor, *, steps: int = 16) -> Tensor:
    """Probability that a random walk is back at its first node after 1, 2, ..., `steps` steps.

    ``diag(RW), diag(RW^2), ...`` with ``RW = A D^-1`` (FedStar, Eq. 2). For a node without
    neighbours, all probabilities are 0.

    Args:
        edge_index, nodes: see `structure_encoding`.
        steps: length of the longest walk, at least 1.

    Returns:
        float32 ``[num_nodes, steps]``.

    Raises:
        TypeError, ValueError: as for `structure_encoding`.

    Example:
        >>> walk_returns(torch.tensor([[0, 1, 2], [1, 2, 0]]), 3, steps=3)[0]
        tensor([0.0000, 0.5000, 0.2500])

    Source: Tan et al. 2023, https://arxiv.org/abs/2211.13009
    """
    check_count(steps=steps)
    return _walk_returns(simple(edge_index, nodes), steps).to(edge_index.device)


def _walk_returns(graphs: Simple, steps: int) -> Tensor:
    """Compute the probability that a random walk ends at its start, for each node and each length.

    The matrix RW is similar to the symmetric matrix ``S = D^-1/2 A D^-1/2``, so
    ``diag(RW^(a + b))_v = <S^a e_v, S^b e_v>``. A walk of ``2 a`` steps therefore needs only the
    power ``S^a``. Walks are computed for one block of nodes at a time. Only the matrix rows of
    these nodes' graphs are needed.
    """
    degree, col = graphs.degree.numpy(), graphs.col.numpy()
    size = len(degree)
    scale = np.zeros(size)
    scale[degree > 0] = degree[degree > 0] ** -0.5
    value = scale[np.arange(size).repeat(degree)] * scale[col]
    walk = graphs.adjacency(value)
    returns = np.zeros((size, steps + 1), dtype=np.float32)
    for nodes, rows in graphs.blocks():
        block = walk[rows, rows]
        before = np.eye(len(returns[rows]), len(returns[nodes]), rows.start - nodes.start)
        for step in range(0, steps, 2):
            after = block @ before
            returns[nodes, step] = np.einsum("ij,ij->j", after, before)
            returns[nodes, step + 1] = np.einsum("ij,ij->j", after, after)
            before = after
    return torch.from_numpy(returns[:, :steps])


def laplacian_spectrum(
    edge_index: Tensor, nodes: int | Tensor, *, width: int | None = None
) -> Tensor:
    """Spectrum of each graph's Laplacian: ``L = D - A = U diag(lambda) U^T``.

    Eigenvalues are in ascending order. The row of the i-th node of a graph holds ``lambda_i`` and
    ``U_i1 ... U_in``; zeros fill the remaining columns. Computation time grows with the cube of the
    number of nodes of a graph.

    Args:
        edge_index: int64 ``[2, num_edges]``; directions, repeats and self-loops are ignored.
        nodes: number of nodes of a single graph; or the index of each node's graph, int64
            ``[num_nodes]``, sorted.
        width: number of columns for eigenvectors; by default the number of nodes of the largest
            graph.

    Returns:
        float64 ``[num_nodes, 1 + width]``, on the device of `edge_index`.

    Raises:
        TypeError, ValueError: if a dtype or a shape is invalid, if an index is out of range, if an
            edge joins two graphs, or if a graph has more than `width` nodes.

    Example:
        >>> two = torch.tensor([0, 0, 1, 1])  # two graphs of two nodes; the second has no edge
        >>> laplacian_spectrum(torch.tensor([[0], [1]]), two)[:, 0].abs().round(decimals=4)
        tensor([0., 2., 0., 0.], dtype=torch.float64)
    """
    graphs = simple(edge_index, nodes)
    largest = int(graphs.sizes.max()) if graphs.sizes.numel() else 0
    width = largest if width is None else width
    check_number("width", width, at_least=largest, integer=True)
    out = torch.zeros(graphs.batch.numel(), 1 + width, dtype=torch.float64)
    first = graphs.sizes.cumsum(0) - graphs.sizes
    for size in graphs.sizes[graphs.sizes > 0].unique().tolist():
        rows = first[graphs.sizes == size][:, None] + torch.arange(size)
        values, vectors = torch.linalg.eigh(_laplacians(graphs, first, size))
        out[rows, 0] = values
        out[rows[..., None], 1 + torch.arange(size)] = vectors
    return out.to(edge_index.device)


def _laplacians(graphs: Simple, first: Tensor, size: int) -> Tensor:
    """The Laplacians D - A of all graphs that have `size` nodes, float64 ``[count, size, size]``.

    Args:
        first: int64 ``[num_graphs]``, the first node of each graph.
    """
    chosen = graphs.sizes == size
    slot = chosen.cumsum(0) - 1
    row = torch.arange(graphs.batch.numel()).repeat_interleave(graphs.degree)
    here = chosen[graphs.batch[row]]
    row, col, owner = row[here], graphs.col[here], graphs.batch[row[here]]
    out = torch.diag_embed(graphs.degree[chosen[graphs.batch]].view(-1, size).double())
    out[slot[owner], row - first[owner], col - first[owner]] = -1.0
    return out
