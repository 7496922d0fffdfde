"""Contrastive loss that keeps embeddings near the received model and far from earlier models."""

import torch
from torch import Tensor

from ..checks import check_length, check_number, reject_if
from .unit_rows import unit_rows
from .weighted_mean import weighted_mean


def model_contrast(
    z: Tensor,
    received: Tensor,
    previous: Tensor | None = None,
    *,
    temperature: float = 0.5,
    mask: Tensor | None = None,
    queue_mask: Tensor | None = None,
) -> Tensor:
    """Attract embeddings to the received model's embeddings, and repel earlier models' embeddings.

    ``-mean_u log(g_u / (g_u + sum_q p_qu))`` with ``g_u = exp(cos(z_u, zg_u) / tau)`` and ``p_qu =
    exp(cos(z_u, zp_qu) / tau)`` (FedVGAE, Eq. 10; MOON, Eq. 3). Here zg are the received model's
    embeddings, and zp are the embeddings of this client's earlier models, which are kept in a
    queue. With an empty queue, the loss is 0.

    Args:
        z: float ``[n, d]``, embeddings computed by the model that is being trained.
        received: float ``[n, d]``, embeddings computed by the received model; no gradient flows to
            these embeddings.
        previous: float ``[Q, n, d]``, embeddings computed by this client's models from Q
            earlier rounds; no gradient flows to these embeddings.
        temperature: tau.
        mask: bool ``[n]``, the nodes to average over; by default all nodes.
        queue_mask: bool ``[Q]``, the entries of the queue that are in use; by default all.

    Returns:
        A scalar: the loss. If the queue or the mask is empty, the loss and its gradient are 0. Any
        row of length zero has similarity 0 to all rows and gets no gradient.

    Raises:
        ValueError: if shapes do not match, or if the temperature is not positive.

    Example:
        >>> z = torch.tensor([[1.0, 0.0]])
        >>> model_contrast(z, z, -z[None], temperature=1.0), model_contrast(z, z)
        (tensor(0.1269), tensor(0.))

    Source: FedVGAE, IEEE Transactions on Big Data 2024; Li et al., MOON, CVPR 2021,
    https://arxiv.org/abs/2103.16257
    """
    previous = received.detach()[None][:0] if previous is None else previous
    expected = f"received to have the shape of z {list(z.shape)} [n, d]"
    reject_if(z.dim() != 2 or z.shape != received.shape, expected, list(received.shape))
    fits = previous.dim() == 3 and previous.shape[1:] == z.shape
    reject_if(not fits, f"previous to have shape {['Q', *z.shape]}", list(previous.shape))
    check_length(len(z), mask=mask)
    check_length(len(previous), queue_mask=queue_mask)
    check_number("temperature", temperature, above=0)
    if mask is not None:  # a padding node may be NaN, and 0 times NaN is not 0
        counted = mask.bool()[:, None]
        z, received, previous = (torch.where(counted, rows, 0) for rows in (z, received, previous))
    if queue_mask is not None:
        previous = torch.where(queue_mask.bool()[:, None, None], previous, 0)
    own = unit_rows(z)
    positive = (own * unit_rows(received.detach())).sum(-1) / temperature
    far = (own * unit_rows(previous.detach())).sum(-1) / temperature
    if queue_mask is not None:
        far = torch.where(queue_mask.bool()[:, None], far, -torch.inf)
    return weighted_mean(torch.cat([positive[None], far]).logsumexp(0) - positive, mask)
