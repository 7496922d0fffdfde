"""FedGL's loss with PyG: a pseudo graph beside the own one, pseudo labels beside the own."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn.conv.gcn_conv import gcn_norm


def operator(
    edge_index: Tensor, pseudo_index: Tensor, pseudo_weight: Tensor, n: int, beta: float
) -> tuple[Tensor, Tensor]:
    """Edges and weights of ``norm(A + I) + beta D^-1/2 (P + P^T)/2 D^-1/2``, target after source.

    `pseudo_index` is ``P[row, col]``.
    """
    own, weight = gcn_norm(edge_index, None, n)
    row, col = pseudo_index
    row, col = torch.cat([row, col]), torch.cat([col, row])
    value = torch.cat([pseudo_weight, pseudo_weight]) / 2
    degree = torch.zeros(n).index_add(0, row, value)
    scale = degree.pow(-0.5).masked_fill(degree == 0, 0)
    value = beta * scale[row] * value * scale[col]
    return torch.cat([own, torch.stack([col, row])], 1), torch.cat([weight, value])


def loss(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    train_mask: Tensor,
    labels: Tensor,
    edges: tuple[Tensor, Tensor],
    *,
    alpha: float = 0.2,
) -> Tensor:
    """Cross-entropy of the labels and of the pseudo labels (-1 for none) on the other nodes."""
    logits = model(x, *edges)
    total = F.cross_entropy(logits[train_mask], y[train_mask])
    free = ~train_mask & (labels >= 0)
    if free.any():
        total = total + alpha * F.cross_entropy(logits[free], labels[free])
    return total
