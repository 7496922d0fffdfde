"""Attention over clients: the share that each client takes of each other one, rows with sum 1."""

from __future__ import annotations

import torch
from torch import Tensor

from ..checks import check_number, check_rows, check_share, check_weight
from ..kinds import explained


@explained
def softmax_attention(alike: Tensor, *, scale: float = 10.0, own: float | None = None) -> Tensor:
    """Rows of ``exp(scale S_ij) / sum_k exp(scale S_ik)`` (FED-PUB; HeurFedAMP).

    Args:
        alike: float ``[k, k]``, S, e.g. a `similarity`.
        scale: how sharp the rows are, at least 0; 0 gives equal shares.
        own: a client's weight of itself, in [0, 1]; then the softmax is over the others, and they
            share the rest (HeurFedAMP). Default none: a client is one of all (FED-PUB).

    Returns:
        float ``[k, k]``, its rows with sum 1. A client that is alone has weight 1.

    Raises:
        TypeError, ValueError: if `alike` is not floating point, square and finite, or a number is
            out of range.

    Example:
        >>> softmax_attention(torch.zeros(3, 3), own=0.5)
        tensor([[0.5000, 0.2500, 0.2500],
                [0.2500, 0.5000, 0.2500],
                [0.2500, 0.2500, 0.5000]])

    Source: Baek et al. 2023, https://arxiv.org/abs/2206.10206; Huang et al. 2021,
    https://arxiv.org/abs/2007.03797
    """
    check_rows("alike", alike, "k, k")
    check_weight(scale=scale)
    if own is None:
        return torch.softmax(scale * alike, dim=1)
    check_share(own=own)
    itself = torch.eye(len(alike), dtype=alike.dtype, device=alike.device)
    if len(alike) < 2:
        return itself
    others = torch.softmax((scale * alike).masked_fill(itself.bool(), -torch.inf), dim=1)
    return own * itself + (1 - own) * others


@explained
def distance_attention(rows: Tensor, *, sigma: float = 1.0, lr: float = 1.0) -> Tensor:
    """A step towards the clients that are near: ``xi_ij = lr A'(||r_i - r_j||^2)`` (FedAMP).

    ``A(x) = 1 - exp(-x / sigma)``, so ``A'(x) = exp(-x / sigma) / sigma``, and
    ``xi_ii = 1 - sum_{j != i} xi_ij``. The paper asks for a step so small that no ``xi_ii`` is
    negative: a row whose others sum to more than 1 takes the step that brings them to 1.

    Args:
        rows: float ``[k, P]``, one client's flattened parameters per row.
        sigma: squared distance at which attention falls to 1 / e, above 0.
        lr: alpha_K, the step, at least 0.

    Returns:
        float ``[k, k]``, not negative, its rows with sum 1.

    Raises:
        TypeError, ValueError: if `rows` is not floating point, a matrix and finite, or a number is
            out of range.

    Example:
        >>> distance_attention(torch.tensor([[0.0], [0.0], [99.0]]), lr=0.5)
        tensor([[0.5000, 0.5000, 0.0000],
                [0.5000, 0.5000, 0.0000],
                [0.0000, 0.0000, 1.0000]])

    Source: Huang et al. 2021, https://arxiv.org/abs/2007.03797
    """
    check_rows("rows", rows, "k, P")
    check_number("sigma", sigma, above=0)
    check_weight(lr=lr)
    # Exact differences: the squares of a product would cancel where two models are near.
    apart = torch.cdist(rows, rows, compute_mode="donot_use_mm_for_euclid_dist").square()
    others = (lr / sigma * torch.exp(-apart / sigma)).fill_diagonal_(0)
    others = others / others.sum(1, keepdim=True).clamp(min=1)
    return others + torch.diag((1 - others.sum(1)).clamp(min=0))
