"""Published methods, each written in a few lines: the trial of what a method can say.

They are here to try the machine, not to be used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from federations import close, fedavg, graph, graphs, model, same
from torch import Tensor, nn, optim
from torch.func import functional_call

import fgl
from fgl.federation import Broadcast, Inbox, Method, Result, Training, train

LR = 0.1
SGD = Training(partial(optim.SGD, lr=LR), num_steps=3)
AT_ONCE = pytest.mark.parametrize("at_once", [1, "all"])
Params = dict[str, Tensor]


def weights(result: Result, client: int = 0) -> Params:
    params: Any = result.outbox[client]["model"]
    return params


# SCAFFOLD (Karimireddy et al. 2020, option II).


def scaffold(fedavg: Method, *, lr: float) -> Method:
    """FedAvg whose clients correct each gradient by ``c - c_i``, what they know of each other."""
    zeros = {name: torch.zeros_like(value) for name, value in fedavg.initial().items()}

    def receive(message: Any, state: Any, data: fgl.Graph) -> Any:
        params, context = fedavg.receive(message, state, data)
        own, common = state.get("control", zeros), message.get("control", zeros)
        return params, {**context, "start": params, "own": own, "common": common}

    def adjust(grads: Params, params: Params, context: Any) -> Params:
        own, common = context["own"], context["common"]
        return {name: grad - own[name] + common[name] for name, grad in grads.items()}

    def send(params: Params, context: Any, state: Any, data: fgl.Graph) -> Any:
        own, common, start = (context[key] for key in ("own", "common", "start"))
        scale = 1 / (lr * context["trained"]["num_steps"])
        shift = {name: scale * (start[name] - p) - common[name] for name, p in params.items()}
        control = {name: own[name] + shift[name] for name in shift}
        return {"model": params, "shift": shift}, {"control": control}

    def aggregate(inbox: Inbox, state: Any) -> Any:
        known, share = state.get("control", zeros), len(inbox) / inbox.num_clients
        shift = inbox.stack("shift")
        control = {name: known[name] + share * shift[name].mean(0) for name in known}
        mean = {name: stack.mean(0) for name, stack in inbox.stack("model").items()}
        made: Any = {"model": mean, "control": control}
        return Broadcast(made, inbox.num_clients), made

    how = replace(fedavg.train, adjust=adjust)
    return replace(fedavg, receive=receive, send=send, aggregate=aggregate, train=how)


def unweighted(inbox: Inbox, state: Any) -> Any:
    mean = {name: stack.mean(0) for name, stack in inbox.stack("model").items()}
    return Broadcast({"model": mean}, inbox.num_clients), state


@AT_ONCE
def test_scaffold(at_once: Any) -> None:
    plain = fedavg(model(dropout=0.0), SGD)
    method, options = scaffold(plain, lr=LR), {"clients_at_once": at_once}
    first = fgl.run(method, graphs(), num_rounds=1, **options)
    want = fgl.run(replace(plain, aggregate=unweighted), graphs(), num_rounds=1, **options)
    close(weights(first), weights(want))  # nobody knows anything yet
    later = fgl.run(method, graphs(), num_rounds=4, **options)
    want = fgl.run(replace(plain, aggregate=unweighted), graphs(), num_rounds=4, **options)
    assert not torch.allclose(weights(later)["convs.1.bias"], weights(want)["convs.1.bias"])
    for result in (first, later):  # the server's control is the mean of its clients'
        for name, value in result.outbox[0]["control"].items():
            own = [state["control"][name] for state in result.client_states.values()]
            close(value, torch.stack(own).mean(0))


def test_scaffolds_control_is_the_mean_gradient() -> None:
    """With one step it is the gradient at the received model, whatever was known before."""
    plain = fedavg(model(dropout=0.0), replace(SGD, num_steps=1))
    method = scaffold(plain, lr=LR)
    before = fgl.run(method, graphs(), num_rounds=1)
    after = fgl.run(method, graphs(), num_rounds=2)
    leaves = {name: value.clone().requires_grad_() for name, value in weights(before).items()}
    plain.loss(leaves, graphs()[2], {}).backward()
    for name, leaf in leaves.items():
        close(after.client_states[2]["control"][name], leaf.grad, atol=1e-5)


# FedSelect (Tamirisa et al. 2024): some entries of a model are a client's own.


def fedselect(fedavg: Method, *, share: float, passes: tuple[bool, ...] = (True, False)) -> Method:
    """A pass on a client's own entries, one on the shared ones; the entries that moved most
    become its own."""
    nobody = {name: torch.zeros_like(p, dtype=torch.bool) for name, p in fedavg.initial().items()}

    def receive(message: Any, state: Any, data: fgl.Graph) -> Any:
        received, context = fedavg.receive(message, state, data)
        own, kept = state.get("own", nobody), state.get("model", received)
        params = {name: torch.where(own[name], kept[name], p) for name, p in received.items()}
        return params, {**context, "own": own, "start": params}

    def batches(data: fgl.Graph, context: Any) -> Iterator[tuple[fgl.Graph, Any]]:
        for own in (own for own in passes for _ in range(2)):
            moving = {name: mask == own for name, mask in context["own"].items()}
            yield data, {**context, "moving": moving}

    def settle(new: Params, old: Params, context: Any) -> Params:
        moving = context["moving"]
        return {name: torch.where(moving[name], new[name], old[name]) for name in new}

    def send(params: Params, context: Any, state: Any, data: fgl.Graph) -> Any:
        own = {}
        for name, mask in context["own"].items():
            moved = (params[name] - context["start"][name]).abs().masked_fill(mask, -1)
            top = moved.flatten().topk(int(share * moved.numel())).indices
            own[name] = mask.flatten().index_fill(0, top, True).view_as(mask)
        return {"model": params, "own": context["own"]}, {"model": params, "own": own}

    def aggregate(inbox: Inbox, state: Any) -> Any:
        models, own = inbox.stack("model"), inbox.stack("own")
        mean = {}
        for name, old in state["model"].items():
            shared = ~own[name]
            total = (models[name] * shared).sum(0) / shared.sum(0).clamp(min=1)
            mean[name] = torch.where(shared.any(0), total, old)
        return Broadcast({"model": mean}, inbox.num_clients), {"model": mean}

    how = replace(fedavg.train, num_steps=None, batches=batches, settle=settle)
    changed = {"receive": receive, "send": send, "aggregate": aggregate, "train": how}
    return replace(fedavg, **changed)  # type: ignore[arg-type]


OPTIMIZERS: dict[str, Any] = {
    "momentum": partial(optim.SGD, lr=LR, momentum=0.9, weight_decay=0.1),
    "decay": partial(optim.SGD, lr=LR, weight_decay=0.1),
    "adam": partial(optim.Adam, lr=0.01, weight_decay=0.1),
}


@AT_ONCE
@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("rule", OPTIMIZERS)
def test_what_fedselect_freezes_does_not_move(rule: str, own: bool, at_once: Any) -> None:
    plain = fedavg(model(dropout=0.0), Training(OPTIMIZERS[rule]))
    both = fgl.run(fedselect(plain, share=0.25), graphs(), num_rounds=2, clients_at_once=at_once)
    method = fedselect(plain, share=0.25, passes=(own,))
    how: Any = {"start": both, "clients_at_once": at_once}
    result = fgl.run(method, graphs(), num_rounds=1, **how)
    for client, before in both.client_states.items():
        params, _ = method.receive(both.outbox[client], before, graphs()[client])
        for name, value in result.client_states[client]["model"].items():
            moved = value != params[name]
            assert not (moved & (before["own"][name] != own)).any()  # exactly
            assert moved.any() == (before["own"][name] == own).any()
    close(weights(result), weights(fgl.run(method, graphs(), num_rounds=1, start=both)))


# GraphFL (Wang et al. 2020): a model that a step of a client's own makes good.


def graphfl(fedavg: Method, *, lr: float, second_order: bool = True) -> Method:
    """The loss on a client's validation nodes after a step on its training nodes (MAML)."""

    def adapted(params: Params, data: fgl.Graph, context: Any) -> Params:
        grads = torch.func.grad(fedavg.loss)(params, data, context)
        if not second_order:
            grads = {name: grad.detach() for name, grad in grads.items()}
        return {name: value - lr * grads[name] for name, value in params.items()}

    def loss(params: Params, data: fgl.Graph, context: Any) -> Tensor:
        query = data.replace(train_mask=data.val_mask)
        return fedavg.loss(adapted(params, data, context), query, context)

    def deploy(message: Any, state: Any, data: fgl.Graph) -> Params:
        return adapted(fedavg.deploy(message, state, data), data, {})

    return replace(fedavg, loss=loss, deploy=deploy)


class Smooth(nn.Module):
    """Two graph convolutions without a kink, for finite differences."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(6, 5), nn.Linear(5, 3)

    def forward(self, x: Tensor, adj: Any) -> Tensor:
        return self.last(torch.tanh(adj.to_dense().to(x.dtype) @ self.first(x)))


def meta_gradient(method: Method, data: fgl.Graph) -> Params:
    """What one step of SGD has subtracted."""
    start = method.initial()
    end = train(method, start, data, {}, seed=0).params
    return {name: (start[name] - end[name]) / LR for name in start}


def test_graphfls_gradient_is_of_second_order() -> None:
    data = graph(20)
    data = data.replace(x=data.x.double())
    plain = fedavg(Smooth().double(), replace(SGD, num_steps=1))
    method, start = graphfl(plain, lr=0.5), plain.initial()
    got = meta_gradient(method, data)
    for name, value in start.items():
        for entry in range(0, value.numel(), 7):
            step = torch.zeros_like(value)
            step.view(-1)[entry] = 1e-5
            losses = [method.loss({**start, name: value + s}, data, {}) for s in (step, -step)]
            want = (losses[0] - losses[1]) / 2e-5
            close(got[name].flatten()[entry], want, atol=1e-8)
    first = meta_gradient(graphfl(plain, lr=0.5, second_order=False), data)
    assert not torch.allclose(first["first.weight"], got["first.weight"], rtol=1e-3)


@pytest.mark.parametrize("build", [Smooth, partial(model, dropout=0.0)], ids=["smooth", "gcn"])
def test_graphfl_in_a_batch(build: Any) -> None:
    method = graphfl(fedavg(build(), SGD), lr=0.5)
    loop = fgl.run(method, graphs(), num_rounds=2)
    batch = fgl.run(method, graphs(), num_rounds=2, clients_at_once="all")
    close(weights(batch), weights(loop))
    used = method.deploy(batch.outbox[0], {}, graphs()[1])
    assert not same(used, weights(batch))


# FedSage+ (Zhang et al. 2021): clients teach each other's generators, by way of the server.

STAGES = 3  # what was generated goes out, its gradients come back, then everybody trains


def fedsage(
    fedavg: Method,
    generate: Callable[[Params, fgl.Graph], Tensor],
    greedy: Callable[[Tensor, fgl.Graph], Tensor],
) -> Method:
    """Each generator minimises its loss at every client: the others send gradients, not nodes."""

    def receive(message: Any, state: Any, data: fgl.Graph) -> Any:
        params, context = fedavg.receive(message, state, data)
        return params, {"stage": torch.tensor(0), **context}

    def batches(data: fgl.Graph, context: Any) -> list[tuple[fgl.Graph, Any]]:
        return [(data, context)] if context["stage"] == STAGES - 1 else []

    def loss(params: Params, data: fgl.Graph, context: Any) -> Tensor:
        made = generate(params, data)
        return greedy(made, data) + (context["pull"] * made).sum()

    def send(params: Params, context: Any, state: Any, data: fgl.Graph) -> Any:
        if context["stage"] == 0:
            return {"made": generate(params, data)}, state
        if context["stage"] == 1:
            pull = torch.func.grad(greedy)
            return {
                "pulls": {owner: pull(made, data) for owner, made in context["made"].items()}
            }, state
        return fedavg.send(params, context, state, data)

    def aggregate(inbox: Inbox, state: Any) -> Any:
        stage = inbox.sent[inbox.clients[0]].get("stage", torch.tensor(0))
        if stage == STAGES - 1:
            return fedavg.aggregate(inbox, state)
        outbox = {}
        for client in inbox:
            told = {"model": inbox.sent[client]["model"], "stage": stage + 1}
            if stage == 0:
                told["made"] = {str(owner): message["made"] for owner, message in inbox.items()}
            else:
                others = [m["pulls"][str(client)] for j, m in inbox.items() if j != client]
                told["pull"] = torch.stack(others).sum(0)
            outbox[client] = told
        return outbox, state

    how = replace(fedavg.train, num_steps=None, batches=batches)
    changed = {"receive": receive, "loss": loss, "send": send, "aggregate": aggregate}
    return replace(fedavg, **changed, train=how, exchange=STAGES)  # type: ignore[arg-type]


@AT_ONCE
@pytest.mark.parametrize("participation", [1.0, 0.75])
def test_fedsages_relayed_gradients_are_those_of_the_joint_loss(
    participation: float, at_once: Any
) -> None:
    net = nn.Linear(6, 6)

    def generate(params: Params, data: fgl.Graph) -> Tensor:
        return torch.tanh(functional_call(net, params, (data.x[:5],)))

    def greedy(made: Tensor, data: fgl.Graph) -> Tensor:
        """How far the nearest of a client's own nodes is, for each that was made."""
        apart = (made[:, None] - data.x).square().sum(2)
        return torch.where(data.node_mask, apart, torch.inf).min(1).values.mean()

    method = fedsage(fedavg(net, SGD), generate, greedy)
    clients = graphs()
    how: Any = {"participation": participation, "clients_at_once": at_once, "seed": 1}
    last = []

    def keep(inbox: Inbox, state: Any) -> Any:
        last.append({client: message.get("model") for client, message in inbox.items()})
        return method.aggregate(inbox, state)

    result = fgl.run(replace(method, aggregate=keep), clients, num_rounds=2 * STAGES, **how)
    who = [record.participants for record in result.history]
    assert who[3] == who[4] == who[5]
    first = fgl.run(method, clients, num_rounds=STAGES, **how)
    for client in who[5]:
        start = weights(first, client)
        leaves = {name: value.clone().requires_grad_() for name, value in start.items()}
        made = generate(leaves, clients[client])
        torch.stack([greedy(made, clients[other]) for other in who[5]]).sum().backward()
        for name, leaf in leaves.items():
            close((start[name] - last[5][client][name]) / LR, leaf.grad, atol=1e-5)
