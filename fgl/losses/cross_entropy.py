"""Cross-entropies over a mask, with labels or with soft labels."""

from __future__ import annotations

import torch
from torch import Tensor

from ..checks import check_length
from ..sparse import widened
from .weighted_mean import weighted_mean


def cross_entropy(logits: Tensor, y: Tensor, mask: Tensor | None = None) -> Tensor:
    """Mean cross-entropy over the masked nodes.

    ``-1/|mask| sum_{v in mask} log softmax(logits_v)[y_v]``; 0, with a gradient, where nothing is
    masked in.

    Args:
        logits: float ``[num_nodes, num_classes]``.
        y: int64 ``[num_nodes]``; anything where nothing is masked in, e.g. -1.
        mask: bool or float weights ``[num_nodes]``; default all nodes.

    Returns:
        Scalar.

    Raises:
        TypeError: if `y` is no integer, or `mask` is one (nodes, not a mask of them).
        ValueError: if `y` or `mask` does not have one entry per row of `logits`.

    Example:
        >>> cross_entropy(torch.zeros(2, 4), torch.tensor([0, 3]), torch.tensor([True, False]))
        tensor(1.3863)
    """
    check_length(logits.shape[0], y=y, mask=mask)
    if y.dtype not in (torch.int64, torch.int32):
        raise TypeError(f"Expected y to be int64, but got {y.dtype}")
    if mask is not None and mask.dtype != torch.bool and not mask.is_floating_point():
        raise TypeError(f"Expected mask to be bool or float weights, but got {mask.dtype}")
    if mask is not None:
        y = torch.where(mask.bool(), y, 0)  # a label of -1, "none", is no index
    # For a few classes a third of the time of log_softmax, and exact for small losses.
    loss = (logits - logits.gather(1, y[:, None])).logsumexp(1)
    return weighted_mean(loss, mask)


def soft_cross_entropy(logits: Tensor, target: Tensor, mask: Tensor | None = None) -> Tensor:
    """Mean cross-entropy with soft labels over the masked rows.

    ``-1/|mask| sum_{v in mask} sum_c target_vc log(softmax(logits_v)_c + 1e-7)`` (FedEgo); 0,
    with a gradient, where nothing is masked in.

    Args:
        logits: float ``[n, num_classes]``.
        target: float ``[n, num_classes]``, rows that sum to 1.
        mask: bool or float weights ``[n]``; default all.

    Returns:
        Scalar.

    Raises:
        ValueError: if `target` does not have the shape of `logits`, or `mask` one entry per row.

    Example:
        >>> soft_cross_entropy(torch.zeros(1, 4), torch.full((1, 4), 0.25))
        tensor(1.3863)

    Source: Zhang et al., FedEgo, https://arxiv.org/abs/2208.13685
    """
    if target.shape != logits.shape:
        raise ValueError(
            f"Expected target to have shape {list(logits.shape)}, but got {list(target.shape)}"
        )
    check_length(logits.shape[0], mask=mask)
    loss = -(target * (widened(logits).softmax(1) + 1e-7).log()).sum(1)  # 1e-7 is no float16
    return weighted_mean(loss, mask).to(logits.dtype)
