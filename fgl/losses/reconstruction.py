"""The parts of a variational graph autoencoder's bound: reconstruction and divergence."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function

from .precision import weighted_mean, widened

KINDS = ("sampled", "dense", "dense_weighted")
BLOCK = 2**20  # numbers that are gathered at a time


def pair_scores(z: Tensor, pairs: Tensor) -> Tensor:
    """Inner products of pairs of rows: the decoder's logits, ``s_uv = z_u . z_v``.

    O(num_pairs d) time; O(num_pairs + n d) extra memory, forward and backward: the rows are
    gathered a block at a time, and again in the backward.

    Args:
        z: float ``[n, d]``.
        pairs: int64 ``[2, num_pairs]``.

    Returns:
        float ``[num_pairs]``.

    Raises:
        ValueError: if a shape is another one.

    Example:
        >>> pair_scores(torch.tensor([[1.0, 0.0], [2.0, 3.0]]), torch.tensor([[0, 1], [1, 1]]))
        tensor([ 2., 13.])

    Source: Kipf and Welling 2016, https://arxiv.org/abs/1611.07308, Eq. 2
    """
    if z.dim() != 2:
        raise ValueError(f"Expected z to have shape [n, d], but got {list(z.shape)}")
    if pairs.dim() != 2 or pairs.shape[0] != 2:
        raise ValueError(f"Expected pairs to have shape [2, *], but got {list(pairs.shape)}")
    out: Tensor = _Pairs.apply(z, pairs[0], pairs[1])  # type: ignore[no-untyped-call]
    return out


def sampled_reconstruction(
    z: Tensor,
    edges: Tensor,
    negatives: Tensor | None = None,
    *,
    mask: Tensor | None = None,
    negative_mask: Tensor | None = None,
) -> Tensor:
    """Sampled reconstruction: the edges, and as many pairs that are none (FedVGAE, Eq. 7).

    ``(sum_edges softplus(-z_u . z_v) + sum_negatives softplus(z_u . z_v)) / (edges + negatives)``,
    the mean binary cross-entropy of the logits. O(num_edges d) time, nothing of size n x n.

    Args:
        z: float ``[n, d]``, sampled embeddings.
        edges: int64 ``[2, num_edges]``, in one direction or both.
        negatives: int64 ``[2, *]``; by default as many uniform pairs of two different nodes as
            there are edges, from torch's global generator, and not checked against the edges
            (`fgl.data.negative_edges` is). A batch of padded clients must give its own.
        mask: bool ``[num_edges]``, the edges that count; default all.
        negative_mask: bool ``[*]``, the negatives that count; default all.

    Returns:
        Scalar; 0, with a gradient, where there is nothing to count.

    Raises:
        ValueError: if a shape disagrees, or negatives are to be drawn from fewer than two nodes.

    Example:
        >>> z = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
        >>> sampled_reconstruction(z, torch.tensor([[0], [1]]), torch.tensor([[0], [0]]))
        tensor(1.0032)

    Source: FedVGAE, IEEE Transactions on Big Data 2024; Kipf and Welling 2016
    """
    if negatives is None:
        negatives = _uniform_pairs(z.shape[0], edges)
    weight = torch.cat(
        [_weight("mask", mask, edges, z), _weight("negative_mask", negative_mask, negatives, z)]
    )
    # What is masked out asks for the pair of node 0 and itself: 0 times infinity is not 0.
    edges, negatives = _kept(edges, mask), _kept(negatives, negative_mask)
    given, z = z.dtype, widened(z)
    loss = torch.cat([F.softplus(-pair_scores(z, edges)), F.softplus(pair_scores(z, negatives))])
    return weighted_mean(loss, weight).to(given)


def dense_reconstruction(
    z: Tensor,
    edges: Tensor,
    *,
    weighted: bool = False,
    mask: Tensor | None = None,
    node_mask: Tensor | None = None,
) -> Tensor:
    """Reconstruction of the whole adjacency matrix (FedVGAE, Eq. 7). O(n^2) time and memory.

    Literally ``1/n sum_uv BCE(z_u . z_v, A_uv)``, which on a sparse graph is won by "no edge".
    Weighted, with m ones in A: edges count ``(n^2 - m) / m`` times as much, and the factor is
    ``n^2 / (2 (n^2 - m))`` times ``1 / n^2``.

    Args:
        z: float ``[n, d]``, sampled embeddings.
        edges: int64 ``[2, num_edges]``, the ones of A: both directions of an edge, none twice.
        weighted: whether edges weigh as much as all the other pairs together.
        mask: bool ``[num_edges]``, the edges that are there; default all.
        node_mask: bool ``[n]``, the nodes that are there; default all.

    Returns:
        Scalar; 0, with a gradient, where there is no node.

    Raises:
        ValueError: if a shape disagrees.

    Example:
        >>> z, edges = torch.zeros(2, 1), torch.tensor([[0, 1], [1, 0]])
        >>> dense_reconstruction(z, edges), dense_reconstruction(z, edges, weighted=True)
        (tensor(1.3863), tensor(0.6931))

    Source: FedVGAE, IEEE Transactions on Big Data 2024; Kipf and Welling 2016
    """
    given, z = z.dtype, widened(z)
    there = _weight("mask", mask, edges, z)
    nodes = _node_weight("node_mask", node_mask, z)
    if node_mask is not None:
        z = torch.where(node_mask.bool()[:, None], z, 0)
    n, m = nodes.sum(), there.sum()
    everywhere = nodes @ F.softplus(z @ z.t()) @ nodes  # as if there were no edge
    scores = pair_scores(z, edges)
    absent = n * n - m
    weight = absent / (m + (m == 0)) if weighted else 1.0
    total = everywhere + ((weight * F.softplus(-scores) - F.softplus(scores)) * there).sum()
    scale = 2 * absent if weighted else n
    return (total / (scale + (scale == 0))).to(given)


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
    """Reconstruction in the form that is chosen by name (FedVGAE, Eq. 7).

    Args:
        z: float ``[n, d]``, sampled embeddings.
        edges: int64 ``[2, num_edges]``; both directions of each for the dense forms.
        negatives: int64 ``[2, *]``; see `sampled_reconstruction`; of no use to the others.
        kind: ``"sampled"``: `sampled_reconstruction`; ``"dense"`` (as printed) or
            ``"dense_weighted"``: `dense_reconstruction`.
        mask, negative_mask, node_mask: edges, negatives and nodes that count; default all.

    Returns:
        Scalar.

    Raises:
        ValueError: if `kind` is another one, or a shape disagrees.

    Example:
        >>> reconstruction_loss(torch.zeros(2, 1), torch.tensor([[0], [1]]), kind="dense")
        tensor(1.3863)

    Source: FedVGAE, IEEE Transactions on Big Data 2024
    """
    if kind == "sampled":
        return sampled_reconstruction(z, edges, negatives, mask=mask, negative_mask=negative_mask)
    if kind not in KINDS:
        raise ValueError(f"Expected kind to be one of {KINDS}, but got {kind!r}")
    weighted = kind == "dense_weighted"
    return dense_reconstruction(z, edges, weighted=weighted, mask=mask, node_mask=node_mask)


def kl_divergence(mu: Tensor, log_sigma: Tensor, *, mask: Tensor | None = None) -> Tensor:
    """Divergence of the embeddings' distribution from a standard normal one (FedVGAE, Eq. 6).

    ``1/n sum_u 1/2 sum_j (mu_uj^2 + sigma_uj^2 - log sigma_uj^2 - 1)``.

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
    if mu.dim() != 2 or mu.shape != log_sigma.shape:
        raise ValueError(
            f"Expected log_sigma to have the shape of mu {list(mu.shape)} [n, d], "
            f"but got {list(log_sigma.shape)}"
        )
    weight = _node_weight("mask", mask, mu)
    if mask is not None:  # 0 times the infinity of a node that is not there is not 0
        there = mask.bool()[:, None]
        mu, log_sigma = torch.where(there, mu, 0), torch.where(there, log_sigma, 0)
    each = (mu.square() + (2 * log_sigma).exp() - 2 * log_sigma - 1).sum(1) / 2
    return weighted_mean(each, weight)


def _uniform_pairs(num_nodes: int, edges: Tensor) -> Tensor:
    count = edges.shape[1]
    if count and num_nodes < 2:
        raise ValueError(f"Expected z to have at least 2 rows, but got {num_nodes}")
    source = torch.randint(max(num_nodes, 1), (count,), device=edges.device)
    step = torch.randint(1, max(num_nodes, 2), (count,), device=edges.device)
    return torch.stack([source, (source + step) % max(num_nodes, 1)])


def _weight(name: str, mask: Tensor | None, pairs: Tensor, z: Tensor) -> Tensor:
    if mask is None:
        return z.new_ones(pairs.shape[1:])
    if mask.shape != pairs.shape[1:]:
        raise ValueError(
            f"Expected {name} to have shape {list(pairs.shape[1:])}, but got {list(mask.shape)}"
        )
    return mask.to(z.dtype)


def _kept(pairs: Tensor, mask: Tensor | None) -> Tensor:
    return pairs if mask is None else torch.where(mask.bool(), pairs, 0)


def _node_weight(name: str, mask: Tensor | None, z: Tensor) -> Tensor:
    if mask is None:
        return z.new_ones(z.shape[0])
    if mask.shape != z.shape[:1]:
        raise ValueError(
            f"Expected {name} to have shape [{z.shape[0]}], but got {list(mask.shape)}"
        )
    return mask.to(z.dtype)


class _Pairs(Function):
    """Inner products of pairs of rows, a block of pairs at a time."""

    @staticmethod
    def forward(z: Tensor, left: Tensor, right: Tensor) -> Tensor:
        out = z.new_empty(left.shape)
        size = max(1, BLOCK // max(z.shape[1], 1))
        for part, u, v in zip(out.split(size), left.split(size), right.split(size), strict=True):
            part.copy_((z.index_select(0, u) * z.index_select(0, v)).sum(1))
        return out

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        z, left, right = ctx.saved_tensors
        out = torch.zeros_like(z)
        size = max(1, BLOCK // max(z.shape[1], 1))
        for g, u, v in zip(grad.split(size), left.split(size), right.split(size), strict=True):
            out.index_add_(0, u, g[:, None] * z.index_select(0, v))
            out.index_add_(0, v, g[:, None] * z.index_select(0, u))
        return out, None, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Tensor) -> tuple[Tensor, int]:
        """All clients' rows under each other, each client's pairs pointing at its own."""
        size = info.batch_size
        z, left, right = (
            a.movedim(dim, 0) if dim is not None else a.expand(size, *a.shape)
            for a, dim in zip(args, in_dims, strict=True)
        )
        for nodes in (left, right):  # shifted, they would be another client's
            if nodes.numel() and not 0 <= int(nodes.min()) <= int(nodes.max()) < z.shape[1]:
                raise IndexError(f"Expected pairs to be in [0, {z.shape[1]}), but got another node")
        shift = torch.arange(size, device=left.device)[:, None] * z.shape[1]
        flat = ((nodes + shift).flatten() for nodes in (left, right))
        out: Tensor = _Pairs.apply(z.flatten(0, 1), *flat)  # type: ignore[no-untyped-call]
        return out.view(size, -1), 0
