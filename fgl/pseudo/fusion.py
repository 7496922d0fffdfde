"""Fusion: if several clients have the same node, average their predictions for this node."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ..checks import check_choice, reject_if
from ..losses import cross_entropy
from ..sparse import sum_rows
from .uploads import check_node_rows

FILLS = ("renormalised", "padded")


def fuse(
    rows: Sequence[Tensor],
    node_id: Sequence[Tensor],
    weight: Tensor,
    num_nodes: int,
    *,
    fill: str = "renormalised",
    threshold: float = 0.0,
) -> Tensor:
    """For each node, the weighted mean over all clients that have the node (FedGL, Eq. 12).

    ``out_i = sum_{k holds i} w_k rows_k[i] / sum_{k holds i} w_k``. A node that no client holds
    gets 0. The two sums are computed by node id, so that no tensor of size clients x nodes is
    created.

    Args:
        rows: one float ``[N_k, C]`` per client, e.g. predictions or embeddings.
        node_id: for each client, the global ids of its rows: int64 ``[N_k]``, without repeats.
        weight: float ``[K]``, non-negative (FedGL: the clients' numbers of nodes).
        num_nodes: number of nodes in the federation.
        fill: with ``"renormalised"``, the function computes the formula above. With ``"padded"``,
            it computes the equation that the paper prints. In this equation, the denominator is the
            sum of the weights of *all* clients.
        threshold: before the fusion, entries below this value are set to 0, as in the public port.
            By default all entries are kept.

    Returns:
        float ``[num_nodes, C]``.

    Raises:
        ValueError: if a client's number of rows differs from its number of ids, if ids repeat or
            are out of range, if widths differ, if a weight is negative, if all weights are 0, or if
            `fill` is unknown.

    Example:
        >>> rows = [torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0], [0.5, 0.5]])]
        >>> ids = [torch.tensor([0]), torch.tensor([0, 2])]
        >>> fuse(rows, ids, torch.tensor([3, 1]), num_nodes=3)
        tensor([[0.7500, 0.2500],
                [0.0000, 0.0000],
                [0.5000, 0.5000]])

    Source: FedGL, Information Sciences 2024
    """
    check_choice("fill", fill, FILLS)
    sizes = [len(rows), len(node_id), weight.numel()]
    fits = len({*sizes}) == 1 and sizes[0] > 0
    reject_if(not fits, "rows, node_id and weight to be one per client", sizes)
    wrong = not torch.isfinite(weight).all() or (weight < 0).any() or not weight.any()
    reject_if(wrong, "weight to be >= 0 and not all 0", weight.tolist())
    for client, (own, ids) in enumerate(zip(rows, node_id, strict=True)):
        check_node_rows(own, ids, num_nodes, width=rows[0].shape[1], name=f"client {client}'s rows")
    share = (weight.double() / weight.double().sum()).to(rows[0])
    each = torch.cat([w.expand(len(own)) for w, own in zip(share, rows, strict=True)])
    ids, values = torch.cat(list(node_id)), torch.cat(list(rows))
    if threshold:
        values = torch.where(values >= threshold, values, 0)
    total = sum_rows(values * each[:, None], ids, num_nodes)
    if fill == "padded":
        return total
    cover = sum_rows(each, ids, num_nodes)
    return total / torch.where(cover > 0, cover, 1)[:, None]


def fuse_uploads(
    uploads: Iterable[Mapping[str, Any]],
    num_nodes: int,
    *,
    fill: str = "renormalised",
    threshold: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """Fuse the clients' predictions and embeddings node by node (see `fuse`).

    Args:
        uploads: one message per client. Each message must pass `check_upload`. The message's
            ``num_examples`` is the client's weight.
        num_nodes: number of nodes in the federation.
        fill: see `fuse`; it applies to predictions and embeddings.
        threshold: see `fuse`; it applies only to predictions. To follow the public port, pass the
            threshold to this function, and pass 0 as the threshold of `pseudo_labels`. Each
            client's uncertain scores are then set to 0 before the fusion, and `pseudo_labels` uses
            all fused scores above 0.

    Returns:
        Predictions and embeddings, float ``[num_nodes, C]``.

    Example:
        >>> upload = {"node_id": torch.tensor([1]), "num_examples": torch.tensor(1)}
        >>> rows = {"predictions": torch.ones(1, 1), "embeddings": torch.zeros(1, 1)}
        >>> fuse_uploads([{**upload, **rows}], num_nodes=2)[0]
        tensor([[0.],
                [1.]])

    Source: FedGL, Information Sciences 2024
    """
    each = list(uploads)
    weight = torch.stack([upload["num_examples"] for upload in each])
    ids, predictions, embeddings = (
        [upload[key] for upload in each] for key in ("node_id", "predictions", "embeddings")
    )
    fused = fuse(predictions, ids, weight, num_nodes, fill=fill, threshold=threshold)
    return fused, fuse(embeddings, ids, weight, num_nodes, fill=fill)


def pseudo_labels(scores: Tensor, *, threshold: float = 0.5) -> Tensor:
    """For each node, the class with the largest score; -1 if no score exceeds a threshold.

    Args:
        scores: float ``[num_nodes, C]``, fused predictions.
        threshold: the paper's lambda.

    Returns:
        int64 ``[num_nodes]``.

    Example:
        >>> pseudo_labels(torch.tensor([[0.2, 0.8], [0.5, 0.5]]))
        tensor([ 1, -1])

    Source: FedGL, Information Sciences 2024
    """
    best, label = scores.max(1)
    return torch.where(best > threshold, label, -1)


def label_loss(logits: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
    """Cross-entropy over the nodes with a pseudo label (FedGL, Eq. 21).

    Args:
        logits: ``[N, C]``.
        labels: int64 ``[N]``, -1 for a node without a pseudo label.
        mask: bool ``[N]``, the nodes over which the mean may run: usually all nodes except training
            nodes.

    Returns:
        The mean over the mask's nodes with a pseudo label; 0 if there is no such node.

    Example:
        >>> labels, mask = torch.tensor([0, -1]), torch.ones(2, dtype=torch.bool)
        >>> label_loss(torch.zeros(2, 2), labels, mask)
        tensor(0.6931)

    Source: FedGL, Information Sciences 2024
    """
    return cross_entropy(logits, labels.clamp(min=0), (labels >= 0) & mask)
