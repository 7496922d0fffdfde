"""Clipping: limits on the lengths of clients' updates and of examples' gradients."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from ..checks import check_number, reject_if
from .gaussian import grid_step, truncated

F64 = torch.float64
CACHED = 2**18  # entries


def length_of(update: Mapping[str, Tensor]) -> Tensor:
    """L2 length of an update over all its tensors: ``sqrt(sum_i ||u_i||^2)``.

    Args:
        update: dict from name to a floating-point tensor.

    Returns:
        float64 scalar; 0 if there is no tensor. The length is NaN or infinite if an entry is NaN or
        infinite, or if the square of an entry overflows.

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
    """The update, shortened if it is too long: ``u min(1, length / ||u||)``.

    The length is computed over all tensors together. A shortened update keeps its dtype. Its
    entries are rounded towards 0, so rounding does not make the update longer than the bound. If an
    entry of the update is not finite, the result is zero, since no factor can bound such an update.

    Args:
        update: dict from name to a floating-point tensor.
        length: the bound, above 0.

    Returns:
        Dict from name to tensor, with the dtypes of `update`. If the update is short enough, it is
        returned unchanged.

    Raises:
        TypeError: if a tensor is not floating point.
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
        got = value.dtype
        reject_if(not value.is_floating_point(), f"{name} to be in floating point", got, TypeError)
    length_now = length_of(update)
    length_read = float(length_now)  # read only here, since reading waits for a GPU
    if length_read <= length:
        return dict(update)
    if not math.isfinite(length_read):
        return {name: torch.zeros_like(value) for name, value in update.items()}
    return {name: _scaled(value, length / length_now) for name, value in update.items()}


def _scaled(value: Tensor, factor: Tensor) -> Tensor:
    """``value * factor``, with each entry rounded towards 0."""
    return (value.double() * (factor * (1 - 2 * torch.finfo(value.dtype).eps))).to(value.dtype)


def clipped_gradient(
    loss: Callable[..., Tensor],
    params: Mapping[str, Tensor],
    examples: tuple[Tensor, ...],
    *,
    length: float,
    counts: Tensor | None = None,
    sigma: float | None = None,
) -> dict[str, Tensor]:
    """The clipped gradients of all examples, summed: ``sum_i clip(grad loss(x_i))``.

    One ``torch.func.vmap(grad)`` computes the gradients. Each example has its own dropout mask.
    Examples must not depend on each other. For example, nodes of a graph depend on each other
    through edges, and batch normalisation makes all examples depend on each other. If `sigma` is
    given, the entries of every clipped gradient are rounded to multiples of a power of two
    (`on_grid`). The noise that is added later is also a multiple of this power of two. The sum is
    then exact, so an example changes the sum only by its own clipped gradient. One effect remains:
    the last bits of a gradient depend on how many examples are computed together.

    Args:
        loss: function ``(params, *example) -> scalar`` for a single example.
        params: dict from name to tensor.
        examples: tensors ``[B, ...]``; the first dimension runs over the examples.
        length: the bound on the length of each example's gradient, above 0.
        counts: bool ``[B]``, True for each example to include; by default all.
        sigma: standard deviation of the noise that is added later, above 0; by default there is no
            noise.

    Returns:
        Dict from name to ``[...]``; the dtype is float64 if `sigma` is given. Without examples all
        entries are 0. An example whose gradient is not finite is left out.

    Raises:
        ValueError: if `length` or `sigma` is not positive.

    Example:
        >>> def loss(params, x):
        ...     return (params["w"] * x).sum()
        >>> rows = torch.tensor([[3.0, 4.0], [0.3, 0.4]])
        >>> clipped_gradient(loss, {"w": torch.zeros(2)}, (rows,), length=1.0)
        {'w': tensor([0.9000, 1.2000])}

    Source: Abadi et al. 2016, https://arxiv.org/abs/1607.00133
    """
    check_number("length", length, above=0)
    if sigma is not None:
        check_number("sigma", sigma, above=0)
    if not len(examples[0]):
        dtype = None if sigma is None else torch.float64
        return {name: torch.zeros_like(value, dtype=dtype) for name, value in params.items()}
    dims = (None, *[0] * len(examples))
    each: Any = torch.func.vmap(torch.func.grad(loss), in_dims=dims, randomness="different")(
        dict(params), *examples
    )
    norms = torch.linalg.vector_norm(torch.stack([_lengths(g) for g in each.values()]), dim=0)
    fine = norms.isfinite() if counts is None else norms.isfinite() & counts
    factor = torch.where(norms > length, length / norms * (1 - 2 * torch.finfo(F64).eps), 1.0)
    step = None if sigma is None else grid_step(sigma)
    return {name: _total(grads, factor, fine, step) for name, grads in each.items()}


def _lengths(grads: Tensor) -> Tensor:
    """L2 length of each example's part of the gradient, float64 ``[B]``."""
    parts = (few.reshape(len(few), -1) for few in grads.split(_at_once(grads)))
    return torch.cat([torch.linalg.vector_norm(few, dim=1, dtype=F64) for few in parts])


def _total(grads: Tensor, factor: Tensor, fine: Tensor, step: float | None) -> Tensor:
    """Multiply each example by its factor, and sum the products over the examples.

    An example is left out if its entry in `fine` is False. If `step` is given, each product is
    rounded to a multiple of `step` before it is added.
    """
    total: Any = 0
    size = _at_once(grads)
    for few, times, grid in zip(*(each.split(size) for each in (grads, factor, fine)), strict=True):
        clipped = torch.where(_like(grid, few), few, 0) * _like(times, few)
        total = total + (clipped if step is None else truncated(clipped, step)).sum(0)
    return total.to(grads.dtype) if step is None else total  # type: ignore[no-any-return]


def _at_once(grads: Tensor) -> int:
    """Number of examples to convert to float64 at once, so that all of them fit into a cache."""
    return max(1, CACHED // max(grads[0].numel(), 1))


def _like(row: Tensor, tensor: Tensor) -> Tensor:
    """Reshape a row ``[B]`` to ``[B, 1, ..., 1]``, with as many dimensions as `tensor`."""
    return row.view(-1, *[1] * (tensor.dim() - 1))
