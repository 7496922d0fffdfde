"""Distance from generated neighbours to the nearest true neighbours (FedSage+'s greedy loss)."""

import torch
from torch import Tensor

from ..checks import check_length, reject_if
from .weighted_mean import mask_weight


def nearest_features(
    made: Tensor, count: Tensor, hidden: Tensor, hidden_count: Tensor, *, mask: Tensor | None = None
) -> Tensor:
    """Mean squared distance from each generated neighbour to the nearest true neighbour.

    ``1 / (n P d) sum_i sum_{j < min(P, floor c_i)} min_{k < m_i} ||made_ij - hidden_ik||^2``
    (FedSage+, Eq. 6), over the n nodes of the mask. A node without a true neighbour contributes 0.
    No gradient flows through the selection of the nearest neighbour or through the count.

    Args:
        made: float ``[n, P, d]``, features of the generated neighbours of each node.
        count: float ``[n]``, predicted number of missing neighbours of each node; this function
            rounds it down.
        hidden: float ``[n, Q, d]``, features of up to Q true neighbours of each node; Q is at least
            1.
        hidden_count: ``[n]``, number of true neighbours of each node.
        mask: bool ``[n]``, the nodes to average over; by default all nodes.

    Returns:
        A scalar: the loss. If the mask is empty, the loss and its gradient are 0.

    Raises:
        ValueError: if shapes do not match.

    Example:
        >>> made, hidden = torch.zeros(1, 2, 1), torch.tensor([[[3.0], [-1.0], [0.5]]])
        >>> nearest_features(made, torch.tensor([1.2]), hidden, torch.tensor([2]))
        tensor(0.5000)

    Source: Zhang et al. 2021, https://arxiv.org/abs/2106.13430
    """
    _check(made, count, hidden, hidden_count)
    weight = mask_weight("mask", mask, made.shape[:1], made)
    places = torch.arange(max(made.shape[1], hidden.shape[1]), device=made.device)
    filled = places[: hidden.shape[1]] < hidden_count[:, None]
    with torch.no_grad():
        nearest = torch.where(filled[:, None], torch.cdist(made, hidden), torch.inf).argmin(2)
    target = hidden.detach().gather(1, nearest[..., None].expand(-1, -1, made.shape[2]))
    counts = places[: made.shape[1]] < count.floor()[:, None]
    counts = counts & (hidden_count > 0)[:, None] & (weight > 0)[:, None]
    difference = torch.where(counts[..., None], made - target, 0)
    entries = weight.sum() * made.shape[1] * made.shape[2]
    return difference.square().sum() / (entries + (entries == 0))


def _check(generated: Tensor, count: Tensor, hidden: Tensor, hidden_count: Tensor) -> None:
    reject_if(generated.dim() != 3, "made to have shape [n, P, d]", list(generated.shape))
    n, _, d = generated.shape
    q = hidden.shape[1] if hidden.dim() == 3 else 0
    wrong = not q or hidden.shape != (n, q, d)
    reject_if(wrong, f"hidden to have shape [{n}, Q, {d}] with Q > 0", list(hidden.shape))
    check_length(n, count=count, hidden_count=hidden_count)
