"""GPFL's client with PyG: a GIN on minibatches of graphs, and its answers to the random graphs."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import GINConv, global_add_pool


class Net(nn.Module):
    """GPFL's network; `sizes` are features, hidden units, classes."""

    def __init__(self, *sizes: int, layers: int = 3, dropout: float = 0.5) -> None:
        super().__init__()
        features, hidden, classes = sizes
        self.dropout = dropout
        self.pre = nn.Linear(features, hidden)
        self.convs = nn.ModuleList(
            GINConv(nn.Sequential(nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, hidden)))
            for _ in range(layers)
        )
        self.post = nn.Linear(hidden, hidden)
        self.readout = nn.Linear(hidden, classes)

    def forward(self, data: Any) -> Tensor:
        h = self.pre(data.x)
        for conv in self.convs:
            h = F.dropout(conv(h, data.edge_index).relu(), self.dropout, self.training)
        h = self.post(global_add_pool(h, data.batch)).relu()
        return self.readout(F.dropout(h, self.dropout, self.training))


def loss(model: nn.Module, data: Any) -> Tensor:
    """Cross-entropy of a minibatch of graphs."""
    return F.cross_entropy(model(data), data.y)


@torch.no_grad()
def answers(model: nn.Module, probes: Any) -> Tensor:
    """What a client uploads beside its model."""
    model.eval()
    found: Tensor = model(probes).log_softmax(1)
    model.train()
    return found
