"""Kernels in two versions: one uses torch, the other uses torch-sparse and torch-scatter."""

import os
import platform
import warnings
from functools import cache
from typing import Any

import torch
from torch import Tensor

from ..checks import check_choice, imported, install
from .recording import in_one, recorded

warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
warnings.filterwarnings("ignore", message="Sparse invariant checks are implicitly disabled")

X86 = ("x86_64", "AMD64")
WIDE = 16  # columns from which `torch.embedding_bag` is faster for any number of entries per row
FEW = 12  # entries per row up to which it is not slower for fewer columns


@cache
def has_bags() -> bool:
    """Whether FBGEMM compiles kernels for the CPU; otherwise `embedding_bag` is a slow loop."""
    compiles = platform.machine() in X86 and os.environ.get("FBGEMM_NO_ASMJIT") != "1"
    return compiles and "fbgemm" in torch.backends.quantized.supported_engines


def sums_bags(pattern: Any, x: Tensor) -> bool:
    """Whether to multiply with `torch.embedding_bag`, by the rule in docs/speed.md."""
    if x.is_cuda:  # the CSR kernel of a GPU adds in a random order
        return True
    if x.dtype != torch.float32 or x.device.type != "cpu" or not has_bags():
        return False
    return x.shape[1] >= WIDE or pattern.nnz <= FEW * pattern.shape[0]


class Torch:
    """Torch's kernels: `embedding_bag` if it makes a product faster, otherwise CSR kernels.

    The kernels read a pattern's row pointers `crow`, columns `col` and rows `row`.
    """

    def multiply(self, pattern: Any, value: Tensor, x: Tensor) -> Tensor:
        """Product ``out_i = sum_{e in row i} value_e x_{col(e)}``, float ``[rows, F]``."""
        if sums_bags(pattern, x):
            # With another layout torch would choose another kernel with different rounding.
            x, value = x.contiguous(), value.contiguous()
            crow, col = pattern.crow, pattern.col
            out: Tensor = torch.embedding_bag(x, col, crow, False, 0, False, value, True)[0]
            return out
        if recorded():
            return multiply_csr(pattern.crow, pattern.col, value, x)[0]
        return _multiplied(pattern.csr(value), x)

    def sample(self, pattern: Any, left: Tensor, right: Tensor) -> Tensor:
        """Dot products ``left_{row(e)} . right_{col(e)}``, float ``[nnz]``."""
        rows, cols = pattern.shape
        if pattern.nnz > rows * cols:  # repeated entries, which torch's kernel rejects
            return (left @ right.t())[pattern.row, pattern.col]
        if recorded():
            return sample_csr(pattern.crow, pattern.col, left, right)[0]
        return _sampled(pattern.csr(pattern.ones(left.dtype)), left, right)

    def row_sum(self, pattern: Any, value: Tensor) -> Tensor:
        """Sum of each row, float ``[rows]``."""
        if value.is_cuda:  # index_add has a random order of additions
            return torch.segment_reduce(value, "sum", offsets=pattern.crow, unsafe=True)
        return value.new_zeros(pattern.shape[0]).index_add(0, pattern.row, value)

    def row_max(self, pattern: Any, value: Tensor) -> Tensor:
        """Largest value of each row, float ``[rows]``; ``-inf`` for an empty row."""
        top = value.new_full((pattern.shape[0],), -torch.inf)
        return top.scatter_reduce(0, pattern.row, value, "amax")


def _multiplied(matrix: Tensor, x: Tensor) -> Tensor:
    out = x.new_empty(matrix.shape[0], x.shape[1])
    return torch.addmm(out, matrix, x, beta=0, out=out)  # `@` fills and copies the output first


def _sampled(matrix: Tensor, left: Tensor, right: Tensor) -> Tensor:
    left, right = left.contiguous(), right.contiguous()
    out: Tensor = torch.sparse.sampled_addmm(matrix, left, right.t(), beta=0.0).values()
    return out


def csr_of(crow: Tensor, col: Tensor, value: Tensor, num_cols: int) -> Tensor:
    shape = len(crow) - 1, num_cols
    return torch.sparse_csr_tensor(crow, col, value, shape, check_invariants=False)


@in_one
def multiply_csr(crow: Tensor, col: Tensor, value: Tensor, x: Tensor) -> tuple[Tensor]:
    """Compute the product from strided tensors, because a trace cannot contain CSR tensors."""
    return (_multiplied(csr_of(crow, col, value, x.shape[0]), x),)


@in_one
def sample_csr(crow: Tensor, col: Tensor, left: Tensor, right: Tensor) -> tuple[Tensor]:
    """The sampled product as an operation on strided tensors."""
    return (_sampled(csr_of(crow, col, left.new_ones(len(col)), right.shape[0]), left, right),)


class TorchSparse:
    """The kernels of torch-sparse and torch-scatter (the extra `sparse`)."""

    def __init__(self) -> None:
        how = "for the backend torch_sparse", install("sparse")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            imported("torch_sparse", *how)
            self.scatter = imported("torch_scatter", *how)

    def multiply(self, pattern: Any, value: Tensor, x: Tensor) -> Tensor:
        out: Tensor = torch.ops.torch_sparse.spmm_sum(
            None, pattern.crow, pattern.col, value.detach(), None, None, x.detach().contiguous()
        )
        return out

    def sample(self, pattern: Any, left: Tensor, right: Tensor) -> Tensor:
        return (left.index_select(0, pattern.row) * right.index_select(0, pattern.col)).sum(1)

    def row_sum(self, pattern: Any, value: Tensor) -> Tensor:
        out: Tensor = self.scatter.segment_csr(value, pattern.crow, reduce="sum")
        return out

    def row_max(self, pattern: Any, value: Tensor) -> Tensor:
        top = self.scatter.segment_csr(value, pattern.crow, reduce="max")
        return torch.where(pattern.crow.diff() > 0, top, -torch.inf)


KINDS: dict[str, type[Torch] | type[TorchSparse]] = {"torch": Torch, "torch_sparse": TorchSparse}


@cache
def backend(name: str) -> Torch | TorchSparse:
    """Return the kernels that have this name.

    Raises:
        ValueError: for an unknown name.
        ImportError: if the packages of the backend are not installed.
    """
    check_choice("backend", name, list(KINDS))
    return KINDS[name]()
