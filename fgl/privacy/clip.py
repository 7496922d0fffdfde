"""Clipping: no client, and no example, changes more than an agreed length."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from ..checks import check_number


def length_of(update: Mapping[str, Tensor]) -> Tensor:
    """The L2 length of all tensors together: ``sqrt(sum_i ||u_i||^2)``.

    Args:
        update: name to tensor in floating point.

    Returns:
        float64 scalar; 0 for no tensor, NaN or infinite where an entry is or its square overflows.

    Example:
        >>> length_of({"w": torch.tensor([3.0]), "b": torch.tensor([4.0])})
        tensor(5., dtype=torch.float64)
    """
    each = [torch.linalg.vector_norm(value.double()) for value in update.values()]
    if not each:
        return torch.zeros((), dtype=torch.float64)
    total: Tensor = torch.linalg.vector_norm(torch.stack(each))
    return total


def clip(update: Mapping[str, Tensor], *, length: float) -> dict[str, Tensor]:
    """The update, shortened where it is too long: ``u min(1, length / ||u||)``.

    The length is that of all tensors together. It holds for the result in its own dtype: what is
    shortened is made shorter by a rounding. An update with an entry that is not finite becomes
    zeros, since no factor bounds it.

    Args:
        update: name to tensor in floating point.
        length: the bound, above 0.

    Returns:
        Name to tensor, of the same dtypes; what is short enough is the very same.

    Raises:
        TypeError: if a tensor is not in floating point.
        ValueError: if `length` is not positive.

    Example:
        >>> clip({"w": torch.tensor([3.0]), "b": torch.tensor([4.0])}, length=10.0)
        {'w': tensor([3.]), 'b': tensor([4.])}
        >>> clip({"w": torch.tensor([6.0]), "b": torch.tensor([float("nan")])}, length=1.0)
        {'w': tensor([0.]), 'b': tensor([0.])}

    Source: McMahan et al. 2018, https://arxiv.org/abs/1710.06963
    """
    check_number("length", length, above=0)
    for name, value in update.items():
        if not value.is_floating_point():
            raise TypeError(f"Expected {name} to be in floating point, but got {value.dtype}")
    found = length_of(update)
    known = float(found)  # asked once: a GPU is waited for
    if known <= length:
        return dict(update)
    if not math.isfinite(known):
        return {name: torch.zeros_like(value) for name, value in update.items()}
    return {name: _scaled(value, length / found) for name, value in update.items()}


def _scaled(value: Tensor, factor: Tensor) -> Tensor:
    """``value * factor``, each entry rounded so that it does not grow."""
    short = factor * (1 - 2 * torch.finfo(value.dtype).eps)
    return (value.double() * short).to(value.dtype)


def clipped_gradient(
    loss: Callable[..., Tensor],
    params: Mapping[str, Tensor],
    examples: tuple[Tensor, ...],
    *,
    length: float,
    counts: Tensor | None = None,
) -> dict[str, Tensor]:
    """The sum of the gradients of all examples, each clipped: ``sum_i clip(grad loss(x_i))``.

    One ``torch.func.vmap(grad)`` over the examples, each with its own draws of dropout. It says
    nothing of examples that a loss sees through each other, as nodes do through edges, nor of a
    model with batch normalisation.

    Args:
        loss: ``(params, *example) -> scalar``, of a single example.
        params: name to tensor.
        examples: tensors ``[B, ...]``, the first dimension being the examples.
        length: the bound of each example's gradient, above 0.
        counts: bool ``[B]``, which examples count; default all.

    Returns:
        Name to ``[...]``; zeros where there is no example. An example whose gradient is not finite
        counts for nothing.

    Raises:
        ValueError: if `length` is not positive.

    Example:
        >>> def loss(params, x):
        ...     return (params["w"] * x).sum()
        >>> rows = torch.tensor([[3.0, 4.0], [0.3, 0.4]])
        >>> clipped_gradient(loss, {"w": torch.zeros(2)}, (rows,), length=1.0)
        {'w': tensor([0.9000, 1.2000])}

    Source: Abadi et al. 2016, https://arxiv.org/abs/1607.00133
    """
    check_number("length", length, above=0)
    if not len(examples[0]):
        return {name: torch.zeros_like(value) for name, value in params.items()}
    dims = (None, *[0] * len(examples))
    each: Any = torch.func.vmap(torch.func.grad(loss), in_dims=dims, randomness="different")(
        dict(params), *examples
    )
    flat = torch.cat([grads.flatten(1) for grads in each.values()], 1)
    norms = torch.linalg.vector_norm(flat, dim=1)
    fine = norms.isfinite() if counts is None else norms.isfinite() & counts
    factor = torch.where(fine, (length / norms).clamp(max=1.0), 0.0)
    return {
        name: torch.where(_like(fine, grads), grads * _like(factor, grads), 0).sum(0)
        for name, grads in each.items()
    }


def _like(row: Tensor, tensor: Tensor) -> Tensor:
    """A number per example, to be multiplied with a tensor ``[B, ...]``."""
    return row.view(-1, *[1] * (tensor.dim() - 1))
