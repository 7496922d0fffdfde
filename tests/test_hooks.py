"""Hooks of local training: `adjust` and `settle`, alone and in a batch; what `send` is told."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from by_loops import gradient
from federations import close, fedavg, graphs, model, refuses
from torch import optim

import fgl
from fgl import SparseMatrix, Training
from fgl.federation import minimise, train

OPTIMIZERS: dict[str, Any] = {
    "momentum": partial(optim.SGD, lr=0.05, momentum=0.9),
    "decay": partial(optim.SGD, lr=0.05, weight_decay=0.1),
    "adam": partial(optim.Adam, lr=0.01, weight_decay=1e-2),
}
FIRST = "convs.0.lin.weight"


def scale(grads: Any, params: Any, context: Any) -> Any:
    """Depends on all that it is given, and on where in a matrix an entry stands."""
    rows = torch.arange(grads[FIRST].shape[0])[:, None]
    pulled = {name: g + 0.1 * (params[name] - context["model"][name]) for name, g in grads.items()}
    return {**pulled, FIRST: pulled[FIRST] * (1 + rows)}


def half(new: Any, old: Any, context: Any) -> Any:
    columns = torch.arange(new[FIRST].shape[1]) % 2
    mixed = {name: 0.75 * new[name] + 0.25 * old[name] for name in new}
    return {**mixed, FIRST: torch.where(columns == 0, mixed[FIRST], context["model"][FIRST])}


def clients(features: str) -> list[fgl.Graph]:
    if features == "dense":
        return graphs()
    return [g.replace(x=SparseMatrix.from_dense(g.x.relu())) for g in graphs()]


@pytest.mark.parametrize("features", ["dense", "sparse"])
def test_hooks_do_what_a_loop_by_hand_does(features: str) -> None:
    data = clients(features)[1]
    how = Training(OPTIMIZERS["decay"], num_steps=3, adjust=scale, settle=half)
    method = fedavg(model(dropout=0.0), how)
    context: Any = {"model": method.initial()}
    params = method.initial()
    for _ in range(3):
        grads = gradient(lambda leaves: method.loss(leaves, data, context), params)
        grads = scale(grads, params, context)
        new = {name: p - 0.05 * (grads[name] + 0.1 * p) for name, p in params.items()}
        params = half(new, params, context)
    close(train(method, method.initial(), data, context, seed=0).params, params)


def without_bias(one: Any, other: Any, context: Any) -> Any:
    return {name: value for name, value in one.items() if name != "convs.0.bias"}


def flattened(one: Any, other: Any, context: Any) -> Any:
    return {**one, "convs.0.bias": one["convs.0.bias"][None]}


def one_more(one: Any, other: Any, context: Any) -> Any:
    return {**one, "convs.0.bias": one["convs.0.bias"], "head": one["convs.0.bias"]}


BAD: dict[str, tuple[Callable[..., Any], type[Exception], str]] = {
    "forgets": (without_bias, ValueError, r"like those it is given, but got \['convs.0.bias'\]"),
    "reshapes": (flattened, ValueError, r"like those it is given, but got \['convs.0.bias'\]"),
    "adds": (one_more, ValueError, r"like those it is given, but got \['head'\] missing, extra"),
    "nothing": (lambda *_: None, TypeError, "be a dict, but got None"),
}


@pytest.mark.few
@pytest.mark.parametrize("at_once", [1, "all"])
@pytest.mark.parametrize("hook", ["adjust", "settle"])
@pytest.mark.parametrize("what", BAD)
def test_a_hook_that_returns_something_else_is_named(what: str, hook: str, at_once: Any) -> None:
    function, kind, text = BAD[what]
    how: Any = {hook: function}
    method = fedavg(model(), Training(**how))
    text = rf"^Round 0, .*client.*, loss: Expected {hook}.* to .*{text}"
    refuses(text, lambda: fgl.run(method, graphs(), num_rounds=1, clients_at_once=at_once), kind)


@pytest.mark.parametrize("when", ["pre", "post"])
def test_an_optimisers_own_hooks_run_alone_and_are_refused_in_a_batch(when: str) -> None:
    calls: list[int] = []

    def factory(tensors: Any) -> optim.Optimizer:
        made = optim.SGD(tensors, lr=0.1)
        register = getattr(made, f"register_step_{when}_hook")
        register(lambda *_: calls.append(1))
        return made

    method = fedavg(model(), Training(factory, num_steps=2))
    fgl.run(method, graphs(), num_rounds=1)
    assert len(calls) == 2 * 4
    text = r"Round 0, 4 clients.*no hooks of its own.*adjust and settle.*clients_at_once=1"
    refuses(text, lambda: fgl.run(method, graphs(), num_rounds=1, clients_at_once="all"))


@pytest.mark.parametrize("at_once", [1, "all"])
def test_a_context_that_takes_the_key_trained_is_refused(at_once: Any) -> None:
    plain = fedavg(model())

    def receive(message: Any, state: Any, data: fgl.Graph) -> Any:
        params, context = plain.receive(message, state, data)
        return params, {**context, "trained": torch.tensor(1)}

    method = replace(plain, receive=receive)
    with pytest.raises(ValueError, match=r"^Round 0, client 0, receive: .* but got 'trained'"):
        fgl.run(method, graphs(), num_rounds=1, clients_at_once=at_once)


SERVERS: dict[str, Any] = {
    "sgd": partial(optim.SGD, lr=0.1, momentum=0.9),
    "adam": partial(optim.Adam, lr=0.05),
}


@pytest.mark.parametrize("rule", SERVERS)
def test_a_server_minimises_as_a_loop_by_hand_does(rule: str) -> None:
    """Logistic regression on what clients sent, in minibatches; the optimiser's state goes on."""
    x, y = torch.randn(12, 3), torch.arange(12) % 2
    batches = [(x[i : i + 4], y[i : i + 4]) for i in (0, 4, 8)]
    start = {"w": torch.zeros(2, 3), "seen": torch.tensor(0)}

    def loss(params: Any, x: Any, y: Any) -> Any:
        return torch.nn.functional.cross_entropy(x @ params["w"].T, y)

    leaf = start["w"].clone().requires_grad_()
    stepper, losses = SERVERS[rule]([leaf]), []
    for part in batches * 2:
        stepper.zero_grad()
        value = loss({"w": leaf}, *part)
        value.backward()
        stepper.step()
        losses.append(value.item())
    first = minimise(loss, start, batches, optimizer=SERVERS[rule])
    second = minimise(loss, first.params, batches, optimizer=SERVERS[rule], state=first.optimizer)
    close(second.params["w"], leaf.detach())
    assert first.losses + second.losses == pytest.approx(losses)
    assert second.params["seen"] == 0
    assert not start["w"].any()
    assert not second.params["w"].requires_grad


def test_minimise_refuses_a_loss_of_something_else() -> None:
    other = torch.ones(1, requires_grad=True)
    start = {"w": torch.ones(1)}
    with pytest.raises(ValueError, match="the loss to depend on params"):
        minimise(lambda params: (other * 2).sum(), start, [()], optimizer=SERVERS["sgd"])
