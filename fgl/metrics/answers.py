"""Metrics for several binary tasks: one score per task, averaged over tasks."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from ..kinds import explained
from ..transfer import to_host
from .numbers import known_entries
from .ranking import auc, average_precision


@explained
def mean_auc(output: Tensor, y: Tensor, mask: Tensor | None = None) -> float:
    """Area under the ROC curve, averaged over the tasks that have both labels (0 and 1), as in OGB.

    If a score is NaN, every comparison of this score with another score counts as incorrect.
    Likewise, the metric `accuracy` counts a row with a NaN score as wrong.

    Args:
        output: logits or any scores, float ``[n]``, ``[n, 1]`` or ``[n, t]``.
        y: float ``[n]`` or ``[n, t]``, labels 0 or 1; NaN for an unknown label.
        mask: bool ``[n]``; by default all rows.

    Returns:
        A number from 0 to 1; NaN if no task has both a label 0 and a label 1.

    Raises:
        TypeError: if `y` is not floating point, or if `mask` is not bool.
        ValueError: if shapes do not match, or if a label is not 0, 1 or NaN.

    Example:
        >>> y = torch.tensor([[0.0, 1.0], [1.0, 1.0], [torch.nan, 1.0]])
        >>> mean_auc(torch.tensor([[0.1, 0.0], [0.7, 0.0], [0.3, 0.0]]), y)
        1.0

    Source: Hu et al. 2020, Open Graph Benchmark, https://arxiv.org/abs/2005.00687
    """
    return _over_tasks(auc, output, y, mask)


@explained
def mean_average_precision(output: Tensor, y: Tensor, mask: Tensor | None = None) -> float:
    """Mean average precision, over the tasks that have both labels (0 and 1), as in OGB.

    A score that is NaN is treated as in `mean_auc`.

    Args:
        output, y, mask: as for `mean_auc`.

    Returns:
        As `mean_auc`.

    Raises:
        TypeError, ValueError: as for `mean_auc`.

    Example:
        >>> mean_average_precision(torch.tensor([0.1, 0.7, 0.3]), torch.tensor([0.0, 1.0, 1.0]))
        1.0

    Source: Hu et al. 2020, Open Graph Benchmark, https://arxiv.org/abs/2005.00687
    """
    return _over_tasks(average_precision, output, y, mask)


def _over_tasks(
    metric: Callable[[Tensor, Tensor], float], output: Tensor, y: Tensor, mask: Tensor | None
) -> float:
    out, answer, answered = to_host(*known_entries(output, y, mask))
    other = answer[answered & (answer != 0) & (answer != 1)]
    if other.numel():
        raise ValueError(
            f"Expected y to be 0, 1 or NaN, but got {float(other[0]):g}: (y > 0).float() where the "
            "answers are -1 and 1, y - 1 where they are 1 and 2"
        )
    out = torch.where(out.isnan(), torch.where(answer == 1, -torch.inf, torch.inf), out)
    values = []
    for score, label, rows in zip(out.unbind(1), answer.unbind(1), answered.unbind(1), strict=True):
        score, label = score[rows], label[rows]
        if 0 < label.sum() < label.numel():
            values.append(metric(score, label))
    return sum(values) / len(values) if values else math.nan
