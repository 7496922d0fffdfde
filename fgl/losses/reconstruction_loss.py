"""Losses of a variational graph autoencoder: graph reconstruction and KL divergence."""

import torch
import torch.nn.functional as F
from torch import Tensor

from ..checks import check_choice, reject_if
from ..sparse.rows import widened
from .pair_scores import pair_scores
from .weighted_mean import mask_weight, weighted_mean

KINDS = ("sampled", "dense", "dense_weighted")


def sampled_reconstruction(
    z: Tensor,
    edges: Tensor,
    negatives: Tensor | None = None,
    *,
    mask: Tensor | None = None,
    negative_mask: Tensor | None = None,
) -> Tensor:
    """Reconstruction loss over the edges and equally many sampled pairs (FedVGAE, Eq. 7).

    ``(sum_edges softplus(-z_u . z_v) + sum_negatives softplus(z_u . z_v)) / (edges + negatives)``,
    the mean binary cross-entropy of the logits. The function takes O(num_edges d) time and builds
    no tensor of size n x n.

    Args:
        z: float ``[n, d]``, sampled embeddings.
        edges: int64 ``[2, num_edges]``; an edge can be listed in one direction or in both
            directions.
        negatives: int64 ``[2, *]``. By default, one pair per edge is sampled uniformly from the
            pairs of two distinct nodes, with torch's global generator. A sampled pair may be an
            edge; `fgl.data.splits.negative_edges` excludes edges. For a batch of padded clients,
            negatives must be given.
        mask: bool ``[num_edges]``, the edges to include; by default all.
        negative_mask: bool ``[*]``, the negatives to include; by default all.

    Returns:
        A scalar: the loss. If neither edges nor negatives are included, the loss and its gradient
        are 0.

    Raises:
        ValueError: if shapes do not match, or if negatives must be sampled and there are fewer than
            two nodes.

    Example:
        >>> z = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
        >>> sampled_reconstruction(z, torch.tensor([[0], [1]]), torch.tensor([[0], [0]]))
        tensor(1.0032)

    Source: FedVGAE, IEEE Transactions on Big Data 2024; Kipf and Welling 2016
    """
    negatives = _uniform_pairs(z.shape[0], edges) if negatives is None else negatives
    own = mask_weight("mask", mask, edges.shape[1:], z)
    other = mask_weight("negative_mask", negative_mask, negatives.shape[1:], z)
    # Masked-out pairs are replaced by node 0 with itself, because 0 times infinity is not 0.
    edges, negatives = _kept(edges, mask), _kept(negatives, negative_mask)
    dtype, z = z.dtype, widened(z)
    loss = torch.cat([F.softplus(-pair_scores(z, edges)), F.softplus(pair_scores(z, negatives))])
    return weighted_mean(loss, torch.cat([own, other])).to(dtype)


def dense_reconstruction(
    z: Tensor,
    edges: Tensor,
    *,
    weighted: bool = False,
    mask: Tensor | None = None,
    node_mask: Tensor | None = None,
) -> Tensor:
    """Reconstruction loss over the whole adjacency matrix (FedVGAE, Eq. 7); O(n^2) memory.

    The printed equation is ``1/n sum_uv BCE(z_u . z_v, A_uv)``. On a sparse graph, the terms of
    pairs without an edge dominate this sum. Let m be the number of ones in A. In the weighted form,
    the term of an edge has weight ``(n^2 - m) / m``, and the factor of the sum is ``1 / (2 (n^2 -
    m))`` instead of ``1/n``.

    Args:
        z: float ``[n, d]``, sampled embeddings.
        edges: int64 ``[2, num_edges]``, the entries of A that are 1: each edge in both directions,
            without repeats.
        weighted: whether to use the weighted form, in which all edges together have the same weight
            as all other pairs together.
        mask: bool ``[num_edges]``, False for padding edges; by default all True.
        node_mask: bool ``[n]``, False for padding nodes; by default all True.

    Returns:
        A scalar: the loss. If there is no node, the loss and its gradient are 0.

    Raises:
        ValueError: if shapes do not match.

    Example:
        >>> z, edges = torch.zeros(2, 1), torch.tensor([[0, 1], [1, 0]])
        >>> dense_reconstruction(z, edges), dense_reconstruction(z, edges, weighted=True)
        (tensor(1.3863), tensor(0.6931))

    Source: FedVGAE, IEEE Transactions on Big Data 2024; Kipf and Welling 2016
    """
    dtype, z = z.dtype, widened(z)
    weights = mask_weight("mask", mask, edges.shape[1:], z)
    nodes = mask_weight("node_mask", node_mask, z.shape[:1], z)
    if node_mask is not None:
        z = torch.where(node_mask.bool()[:, None], z, 0)
    n, m = nodes.sum(), weights.sum()
    everywhere = nodes @ F.softplus(z @ z.t()) @ nodes  # the loss if there were no edge
    scores = pair_scores(z, edges)
    absent = n * n - m
    weight = absent / (m + (m == 0)) if weighted else 1.0
    total = everywhere + ((weight * F.softplus(-scores) - F.softplus(scores)) * weights).sum()
    scale = 2 * absent if weighted else n
    return (total / (scale + (scale == 0))).to(dtype)


def reconstruction_loss(
    z: Tensor,
    edges: Tensor,
    negatives: Tensor | None = None,
    *,
    kind: str = "sampled",
    mask: Tensor | None = None,
    negative_mask: Tensor | None = None,
    node_mask: Tensor | None = None,
) -> Tensor:
    """Reconstruction loss in one of three forms, selected by name (FedVGAE, Eq. 7).

    Args:
        z: float ``[n, d]``, sampled embeddings.
        edges: int64 ``[2, num_edges]``. With ``kind="dense"`` and ``kind="dense_weighted"``,
            `edges` must contain both directions of each edge.
        negatives: int64 ``[2, *]``, see `sampled_reconstruction`. Only ``kind="sampled"`` uses
            `negatives`.
        kind: ``"sampled"`` calls `sampled_reconstruction`. ``"dense"`` (the printed equation) and
            ``"dense_weighted"`` call `dense_reconstruction`.
        mask, negative_mask, node_mask: masks of the edges, negatives and nodes to include; default
            all.

    Returns:
        Scalar.

    Raises:
        ValueError: if `kind` is unknown, or if shapes do not match.

    Example:
        >>> reconstruction_loss(torch.zeros(2, 1), torch.tensor([[0], [1]]), kind="dense")
        tensor(1.3863)

    Source: FedVGAE, IEEE Transactions on Big Data 2024
    """
    if kind == "sampled":
        return sampled_reconstruction(z, edges, negatives, mask=mask, negative_mask=negative_mask)
    check_choice("kind", kind, KINDS)
    weighted = kind == "dense_weighted"
    return dense_reconstruction(z, edges, weighted=weighted, mask=mask, node_mask=node_mask)


def _uniform_pairs(num_nodes: int, edges: Tensor) -> Tensor:
    count = edges.shape[1]
    reject_if(count and num_nodes < 2, "z to have at least 2 rows", num_nodes)
    source = torch.randint(max(num_nodes, 1), (count,), device=edges.device)
    step = torch.randint(1, max(num_nodes, 2), (count,), device=edges.device)
    return torch.stack([source, (source + step) % num_nodes])


def _kept(pairs: Tensor, mask: Tensor | None) -> Tensor:
    return pairs if mask is None else torch.where(mask.bool(), pairs, 0)


def kl_divergence(mu: Tensor, log_sigma: Tensor, *, mask: Tensor | None = None) -> Tensor:
    """KL divergence of the embedding distribution from a standard normal (FedVGAE, Eq. 6).

    ``1/n sum_u 1/2 sum_j (mu_uj^2 + sigma_uj^2 - log sigma_uj^2 - 1)``. The paper's equation is a
    sum over u. This function returns the mean over u. The tasks of FedVGAE multiply this mean by a
    weight of 1/n, see `fgl.tasks.link_task`.

    Args:
        mu: float ``[n, d]``.
        log_sigma: float ``[n, d]``.
        mask: bool ``[n]``, False for padding nodes; by default all True.

    Returns:
        A scalar: the loss. If there is no node, the loss and its gradient are 0.

    Raises:
        ValueError: if shapes do not match.

    Example:
        >>> kl_divergence(torch.ones(3, 2), torch.zeros(3, 2))
        tensor(1.)

    Source: FedVGAE, IEEE Transactions on Big Data 2024; Kingma and Welling 2014,
    https://arxiv.org/abs/1312.6114, appendix B
    """
    expected = f"log_sigma to have the shape of mu {list(mu.shape)} [n, d]"
    reject_if(mu.dim() != 2 or mu.shape != log_sigma.shape, expected, list(log_sigma.shape))
    weight = mask_weight("mask", mask, mu.shape[:1], mu)
    if mask is not None:  # a padding node may be infinite, and 0 times infinity is not 0
        counted = mask.bool()[:, None]
        mu, log_sigma = torch.where(counted, mu, 0), torch.where(counted, log_sigma, 0)
    each = (mu.square() + (2 * log_sigma).exp() - 2 * log_sigma - 1).sum(1) / 2
    return weighted_mean(each, weight)
