"""FedEgo's client with PyG: a reduction layer, SAGE layers, neighbours by a `NeighborLoader`."""

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.loader import NeighborLoader
from torch_geometric.nn import SAGEConv


class Net(nn.Module):
    """FedEgo's network; `sizes` are features, hidden units, classes."""

    def __init__(self, *sizes: int, layers: int = 2, dropout: float = 0.5) -> None:
        super().__init__()
        features, hidden, classes = sizes
        self.dropout = dropout
        self.reduction = nn.Linear(features, hidden)
        self.convs = nn.ModuleList(SAGEConv(hidden, hidden) for _ in range(layers))
        self.head = nn.Linear(hidden, classes, bias=False)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = F.dropout(self.reduction(x).relu(), self.dropout, self.training)
        for conv in self.convs:
            h = conv(h, edge_index).relu()
        out: Tensor = self.head(F.dropout(h, self.dropout, self.training))
        return out


def loss(model: nn.Module, batch: Any) -> Tensor:
    """Cross-entropy of the centres, which stand first."""
    logits = model(batch.x, batch.edge_index)[: batch.batch_size]
    return F.cross_entropy(logits, batch.y[: batch.batch_size])


def batches(
    data: Any, *, epochs: int = 5, batch_size: int = 32, fanouts: tuple[int, ...] = (6, 6)
) -> Iterator[Any]:
    """Each epoch sees a fifth as many training nodes as the client has nodes, drawn anew."""
    pool = data.train_mask.nonzero().squeeze(1)
    for _ in range(epochs):
        drawn = pool[torch.randperm(len(pool))[: max(data.num_nodes // 5, 1)]]
        how = {"batch_size": batch_size, "input_nodes": drawn, "replace": True}
        yield from NeighborLoader(data, list(fanouts), **how)
