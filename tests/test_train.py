"""Local training equals a training loop written by hand."""

import copy
from collections.abc import Callable
from functools import partial

import pytest
import torch
from federations import CLASSES, FEATURES, graph, model, same
from torch import Tensor, nn

import fgl
from fgl import Training
from fgl.federation import train

OPTIMIZERS = {
    "sgd": partial(torch.optim.SGD, lr=0.1),
    "momentum": partial(
        torch.optim.SGD, lr=0.1, momentum=0.9, nesterov=True, weight_decay=5e-4, fused=True
    ),
    "adam": partial(torch.optim.Adam, lr=0.01, weight_decay=5e-4, fused=True),
    "adamw": partial(torch.optim.AdamW, lr=0.01, fused=True),
}


class Normalised(nn.Module):
    """Any module will do: this one knows nothing of fgl, has buffers and a frozen parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(FEATURES, 5)
        self.norm = nn.BatchNorm1d(5)
        self.last = nn.Linear(5, CLASSES)
        self.scale = nn.Parameter(torch.tensor(2.0), requires_grad=False)

    def forward(self, x: Tensor, adj: fgl.SparseMatrix) -> Tensor:
        return self.last(self.norm(adj @ self.first(x)).relu()) * self.scale


class OfRows(nn.Module):
    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor, adj: fgl.SparseMatrix) -> Tensor:
        return self.net(x)[:, :CLASSES].float()


def plain_training(
    net: nn.Module,
    data: fgl.Graph,
    optimizer: Callable[..., torch.optim.Optimizer],
    *,
    num_steps: int,
    seed: int,
    max_grad_norm: float | None = None,
) -> tuple[dict[str, Tensor], list[float]]:
    net = copy.deepcopy(net).train()
    step = optimizer([p for p in net.parameters() if p.requires_grad])
    losses = []
    torch.manual_seed(seed)
    for _ in range(num_steps):
        step.zero_grad()
        loss = fgl.losses.cross_entropy(net(data.x, data.adj), data.y, data.train_mask)
        loss.backward()
        if max_grad_norm is not None:
            nn.utils.clip_grad_norm_(net.parameters(), max_grad_norm)
        step.step()
        losses.append(loss.item())
    return {name: t.detach() for name, t in net.state_dict().items()}, losses


@pytest.mark.parametrize("rule", OPTIMIZERS)
@pytest.mark.parametrize("kind", ["gcn", "gat", "normalised"])
def test_training_equals_a_plain_loop_bit_for_bit(kind: str, rule: str) -> None:
    torch.manual_seed(3)
    nets = {"gcn": fgl.nn.GCN, "gat": fgl.nn.GAT}
    net = Normalised() if kind == "normalised" else model(nets[kind])
    data = graph()
    method = fgl.fedavg(net, train=Training(OPTIMIZERS[rule], num_steps=3))
    got = train(method, method.initial(), data, {}, seed=11)
    assert same(got[:2], plain_training(net, data, OPTIMIZERS[rule], num_steps=3, seed=11))


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


def test_gradient_is_clipped() -> None:
    net, data, sgd = model(), graph(), OPTIMIZERS["sgd"]
    results = {}
    for limit in (None, 1e6, 1e-3):
        method = fgl.fedavg(net, train=Training(sgd, num_steps=2, max_grad_norm=limit))
        results[limit] = train(method, method.initial(), data, {}, seed=1)
        want = plain_training(net, data, sgd, num_steps=2, seed=1, max_grad_norm=limit)
        assert same(results[limit][:2], want)
    assert same(results[1e6], results[None])
    start = method.initial()
    moved = [(value - start[name]).square().sum() for name, value in results[1e-3][0].items()]
    assert 0 < sum(moved) ** 0.5 <= 2 * 0.1 * 1e-3 * 1.001
