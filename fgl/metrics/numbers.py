"""Metrics of numbers, averaged over tasks: squared, absolute and relative errors, and R2."""

from __future__ import annotations

import torch
from torch import Tensor

from ..checks import as_columns, check_mask
from ..kinds import explained


@explained
def rmse(output: Tensor, y: Tensor, mask: Tensor | None = None) -> Tensor:
    """Root mean squared error of each task, averaged over the tasks.

    ``1/|T| sum_{j in T} sqrt(1/|K_j| sum_{v in K_j} (output_vj - y_vj)^2)``: K_j are the masked
    rows whose answer to task j is not NaN, T the tasks that have one.

    Args:
        output: float ``[n]``, ``[n, 1]`` or ``[n, t]``, a model's output for n examples.
        y: float ``[n]`` or ``[n, t]``, NaN where unknown.
        mask: bool ``[n]``; default all rows.

    Returns:
        A float64 scalar where `output` is, without a wait for a GPU; infinite if the output
        is NaN at a known answer, and NaN if no answer is known.

    Raises:
        TypeError: if `y` is not floating point, or `mask` not bool.
        ValueError: for shapes that do not fit.

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

    ``1/|T| sum_{j in T} 1/|K_j| sum_{v in K_j} |output_vj - y_vj|``, T and K_j as for `rmse`.

    Args:
        output, y, mask: as for `rmse`.

    Returns:
        As `rmse`.

    Raises:
        TypeError, ValueError: as `rmse`.

    Example:
        >>> mae(torch.tensor([1.0, 5.0]), torch.tensor([3.0, 6.0]))
        tensor(1.5000, dtype=torch.float64)
    """
    error, _, answered = _errors(output, y, mask)
    count = answered.sum(0)
    return _mean_of(error.abs().sum(0) / count, count > 0)


@explained
def mape(output: Tensor, y: Tensor, mask: Tensor | None = None) -> Tensor:
    """Mean absolute error as a share of the answer, of each task, averaged over the tasks.

    ``1/|T| sum_{j in T} 1/|K_j| sum_{v in K_j} |output_vj - y_vj| / |y_vj|``, T and K_j as for
    `rmse`, without answers of 0.

    Args:
        output, y, mask: as for `rmse`.

    Returns:
        As `rmse`.

    Raises:
        TypeError, ValueError: as `rmse`.

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

    ``1 - sum_v (output_vj - y_vj)^2 / sum_v (y_vj - m_j)^2`` over the known answers of task j,
    whose mean is m_j; then the mean over the tasks that have two or more of them. A task whose
    answers are all the same counts 1 if they are met exactly, and otherwise 0, as in scikit-learn.

    Args:
        output, y, mask: as for `rmse`.

    Returns:
        As `rmse`, at most 1; NaN where no task has two known answers.

    Raises:
        TypeError, ValueError: as `rmse`.

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
    same = lowest.amin(0) == highest.amax(0)  # their mean may differ from them by rounding
    met = (away == 0).double()
    return _mean_of(torch.where(same, met, 1 - away / spread), count > 1)


def _errors(output: Tensor, y: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Errors of a model (infinite for a NaN), the answers, and a mask of the known answers."""
    out, answer, answered = known_entries(output, y, mask)
    error = out - answer
    return torch.where(error.isnan(), torch.inf, error), answer, answered


def _mean_of(each: Tensor, scored: Tensor) -> Tensor:
    """The mean over the tasks that can be scored; NaN without such a task."""
    return torch.where(scored, each, 0.0).sum() / scored.sum()


def known_entries(output: Tensor, y: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Output and answers in float64, 0 for unknown answers, and a mask of known ones, ``[n, t]``.

    Raises:
        TypeError: if `y` is not floating point, or `mask` not bool.
        ValueError: for shapes that do not fit.
    """
    out, answer = as_columns(output, y, mask)
    valid = ~answer.isnan()
    if mask is not None:
        check_mask("mask", mask, len(answer))
        valid = valid & mask[:, None]
    return torch.where(valid, out, 0.0).double(), torch.where(valid, answer, 0.0).double(), valid
