"""FedProx: a penalty keeps local training near the received model."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ..checks import Weight
from ..federation import Message, Method, Params, State, layer
from ..graph import Graph
from ..losses import proximal

Distance = Callable[[Params, Params], Tensor]


@layer
def fedprox(fedavg: Method, *, mu: Weight, distance: Distance = proximal) -> Method:
    """FedAvg with ``mu / 2 ||theta - theta_received||^2`` in the loss (FedProx, Eq. 2).

    At a client's first step the gradient of the term is zero. So with one local step per round,
    FedProx equals FedAvg.

    Args:
        fedavg: FedAvg or another method; the term is added to its loss.
        mu: weight of the term, at least 0.
        distance: a function that returns the distance between trained and received parameters. The
            default is ``1/2 ||theta - theta_received||^2``, as in the formula.

    Raises:
        ValueError: if `mu` is negative.

    Example:
        >>> fedprox(fgl.fedavg(fgl.nn.GCN(4, 8, 2)), mu=0.1)
        fedprox(fedavg(GCN(...), ...), mu=0.1)

    Source: Li et al. 2020, https://arxiv.org/abs/1812.06127
    """

    def loss(params: Params, graph: Graph, context: Any) -> Tensor:
        return fedavg.loss(params, graph, context) + mu * distance(params, context["start"])

    return replace(fedavg, loss=loss)


@layer
def adaptive_fedprox(
    fedavg: Method,
    *,
    fit: Callable[[Params, Graph], Tensor],
    mu: Weight = 1.0,
    distance: Distance = proximal,
) -> Method:
    """FedProx in which each client adapts `mu` to keep the penalty about as large as the loss.

    After training, a client may change `mu`. The client multiplies `mu` by 10 if
    ``fit > 5 mu distance`` and ``mu <= 1``. The client divides `mu` by 10 if
    ``fit < mu distance / 2`` and ``mu >= 1e-4``.

    Args:
        fedavg: FedAvg or another method; the term is added to its loss.
        fit: ``(params, graph) -> scalar``, the loss on a client's training examples.
        mu: the initial weight, at least 0.
        distance: a function that returns the distance between trained and received parameters.

    Raises:
        ValueError: if `mu` is negative.

    Example:
        >>> base = fgl.fedavg(fgl.nn.GCN(4, 8, 2))
        >>> method = adaptive_fedprox(base, fit=lambda params, graph: base.loss(params, graph, {}))
        >>> method.receive({"model": method.initial()}, {}, None)[1]["mu"]
        tensor(1.)

    Source: Zhang et al., FedEgo, https://arxiv.org/abs/2208.13685 (public code)
    """

    def receive(message: Message, state: State, graph: Graph) -> tuple[Params, Any]:
        params, context = fedavg.receive(message, state, graph)
        device = next(iter(params.values())).device
        return params, {**context, "mu": state.get("mu", torch.tensor(mu, device=device))}

    def loss(params: Params, graph: Graph, context: Any) -> Tensor:
        term: Tensor = context["mu"] * distance(params, context["start"])
        return fedavg.loss(params, graph, context) + term

    @torch.no_grad()
    def send(params: Params, context: Any, state: State, graph: Graph) -> tuple[Message, State]:
        message, state = fedavg.send(params, context, state, graph)
        penalty = distance(params, context["start"])
        return message, {**state, "mu": adapted(context["mu"], fit(params, graph), penalty)}

    return replace(fedavg, receive=receive, loss=loss, send=send)


def adapted(mu: Tensor, loss: Tensor, penalty: Tensor) -> Tensor:
    """The value of `mu` that a client of `adaptive_fedprox` uses in the next round.

    Example:
        >>> adapted(torch.tensor(1.0), torch.tensor(0.9), torch.tensor(2.0))
        tensor(0.1000)
        >>> adapted(torch.tensor(1.0), torch.tensor(1.1), torch.tensor(2.0))
        tensor(1.)
    """
    if loss > 5 * mu * penalty and mu <= 1.5:  # a float32 after some steps is not quite 1
        return mu * 10
    return mu / 10 if loss < mu * penalty / 2 and mu >= 0.5e-4 else mu
