"""Errors of numbers over a mask: squared, absolute, and Huber's between them."""

from __future__ import annotations

from torch import Tensor

from ..checks import check_number
from ..kinds import explained
from .weighted_mean import known_mean


@explained
def squared_error(output: Tensor, y: Tensor, mask: Tensor | None = None) -> Tensor:
    """Mean squared error over the known entries of the masked rows.

    ``1/|K| sum_{(v, j) in K} (output_vj - y_vj)^2``, K being the entries of masked rows whose
    answer is not NaN; 0, with a gradient, where K is empty.

    Args:
        output: float ``[n]``, ``[n, 1]`` or ``[n, t]``, a model's output for n examples.
        y: float ``[n]`` or ``[n, t]``, NaN where unknown.
        mask: bool or float weights ``[n]``; default all rows.

    Returns:
        Scalar.

    Raises:
        TypeError: if `y` is not floating point, or `mask` neither bool nor floating point.
        ValueError: for shapes that do not fit.

    Example:
        >>> squared_error(torch.tensor([[1.0], [5.0]]), torch.tensor([3.0, torch.nan]))
        tensor(4.)
    """
    return known_mean(lambda out, answer: (out - answer).square(), output, y, mask)


@explained
def absolute_error(output: Tensor, y: Tensor, mask: Tensor | None = None) -> Tensor:
    """Mean absolute error over the known entries of the masked rows.

    ``1/|K| sum_{(v, j) in K} |output_vj - y_vj|``, K as for `squared_error`; 0, with a gradient,
    where K is empty.

    Args:
        output, y, mask: as for `squared_error`.

    Returns:
        Scalar.

    Raises:
        TypeError, ValueError: as `squared_error`.

    Example:
        >>> absolute_error(torch.tensor([[1.0], [5.0]]), torch.tensor([3.0, torch.nan]))
        tensor(2.)
    """
    return known_mean(lambda out, answer: (out - answer).abs(), output, y, mask)


@explained
def huber(output: Tensor, y: Tensor, mask: Tensor | None = None, *, delta: float = 1.0) -> Tensor:
    """Mean Huber loss over the known entries of the masked rows.

    With ``e = |output_vj - y_vj|`` an entry's loss is ``e^2 / 2`` up to `delta`, and from there on
    the line ``delta (e - delta / 2)``, so that an outlier pulls no harder; 0, with a gradient,
    where nothing is known.

    Args:
        output, y, mask: as for `squared_error`.
        delta: where the line begins, above 0.

    Returns:
        Scalar.

    Raises:
        TypeError, ValueError: as `squared_error`, and for a `delta` out of range.

    Example:
        >>> huber(torch.tensor([1.0, 5.0]), torch.tensor([1.5, 1.0]))
        tensor(1.8125)

    Source: Huber 1964, https://doi.org/10.1214/aoms/1177703732
    """
    check_number("delta", delta, above=0)

    def each(out: Tensor, answer: Tensor) -> Tensor:
        error = (out - answer).abs()
        small = error.clamp(max=delta)
        return small * (error - small / 2)

    return known_mean(each, output, y, mask)
