"""Pseudo graph: compute it in blocks, cut it into parts for clients, add it to a GCN's operator."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ..checks import check_count, reject_if
from ..sparse import SparseMatrix, row_sum, sum_rows
from ..sparse.pattern import Pattern
from ..sparse.rows import widened

BLOCK = 2**23  # similarities that exist at a time


def pseudo_graph(h: Tensor, *, s: int = 100, block: int = BLOCK) -> SparseMatrix:
    """The `s` largest entries in each row of ``max(0, h h^T)``; each row is scaled to sum to 1.

    Similarities are computed for one block of rows at a time, without an N x N matrix. Time is
    O(N^2 C), and memory is O(block + N s). The result is not symmetric in general. No gradient
    flows through the result.

    Args:
        h: float ``[N, C]``, fused embeddings.
        s: largest number of entries per row; zeros are not kept.
        block: largest number of similarities in memory at a time.

    Returns:
        A `SparseMatrix` ``[N, N]``; a row without a positive similarity is empty.

    Raises:
        ValueError: if `s` is not positive, if `h` is not a matrix, or if a similarity or a row's
            sum of similarities is not finite.

    Example:
        >>> pseudo_graph(torch.tensor([[2.0, 0.0], [1.0, 0.0], [0.0, 1.0]]), s=2).to_dense()
        tensor([[0.6667, 0.3333, 0.0000],
                [0.6667, 0.3333, 0.0000],
                [0.0000, 0.0000, 1.0000]])

    Source: FedGL, Information Sciences 2024
    """
    reject_if(h.dim() != 2, "h to have shape [N, C]", list(h.shape))
    check_count(s=s)
    dtype, h = h.dtype, widened(h.detach())  # float16 sums overflow at 65,504
    num_nodes = h.shape[0]
    s = min(s, num_nodes)
    size = min(max(1, block // max(num_nodes, 1)), num_nodes)
    # All blocks share one buffer. Separate blocks, freed between small results, would fragment
    # the heap (7 GB at 50,000 nodes).
    similar = h.new_empty(size, num_nodes)
    value = h.new_empty(num_nodes, s)
    col = torch.empty(num_nodes, s, dtype=torch.int64, device=h.device)
    for start in range(0, num_nodes, max(size, 1)):
        rows = slice(start, min(start + size, num_nodes))
        sim = torch.mm(h[rows], h.t(), out=similar[: rows.stop - start])
        top, index = sim.topk(s, dim=1, sorted=False)
        order = torch.where(top > 0, index, num_nodes).argsort(1)  # columns in order, as in any CSR
        value[rows], col[rows] = top.gather(1, order), index.gather(1, order)
    keep = value > 0
    crow = torch.cat([col.new_zeros(1), keep.sum(1).cumsum(0)])
    total = torch.where(value <= 0, 0, value).sum(1, keepdim=True)  # of NaN, if there is one
    if not torch.isfinite(total).all():
        row = int((~torch.isfinite(total)).nonzero()[0, 0])
        raise ValueError(f"Expected h to have finite products, but got others in row {row}")
    value /= total
    return SparseMatrix(Pattern(crow, col[keep], (num_nodes, num_nodes)), value[keep].to(dtype))


def project(matrix: SparseMatrix, nodes: Tensor) -> SparseMatrix:
    """The part of a matrix with the rows and columns `nodes`, in the order of `nodes`.

    A client may see only this part.

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

    Source: FedGL, Information Sciences 2024
    """
    rows = matrix.rows(nodes)
    position = torch.full((matrix.shape[1],), -1, dtype=torch.int64, device=nodes.device)
    position[nodes] = torch.arange(nodes.numel(), device=nodes.device)
    col = position[rows.pattern.col]
    inside = col >= 0
    value = None if rows.value is None else rows.value[inside]
    edges = torch.stack([col[inside], rows.pattern.row[inside]])
    return SparseMatrix.from_edge_index(edges, nodes.numel(), value)


def edge_tensors(block: SparseMatrix) -> dict[str, Tensor]:
    """A part of the pseudo graph as tensors of a message: ``row``, ``col`` and ``weight``.

    Example:
        >>> edge_tensors(SparseMatrix.from_dense(torch.tensor([[0.0, 0.5], [0.0, 0.0]])))
        {'row': tensor([0]), 'col': tensor([1]), 'weight': tensor([0.5000])}
    """
    return {"row": block.pattern.row, "col": block.pattern.col, "weight": block.values}


def from_edge_tensors(message: Mapping[str, Any], *, like: SparseMatrix) -> SparseMatrix:
    """Rebuild the matrix from the tensors of `edge_tensors`; without edges the matrix is empty.

    Args:
        message: a dict with ``row`` and ``col`` (int64 ``[e]``) and ``weight`` (float ``[e]``). If
            the matrix has no edges, the dict may lack these keys.
        like: a matrix ``[n, n]``; the result has its shape. An empty result also gets the dtype and
            the device of `like`.

    Example:
        >>> A = SparseMatrix.from_dense(torch.tensor([[0.0, 1.0], [1.0, 0.0]]))
        >>> from_edge_tensors({}, like=A).to_dense()
        tensor([[0., 0.],
                [0., 0.]])
    """
    none = like.pattern.row[:0]
    weight = message.get("weight", none.to(like.dtype))
    edges = torch.stack([message.get("col", none), message.get("row", none)])
    return SparseMatrix.from_edge_index(edges, like.shape[0], weight)


def augmented_operator(
    adj: SparseMatrix, pseudo: SparseMatrix, *, beta: float = 0.1, symmetric: bool = True
) -> SparseMatrix:
    """The operator of a GCN (FedGL, Eq. 9): ``norm(A + I) + beta D^-1/2 P D^-1/2``.

    D is diagonal and holds the row sums of P. An empty row of P gives 0. With ``symmetric``, P is
    first replaced by ``(P + P^T) / 2``. Without this step the columns are not normalised. A few
    nodes that are similar to many other nodes then dominate (on Cora the spectral norm is 3.6
    instead of 1).

    Args:
        adj: adjacency ``A[target, source]``, ``[n, n]``.
        pseudo: P, the part of the pseudo graph that belongs to the nodes of `adj`, ``[n, n]`` with
            float values.
        beta: weight of the pseudo graph; the paper prints 1.
        symmetric: whether to symmetrise P, see above. The paper's formula does not symmetrise P.

    Returns:
        A `SparseMatrix` ``[n, n]``, for a model that does not normalise its operator
        (``GCN(..., normalize=False)``). If both terms have an entry at the same position, the
        result keeps two entries there. GAT and SAGE read only the sparsity pattern, so they would
        read such edges twice and ignore `beta`.

    Raises:
        ValueError: if the shapes differ.

    Example:
        >>> A = SparseMatrix.from_dense(torch.tensor([[0.0, 1.0], [1.0, 0.0]]))
        >>> P = SparseMatrix.from_dense(torch.tensor([[0.0, 1.0], [1.0, 0.0]]))
        >>> augmented_operator(A, P, beta=1.0).to_dense()
        tensor([[0.5000, 1.5000],
                [1.5000, 0.5000]])

    Source: FedGL, Information Sciences 2024, Eq. 9
    """
    reject_if(adj.shape != pseudo.shape, f"pseudo to have shape {adj.shape}", pseudo.shape)
    plain = adj.gcn_norm
    row, col = pseudo.pattern.row, pseudo.pattern.col
    value = pseudo.pattern.ones(plain.dtype) if pseudo.value is None else pseudo.value
    degree = row_sum(pseudo.pattern, value)
    if symmetric:
        degree = (degree + sum_rows(value, col, len(degree))) / 2
        row, col = torch.cat([row, col]), torch.cat([col, row])
        value = torch.cat([value, value]) / 2
    scale = torch.where(degree > 0, degree, torch.inf).rsqrt()
    value = beta * value * scale[row] * scale[col]
    source = torch.cat([plain.pattern.col, col])
    target = torch.cat([plain.pattern.row, row])
    own_value = plain.pattern.ones(plain.dtype) if plain.value is None else plain.value
    both = torch.cat([own_value, value.to(plain.dtype)])
    joined = SparseMatrix.from_edge_index(torch.stack([source, target]), adj.shape[0], both)
    return joined.using(adj.pattern.backend)
