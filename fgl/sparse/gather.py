"""Rows gathered or summed by an index; additions have a fixed order, even on a GPU."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from .autograd import batched, positional
from .recording import recorded


def gather_rows(x: Tensor, index: Tensor) -> Tensor:
    """Gather rows: ``out_e = x_{index(e)}``.

    An index may occur several times. The gradient is computed by `sum_rows`.

    Args:
        x: float ``[n, ...]``.
        index: int64 ``[m]``.

    Returns:
        float ``[m, ...]``.

    Example:
        >>> gather_rows(torch.tensor([[1.0], [2.0]]), torch.tensor([1, 1, 0])).flatten()
        tensor([2., 2., 1.])
    """
    needs_grad = torch.is_grad_enabled() and x.requires_grad
    if not needs_grad and not torch._C._are_functorch_transforms_active():
        return x.index_select(0, index)
    out: Tensor = _Gather.apply(x, index)  # type: ignore[no-untyped-call]
    return out


def sum_rows(values: Tensor, index: Tensor, num_rows: int) -> Tensor:
    """Sum rows by index: ``out_i = sum_{e: index(e) = i} values_e``. The bits are reproducible.

    Args:
        values: float ``[m, ...]``.
        index: int64 ``[m]``, in ``[0, num_rows)``.
        num_rows: number of rows of the result.

    Returns:
        float ``[num_rows, ...]``. Row i is 0 if `index` does not contain i.

    Example:
        >>> sum_rows(torch.ones(3), torch.tensor([1, 1, 3]), 4)
        tensor([0., 2., 0., 1.])
    """
    if torch._C._are_functorch_transforms_active():
        out: Tensor = _Sum.apply(values, index, num_rows)  # type: ignore[no-untyped-call]
        return out
    return add_rows(values.new_zeros(num_rows, *values.shape[1:]), index, values)


def add_rows(out: Tensor, index: Tensor, values: Tensor) -> Tensor:
    """Add to a tensor's rows in place, in the fixed order of `sum_rows`.

    Example:
        >>> add_rows(torch.ones(2, 1), torch.tensor([1, 1]), torch.ones(2, 1)).flatten()
        tensor([1., 3.])
    """
    if out.is_cuda:  # index_add has a random order; this call sorts first
        return out.index_put_((index,), values, accumulate=True)
    return out.index_add_(0, index, values)


class _Gather(Function):
    @staticmethod
    @positional
    def forward(x: Tensor, index: Tensor) -> Tensor:
        return x.index_select(0, index)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.size = inputs[0].shape[0]
        ctx.save_for_backward(inputs[1])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (index,) = ctx.saved_tensors
        out: Tensor = _Sum.apply(grad, index, ctx.size)  # type: ignore[no-untyped-call]
        return out, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, x: Tensor, index: Tensor) -> tuple[Tensor, int]:
        size = info.batch_size
        if in_dims[0] is None:
            at = index.movedim(in_dims[1], 0).flatten()
        else:
            x = x.movedim(in_dims[0], 0)
            at, x = below_each_other(batched(index, in_dims[1], size), x.shape[1]), x.flatten(0, 1)
        return gather_rows(x, at).unflatten(0, (size, -1)), 0


class _Sum(Function):
    """The autograd Function of `sum_rows`, which `vmap` maps as a single operation."""

    @staticmethod
    @positional
    def forward(values: Tensor, index: Tensor, num_rows: int) -> Tensor:
        return sum_rows(values, index, num_rows)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(inputs[1])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return gather_rows(grad, ctx.saved_tensors[0]), None, None

    @staticmethod
    def vmap(
        info: Any, in_dims: Any, values: Tensor, index: Tensor, num_rows: int
    ) -> tuple[Tensor, int]:
        size = info.batch_size
        values, index = batched(values, in_dims[0], size), batched(index, in_dims[1], size)
        at = below_each_other(index, num_rows)
        out: Tensor = _Sum.apply(values.flatten(0, 1), at, size * num_rows)  # type: ignore[no-untyped-call]
        return out.unflatten(0, (size, num_rows)), 0


def below_each_other(index: Tensor, num_rows: int, name: str = "index") -> Tensor:
    """Convert indices ``[K, m]`` of rows in K tensors to row indices in the joined tensors.

    Raises:
        IndexError: if an index is not in ``[0, num_rows)``; such an index would refer to a row of a
            different tensor. On a GPU and in a trace, the function reads no values, since reading
            is slow. Instead it replaces such an index by ``K num_rows``, for which the next kernel
            raises an error.

    Example:
        >>> below_each_other(torch.tensor([[0, 1], [1, 2]]), 3)
        tensor([0, 1, 4, 5])
    """
    size = len(index)
    shifted = index + torch.arange(size, device=index.device)[:, None] * num_rows
    if index.is_cuda or recorded():
        inside = (index >= 0) & (index < num_rows)
        return torch.where(inside, shifted, size * num_rows).flatten()
    low, high = (int(end) for end in index.aminmax()) if index.numel() else (0, -1)
    if low < 0 or high >= num_rows:
        got = low if low < 0 else high
        raise IndexError(f"Expected {name} to be in [0, {num_rows}), but got {got}")
    return shifted.flatten()


def ranges(first: Tensor, count: Tensor) -> tuple[Tensor, Tensor]:
    """The integers of many ranges, one range after the other.

    Args:
        first, count: int64 ``[n]``, the first integer and the length of each range.

    Returns:
        Two tensors, int64 ``[sum of count]``: the integers of all ranges, and for each integer the
        index of its range.

    Example:
        >>> ranges(torch.tensor([5, 0]), torch.tensor([2, 1]))
        (tensor([5, 6, 0]), tensor([0, 0, 1]))
    """
    row = torch.arange(len(count), device=count.device).repeat_interleave(count)
    shift = first - (count.cumsum(0) - count)
    return shift[row] + torch.arange(len(row), device=count.device), row
