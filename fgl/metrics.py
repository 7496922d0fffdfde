"""Metrics: accuracy, macro F1, area under the ROC curve, average precision, hit rate."""

from __future__ import annotations

import torch
from torch import Tensor

from .checks import check_count, check_length
from .transfer import to_host


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
    return share(*to_host(hit_counts(logits, y, mask)))


def hit_counts(logits: Tensor, y: Tensor, mask: Tensor | None = None) -> Tensor:
    """What `accuracy` is made of, on the device: how many are right, and how many there are.

    Args:
        logits, y, mask: as for `accuracy`.

    Returns:
        int64 ``[2]``, for `share`.

    Example:
        >>> hit_counts(torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 0]))
        tensor([1, 2])
    """
    logits, y, mask = _rows(logits, y, mask)
    return torch.stack([(hit_rows(logits, y) & mask).sum(), mask.sum()])


def share(counts: Tensor) -> float:
    """The first count over the second; ``nan`` over nothing.

    Example:
        >>> share(torch.tensor([1, 2]))
        0.5
    """
    part, whole = counts.tolist()
    return part / whole if whole else float("nan")


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
        ValueError: if `y` or `mask` does not have one entry per row of `logits`, or a masked label
            is no class.

    Example:
        >>> macro_f1(torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 0]))
        0.3333333333333333

    Source: Manning, Raghavan, Schuetze 2008, section 13.6, https://nlp.stanford.edu/IR-book
    """
    return f1_of(*to_host(class_counts(logits, y, mask)))


def class_counts(logits: Tensor, y: Tensor, mask: Tensor | None = None) -> Tensor:
    """What `macro_f1` is made of, on the device.

    Args:
        logits, y, mask: as for `macro_f1`.

    Returns:
        int64 ``[3, num_classes + 1]``, for `f1_of`: of each class how many are right, predicted and
        labelled so; at the end of the last row how many labels are no class.

    Example:
        >>> class_counts(torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 0]))
        tensor([[1, 0, 0],
                [1, 1, 0],
                [2, 0, 0]])
    """
    logits, y, mask = _rows(logits, y, mask)
    classes = logits.shape[1]
    none = 3 * (classes + 1)  # a row that nobody reads
    clean = mask & ~logits.isnan().any(1)
    predicted = logits.argmax(1)
    label = torch.where((y >= 0) & (y < classes), y, classes)
    places = (
        torch.where(clean & (predicted == y), predicted, none),
        torch.where(clean, predicted + classes + 1, none),
        torch.where(mask, label + 2 * (classes + 1), none),
    )
    place = torch.cat(places)
    counts = place.new_zeros(none + 1).scatter_add_(0, place, torch.ones_like(place))
    return counts[:none].view(3, classes + 1)


def f1_of(counts: Tensor) -> float:
    """The macro F1 of `class_counts`, on the processor.

    Raises:
        ValueError: if a label is no class.

    Example:
        >>> f1_of(torch.tensor([[1, 0, 0], [1, 1, 0], [2, 0, 0]]))
        0.3333333333333333
    """
    classes = counts.shape[1] - 1
    if int(counts[2, -1]):
        raise ValueError(f"Expected y to be in [0, {classes}), but got another label")
    hits, predicted, labelled = counts[:, :-1]
    named = predicted + labelled
    each = (2 * hits.double() / named)[named > 0]
    return float(each.mean()) if labelled.any() else float("nan")


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
    return _area(*_by_threshold(scores, y))


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
    return _precision(*_by_threshold(scores, y))


def auc_and_average_precision(scores: Tensor, y: Tensor) -> tuple[float, float]:
    """`auc` and `average_precision` of one sort.

    Args:
        scores, y: as for `auc`.

    Raises:
        ValueError: as `auc`.

    Example:
        >>> scores, y = torch.tensor([0.1, 0.4, 0.35, 0.8]), torch.tensor([0, 0, 1, 1])
        >>> auc_and_average_precision(scores, y)
        (0.75, 0.8333333333333333)
    """
    counts = _by_threshold(scores, y)
    return _area(*counts), _precision(*counts)


def hit_rate(scores: Tensor, others: Tensor, *, k: int, mask: Tensor | None = None) -> float:
    """Share of the rows whose own score is among the k largest of the row.

    ``1/n sum_i [ #{j : o_ij >= s_i} < k ]``: an equal score counts against the row.

    Args:
        scores: float ``[n]``, of what was chosen; a row with a NaN is a miss.
        others: float ``[n, m]``, of the candidates that were not; minus infinity for one that is
            left out.
        k: length of the list, at least 1.
        mask: bool ``[n]``, the rows that count; default all.

    Returns:
        Between 0 and 1; ``nan`` where no row counts.

    Raises:
        TypeError: if `mask` is not bool.
        ValueError: if a shape disagrees, or `k` is not positive.

    Example:
        >>> others = torch.tensor([[0.1, 0.2], [0.8, 0.9]])
        >>> hit_rate(torch.tensor([0.5, 0.5]), others, k=1)
        0.5

    Source: He et al. 2017, https://arxiv.org/abs/1708.05031, section 4.1
    """
    check_count(k=k)
    if scores.dim() != 1 or others.dim() != 2:
        raise ValueError(
            f"Expected scores and others to have shapes [n] and [n, m], but got "
            f"{list(scores.shape)} and {list(others.shape)}"
        )
    check_length(len(scores), mask=mask)
    if len(others) != len(scores):
        raise ValueError(f"Expected others to have {len(scores)} rows, but got {len(others)}")
    if mask is not None and mask.dtype != torch.bool:
        raise TypeError(f"Expected mask to be bool, but got {mask.dtype}")
    counts = torch.ones_like(scores, dtype=torch.bool) if mask is None else mask
    clean = ~(scores.isnan() | others.isnan().any(1))
    hit = ((others >= scores[:, None]).sum(1) < k) & clean & counts
    return share(*to_host(torch.stack([hit.sum(), counts.sum()])))


def _area(hits: Tensor, seen: Tensor) -> float:
    hits, misses = hits.double(), (seen - hits).double()
    steps = misses.diff(prepend=misses.new_zeros(1))
    height = hits - hits.diff(prepend=hits.new_zeros(1)) / 2
    return float((steps * height).sum() / (hits[-1] * misses[-1]))


def _precision(hits: Tensor, seen: Tensor) -> float:
    hits, seen = hits.double(), seen.double()
    steps = hits.diff(prepend=hits.new_zeros(1))
    return float((steps * (hits / seen)).sum() / hits[-1])


def _rows(logits: Tensor, y: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """What counts, and a mask of it: on a GPU all rows, since their number would be waited for."""
    check_length(len(logits), y=y, mask=mask)
    if mask is not None and mask.dtype != torch.bool:
        raise TypeError(f"Expected mask to be bool, but got {mask.dtype}")
    if mask is not None and logits.is_cuda:
        return logits, y, mask
    if mask is not None:
        logits, y = logits[mask], y[mask]
    return logits, y, torch.ones_like(y, dtype=torch.bool)


def _by_threshold(scores: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Positives, and all, that score at least as high, for each distinct score from the largest.

    Sorted where the scores are; the rest is done on the processor.
    """
    if scores.dim() != 1 or y.shape != scores.shape:
        raise ValueError(
            f"Expected scores and y to have shape [n], but got {list(scores.shape)} "
            f"and {list(y.shape)}"
        )
    positive = y == 1
    ordered, order = scores.sort(descending=True)
    last = torch.ones_like(positive)  # of a run of equal scores
    last[:-1] = ordered[1:] != ordered[:-1]
    other, absent = (~(positive | (y == 0))).any(), scores.isnan().any()
    hits, last, other, absent = to_host(positive[order].cumsum(0), last, other, absent)
    if other:
        raise ValueError("Expected y to be 0 or 1, but got another value")
    if absent:
        raise ValueError("Expected scores to be numbers, but got NaN")
    count = int(hits[-1]) if len(hits) else 0
    if not 0 < count < y.numel():
        raise ValueError(
            f"Expected y to have positives and negatives, but got {count} and {y.numel() - count}"
        )
    ends = last.nonzero().squeeze(1)
    return hits[ends], ends + 1
