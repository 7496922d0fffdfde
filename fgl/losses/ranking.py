"""Bayesian personalised ranking: chosen items should get higher scores than other items."""

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from ..checks import check_length, reject_if
from .weighted_mean import weighted_mean


def ranking(positive: Tensor, negative: Tensor, *, mask: Tensor | None = None) -> Tensor:
    """Mean loss over pairs of a chosen item and an item that was not chosen (BPR).

    ``-1/(n k) sum_i sum_j log sigma(p_i - n_ij)``

    Args:
        positive: float ``[n]``, the scores p of the chosen items.
        negative: float ``[n]`` or ``[n, k]``; for each chosen item, the scores of one item or of k
            items that were not chosen.
        mask: bool ``[n]``, the rows to average over; by default all.

    Returns:
        A scalar: the loss. If the mask is empty, the loss and its gradient are 0.

    Raises:
        ValueError: if shapes do not match.

    Example:
        >>> ranking(torch.tensor([2.0, 0.0]), torch.tensor([0.0, 0.0]))
        tensor(0.4100)

    Source: Rendle et al. 2009, https://arxiv.org/abs/1205.2618, section 4.1
    """
    reject_if(positive.dim() != 1, "positive to have shape [n]", list(positive.shape))
    wrong = negative.dim() not in (1, 2) or negative.shape[:1] != positive.shape
    expected = f"negative to have shape [{len(positive)}] or [{len(positive)}, k]"
    reject_if(wrong, expected, list(negative.shape))
    check_length(len(positive), mask=mask)
    others = negative if negative.dim() == 2 else negative[:, None]
    ahead = positive[:, None] - others
    if mask is not None:  # a padding row may be NaN, and 0 times NaN is not 0
        ahead = torch.where(mask.bool()[:, None], ahead, 0)
    weight = None if mask is None else mask.bool()[:, None].expand_as(ahead)
    return weighted_mean(-logsigmoid(ahead), weight)
