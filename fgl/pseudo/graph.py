"""The global pseudo graph: built in blocks, projected to a client, joined to its own."""

from __future__ import annotations

import torch
from torch import Tensor

from ..sparse import Pattern, SparseMatrix, row_sum

BLOCK = 2**23  # similarities that exist at a time


def pseudo_graph(
    h: Tensor, *, s: int = 100, include_self: bool = True, block: int = BLOCK
) -> SparseMatrix:
    """Each node's `s` most similar nodes: top-s of ``max(0, h h^T)``, rows divided by their sums.

    Similarities exist a block of rows at a time: O(N^2 C) time, O(block + N s) memory, no N x N
    matrix. The matrix is not symmetric. No gradient flows through it.

    Args:
        h: float ``[N, C]``, fused embeddings.
        s: entries kept per row; zeros are not kept.
        include_self: whether a node may be among its own.
        block: largest number of similarities held at a time.

    Returns:
        `SparseMatrix` ``[N, N]``; a row without a positive similarity is empty.

    Raises:
        ValueError: if `s` is not positive or `h` is not a matrix.

    Example:
        >>> pseudo_graph(torch.tensor([[2.0, 0.0], [1.0, 0.0], [0.0, 1.0]]), s=2).to_dense()
        tensor([[0.6667, 0.3333, 0.0000],
                [0.6667, 0.3333, 0.0000],
                [0.0000, 0.0000, 1.0000]])
    """
    if h.dim() != 2:
        raise ValueError(f"Expected h to have shape [N, C], but got {list(h.shape)}")
    if s < 1:
        raise ValueError(f"Expected s to be at least 1, but got {s}")
    h = h.detach()
    num_nodes = h.shape[0]
    counts, cols, values = [], [], []
    for start in range(0, num_nodes, max(1, block // max(num_nodes, 1))):
        rows = h[start : start + max(1, block // num_nodes)]
        sim = rows @ h.t()
        if not include_self:
            sim[:, start:].diagonal().fill_(0)
        top, col = sim.topk(min(s, num_nodes), dim=1)
        kept = top > 0
        order = torch.where(kept, col, num_nodes).argsort(1)  # columns in order, as in any CSR
        top, col, kept = (t.gather(1, order) for t in (top, col, kept))
        share = top / torch.where(kept, top, 0).sum(1, keepdim=True)
        counts.append(kept.sum(1))
        cols.append(col[kept])
        values.append(share[kept])
    if not counts:
        return SparseMatrix(Pattern(h.new_zeros(1).long(), h.new_zeros(0).long(), (0, 0)))
    crow = torch.cat([counts[0].new_zeros(1), torch.cat(counts).cumsum(0)])
    return SparseMatrix(Pattern(crow, torch.cat(cols), (num_nodes, num_nodes)), torch.cat(values))


def project(matrix: SparseMatrix, nodes: Tensor) -> SparseMatrix:
    """The block of rows and columns `nodes`, in that order: what a client may see of a matrix.

    Args:
        matrix: ``[N, N]``.
        nodes: int64 ``[m]``, without repeats.

    Returns:
        `SparseMatrix` ``[m, m]``.

    Example:
        >>> A = SparseMatrix.from_dense(torch.tensor([[0., 2., 0.], [0., 0., 3.], [4., 0., 5.]]))
        >>> project(A, torch.tensor([2, 0])).to_dense()
        tensor([[5., 4.],
                [0., 0.]])
    """
    rows = matrix.rows(nodes)
    position = torch.full((matrix.shape[1],), -1, dtype=torch.int64, device=nodes.device)
    position[nodes] = torch.arange(nodes.numel(), device=nodes.device)
    col = position[rows.pattern.col]
    kept = col >= 0
    value = None if rows.value is None else rows.value[kept]
    edges = torch.stack([col[kept], rows.pattern.row[kept]])
    return SparseMatrix.from_edge_index(edges, nodes.numel(), value)


def augmented_operator(
    adj: SparseMatrix, pseudo: SparseMatrix, *, beta: float = 0.1, symmetric: bool = True
) -> SparseMatrix:
    """What a GCN multiplies with (FedGL, Eq. 9): ``norm(A + I) + beta D^-1/2 P D^-1/2``.

    D are the row sums of P (0 where a row is empty). With ``symmetric`` P is first replaced by
    ``(P + P^T) / 2``: otherwise nothing scales the columns, and a few nodes that are similar to
    everybody dominate (spectral norm 3.6 instead of 1 on Cora).

    Args:
        adj: adjacency ``A[target, source]``, ``[n, n]``.
        pseudo: the pseudo graph's block of the same nodes, float values.
        beta: weight of the pseudo graph; the paper prints 1.
        symmetric: see above; the paper's formula is without.

    Returns:
        `SparseMatrix` ``[n, n]``, for a model that takes its operator as it is
        (``GCN(..., normalize=False)``). Entries of both parts stay separate.

    Raises:
        ValueError: if the shapes differ.

    Example:
        >>> A = SparseMatrix.from_dense(torch.tensor([[0.0, 1.0], [1.0, 0.0]]))
        >>> P = SparseMatrix.from_dense(torch.tensor([[0.0, 1.0], [1.0, 0.0]]))
        >>> augmented_operator(A, P, beta=1.0).to_dense()
        tensor([[0.5000, 1.5000],
                [1.5000, 0.5000]])
    """
    if adj.shape != pseudo.shape:
        raise ValueError(f"Expected pseudo to have shape {adj.shape}, but got {pseudo.shape}")
    plain = adj.gcn_norm
    row, col = pseudo.pattern.row, pseudo.pattern.col
    value = pseudo.pattern.ones(plain.dtype) if pseudo.value is None else pseudo.value
    degree = row_sum(pseudo.pattern, value)
    if symmetric:
        degree = (degree + value.new_zeros(degree.shape).index_add(0, col, value)) / 2
        row, col, value = (
            torch.cat([row, col]),
            torch.cat([col, row]),
            torch.cat([value, value]) / 2,
        )
    scale = torch.where(degree > 0, degree, torch.inf).rsqrt()
    value = beta * value * scale[row] * scale[col]
    source = torch.cat([plain.pattern.col, col])
    target = torch.cat([plain.pattern.row, row])
    known = plain.pattern.ones(plain.dtype) if plain.value is None else plain.value
    both = torch.cat([known, value.to(plain.dtype)])
    made = SparseMatrix.from_edge_index(torch.stack([source, target]), adj.shape[0], both)
    return made.using(adj.pattern.backend)
