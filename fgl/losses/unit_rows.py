"""Normalisation of rows to length 1, with a safe gradient for rows of length 0."""

import torch
from torch import Tensor

from ..sparse.rows import widened


def unit_rows(x: Tensor, eps: float = 1e-6) -> Tensor:
    """Rows scaled to length 1; a row shorter than `eps` becomes 0 and gets no gradient.

    A row also becomes 0 if the square of its length overflows (lengths above about 1e19 in
    float32).

    The gradient of a cosine grows like 1 / length. Without the threshold `eps`, a single all-zero
    embedding could make the model diverge. Such an embedding arises, for example, if augmentation
    removes a node's features and edges.

    Args:
        x: float ``[rows, width]``.
        eps: length below which a row is set to zero.

    Returns:
        float ``[rows, width]``.

    Example:
        >>> unit_rows(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
        tensor([[0.6000, 0.8000],
                [0.0000, 0.0000]])
    """
    dtype, x = x.dtype, widened(x)
    length = x.norm(dim=-1, keepdim=True)
    unit = x / torch.where(length > eps, length, torch.inf)  # x / inf: no value and no gradient
    return unit.to(dtype)
