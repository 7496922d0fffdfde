"""Metrics for rankings: area under the ROC curve, average precision and hit rate."""

import torch
from torch import Tensor

from ..checks import check_count, check_mask, reject_if
from ..transfer import to_host
from .classes import share


def auc(scores: Tensor, y: Tensor) -> float:
    """Area under the ROC curve (receiver operating characteristic).

    This is the probability that a positive example has a higher score than a negative example; a
    tie counts as 1/2: ``mean_{p, q} [s_p > s_q] + [s_p = s_q] / 2``. The area is computed exactly
    by sorting, in O(n log n) time.

    Args:
        scores: float or integer ``[n]``, on any device.
        y: bool ``[n]``, or numbers 0 and 1; True or 1 marks a positive.

    Returns:
        Between 0 and 1.

    Raises:
        ValueError: if shapes do not match, if a score is NaN, or if all labels are equal.

    Example:
        >>> auc(torch.tensor([0.1, 0.4, 0.4, 0.8]), torch.tensor([0, 0, 1, 1]))
        0.875

    Source: Fawcett 2006, https://doi.org/10.1016/j.patrec.2005.10.010
    """
    return _area(*_by_threshold(scores, y))


def average_precision(scores: Tensor, y: Tensor) -> float:
    """Area under the step function of precision against recall.

    ``sum_t (R_t - R_{t-1}) P_t`` over the distinct scores t in descending order. Equal scores form
    one threshold. The area is computed exactly by sorting, in O(n log n) time.

    Args:
        scores: float or integer ``[n]``, on any device.
        y: bool ``[n]``, or numbers 0 and 1; True or 1 marks a positive.

    Returns:
        Between 0 and 1.

    Raises:
        ValueError: if shapes do not match, if a score is NaN, or if all labels are equal.

    Example:
        >>> average_precision(torch.tensor([0.1, 0.4, 0.35, 0.8]), torch.tensor([0, 0, 1, 1]))
        0.8333333333333333

    Source: Davis and Goadrich 2006, https://doi.org/10.1145/1143844.1143874
    """
    return _precision(*_by_threshold(scores, y))


def auc_and_average_precision(scores: Tensor, y: Tensor) -> tuple[float, float]:
    """A pair of `auc` and `average_precision`; the scores are sorted only once.

    Args:
        scores, y: as for `auc`.

    Raises:
        ValueError: as for `auc`.

    Example:
        >>> scores, y = torch.tensor([0.1, 0.4, 0.35, 0.8]), torch.tensor([0, 0, 1, 1])
        >>> auc_and_average_precision(scores, y)
        (0.75, 0.8333333333333333)
    """
    counts = _by_threshold(scores, y)
    return _area(*counts), _precision(*counts)


def hit_rate(scores: Tensor, others: Tensor, *, k: int, mask: Tensor | None = None) -> float:
    """Fraction of rows in which the chosen item has one of the k largest scores.

    ``1/n sum_i [ #{j : o_ij >= s_i} < k ]``. A candidate with the same score as the chosen item
    ranks above it.

    Args:
        scores: float ``[n]``, scores of the chosen items; a row with a NaN is a miss.
        others: float ``[n, m]``, scores of the other candidates; minus infinity excludes a
            candidate.
        k: number of largest scores that count as a hit, at least 1.
        mask: bool ``[n]``, the rows to average over; by default all.

    Returns:
        A number from 0 to 1; ``nan`` if the mask is empty.

    Raises:
        TypeError: if `mask` is not bool.
        ValueError: if shapes do not match, or if `k` is not positive.

    Example:
        >>> others = torch.tensor([[0.1, 0.2], [0.8, 0.9]])
        >>> hit_rate(torch.tensor([0.5, 0.5]), others, k=1)
        0.5

    Source: He et al. 2017, https://arxiv.org/abs/1708.05031, section 4.1
    """
    check_count(k=k)
    wrong = scores.dim() != 1 or others.dim() != 2
    expected = "scores and others to have shapes [n] and [n, m]"
    reject_if(wrong, expected, f"{list(scores.shape)} and {list(others.shape)}")
    reject_if(len(others) != len(scores), f"others to have {len(scores)} rows", len(others))
    counts = torch.ones_like(scores, dtype=torch.bool) if mask is None else mask
    check_mask("mask", counts, len(scores))
    clean = ~(scores.isnan() | others.isnan().any(1))
    hit = ((others >= scores[:, None]).sum(1) < k) & clean & counts
    return share(*to_host(torch.stack([hit.sum(), counts.sum()])))


def _area(hits: Tensor, total: Tensor) -> float:
    hits, misses = hits.double(), (total - hits).double()
    steps = misses.diff(prepend=misses.new_zeros(1))
    height = hits - hits.diff(prepend=hits.new_zeros(1)) / 2
    return float((steps * height).sum() / (hits[-1] * misses[-1]))


def _precision(hits: Tensor, total: Tensor) -> float:
    hits, total = hits.double(), total.double()
    steps = hits.diff(prepend=hits.new_zeros(1))
    return float((steps * (hits / total)).sum() / hits[-1])


def _by_threshold(scores: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """For each distinct score t, count the positive rows and all rows with a score of at least t.

    The counts are in descending order of t.

    Scores are sorted on the device of the scores; all further steps run on the CPU.
    """
    wrong = scores.dim() != 1 or y.shape != scores.shape
    reject_if(wrong, "scores and y to have shape [n]", f"{list(scores.shape)} and {list(y.shape)}")
    positive = y == 1
    ordered, order = scores.sort(descending=True)
    last = torch.ones_like(positive)  # whether an entry is the last of a run of equal scores
    last[:-1] = ordered[1:] != ordered[:-1]
    other, absent = (~(positive | (y == 0))).any(), scores.isnan().any()
    hits, last, other, absent = to_host(positive[order].cumsum(0), last, other, absent)
    reject_if(other, "y to be 0 or 1", "another value")
    reject_if(absent, "scores to be numbers", "NaN")
    count = int(hits[-1]) if len(hits) else 0
    got = f"{count} and {y.numel() - count}"
    reject_if(not 0 < count < y.numel(), "y to have positives and negatives", got)
    ends = last.nonzero().squeeze(1)
    return hits[ends], ends + 1
