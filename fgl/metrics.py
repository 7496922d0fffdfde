"""Metrics: accuracy, macro F1, area under the ROC curve, average precision."""

from __future__ import annotations

import torch
from torch import Tensor

from .checks import check_length


def accuracy(logits: Tensor, y: Tensor, mask: Tensor | None = None) -> float:
    """Share of the masked nodes whose largest logit is their label's; a row with a NaN is a miss.

    Args:
        logits: float ``[num_nodes, num_classes]``.
        y: int64 ``[num_nodes]``.
        mask: bool ``[num_nodes]``; default all nodes.

    Returns:
        Between 0 and 1; ``nan`` where nothing is masked in.

    Raises:
        TypeError: if `mask` is not bool.
        ValueError: if `y` or `mask` does not have one entry per row of `logits`.

    Example:
        >>> accuracy(torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 0]))
        0.5
    """
    _check_rows(logits, y, mask)
    hit = hit_rows(logits, y)
    if mask is not None:
        hit = hit[mask]
    return float(hit.double().mean()) if hit.numel() else float("nan")


def hit_rows(logits: Tensor, y: Tensor) -> Tensor:
    """Whether each row's largest logit is its label's; a row with a NaN is a miss.

    Args:
        logits: float ``[n, num_classes]``.
        y: int64 ``[n]``.

    Returns:
        bool ``[n]``.

    Example:
        >>> hit_rows(torch.tensor([[1.0, 0.0], [torch.nan, 0.0]]), torch.tensor([0, 0]))
        tensor([ True, False])
    """
    hit: Tensor = logits.argmax(1) == y
    return hit & ~logits.isnan().any(1)  # argmax would choose the NaN


def macro_f1(logits: Tensor, y: Tensor, mask: Tensor | None = None) -> float:
    """Mean over classes of F1, ``2 TP_c / (2 TP_c + FP_c + FN_c)``.

    A class counts if it is a masked node's label or prediction, as in scikit-learn.

    Args:
        logits: float ``[num_nodes, num_classes]``; a row with a NaN predicts no class.
        y: int64 ``[num_nodes]``.
        mask: bool ``[num_nodes]``; default all nodes.

    Returns:
        Between 0 and 1; ``nan`` where nothing is masked in.

    Raises:
        TypeError: if `mask` is not bool.
        ValueError: if `y` or `mask` does not have one entry per row of `logits`.

    Example:
        >>> macro_f1(torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 0]))
        0.3333333333333333

    Source: Manning, Raghavan, Schuetze 2008, section 13.6, https://nlp.stanford.edu/IR-book
    """
    _check_rows(logits, y, mask)
    if mask is not None:
        logits, y = logits[mask], y[mask]
    classes = logits.shape[1]
    hits = torch.bincount(y[hit_rows(logits, y)], minlength=classes).double()
    clean = ~logits.isnan().any(1)
    predicted = torch.bincount(logits.argmax(1)[clean], minlength=classes)
    named = torch.bincount(y, minlength=classes) + predicted
    return float((2 * hits / named)[named > 0].mean()) if y.numel() else float("nan")


def auc(scores: Tensor, y: Tensor) -> float:
    """Area under the receiver operating characteristic.

    The probability that a positive scores above a negative, a tie counting half:
    ``mean_{p, q} [s_p > s_q] + [s_p = s_q] / 2``. By sorting, O(n log n), exact.

    Args:
        scores: float or integer ``[n]``, on any device.
        y: bool ``[n]``, or numbers 0 and 1: which are positive.

    Returns:
        Between 0 and 1.

    Raises:
        ValueError: if a shape disagrees, a score is NaN, or a class is missing.

    Example:
        >>> auc(torch.tensor([0.1, 0.4, 0.4, 0.8]), torch.tensor([0, 0, 1, 1]))
        0.875

    Source: Fawcett 2006, https://doi.org/10.1016/j.patrec.2005.10.010
    """
    hits, seen = _by_threshold(scores, y)
    hits, misses = hits.double(), (seen - hits).double()
    steps = misses.diff(prepend=misses.new_zeros(1))
    height = hits - hits.diff(prepend=hits.new_zeros(1)) / 2
    return float((steps * height).sum() / (hits[-1] * misses[-1]))


def average_precision(scores: Tensor, y: Tensor) -> float:
    """Area under the steps of precision over recall.

    ``sum_t (R_t - R_{t-1}) P_t`` over the distinct scores t from the largest on, equal scores
    counting as one threshold. By sorting, O(n log n), exact.

    Args:
        scores: float or integer ``[n]``, on any device.
        y: bool ``[n]``, or numbers 0 and 1: which are positive.

    Returns:
        Between 0 and 1.

    Raises:
        ValueError: if a shape disagrees, a score is NaN, or a class is missing.

    Example:
        >>> average_precision(torch.tensor([0.1, 0.4, 0.35, 0.8]), torch.tensor([0, 0, 1, 1]))
        0.8333333333333333

    Source: Davis and Goadrich 2006, https://doi.org/10.1145/1143844.1143874
    """
    hits, seen = _by_threshold(scores, y)
    hits, seen = hits.double(), seen.double()
    steps = hits.diff(prepend=hits.new_zeros(1))
    return float((steps * (hits / seen)).sum() / hits[-1])


def _check_rows(logits: Tensor, y: Tensor, mask: Tensor | None) -> None:
    check_length(len(logits), y=y, mask=mask)
    if mask is not None and mask.dtype != torch.bool:
        raise TypeError(f"Expected mask to be bool, but got {mask.dtype}")


def _by_threshold(scores: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Positives, and all, that score at least as high, for each distinct score from the largest."""
    if scores.dim() != 1 or y.shape != scores.shape:
        raise ValueError(
            f"Expected scores and y to have shape [n], but got {list(scores.shape)} "
            f"and {list(y.shape)}"
        )
    positive = y == 1
    if not (positive | (y == 0)).all():
        raise ValueError("Expected y to be 0 or 1, but got another value")
    if scores.isnan().any():
        raise ValueError("Expected scores to be numbers, but got NaN")
    count = int(positive.sum())
    if not 0 < count < y.numel():
        raise ValueError(
            f"Expected y to have positives and negatives, but got {count} and {y.numel() - count}"
        )
    ordered, order = scores.sort(descending=True)
    last = torch.ones_like(positive)  # of a run of equal scores
    last[:-1] = ordered[1:] != ordered[:-1]
    ends = last.nonzero().squeeze(1)
    hits = positive[order].cumsum(0)[ends]
    return hits, ends + 1
