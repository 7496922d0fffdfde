"""SCAFFOLD: what control variates are, that their mean is the server's, and what they change."""

from dataclasses import replace
from functools import partial
from typing import Any

import by_loops
import pytest
import torch
from federations import close, fedavg, graphs, minibatches, model, refuses
from torch import Tensor, optim

import fgl
from fgl import Method, Result, Training
from fgl.methods import scaffold
from fgl.methods.scaffold import rate_of_path

LR = 0.1
SGD = Training(partial(optim.SGD, lr=LR), num_steps=3)
ADAM = Training(partial(optim.Adam, lr=0.01), num_steps=2)
F64 = torch.float64
AT_ONCE = pytest.mark.parametrize("at_once", [1, "all"])
Params = dict[str, Tensor]


def doubles() -> list[fgl.Graph]:
    return [each.replace(x=each.x.to(F64)) for each in graphs()]


def plain(how: Training = SGD, dtype: torch.dtype = F64) -> Method:
    return fedavg(model(dropout=0.0).to(dtype), how)


def weights(result: Result, client: int = 0) -> Params:
    params: Any = result.outbox[client]["model"]
    return params


def gradient(method: Method, params: Params, own: fgl.Graph) -> Params:
    return by_loops.gradient(lambda leaves: method.loss(leaves, own, {}), params)


def test_a_path_by_hand() -> None:
    """Two rounds of two clients, three steps each, in a loop, from the paper's lines."""
    base, clients, eta, rate = plain(), doubles()[:2], LR, 0.6
    theta = base.initial()
    zeros = {name: torch.zeros_like(value) for name, value in theta.items()}
    common, own = zeros, [zeros, zeros]
    for _ in range(3):
        moved, shifts = [], []
        for k, data in enumerate(clients):
            y = dict(theta)
            for _ in range(3):
                g = gradient(base, y, data)
                y = {n: y[n] - eta * (g[n] - own[k][n] + common[n]) for n in y}
            new = {n: own[k][n] - common[n] + (theta[n] - y[n]) / (3 * eta) for n in y}
            moved.append({n: y[n] - theta[n] for n in y})
            shifts.append({n: new[n] - own[k][n] for n in y})
            own[k] = new
        theta = {n: theta[n] + rate * (moved[0][n] + moved[1][n]) / 2 for n in theta}
        common = {n: common[n] + (shifts[0][n] + shifts[1][n]) / 2 for n in theta}
    result = fgl.run(scaffold(base, server_lr=rate), clients, num_rounds=3)
    close(weights(result), theta, atol=1e-10)
    close(result.server_state["control"], common, atol=1e-10)


@pytest.mark.parametrize("how", [SGD, ADAM], ids=["sgd", "adam"])
@AT_ONCE
def test_a_client_without_a_step_learns_no_gradient(how: Training, at_once: Any) -> None:
    none = torch.zeros(20, dtype=torch.bool)
    clients = [*doubles()[:2], doubles()[1].replace(train_mask=none)]
    result = fgl.run(
        scaffold(plain(minibatches(how, 4))), clients, num_rounds=2, clients_at_once=at_once
    )
    idle: Any = result.client_states[2]["control"]
    assert all(not value.any() for value in idle.values())
    still = fgl.run(scaffold(plain(replace(how, num_steps=0))), clients[:2], num_rounds=2)
    close(weights(still), plain().initial(), atol=1e-12)


def test_an_adjustment_of_the_method_goes_first() -> None:
    double = lambda grads, params, context: {n: 2 * g for n, g in grads.items()}  # noqa: E731
    method = scaffold(plain(replace(SGD, adjust=double)))
    assert method.train.adjust is not None
    made = method.train.adjust({"w": torch.ones(1)}, {}, {"correction": {"w": torch.ones(1)}})
    assert made == {"w": torch.tensor([3.0])}


def test_the_rate_of_the_path_is_plain_sgds() -> None:
    def two(tensors: Any) -> optim.Optimizer:
        first, *rest = tensors
        return optim.SGD([{"params": [first], "lr": 0.5}, {"params": rest}], lr=0.1)

    momentum = Training(partial(optim.SGD, lr=0.1, momentum=0.9))
    still = Training(partial(optim.SGD, lr=0.0))
    uphill = Training(partial(optim.SGD, lr=0.1, maximize=True))  # its path is minus the gradients
    hows = (SGD, Training(partial(optim.SGD, lr=0.3)), momentum, ADAM, Training(two), still, uphill)
    assert [rate_of_path(plain(how)) for how in hows] == [LR, 0.3, *[None] * 5]


@pytest.mark.parametrize(
    ("build", "key"), [(scaffold, "control"), (partial(fgl.methods.feddc, penalty=0.0), "own")]
)
def test_a_schedule_or_another_optimizer(build: Any, key: str) -> None:
    """After one step of any rate the control is the gradient at the start of the round."""
    clients, rates = doubles(), {"lr": 0.2}
    base = plain(Training(lambda tensors: optim.SGD(tensors, **rates), num_steps=1))
    starts = [base.initial()]

    def halve(record: Any, result: Result) -> None:
        rates["lr"] /= 2
        starts.append({name: value.clone() for name, value in weights(result).items()})

    method = build(base)
    result = fgl.run(method, clients, num_rounds=3, callbacks=[halve], clients_at_once=1)
    for number, own in enumerate(clients):
        kept: Any = result.client_states[number][key]
        close(kept, gradient(base, starts[-2], own))
    other = replace(method, train=replace(method.train, optimizer=partial(optim.SGD, lr=0.5)))
    refuses(r"train\.optimizer", lambda: fgl.run(other, clients, num_rounds=1))
    more = replace(method, train=replace(method.train, num_steps=2))
    assert len(fgl.run(more, clients, num_rounds=1).history) == 1
