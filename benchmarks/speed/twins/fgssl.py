"""FGSSL's loss with PyG: two views by PyG's own dropouts, similarities as N x N matrices."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.utils import dropout_edge, mask_feature, softmax

View = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


def view(edge_p: float, feature_p: float) -> View:
    """Drops edges, and masks columns of the features."""

    def make(x: Tensor, edge_index: Tensor) -> tuple[Tensor, Tensor]:
        return mask_feature(x, feature_p)[0], dropout_edge(edge_index, edge_p)[0]

    return make


def contrast(anchor: Tensor, keys: Tensor, y: Tensor, tau: float) -> Tensor:
    """Equation 7: positives are the keys of the same class, each against all negatives."""
    sim = F.normalize(anchor, dim=1) @ F.normalize(keys, dim=1).t() / tau
    same = y[:, None] == y
    rest = sim.masked_fill(same, -torch.inf).logsumexp(1, keepdim=True)
    return ((F.softplus(rest - sim) * same).sum(1) / same.sum(1)).mean()


def distillation(student: Tensor, teacher: Tensor, edge_index: Tensor, omega: float) -> Tensor:
    """Equations 9 to 12: each node's similarities to its neighbours."""
    source, target = edge_index
    n = len(student)
    ours, theirs = (
        softmax((z[source] * z[target]).sum(1) / omega, target, num_nodes=n)
        for z in (student, teacher)
    )
    apart = theirs * (theirs.clamp(min=1e-30).log() - ours.clamp(min=1e-30).log())
    has = torch.bincount(target, minlength=n) > 0
    return apart.sum() / has.sum()


def loss(
    model: nn.Module,
    teacher: nn.Module,
    data: Any,
    *,
    lambda_c: float = 1.5,
    lambda_d: float = 25.0,
    tau: float = 0.1,
    omega: float = 5.0,
    local_view: View | None = None,
    global_view: View | None = None,
) -> Tensor:
    """Cross-entropy, contrast and distillation; both models return logits and an embedding."""
    local_view = local_view or view(0.8, 0.5)
    global_view = global_view or view(0.3, 0.3)
    mask = data.train_mask
    logits, _ = model(data.x, data.edge_index)
    total = F.cross_entropy(logits[mask], data.y[mask])
    with torch.no_grad():
        z_global, h_global = teacher(*global_view(data.x, data.edge_index))
    z_local, h_local = model(*local_view(data.x, data.edge_index))
    total = total + lambda_c * contrast(h_local[mask], h_global[mask], data.y[mask], tau)
    return total + lambda_d * distillation(z_local, z_global, data.edge_index, omega)
