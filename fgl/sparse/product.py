"""Products with a sparse pattern; they support gradients and `vmap`."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from .autograd import batched, call, one_by_one, positional
from .batched_pattern import StackedPattern
from .gather import gather_rows
from .kernels import backend
from .pattern import Pattern
from .precision import mixed
from .rows import widened


def weighted_product(pattern: Pattern, value: Tensor, x: Tensor) -> Tensor:
    """Multiply the sparse matrix of `pattern` and `value` by a dense matrix.

    ``out_i = sum_{e in row i} value_e x_{col(e)}``, with gradients to `value` and `x`. Time is
    O(nnz F) and extra memory is O(nnz), since no ``[nnz, F]`` tensor is created.

    Args:
        pattern: ``[rows, cols]`` with nnz entries.
        value: float ``[nnz]``.
        x: float ``[cols, F]``, of the dtype of `value`.

    Returns:
        float ``[rows, F]``; float32 under `torch.autocast`.

    Example:
        >>> A = fgl.SparseMatrix.from_dense(torch.tensor([[0., 2.], [3., 0.]]))
        >>> weighted_product(A.pattern, A.value, torch.ones(2, 1)).flatten()
        tensor([2., 3.])
    """
    return _called(_Product, value, x, pattern)


def sampled_product(pattern: Pattern, left: Tensor, right: Tensor) -> Tensor:
    """For every entry, the dot product of two rows: ``out_e = left_{row(e)} . right_{col(e)}``.

    Forward and backward take O(nnz F) time and O(nnz) extra memory.

    Args:
        pattern: ``[rows, cols]`` with nnz entries.
        left: float ``[rows, F]``.
        right: float ``[cols, F]``.

    Returns:
        float ``[nnz]``.

    Example:
        >>> A = fgl.SparseMatrix.from_edge_index(torch.tensor([[0], [1]]), num_nodes=2)
        >>> sampled_product(A.pattern, torch.tensor([[1.], [2.]]), torch.tensor([[3.], [4.]]))
        tensor([6.])
    """
    return _called(_Sampled, left, right, pattern)


def _called(function: Any, left: Tensor, right: Tensor, pattern: Pattern) -> Tensor:
    """Compute a product; under `torch.autocast`, compute the product in float32."""
    if mixed(right):
        with torch.autocast(right.device.type, enabled=False):
            return _called(function, widened(left), widened(right), pattern)
    out: Tensor = call(function, left, right, pattern)
    return out


class _Product(Function):
    @staticmethod
    @positional
    def forward(value: Tensor, x: Tensor, pattern: Pattern) -> Tensor:
        if pattern.nnz == 0 or x.shape[1] == 0:
            return x.new_zeros(pattern.shape[0], x.shape[1])
        return backend(pattern.backend).multiply(pattern, value, x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        value, x, ctx.pattern = inputs
        ctx.save_for_backward(value, x if ctx.needs_input_grad[0] else None)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        value, x = ctx.saved_tensors
        grad_value = grad_x = None
        if ctx.needs_input_grad[0]:
            grad_value = sampled_product(ctx.pattern, grad, x)
        if ctx.needs_input_grad[1]:
            pattern, turned = ctx.pattern.turned(value)
            grad_x = weighted_product(pattern, turned, grad)
        return grad_value, grad_x, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, value: Tensor, x: Tensor, pattern: Pattern) -> Any:
        size = info.batch_size
        if pattern.inside:
            return one_by_one(_Product, info, in_dims, (value, x, pattern))
        if isinstance(pattern, StackedPattern):
            stack, value = pattern.stack, batched(value, in_dims[0], size)
            joined = stack.tall if in_dims[1] is None else stack.diagonal
            x = x if in_dims[1] is None else x.movedim(in_dims[1], 0).flatten(0, 1)
            out = weighted_product(joined, stack.pack(value), x)
            return out.view(size, pattern.shape[0], x.shape[1]), 0
        if in_dims[0] is None:
            flat = x.movedim(in_dims[1], 1)
            out = weighted_product(pattern, value, flat.flatten(1))
            return out.view(pattern.shape[0], size, flat.shape[2]), 1
        value, x = batched(value, in_dims[0], size), batched(x, in_dims[1], size)
        out = weighted_product(pattern.repeat(size), value.flatten(), x.flatten(0, 1))
        return out.view(size, pattern.shape[0], x.shape[2]), 0


class _Sampled(Function):
    @staticmethod
    @positional
    def forward(left: Tensor, right: Tensor, pattern: Pattern) -> Tensor:
        if pattern.nnz == 0:
            return left.new_zeros(0)
        return backend(pattern.backend).sample(pattern, left, right)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        left, right, ctx.pattern = inputs
        ctx.save_for_backward(left, right)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        left, right = ctx.saved_tensors
        grad_left = grad_right = None
        if ctx.needs_input_grad[0]:
            grad_left = weighted_product(ctx.pattern, grad, right)
        if ctx.needs_input_grad[1]:
            pattern, order = ctx.pattern.transpose
            grad_right = weighted_product(pattern, gather_rows(grad, order), left)
        return grad_left, grad_right, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, left: Tensor, right: Tensor, pattern: Pattern) -> Any:
        size = info.batch_size
        if pattern.inside:
            return one_by_one(_Sampled, info, in_dims, (left, right, pattern))
        left = batched(left, in_dims[0], size).flatten(0, 1)
        right = batched(right, in_dims[1], size).flatten(0, 1)
        if isinstance(pattern, StackedPattern):
            return pattern.stack.unpack(sampled_product(pattern.stack.diagonal, left, right)), 0
        out = sampled_product(pattern.repeat(size), left, right)
        return out.view(size, pattern.nnz), 0
