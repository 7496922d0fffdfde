"""Local training equals a training loop written by hand."""

from functools import partial

import torch
from federations import CLASSES, FEATURES, graph
from torch import Tensor, nn

import fgl
from fgl import Training


class OfRows(nn.Module):
    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor, adj: fgl.SparseMatrix) -> Tensor:
        return self.net(x)[:, :CLASSES].float()


def test_a_fused_step_of_half_precision_moves_every_weight() -> None:
    """torch 2.13's own fused SGD leaves tensors of 16 entries and more where they are, on a CPU."""
    sgd = partial(torch.optim.SGD, lr=0.1, momentum=0.9, fused=True)
    for dtype in (torch.bfloat16, torch.float16):
        clients = [graph(12, seed=k).replace(x=graph(12, seed=k).x.to(dtype)) for k in range(2)]  # type: ignore[union-attr]
        net = nn.Linear(FEATURES, 3 * CLASSES).to(dtype)
        method = fgl.fedavg(OfRows(net), train=Training(sgd, num_steps=2))
        for at_once in (1, 2):
            result = fgl.run(method, clients, num_rounds=1, clients_at_once=at_once)
            for name, before in method.initial().items():
                assert not result.outbox[0]["model"][name].equal(before), (dtype, at_once, name)
