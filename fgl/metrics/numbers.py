"""Regression metrics averaged over tasks: squared, absolute and relative errors, and R2."""

import torch
from torch import Tensor

from ..checks import as_columns, check_mask
from ..kinds import explained


@explained
def rmse(output: Tensor, y: Tensor, mask: Tensor | None = None) -> Tensor:
    """Root mean squared error of each task, averaged over the tasks.

    ``1/|T| sum_{j in T} sqrt(1/|K_j| sum_{v in K_j} (output_vj - y_vj)^2)``. K_j is the set of
    rows in the mask whose label for task j is not NaN. T is the set of tasks j with a non-empty
    K_j.

    Args:
        output: float ``[n]``, ``[n, 1]`` or ``[n, t]``, a model's output for n examples.
        y: float ``[n]`` or ``[n, t]``, NaN for unknown labels.
        mask: bool ``[n]``; by default all rows.

    Returns:
        A float64 scalar on the device of `output`, computed without waiting for a GPU. If the
        output is NaN where a label is known, the result is infinite. If no label is known, the
        result is NaN.

    Raises:
        TypeError: if `y` is not floating point, or if `mask` is not bool.
        ValueError: if shapes do not match.

    Example:
        >>> rmse(torch.tensor([[1.0], [5.0]]), torch.tensor([3.0, torch.nan]))
        tensor(2., dtype=torch.float64)
    """
    error, _, answered = _errors(output, y, mask)
    count = answered.sum(0)
    return _mean_of((error.square().sum(0) / count).sqrt(), count > 0)


@explained
def mae(output: Tensor, y: Tensor, mask: Tensor | None = None) -> Tensor:
    """Mean absolute error of each task, averaged over the tasks.

    ``1/|T| sum_{j in T} 1/|K_j| sum_{v in K_j} |output_vj - y_vj|``, with T and K_j from `rmse`.

    Args:
        output, y, mask: as for `rmse`.

    Returns:
        As `rmse`.

    Raises:
        TypeError, ValueError: as for `rmse`.

    Example:
        >>> mae(torch.tensor([1.0, 5.0]), torch.tensor([3.0, 6.0]))
        tensor(1.5000, dtype=torch.float64)
    """
    error, _, answered = _errors(output, y, mask)
    count = answered.sum(0)
    return _mean_of(error.abs().sum(0) / count, count > 0)


@explained
def mape(output: Tensor, y: Tensor, mask: Tensor | None = None) -> Tensor:
    """Mean relative error ``|error / label|`` of each task, averaged over the tasks.

    ``1/|T| sum_{j in T} 1/|K_j| sum_{v in K_j} |(output_vj - y_vj) / y_vj|``, with T and K_j from
    `rmse`. Labels equal to 0 are left out.

    Args:
        output, y, mask: as for `rmse`.

    Returns:
        As `rmse`.

    Raises:
        TypeError, ValueError: as for `rmse`.

    Example:
        >>> mape(torch.tensor([1.0, 5.0, 9.0]), torch.tensor([2.0, 4.0, 0.0]))
        tensor(0.3750, dtype=torch.float64)
    """
    error, answer, answered = _errors(output, y, mask)
    counted = answered & (answer != 0)
    share = torch.where(counted, error.abs() / answer.abs(), 0.0)
    count = counted.sum(0)
    return _mean_of(share.sum(0) / count, count > 0)


@explained
def r2(output: Tensor, y: Tensor, mask: Tensor | None = None) -> Tensor:
    """Coefficient of determination of each task, averaged over the tasks.

    The score of task j is ``1 - sum_v (output_vj - y_vj)^2 / sum_v (y_vj - m_j)^2``. Here v runs
    over the rows whose label is known, and m_j is the mean of these labels. The result is the mean
    over the tasks with two or more known labels. If all labels of a task are equal, the task's
    score is 1 for an exact output and 0 for any other output, as in scikit-learn.

    Args:
        output, y, mask: as for `rmse`.

    Returns:
        A float64 scalar of at most 1, on the device of the output; NaN if no task has two known
        labels.

    Raises:
        TypeError, ValueError: as for `rmse`.

    Example:
        >>> r2(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 3.0]))
        tensor(0.5000, dtype=torch.float64)

    Source: Draper and Smith 1998, section 1.3, https://doi.org/10.1002/9781118625590
    """
    error, answer, answered = _errors(output, y, mask)
    if not len(answered):
        return answer.new_full((), torch.nan)
    count = answered.sum(0)
    away = error.square().sum(0)
    middle = answer.sum(0) / count
    spread = torch.where(answered, answer - middle, 0.0).square().sum(0)
    lowest, highest = (torch.where(answered, answer, end) for end in (torch.inf, -torch.inf))
    same = lowest.amin(0) == highest.amax(0)  # the mean of equal labels may differ by rounding
    met = (away == 0).double()
    return _mean_of(torch.where(same, met, 1 - away / spread), count > 1)


def _errors(output: Tensor, y: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """A model's errors (infinite for an output of NaN), the labels, and a mask of known labels."""
    out, answer, answered = known_entries(output, y, mask)
    error = out - answer
    return torch.where(error.isnan(), torch.inf, error), answer, answered


def _mean_of(each: Tensor, scored: Tensor) -> Tensor:
    """Mean over the tasks that have a score; NaN if no task has a score."""
    return torch.where(scored, each, 0.0).sum() / scored.sum()


def known_entries(output: Tensor, y: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Output and labels in float64 (unknown labels are 0), and a mask of known labels, ``[n, t]``.

    Raises:
        TypeError: if `y` is not floating point, or if `mask` is not bool.
        ValueError: if shapes do not match.
    """
    out, answer = as_columns(output, y, mask)
    valid = ~answer.isnan()
    if mask is not None:
        check_mask("mask", mask, len(answer))
        valid = valid & mask[:, None]
    return torch.where(valid, out, 0.0).double(), torch.where(valid, answer, 0.0).double(), valid
