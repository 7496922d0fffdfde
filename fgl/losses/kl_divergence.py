"""Divergence of a variational autoencoder's embeddings from a standard normal distribution."""

from __future__ import annotations

import torch
from torch import Tensor

from ..checks import reject_if
from ..kinds import explained
from .weighted_mean import mask_weight, weighted_mean


@explained
def kl_divergence(mu: Tensor, log_sigma: Tensor, *, mask: Tensor | None = None) -> Tensor:
    """Divergence of the embeddings' distribution from a standard normal one (FedVGAE, Eq. 6).

    ``1/n sum_u 1/2 sum_j (mu_uj^2 + sigma_uj^2 - log sigma_uj^2 - 1)``. The paper prints the sum
    over u; this is its mean. The tasks of FedVGAE weight it by 1/n once more, see
    `fgl.tasks.link_task`.

    Args:
        mu: float ``[n, d]``.
        log_sigma: float ``[n, d]``.
        mask: bool ``[n]``, the nodes that are there; default all.

    Returns:
        Scalar; 0, with a gradient, where there is no node.

    Raises:
        ValueError: if a shape disagrees.

    Example:
        >>> kl_divergence(torch.ones(3, 2), torch.zeros(3, 2))
        tensor(1.)

    Source: FedVGAE, IEEE Transactions on Big Data 2024; Kingma and Welling 2014,
    https://arxiv.org/abs/1312.6114, appendix B
    """
    reject_if(
        mu.dim() != 2 or mu.shape != log_sigma.shape,
        f"log_sigma to have the shape of mu {list(mu.shape)} [n, d]",
        list(log_sigma.shape),
    )
    weight = mask_weight("mask", mask, mu.shape[:1], mu)
    if mask is not None:  # 0 times the infinity of a node that is not there is not 0
        counted = mask.bool()[:, None]
        mu, log_sigma = torch.where(counted, mu, 0), torch.where(counted, log_sigma, 0)
    each = (mu.square() + (2 * log_sigma).exp() - 2 * log_sigma - 1).sum(1) / 2
    return weighted_mean(each, weight)
