"""`SparseMatrix`: a matrix in CSR format.

An entry with value zero is treated as absent. Edges are dropped by setting their values to zero.
The pattern does not change. So shapes, transposes and all results cached on the pattern remain
valid.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch._C import _functorch as functorch

from ..checks import check_index, check_length, reject_if
from .gather import gather_rows, ranges
from .pattern import Pattern, outside, pointers, row_major
from .precision import mixed
from .product import weighted_product
from .recording import recorded
from .rows import row_sum, widened


class SparseMatrix:
    """A sparse float matrix ``[rows, cols]``, which can multiply dense matrices.

    ``A @ x`` is differentiable in the values of ``A`` and in ``x``, and works under
    ``torch.func.vmap``.

    Args:
        pattern: positions of the entries.
        value: float ``[nnz]``, one value per entry in row-major order; ``None`` means all ones.

    Raises:
        TypeError: if `pattern` is not a `Pattern`. For a SciPy matrix use `from_scipy`.
        ValueError: if `value` does not have one number per entry.

    Example:
        >>> A = SparseMatrix.from_edge_index(torch.tensor([[0, 1], [1, 2]]), num_nodes=3)
        >>> A @ torch.eye(3)
        tensor([[0., 0., 0.],
                [1., 0., 0.],
                [0., 1., 0.]])
    """

    def __init__(self, pattern: Pattern, value: Tensor | None = None) -> None:
        got = f"{type(pattern).__name__}: SparseMatrix.from_scipy and from_edge_index make one"
        reject_if(not isinstance(pattern, Pattern), "pattern to be a Pattern", got, TypeError)
        check_length(pattern.nnz, value=value)
        self.pattern = pattern
        self.value = value
        self._made: dict[str, SparseMatrix] = {}

    @staticmethod
    def from_edge_index(
        edge_index: Tensor, num_nodes: int, edge_weight: Tensor | None = None
    ) -> SparseMatrix:
        """Build the adjacency matrix ``A[target, source]`` from ``edge_index [2, num_edges]``.

        Repeated edges remain separate entries, so a product adds them.

        Raises:
            TypeError: if `edge_index` is not int64.
            ValueError: if `edge_index` has the wrong shape, if an end of an edge is not in
                ``[0, num_nodes)``, or if `edge_weight` does not have one number per edge.
        """
        check_index("edge_index", edge_index, (2, None), num_nodes)
        check_length(edge_index.shape[1], edge_weight=edge_weight)
        source, target = edge_index
        return SparseMatrix.from_entries(target, source, (num_nodes, num_nodes), edge_weight)

    @staticmethod
    def from_entries(
        row: Tensor, col: Tensor, shape: tuple[int, int], value: Tensor | None = None
    ) -> SparseMatrix:
        """Build a matrix from each entry's row and column, int64 ``[nnz]``, in any order.

        The entries are not checked. Repeated entries remain separate, so a product adds them.
        """
        order = row_major(row, col, shape[1])
        pattern = Pattern(pointers(row, shape[0]), col[order], shape)
        return SparseMatrix(pattern, None if value is None else value[order])

    @staticmethod
    def from_dense(dense: Tensor) -> SparseMatrix:
        """Convert the nonzero entries of a dense matrix."""
        row, col = dense.nonzero(as_tuple=True)
        shape = (dense.shape[0], dense.shape[1])
        return SparseMatrix.from_entries(row, col, shape, dense[row, col])

    @staticmethod
    def from_scipy(matrix: Any, dtype: torch.dtype = torch.float32) -> SparseMatrix:
        """Convert a SciPy sparse matrix; duplicate entries are summed."""
        csr = matrix.tocsr().copy()
        csr.sum_duplicates()
        crow, col = (torch.from_numpy(np.asarray(a, np.int64)) for a in (csr.indptr, csr.indices))
        pattern = Pattern(crow, col, (csr.shape[0], csr.shape[1]))
        return SparseMatrix(pattern, torch.from_numpy(csr.data.copy()).to(dtype))

    @property
    def shape(self) -> tuple[int, int]:
        return self.pattern.shape

    @property
    def nnz(self) -> int:
        return self.pattern.nnz

    @property
    def device(self) -> torch.device:
        return self.pattern.col.device

    @property
    def dtype(self) -> torch.dtype:
        return torch.get_default_dtype() if self.value is None else self.value.dtype

    @property
    def values(self) -> Tensor:
        """Values of all entries, float ``[nnz]``: `value`, or ones if `value` is None."""
        return self.pattern.ones(self.dtype) if self.value is None else self.value

    @property
    def T(self) -> SparseMatrix:
        return self._once("T", self._transposed)

    def _transposed(self) -> SparseMatrix:
        pattern, order = self.pattern.transpose
        return SparseMatrix(pattern, None if self.value is None else self.value[order])

    @property
    def gcn_norm(self) -> SparseMatrix:
        """GCN's operator ``D^-1/2 (A + I) D^-1/2`` (Kipf & Welling 2017).

        D holds the row sums of ``A + I``. If the values are not being trained, the operator is
        computed once and stored.

        Raises:
            ValueError: for a negative value, since a negative degree has no square root. On a GPU
                and inside a transform, values are not checked, to avoid a synchronisation. Without
                this check, a row of negative degree becomes NaN.
        """
        return self._once("gcn_norm", self._normalised)

    def _normalised(self) -> SparseMatrix:
        check_degrees(self.value)
        matrix = self.with_self_loops
        pattern = matrix.pattern
        value = matrix.values
        degree = row_sum(pattern, value)
        scale = torch.where(degree == 0, torch.inf, degree).rsqrt()
        scaled = value * gather_rows(scale, pattern.row) * gather_rows(scale, pattern.col)
        return SparseMatrix(pattern, scaled)

    @property
    def mean_norm(self) -> SparseMatrix:
        """Matrix of the mean over neighbours: ``D^-1 A`` without weights; computed once.

        Each nonzero entry becomes 1 / (number of nonzero entries in its row). Empty rows remain
        empty.
        """
        return self._once("mean_norm", self._averaging)

    def _averaging(self) -> SparseMatrix:
        wide = torch.promote_types(self.dtype, torch.float32)  # float16 is exact only up to 2,048
        present = self.pattern.ones(wide)
        if self.value is not None:
            present = (self.value.detach() != 0).to(wide)
        count = row_sum(self.pattern, present)
        share = present / count.clamp(min=1).index_select(0, self.pattern.row)
        return SparseMatrix(self.pattern, share.to(self.dtype))

    @property
    def incidence(self) -> SparseMatrix:
        """Matrix ``[rows, nnz]`` with 1 at (i, k) if the k-th nonzero entry of A is in row i of A.

        The matrix is computed once and stored. If ``messages [nnz, d]`` has one row per nonzero
        entry of A, ``A.incidence @ messages`` is the sum of the messages over each row of A.

        Example:
            >>> A = SparseMatrix.from_dense(torch.tensor([[0.0, 2.0], [3.0, 4.0]]))
            >>> A.incidence @ torch.tensor([[1.0], [10.0], [100.0]])
            tensor([[  1.],
                    [110.]])
        """
        return self._once("incidence", self._summing)

    def _summing(self) -> SparseMatrix:
        value = None if self.value is None else (self.value.detach() != 0).to(self.dtype)
        return SparseMatrix(self.pattern.incidence, value)

    def as_operator(self) -> SparseMatrix:
        """The same matrix, but a GCN will not normalise it: its `gcn_norm` is the matrix itself.

        Example:
            >>> operator = SparseMatrix.from_dense(torch.eye(2) / 2).as_operator()
            >>> operator.gcn_norm is operator
            True
        """
        other = SparseMatrix(self.pattern, self.value)
        other._made["gcn_norm"] = other
        return other

    def with_value(self, value: Tensor | None) -> SparseMatrix:
        """A matrix with the pattern of this matrix and with new values."""
        return SparseMatrix(self.pattern, value)

    def using(self, backend: str) -> SparseMatrix:
        """This matrix with the given backend for products: ``"torch"`` or ``"torch_sparse"``."""
        pattern = self.pattern
        return SparseMatrix(Pattern(pattern.crow, pattern.col, pattern.shape, backend), self.value)

    def astype(self, dtype: torch.dtype) -> SparseMatrix:
        """This matrix with values of the dtype `dtype`; computed once per dtype.

        Under `torch.autocast`, products are in float32, so float16 and bfloat16 are replaced by
        float32.
        """
        dtype = self._wide(dtype)
        if self.dtype == dtype:
            return self
        if self.value is None:
            return self._once(str(dtype), lambda: self.with_value(self.pattern.ones(dtype)))
        value = self.value
        return self._once(str(dtype), lambda: self.with_value(value.to(dtype)))

    def _wide(self, dtype: torch.dtype) -> torch.dtype:
        halves = dtype in (torch.float16, torch.bfloat16) and mixed(self.pattern.col)
        return torch.float32 if halves else dtype

    @cached_property
    def present(self) -> Tensor | None:
        """Mask of the entries that are not zero, bool ``[nnz]``; None stands for all entries."""
        return None if self.value is None else self.value != 0

    @property
    def with_self_loops(self) -> SparseMatrix:
        """The matrix with a full diagonal; a diagonal entry that is missing or 0 becomes 1.

        If a self-loop is repeated, its last value is used, as in PyG.
        """
        return self._once("with_self_loops", self._looped)

    def _looped(self) -> SparseMatrix:
        pattern, source = self.pattern.loops
        if self.value is None:
            return SparseMatrix(pattern)
        ones = self.value.new_ones(self.shape[0])
        value = gather_rows(torch.cat([self.value, ones]), source)
        empty = (pattern.row == pattern.col) & (value == 0)
        return SparseMatrix(pattern, value + empty)

    @property
    def plus_identity(self) -> SparseMatrix:
        """The matrix ``A + I``; old diagonal entries stay, and each row gets a further entry 1."""
        return self._once("plus_identity", self._joined)

    def _joined(self) -> SparseMatrix:
        pattern, places = self.pattern.joined
        if self.value is None:
            return SparseMatrix(pattern)
        value = self.value.new_ones(pattern.nnz)
        return SparseMatrix(pattern, value.index_copy(0, places, self.value))

    def _once(self, name: str, make: Callable[[], SparseMatrix]) -> SparseMatrix:
        """Call `make`, and store the result unless the values are trained."""
        if self.value is not None and self.value.requires_grad:
            return make()
        if name not in self._made:
            with outside(self.value, self.pattern.crow):
                self._made[name] = make()
        return self._made[name]

    def rows(self, index: Tensor) -> SparseMatrix:
        """The rows with indices `index` (int64 ``[m]``), in the given order."""
        counts = self.pattern.crow.diff()[index]
        entry, _ = ranges(self.pattern.crow[index], counts)
        crow = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        pattern = self.pattern.like(crow, self.pattern.col[entry], (index.numel(), self.shape[1]))
        return SparseMatrix(pattern, None if self.value is None else self.value[entry])

    def to(self, device: torch.device | str) -> SparseMatrix:
        """The matrix on another device; `astype` changes the dtype."""
        wrong = isinstance(device, torch.dtype)
        reject_if(wrong, "device to be a device", f"{device}: see astype", TypeError)
        value = None if self.value is None else self.value.to(device)
        return SparseMatrix(self.pattern.to(device), value)

    def to_dense(self) -> Tensor:
        """The dense matrix; repeated entries are summed."""
        dense = torch.zeros(self.shape, dtype=self.dtype, device=self.device)
        value = self.pattern.cleaned(self.values)
        return dense.index_put((self.pattern.row, self.pattern.col), value, accumulate=True)

    def __matmul__(self, x: Tensor) -> Tensor:
        fits = x.dim() == 2 and x.shape[0] == self.shape[1]
        reject_if(not fits, f"x to have shape [{self.shape[1]}, *]", list(x.shape))
        if mixed(x):
            x = widened(x)
        value = self.pattern.ones(x.dtype) if self.value is None else self.value
        wrong = value.dtype != x.dtype
        reject_if(wrong, f"x to be {value.dtype} as the matrix", x.dtype, TypeError)
        return weighted_product(self.pattern, value, x)

    def __repr__(self) -> str:
        return f"SparseMatrix(shape={self.shape}, nnz={self.nnz}, dtype={self.dtype})"


def dense(x: Tensor | SparseMatrix) -> Tensor:
    """Features as a dense tensor.

    Example:
        >>> dense(SparseMatrix.from_dense(torch.eye(2)))
        tensor([[1., 0.],
                [0., 1.]])
    """
    return x.to_dense() if isinstance(x, SparseMatrix) else x


def rows_of(x: Tensor | SparseMatrix, index: Tensor) -> Any:
    """Select rows of dense or sparse features, in the order of `index`.

    Args:
        x: ``[rows, cols]``.
        index: int64 ``[m]``.

    Returns:
        The selected rows ``[m, cols]``, in the type of `x` and on the device of `index`. If the
        features are in CPU memory, the rows are copied to a GPU through pinned memory.

    Example:
        >>> rows_of(torch.tensor([[1.0], [2.0], [3.0]]), torch.tensor([2, 0]))
        tensor([[3.],
                [1.]])
    """
    if index.is_cuda and x.device.type == "cpu":
        chosen = index.cpu()
        if isinstance(x, SparseMatrix):
            return x.rows(chosen).to(index.device)
        rows = torch.empty(len(chosen), x.shape[1], dtype=x.dtype, pin_memory=True)
        return torch.index_select(x, 0, chosen, out=rows).to(index.device, non_blocking=True)
    return x.rows(index) if isinstance(x, SparseMatrix) else x.index_select(0, index)


def check_degrees(value: Tensor | None) -> None:
    """Raise a ValueError if an edge weight is negative, since the caller divides by degrees."""
    if (
        value is None
        or value.is_cuda
        or value.is_meta
        or functorch.is_functorch_wrapped_tensor(value)
        or recorded()
    ):
        return
    if (value < 0).any():
        expected = "edge_weight to be at least 0 where degrees are normalised"
        ways = "edge_weight.abs(), or edge_attr=edge_weight[:, None] for a model that reads signs"
        raise ValueError(f"Expected {expected}, but got {float(value.min())}: {ways}")
