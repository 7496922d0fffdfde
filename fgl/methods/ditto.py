"""Ditto: each client also trains a personal model that is kept near the global model."""

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
    """FedAvg with equal weights; each client also trains a personal model near it (Ditto, Alg. 1).

    In each local step, a client updates two models on the same examples. One update minimises
    ``loss(theta)``, starting from the received ``theta^t``. The other update minimises
    ``loss(v_k) + lambda / 2 ||v_k - theta^t||^2``, starting from the client's own v_k. The client
    sends theta to the server. The client keeps its personal model v_k and predicts with it. All
    clients with examples have the same weight. The two models share no tensors, so one optimiser
    can train both. The recorded loss is the sum of both losses.

    The authors' code also uses the same examples for both updates if its option ``lam`` is set. The
    authors' code differs in two ways. In the authors' code, a client's probability of being sampled
    is proportional to the client's number of examples, and all participants have equal weights.
    Here the run samples clients uniformly. Here a client that has never taken part predicts with
    the received model. In the authors' code such a client predicts with the initial model.
    `max_grad_norm` is not allowed, since it would clip the gradients of both models together.

    Args:
        fedavg: FedAvg built for a task; the server must send the mean of the models.
        penalty: lambda, at least 0; 1 in the authors' scripts.

    Raises:
        ValueError: if `penalty` is negative, if the server of `fedavg` does not send the mean of
            the models, if clients train tensors outside the model, or if clients clip gradients. A
            model with buffers, such as a batch norm's statistics, also raises the error, since
            clients cannot store buffers of a second model.

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
        message, new_state = fedavg.send(fed.drop(params, first), context, state, graph)
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
    """Raise an error if two models that share an optimiser would influence each other."""
    buffers = [name for name, _ in method.model.named_buffers()]
    got = (
        f"{buffers}: clients train two models, and the second one's statistics have no place. "
        "torch.nn.LayerNorm in place of BatchNorm1d, and GINConv(..., train_eps=True), have none"
    )
    reject_if(buffers, "ditto to be given a model without buffers", got)
    want = "ditto to be given a method that clips no gradient"
    got = f"max_grad_norm={method.train.max_grad_norm}, which would clip both models' as one"
    reject_if(method.train.max_grad_norm is not None, want, got)
