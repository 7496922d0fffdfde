"""Published methods, each written in a few lines: the trial of what a method can say.

They are here to try the machine, not to be used.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from federations import close, fedavg, graphs
from torch import Tensor, nn, optim
from torch.func import functional_call

import fgl
from fgl.federation import Inbox, Method, Result, Training

LR = 0.1
SGD = Training(partial(optim.SGD, lr=LR), num_steps=3)
AT_ONCE = pytest.mark.parametrize("at_once", [1, "all"])
Params = dict[str, Tensor]


def weights(result: Result, client: int = 0) -> Params:
    params: Any = result.outbox[client]["model"]
    return params


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
    changed: Any = {"receive": receive, "loss": loss, "send": send, "aggregate": aggregate}
    ragged = {"made", "pulls", "model", "num_examples"}  # each in one stage alone
    rules = replace(fedavg.rules, ragged=ragged, exchange=STAGES)
    return replace(fedavg, **changed, train=how, rules=rules)


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
