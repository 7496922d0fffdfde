"""FedAMP: each client learns mainly from the clients that have similar models."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ..checks import Positive, Share, Weight
from ..client_network import similarity
from ..client_network.network import distance_attention, softmax_attention
from ..federation import Inbox, Message, Method, Outbox, Params, State, check_averages, layer
from ..graph import Graph
from ..losses import proximal
from .local import with_own
from .mix_models import initial_parameters, mix_models, moved

Attention = Callable[[Tensor], Tensor]


@layer(checks=[check_averages])
def fedamp(
    fedavg: Method, *, sigma: Positive = 1.0, server_lr: Positive = 1.0, penalty: Weight = 1.0
) -> Method:
    """Penalise each model's distance to a mix in which similar models have large weights (FedAMP).

    The server computes ``u_i = sum_j xi_ij theta_j`` with
    ``xi_ij = alpha_K A'(||theta_i - theta_j||^2)`` (`distance_attention`). A client starts from the
    model that this client trained last, and minimises
    ``loss + lambda / (2 alpha_K) ||theta - u_i||^2``. The client predicts with the model that it
    trained. In a client's first round there is no mix yet, so u_i is the client's starting model.
    The mixes of a round do not include models of absent clients.

    Args:
        fedavg: FedAvg built for a task; the server must send the mean of the models.
        sigma: unit of the squared distances between models, above 0. Two models whose squared
            distance is sigma have 1 / e of the largest possible attention.
        server_lr: alpha_K, the server's step, above 0.
        penalty: lambda, at least 0.

    Raises:
        ValueError: if a number is out of range, or if the server of `fedavg` does not send the mean
            of the models.

    Example:
        >>> method = fedamp(fgl.fedavg(torch.nn.Linear(1, 1)), sigma=0.1)
        >>> state = {"model": {"weight": torch.ones(1, 1), "bias": torch.ones(1)}}
        >>> params, context = method.receive({"model": method.initial()}, state, None)
        >>> params["weight"], context["cloud"]["weight"].equal(method.initial()["weight"])
        (tensor([[1.]]), True)

    Source: Huang et al. 2021, https://arxiv.org/abs/2007.03797
    """
    attention = partial(distance_attention, sigma=sigma, lr=server_lr)
    return passing(fedavg, attention, weight=penalty / server_lr)


@layer(checks=[check_averages])
def heurfedamp(
    fedavg: Method, *, own: Share = 0.3, scale: Weight = 10.0, penalty: Weight = 1.0
) -> Method:
    """FedAMP with attention from a softmax of cosines (HeurFedAMP, as in GPFL's tables).

    ``xi_ii`` is fixed. The remaining weight, ``1 - xi_ii``, is divided among all other clients j in
    proportion to ``exp(scale cos(theta_i - theta_0, theta_j - theta_0))``. The penalty is
    ``lambda / 2 ||theta - u_i||^2``. As in the public code, the optimiser is reset in every round.
    In a client's first round, there is no penalty. In the public code, only the first round of the
    federation is without a penalty. This method cannot follow the public code here: a client that
    takes part for the first time does not know whether the federation has had earlier rounds.

    Args:
        fedavg: FedAvg built for a task; the server must send the mean of the models.
        own: xi_ii, the weight of a client's own model in the client's mix, between 0 and 1.
        scale: factor of the cosines, at least 0. A larger factor gives more weight to similar
            clients.
        penalty: lambda, at least 0.

    Raises:
        ValueError: if a number is out of range, or if the server of `fedavg` does not send the mean
            of the models.

    Example:
        >>> heurfedamp(fgl.fedavg(torch.nn.Linear(1, 1))).train.keep_optimizer
        False

    Source: Huang et al. 2021, https://arxiv.org/abs/2007.03797;
    https://github.com/MediaBrain-SJTU/pFedGraph (pytorch/fedamp.py, which this function follows)
    """

    def attention(rows: Tensor) -> Tensor:
        return softmax_attention(similarity(rows, centre=False), scale=scale, own=own)

    afresh = replace(fedavg.train, keep_optimizer=False)
    return passing(replace(fedavg, train=afresh), attention, weight=penalty, at_first=False)


@layer
def passing(
    fedavg: Method, attention: Attention, *, weight: float, at_first: bool = True
) -> Method:
    """Each client keeps its own model; the loss penalises this model's distance to a mix of models.

    Args:
        fedavg: FedAvg built for a task.
        attention: a function from ``[K, P]`` to ``[K, K]``. The function reads the clients' models
            minus the initial model, and returns the weights of the clients' mixes.
        weight: weight of ``1/2 ||theta - u_i||^2`` in the loss.
        at_first: whether the loss has the penalty in a client's first round too. In this round, u_i
            is the model that the client starts from.

    Example:
        >>> alone = passing(fgl.fedavg(torch.nn.Linear(1, 1)), lambda rows: torch.eye(len(rows)),
        ...                 weight=0.0)
        >>> alone.deploy({"model": alone.initial()}, {}, None).keys()
        dict_keys(['weight', 'bias'])
    """
    initial = initial_parameters(fedavg)

    def receive(message: Message, state: State, graph: Graph) -> tuple[Params, Any]:
        params, context = fedavg.receive(with_own(message, state), state, graph)
        sent = message["model"] if "model" in state else {}  # at first none: held near its start
        cloud, has_cloud = {**params, **sent}, torch.tensor(at_first or "model" in state)
        return params, {**context, "cloud": cloud, "received": cloud, "held": has_cloud}

    def loss(params: Params, graph: Graph, context: Any) -> Tensor:
        pull: Tensor = context["held"] * weight * proximal(params, context["cloud"])
        return fedavg.loss(params, graph, context) + pull

    def send(params: Params, context: Any, state: State, graph: Graph) -> tuple[Message, State]:
        message, new_state = fedavg.send(params, context, state, graph)
        return message, {**new_state, "model": params}

    @torch.no_grad()
    def aggregate(inbox: Inbox, state: State) -> tuple[Outbox, State]:
        return mix_models(inbox, attention(moved(inbox, initial)))

    def deploy(message: Message, state: State, graph: Graph) -> Params:
        return fedavg.deploy(with_own(message, state), state, graph)

    method = replace(fedavg, receive=receive, loss=loss, send=send)
    return replace(method, aggregate=aggregate, deploy=deploy)
