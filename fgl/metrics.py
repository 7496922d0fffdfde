"""Metrics."""

from __future__ import annotations

from torch import Tensor


def accuracy(logits: Tensor, y: Tensor, mask: Tensor | None = None) -> float:
    """Share of the masked nodes whose largest logit is their label's.

    Args:
        logits: float ``[num_nodes, num_classes]``.
        y: int64 ``[num_nodes]``.
        mask: bool ``[num_nodes]``; default all nodes.

    Returns:
        Between 0 and 1; ``nan`` where nothing is masked in.

    Example:
        >>> accuracy(torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 0]))
        0.5
    """
    hit = logits.argmax(1) == y
    if mask is not None:
        hit = hit[mask]
    return float(hit.double().mean()) if hit.numel() else float("nan")
