"""Local training equals a training loop written by hand."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from federations import CLASSES, FEATURES, fedavg, graph, model, same, without_training_nodes
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


def test_buffers_move_and_frozen_parameters_stay() -> None:
    net = Normalised()
    method = fgl.fedavg(net, train=Training(num_steps=4))
    params, *_ = train(method, method.initial(), graph(), {}, seed=0)
    assert params["norm.num_batches_tracked"] == 4
    assert params["norm.running_mean"].any()
    assert params["scale"] == 2
    assert not torch.equal(params["last.weight"], net.last.weight)
    assert net.norm.num_batches_tracked == 0


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


def test_no_step_changes_nothing() -> None:
    method = fedavg(model(), Training(num_steps=0))
    start = method.initial()
    assert same(train(method, start, graph(), {}, seed=0)[:2], (start, []))


def test_training_leaves_everything_else_alone() -> None:
    net, data = model(), graph()
    net.eval()
    method = fedavg(net)
    start = method.initial()
    before = copy.deepcopy((start, dict(net.state_dict()), data.x, data.edge_index))
    random = torch.get_rng_state()
    got, *_ = train(method, start, data, {}, seed=0)
    assert same((start, dict(net.state_dict()), data.x, data.edge_index), before)
    assert torch.equal(torch.get_rng_state(), random)
    assert all(p.grad is None for p in net.parameters())
    assert not net.training
    assert not any(tensor.requires_grad for tensor in got.values())


def test_an_error_in_the_loss_leaves_mode_and_randomness_as_they_were() -> None:
    def loss(*_: Any) -> Tensor:
        torch.rand(1)
        raise KeyError("x")

    net = model().eval()
    random = torch.get_rng_state()
    with pytest.raises(KeyError):
        train(replace(fedavg(net), loss=loss), fedavg(net).initial(), graph(), {}, seed=0)
    assert not net.training
    assert torch.equal(torch.get_rng_state(), random)


def test_training_happens_also_without_gradients_around_it() -> None:
    method, data = fedavg(model()), graph()
    want = train(method, method.initial(), data, {}, seed=0)
    with torch.no_grad():
        assert same(train(method, method.initial(), data, {}, seed=0), want)


def test_losses_are_those_before_each_step() -> None:
    net, data = model(dropout=0.0), graph()
    method = fedavg(net, Training(OPTIMIZERS["sgd"], num_steps=5))
    _, losses, _ = train(method, method.initial(), data, {}, seed=0)
    mask = data.train_mask
    first = F.cross_entropy(net(data.x, data.adj)[mask], data.y[mask]).item()
    assert losses[0] == pytest.approx(first, abs=1e-6)
    assert len(losses) == 5
    assert losses[-1] < losses[0]


def test_context_reaches_the_loss() -> None:
    seen = []

    def loss(params: Any, data: fgl.Graph, context: Any) -> Tensor:
        seen.append(context)
        return params["convs.0.bias"].sum()

    method = replace(fedavg(model()), loss=loss)
    context = {"teacher": torch.ones(1)}
    train(method, method.initial(), graph(), context, seed=0)
    assert all(c is context for c in seen)


def test_client_without_a_training_node_moves_nowhere() -> None:
    method = fedavg(model(), Training(OPTIMIZERS["sgd"], num_steps=3))
    start = method.initial()
    params, losses, _ = train(method, start, without_training_nodes(), {}, seed=0)
    assert same(params, start)
    assert losses == [0, 0, 0]
