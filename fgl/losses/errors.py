"""Regression losses over a mask: squared error, absolute error, and the Huber loss."""

from torch import Tensor

from ..checks import check_number
from ..kinds import explained
from .weighted_mean import known_mean


@explained
def squared_error(output: Tensor, y: Tensor, mask: Tensor | None = None) -> Tensor:
    """Mean squared error over known entries in masked rows.

    ``1/|K| sum_{(v, j) in K} (output_vj - y_vj)^2``, where K is the set of known labels (not NaN)
    in masked rows. If K is empty, the loss and its gradient are 0.

    Args:
        output: float ``[n]``, ``[n, 1]`` or ``[n, t]``, a model's output for n examples.
        y: float ``[n]`` or ``[n, t]``, NaN for unknown labels.
        mask: bool mask or float weights ``[n]``; by default all rows.

    Returns:
        Scalar.

    Raises:
        TypeError: if `y` is not floating point, or if `mask` is neither bool nor floating point.
        ValueError: if shapes do not match.

    Example:
        >>> squared_error(torch.tensor([[1.0], [5.0]]), torch.tensor([3.0, torch.nan]))
        tensor(4.)
    """
    return known_mean(lambda out, answer: (out - answer).square(), output, y, mask)


@explained
def absolute_error(output: Tensor, y: Tensor, mask: Tensor | None = None) -> Tensor:
    """Mean absolute error over known entries in masked rows.

    ``1/|K| sum_{(v, j) in K} |output_vj - y_vj|``, where K is defined as in `squared_error`. If K
    is empty, the loss and its gradient are 0.

    Args:
        output, y, mask: as for `squared_error`.

    Returns:
        Scalar.

    Raises:
        TypeError, ValueError: as for `squared_error`.

    Example:
        >>> absolute_error(torch.tensor([[1.0], [5.0]]), torch.tensor([3.0, torch.nan]))
        tensor(2.)
    """
    return known_mean(lambda out, answer: (out - answer).abs(), output, y, mask)


def huber(output: Tensor, y: Tensor, mask: Tensor | None = None, *, delta: float = 1.0) -> Tensor:
    """Mean Huber loss over known entries in masked rows.

    Let ``e = |output_vj - y_vj|``. An entry's loss is ``e^2 / 2`` if e is at most `delta`, and
    ``delta (e - delta / 2)`` if e is larger. The Huber loss thus limits the effect of outliers. If
    no label is known, the loss and its gradient are 0.

    Args:
        output, y, mask: as for `squared_error`.
        delta: the error above which the loss is linear; a positive number.

    Returns:
        Scalar.

    Raises:
        TypeError, ValueError: if `squared_error` raises one of these errors, or if `delta` is not a
            positive number.

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
