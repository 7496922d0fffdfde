"""Ditto: beside the common model each client trains one of its own, held near the common one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from .. import federation as fed
from ..aggregate import mean
from ..checks import Weight, reject_if
from ..federation import Broadcast, Inbox, Message, Method, Outbox, Params, State
from ..graph import Graph
from ..losses import proximal

OWN = "own."  # prefix of the names of the client's own model


@fed.layer(checks=[fed.check_averages, fed.check_model_alone, fed.check_one_architecture])
def ditto(fedavg: Method, *, penalty: Weight = 1.0) -> Method:
    """FedAvg, plus a personal model per client with a penalty on its distance (Ditto, Alg. 1).

    In each local step, on the same examples, a client takes a step on ``loss(theta)``, from the
    received ``theta^t``, and one on ``loss(v_k) + lambda / 2 ||v_k - theta^t||^2``, from its own
    v_k. It sends theta, keeps and uses v_k. Clients with an example weigh the same. The two models
    share nothing, so that one optimiser of both is two; the history shows the sum of both losses.

    As the authors' code with ``lam``; there the personal step also uses examples of the same draw.
    There participants are drawn by their numbers of examples and weigh the same; here the run
    draws participants evenly. A client that was never here uses what it receives; there
    the initial model. A `max_grad_norm`
    would clip both gradients as one, and is refused.

    Args:
        fedavg: what clients train; its server averages.
        penalty: lambda, at least 0; the authors' scripts have 1.

    Raises:
        ValueError: if `penalty` is negative, the server of `fedavg` does more than average, clients
            train more than the model, or clip gradients, or the model has buffers, such as a batch
            norm's statistics: there is no place for a second model's.

    Example:
        >>> method = ditto(fgl.fedavg(torch.nn.Linear(1, 1)))
        >>> list(method.receive({"model": method.initial()}, {}, None)[0])
        ['weight', 'bias', 'own.weight', 'own.bias']

    Source: Li et al. 2021, https://arxiv.org/abs/2012.04221; https://github.com/litian96/ditto
    """
    _check_alone(fedavg)
    trained = {name: p for name, p in fedavg.model.named_parameters() if p.requires_grad}
    first = {OWN + name: p.detach().clone() for name, p in trained.items()}

    def receive(message: Message, state: State, graph: Graph) -> tuple[Params, Any]:
        params, context = fedavg.receive(message, state, graph)
        return {**params, **state.get("own", first)}, context

    def loss(params: Params, graph: Graph, context: Any) -> Tensor:
        common = fed.drop(params, first)
        own = {**common, **{name: params[OWN + name] for name in trained}}
        distance = proximal({name: own[name] for name in trained}, context["start"])
        both = fedavg.loss(common, graph, context) + fedavg.loss(own, graph, context)
        return both + penalty * distance

    def send(params: Params, context: Any, state: State, graph: Graph) -> tuple[Message, State]:
        common = fed.drop(params, first)
        message, new_state = fedavg.send(common, context, state, graph)
        return message, {**new_state, "own": {name: params[name] for name in first}}

    @torch.no_grad()
    def aggregate(inbox: Inbox, state: State) -> tuple[Outbox, State]:
        count = inbox.stack("num_examples")
        if not count.any():
            return {}, state
        message: Message = {"model": mean(inbox.each("model"), (count > 0).to(torch.float64))}
        return Broadcast(message, inbox.num_clients), {**state, **message}

    def deploy(message: Message, state: State, graph: Graph) -> Params:
        used = fedavg.deploy(message, state, graph)
        own = state.get("own", {})
        return {**used, **{name.removeprefix(OWN): value for name, value in own.items()}}

    method = replace(fedavg, receive=receive, loss=loss, send=send)
    method = replace(method, own=replace(fedavg.own, personal=first))
    return replace(method, aggregate=aggregate, deploy=deploy)


def _check_alone(method: Method) -> None:
    """Raise if two models that are trained as one would influence each other."""
    buffers = [name for name, _ in method.model.named_buffers()]
    if buffers:
        raise ValueError(
            f"Expected ditto to be given a model without buffers, but got {buffers[0]!r}: clients "
            "train two models, and the second one's statistics have no place"
        )
    reject_if(
        method.train.max_grad_norm is not None,
        "ditto to be given a method that clips no gradient",
        f"max_grad_norm={method.train.max_grad_norm}, which would clip both models' as one",
    )
