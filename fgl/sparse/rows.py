"""Sums and softmaxes over each row's entries; they support gradients and `vmap`."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from .autograd import batched, call, one_by_one, positional
from .batched_pattern import StackedPattern
from .gather import gather_rows
from .kernels import backend
from .pattern import Pattern


def row_sum(pattern: Pattern, value: Tensor) -> Tensor:
    """Sum of each row's values.

    Args:
        pattern: ``[rows, cols]`` with nnz entries.
        value: float ``[nnz]``.

    Returns:
        float ``[rows]``.

    Example:
        >>> A = fgl.SparseMatrix.from_edge_index(torch.tensor([[0, 1], [2, 2]]), num_nodes=3)
        >>> row_sum(A.pattern, torch.tensor([1.0, 2.0]))
        tensor([0., 0., 3.])
    """
    out: Tensor = call(_RowSum, value, pattern)
    return out


def pair_sum(pattern: Pattern, left: Tensor, right: Tensor) -> Tensor:
    """Sum of two numbers for every entry: ``out_e = left_{row(e)} + right_{col(e)}``.

    Args:
        pattern: ``[rows, cols]`` with nnz entries.
        left: float ``[rows]``.
        right: float ``[cols]``.

    Returns:
        float ``[nnz]``.

    Example:
        >>> A = fgl.SparseMatrix.from_edge_index(torch.tensor([[0, 1], [2, 2]]), num_nodes=3)
        >>> pair_sum(A.pattern, torch.tensor([0.0, 0.0, 5.0]), torch.tensor([1.0, 2.0, 3.0]))
        tensor([6., 7.])
    """
    out: Tensor = call(_PairSum, left, right, pattern)
    return out


def row_softmax(pattern: Pattern, logit: Tensor, mask: Tensor | None = None) -> Tensor:
    """Softmax over each row's entries.

    Args:
        pattern: ``[rows, cols]`` with nnz entries.
        logit: float ``[nnz]``.
        mask: bool ``[nnz]``; entries with False are treated as absent and get 0.

    Returns:
        float ``[nnz]``. Each row with at least one unmasked entry sums to 1.

    Example:
        >>> A = fgl.SparseMatrix.from_edge_index(torch.tensor([[0, 1], [2, 2]]), num_nodes=3)
        >>> row_softmax(A.pattern, torch.zeros(2))
        tensor([0.5000, 0.5000])
    """
    if mask is not None:
        logit = torch.where(mask, logit, -torch.inf)
    out: Tensor = call(_Softmax, logit, pattern)
    return out


def row_log_softmax(pattern: Pattern, logit: Tensor) -> Tensor:
    """Logarithm of `row_softmax` without underflow.

    Args:
        pattern: ``[rows, cols]`` with nnz entries.
        logit: float ``[nnz]``.

    Returns:
        float ``[nnz]``.

    Example:
        >>> A = fgl.SparseMatrix.from_edge_index(torch.tensor([[0, 1], [2, 2]]), num_nodes=3)
        >>> row_log_softmax(A.pattern, torch.tensor([0.0, 200.0]))
        tensor([-200.,    0.])
    """
    out: Tensor = call(_LogSoftmax, logit, pattern)
    return out


def widened(value: Tensor) -> Tensor:
    """Convert float16 or bfloat16 to float32; return other tensors unchanged.

    Sums need float32: if 1 is added repeatedly, the sum stops growing at 2,048 in float16 and at
    256 in bfloat16. The range of float16 is 6e-8 to 65,504.

    Args:
        value: tensor of any dtype.

    Returns:
        A tensor of the shape of `value`.

    Example:
        >>> widened(torch.ones(2, dtype=torch.float16)).dtype
        torch.float32
    """
    return value.float() if value.dtype in (torch.float16, torch.bfloat16) else value


def _exponentials(logit: Tensor, pattern: Pattern) -> tuple[Tensor, Tensor]:
    """Each logit minus the maximum of its row, and the sum of exponentials per row (1 if empty)."""
    kernels = backend(pattern.backend)
    top = kernels.row_max(pattern, logit)
    top = torch.where(top == -torch.inf, 0.0, top)  # avoids nan in a row without entries
    shifted = logit - top.index_select(0, pattern.row)
    total = kernels.row_sum(pattern, shifted.exp())
    return shifted, torch.where(total == 0, 1.0, total)


def _row_wise(function: Any, info: Any, in_dims: Any, value: Tensor, pattern: Pattern) -> Any:
    """Apply a function of each row's entries to all members of a `vmap` batch at once."""
    value = value.movedim(in_dims[0], 0)
    if isinstance(pattern, StackedPattern):
        return function.apply(pattern.stack.pack(value), pattern.stack.diagonal)
    return function.apply(value.flatten(), pattern.repeat(info.batch_size))


def _per_entry(function: Any, info: Any, in_dims: Any, value: Tensor, pattern: Pattern) -> Any:
    if pattern.inside:
        return one_by_one(function, info, in_dims, (value, pattern))
    out = _row_wise(function, info, in_dims, value, pattern)
    if isinstance(pattern, StackedPattern):
        return pattern.stack.unpack(out), 0
    return out.view(info.batch_size, pattern.nnz), 0


class _RowSum(Function):
    @staticmethod
    @positional
    def forward(value: Tensor, pattern: Pattern) -> Tensor:
        return backend(pattern.backend).row_sum(pattern, widened(value)).to(value.dtype)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.pattern = inputs[1]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return gather_rows(grad, ctx.pattern.row), None

    @staticmethod
    def vmap(info: Any, in_dims: Any, value: Tensor, pattern: Pattern) -> tuple[Tensor, int]:
        if pattern.inside:
            return one_by_one(_RowSum, info, in_dims, (value, pattern))
        out: Tensor = _row_wise(_RowSum, info, in_dims, value, pattern)
        return out.view(info.batch_size, pattern.shape[0]), 0


class _PairSum(Function):
    @staticmethod
    @positional
    def forward(left: Tensor, right: Tensor, pattern: Pattern) -> Tensor:
        return left.index_select(0, pattern.row) + right.index_select(0, pattern.col)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.pattern = inputs[2]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        grad_left = grad_right = None
        if ctx.needs_input_grad[0]:
            grad_left = row_sum(ctx.pattern, grad)
        if ctx.needs_input_grad[1]:
            turned, order = ctx.pattern.transpose
            grad_right = row_sum(turned, gather_rows(grad, order))
        return grad_left, grad_right, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, left: Tensor, right: Tensor, pattern: Pattern) -> Any:
        size = info.batch_size
        if pattern.inside:
            return one_by_one(_PairSum, info, in_dims, (left, right, pattern))
        left = batched(left, in_dims[0], size).flatten()
        right = batched(right, in_dims[1], size).flatten()
        if isinstance(pattern, StackedPattern):
            return pattern.stack.unpack(pair_sum(pattern.stack.diagonal, left, right)), 0
        return pair_sum(pattern.repeat(size), left, right).view(size, pattern.nnz), 0


class _FromOutput(Function):
    """A function whose gradient reads its output."""

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.pattern = inputs[1]
        ctx.save_for_backward(output)


class _Softmax(_FromOutput):
    @staticmethod
    @positional
    def forward(logit: Tensor, pattern: Pattern) -> Tensor:
        shifted, total = _exponentials(widened(logit), pattern)
        return (shifted.exp() / total.index_select(0, pattern.row)).to(logit.dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (out,) = ctx.saved_tensors
        weighted = out * grad
        total = row_sum(ctx.pattern, weighted)
        return weighted - out * gather_rows(total, ctx.pattern.row), None

    @staticmethod
    def vmap(info: Any, in_dims: Any, logit: Tensor, pattern: Pattern) -> Any:
        return _per_entry(_Softmax, info, in_dims, logit, pattern)


class _LogSoftmax(_FromOutput):
    @staticmethod
    @positional
    def forward(logit: Tensor, pattern: Pattern) -> Tensor:
        shifted, total = _exponentials(widened(logit), pattern)
        return (shifted - total.log().index_select(0, pattern.row)).to(logit.dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (out,) = ctx.saved_tensors
        total = row_sum(ctx.pattern, grad)
        return grad - out.exp() * gather_rows(total, ctx.pattern.row), None

    @staticmethod
    def vmap(info: Any, in_dims: Any, logit: Tensor, pattern: Pattern) -> Any:
        return _per_entry(_LogSoftmax, info, in_dims, logit, pattern)
