"""Spectra: eigenvalues and eigenvectors of each graph's Laplacian, in the rows of its nodes."""

from __future__ import annotations

import torch
from torch import Tensor

from ..checks import check_number
from ..kinds import explained
from .simple import Simple, simple


@explained
def laplacian_spectrum(
    edge_index: Tensor,
    nodes: int | Tensor,
    num_graphs: int | None = None,
    *,
    width: int | None = None,
) -> Tensor:
    """The spectrum of each graph's Laplacian ``L = D - A = U diag(lambda) U^T``.

    The row of a graph's i-th node holds ``lambda_i``, in ascending order, and ``U_i1 ... U_in``,
    with zeros behind up to `width`. Time grows with the cube of a graph's number of nodes, and all
    nodes have as many columns as the largest graph has nodes.

    Args:
        edge_index: int64 ``[2, num_edges]``; directions, repeats and self-loops do not count.
        nodes: number of nodes, or the graph of each node, int64 ``[num_nodes]``, in order.
        num_graphs: by default found from `nodes`.
        width: number of columns for eigenvectors; default the size of the largest graph.

    Returns:
        float64 ``[num_nodes, 1 + width]``, on the device of `edge_index`.

    Raises:
        TypeError, ValueError: for a wrong dtype or shape, an index out of range, an edge between
            two graphs, or a graph with more than `width` nodes.

    Example:
        >>> laplacian_spectrum(torch.tensor([[0], [1]]), 2)[:, 0].abs().round(decimals=4)
        tensor([0., 2.], dtype=torch.float64)
    """
    graphs = simple(edge_index, nodes, num_graphs)
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
    """D - A of all graphs of one size, float64 ``[count, size, size]``.

    Args:
        first: int64 ``[num_graphs]``, each graph's first node.
    """
    chosen = graphs.sizes == size
    slot = chosen.cumsum(0) - 1
    row = torch.arange(graphs.batch.numel()).repeat_interleave(graphs.degree)
    here = chosen[graphs.batch[row]]
    row, col, owner = row[here], graphs.col[here], graphs.batch[row[here]]
    out = torch.diag_embed(graphs.degree[chosen[graphs.batch]].view(-1, size).double())
    out[slot[owner], row - first[owner], col - first[owner]] = -1.0
    return out
