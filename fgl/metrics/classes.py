"""Metrics for classes: accuracy, macro F1, the counts for both, and conversion to numbers."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ..checks import check_classes, check_length, check_mask, reject_if
from ..transfer import to_host


def accuracy(logits: Tensor, y: Tensor, mask: Tensor | None = None) -> float:
    """Fraction of masked nodes whose label has the largest logit; a row with a NaN counts as wrong.

    Args:
        logits: float ``[num_nodes, num_classes]``.
        y: int64 ``[num_nodes]``.
        mask: bool ``[num_nodes]``; by default all nodes.

    Returns:
        A number from 0 to 1; ``nan`` if the mask is empty.

    Raises:
        TypeError: if `mask` is not bool.
        ValueError: if `y` or `mask` does not have one entry per row of `logits`, or if the label of
            a masked node is not a valid class.

    Example:
        >>> accuracy(torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 0]))
        0.5
    """
    return share(*to_host(hit_counts(logits, y, mask)))


def hit_counts(logits: Tensor, y: Tensor, mask: Tensor | None = None) -> Tensor:
    """The number of correct predictions and of all predictions, as a tensor on the device.

    Args:
        logits, y, mask: as for `accuracy`.

    Returns:
        int64 ``[2]``, an argument for `share`.

    Example:
        >>> hit_counts(torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 0]))
        tensor([1, 2])
    """
    logits, y, mask = _rows(logits, y, mask)
    return torch.stack([(hit_rows(logits, y) & mask).sum(), mask.sum()])


def share(counts: Tensor) -> float:
    """The first count divided by the second; ``nan`` if the second is 0.

    Example:
        >>> share(torch.tensor([1, 2]))
        0.5
    """
    part, whole = counts.tolist()
    return part / whole if whole else float("nan")


def hit_rows(logits: Tensor, y: Tensor) -> Tensor:
    """Whether the label of each row has the largest logit; a row with a NaN counts as wrong.

    Args:
        logits: float ``[n, num_classes]``.
        y: int64 ``[n]``.

    Returns:
        bool ``[n]``.

    Example:
        >>> hit_rows(torch.tensor([[1.0, 0.0], [torch.nan, 0.0]]), torch.tensor([0, 0]))
        tensor([ True, False])
    """
    check_classes(logits)
    hit: Tensor = logits.argmax(1) == y
    return hit & ~logits.isnan().any(1)  # argmax returns the position of a NaN


def macro_f1(logits: Tensor, y: Tensor, mask: Tensor | None = None) -> float:
    """F1 of each class, ``2 TP_c / (2 TP_c + FP_c + FN_c)``, averaged over classes.

    As in scikit-learn, a class counts in the mean if it is the label or the prediction of at least
    one masked node.

    Args:
        logits: float ``[num_nodes, num_classes]``; a row with a NaN predicts no class.
        y: int64 ``[num_nodes]``.
        mask: bool ``[num_nodes]``; by default all nodes.

    Returns:
        A number from 0 to 1; ``nan`` if the mask is empty.

    Raises:
        TypeError: if `mask` is not bool.
        ValueError: if `y` or `mask` does not have one entry per row of `logits`, or if the label of
            a masked node is not a valid class.

    Example:
        >>> macro_f1(torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 0]))
        0.3333333333333333

    Source: Manning, Raghavan, Schuetze 2008, section 13.6, https://nlp.stanford.edu/IR-book
    """
    return f1_of(*to_host(class_counts(logits, y, mask)))


def class_counts(logits: Tensor, y: Tensor, mask: Tensor | None = None) -> Tensor:
    """Counts per class, as a tensor on the device; `f1_of` computes macro F1 from them.

    Args:
        logits, y, mask: as for `macro_f1`.

    Returns:
        int64 ``[3, num_classes + 1]``, an argument for `f1_of`. For each class, the three rows
        count the correct predictions, all predictions, and the labels. The last entry of the last
        row is the number of labels that are not a valid class.

    Example:
        >>> class_counts(torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 0]))
        tensor([[1, 0, 0],
                [1, 1, 0],
                [2, 0, 0]])
    """
    logits, y, mask = _rows(logits, y, mask)
    classes = logits.shape[1]
    none = 3 * (classes + 1)  # index of an entry that is never read
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
    """Macro F1 from `class_counts`, computed on the CPU.

    Raises:
        ValueError: if a label is not a valid class.

    Example:
        >>> f1_of(torch.tensor([[1, 0, 0], [1, 1, 0], [2, 0, 0]]))
        0.3333333333333333
    """
    classes = counts.shape[1] - 1
    reject_if(int(counts[2, -1]), f"y to be in [0, {classes})", "another label")
    hits, predicted, labelled = counts[:, :-1]
    named = predicted + labelled
    each = (2 * hits.double() / named)[named > 0]
    return float(each.mean()) if labelled.any() else float("nan")


def _rows(logits: Tensor, y: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """The masked rows and a mask for these rows.

    On a GPU, all rows are returned, to avoid waiting for the GPU.
    """
    check_classes(logits)
    check_length(len(logits), y=y)
    if mask is not None:
        check_mask("mask", mask, len(logits))
        if logits.is_cuda:
            return logits, y, mask
        logits, y = logits[mask], y[mask]
    check_labels(logits, y)
    return logits, y, torch.ones_like(y, dtype=torch.bool)


def check_labels(logits: Tensor, y: Tensor) -> None:
    """Raise an error unless each label is one of the classes; on a GPU, only check the dtype.

    Example:
        >>> check_labels(torch.zeros(2, 3), torch.tensor([0, 3]))
        Traceback (most recent call last):
        ValueError: Expected y to be in [0, 3), as logits [2, 3] have classes, but got 3
    """
    reject_if(y.is_floating_point(), "y to be class labels, int64", y.dtype, TypeError)
    if y.is_cuda or not y.numel():
        return
    shape = list(logits.shape)
    low, high = y.aminmax() if y.dtype != torch.bool else (0, 1)
    for label in (int(low), int(high)):
        expected = f"y to be in [0, {shape[1]}), as logits {shape} have classes"
        reject_if(not 0 <= label < shape[1], expected, label)


def on_host(*metrics: Mapping[str, Any]) -> list[dict[str, float]]:
    """Convert metrics to numbers; the program waits for the GPU only once.

    Args:
        metrics: dict from name to number, to scalar tensor, or to a result of `hit_counts` or
            `class_counts`.

    Returns:
        Dict from each name in `metrics` to a number. `share` is applied to a result of
        `hit_counts`. `f1_of` is applied to a result of `class_counts`.

    Raises:
        TypeError: if a metric is not a number, for example if it is None or a tensor with one
            number per class.

    Example:
        >>> on_host({"accuracy": torch.tensor([3, 4])}, {"loss": 0.5})
        [{'accuracy': 0.75}, {'loss': 0.5}]
    """
    numbers = [dict(each) for each in metrics]
    tensors = [
        (named, name, value)
        for named in numbers
        for name, value in named.items()
        if isinstance(value, Tensor)
    ]
    values = to_host(*(value for _, _, value in tensors))
    for (named, name, _), value in zip(tensors, values, strict=True):
        named[name] = value
    return [{name: _number(name, value) for name, value in named.items()} for named in numbers]


def _number(name: str, value: Any) -> float:
    """Convert a metric to a number.

    An int64 tensor with several entries contains counts, from which `share` or `f1_of` computes the
    metric.
    """
    shape = value.shape if isinstance(value, Tensor) and value.dtype == torch.int64 else ()
    if shape == (2,):
        return share(value)
    if len(shape) == 2 and shape[0] == 3:
        return f1_of(value)
    try:
        if not isinstance(value, str):
            return float(value)
    except (TypeError, ValueError, RuntimeError):
        pass
    got = f"a tensor {list(value.shape)}" if isinstance(value, Tensor) else repr(value)
    raise TypeError(f"Expected metric {name} to return a number, but got {got}")
