"""Supervised losses."""

from __future__ import annotations

from torch import Tensor


def cross_entropy(logits: Tensor, y: Tensor, mask: Tensor | None = None) -> Tensor:
    """Mean cross-entropy over the masked nodes.

    ``-1/|mask| sum_{v in mask} log softmax(logits_v)[y_v]``; 0, with a gradient, where nothing is
    masked in.

    Args:
        logits: float ``[num_nodes, num_classes]``.
        y: int64 ``[num_nodes]``.
        mask: bool or float weights ``[num_nodes]``; default all nodes.

    Returns:
        Scalar.

    Raises:
        ValueError: if `y` or `mask` does not have one entry per row of `logits`.

    Example:
        >>> cross_entropy(torch.zeros(2, 4), torch.tensor([0, 3]), torch.tensor([True, False]))
        tensor(1.3863)
    """
    for name, value in (("y", y), ("mask", mask)):
        if value is not None and value.shape != logits.shape[:1]:
            raise ValueError(
                f"Expected {name} to have shape [{logits.shape[0]}], but got {list(value.shape)}"
            )
    # For a few classes a third of the time of log_softmax, and exact for small losses.
    loss = (logits - logits.gather(1, y[:, None])).logsumexp(1)
    if mask is None:
        return loss.sum() / max(loss.numel(), 1)
    weight = mask.to(loss.dtype)
    total = weight.sum()
    return (loss * weight).sum() / (total + (total == 0))
