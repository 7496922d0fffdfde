"""pFedGraph: each client gets a mix of the clients' models; a learned graph gives the weights."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ..aggregate import project_to_simplex
from ..checks import Positive, check_number
from ..client_network import flat_parameters, similarity
from ..federation import Inbox, Message, Method, Outbox, Params, State, check_averages, layer, pick
from ..graph import Graph
from ..sparse.rows import widened
from .mix_models import initial_parameters, mix_models, moved

ALIKE = 0.9  # models whose cosine is larger are treated as equal


@layer(checks=[check_averages])
def pfedgraph(fedavg: Method, *, prior: Positive = 0.8, attraction: float = 0.01) -> Method:
    """Mix models for each client, with large weights for similar or large clients (pFedGraph).

    Row i of the learned graph minimises ``sum_j x_j d_ij + lambda ||x - p||^2`` over weights x with
    sum 1. ``d_ij = -cos(theta_i - theta_0, theta_j - theta_0)``, and values below -0.9 are set to
    -1. Entry k of the vector p is client k's fraction of all training examples. Then
    ``theta_i <- sum_j x_j theta_j``. From its second round on, a client subtracts
    ``mu <v_i, theta> / ||theta||`` from its loss, with ``v_i = sum_j x_j theta_j / ||theta_j||``.
    The mixes of a round do not include models of absent clients.

    The public code creates a new SGD with momentum .9 in every round. The public code scores a
    client's model after local training and before the server mixes models. Here the task determines
    the optimiser and the scored model.

    Args:
        fedavg: FedAvg built for a task; the server must send the mean of the models.
        prior: lambda, above 0, weight of the fractions of examples. For very large values the
            method becomes FedAvg.
        attraction: mu, weight of the term ``<v_i, theta> / ||theta||``, which makes a client's
            model more similar to the client's mix. The public code adds the term to the loss
            instead of subtracting it, so models become less similar to their mixes. To add the term
            as in the public code, pass a negative mu.

    Raises:
        ValueError: if a number is out of range, or if the server of `fedavg` does not send the mean
            of the models.

    Example:
        >>> method = pfedgraph(fgl.fedavg(torch.nn.Linear(1, 1)))
        >>> start = {k: {"model": method.initial(), "num_examples": torch.tensor(1)}
        ...          for k in range(2)}
        >>> list(method.aggregate(fgl.federation.Inbox(start, 2), {})[0][0])
        ['model', 'direction', 'num_clients']

    Source: Ye et al. 2023, https://proceedings.mlr.press/v202/ye23b.html;
    https://github.com/MediaBrain-SJTU/pFedGraph (pytorch/pfedgraph_cosine.py)
    """
    check_number("attraction", attraction)
    initial = initial_parameters(fedavg)

    def receive(message: Message, state: State, graph: Graph) -> tuple[Params, Any]:
        params, context = fedavg.receive(message, state, graph)
        sent = {"direction": message["direction"]} if "direction" in message else {}
        return params, {**context, **sent}

    def loss(params: Params, graph: Graph, context: Any) -> Tensor:
        total = fedavg.loss(params, graph, context)
        if "direction" not in context:  # no mix yet
            return total
        return total - attraction * alignment(params, context["direction"])

    @torch.no_grad()
    def aggregate(inbox: Inbox, state: State) -> tuple[Outbox, State]:
        similarities = similarity(moved(inbox, initial), centre=False)
        matrix = collaboration(similarities, inbox.stack("num_examples"), prior=prior)
        return mix_models(inbox, matrix, direction=directions(pick(inbox.stack("model"), initial)))

    return replace(fedavg, receive=receive, loss=loss, aggregate=aggregate)


def collaboration(similarities: Tensor, num_examples: Tensor, *, prior: float = 0.8) -> Tensor:
    """Weights of mixes: row i is the simplex point nearest to ``p - d_i / (2 lambda)`` (pFedGraph).

    Args:
        similarities: float ``[K, K]``. Entry (i, j) is ``-d_ij``, the cosine of the models of
            clients i and j.
        num_examples: ``[K]``, not negative. Entry k of p is client k's fraction of the sum. The
            vector p is 0 if no client has examples.
        prior: lambda, above 0.

    Returns:
        float64 ``[K, K]``, non-negative; each row sums to 1.

    Example:
        >>> collaboration(torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([3, 1]), prior=1.0)
        tensor([[1.0000, 0.0000],
                [0.5000, 0.5000]], dtype=torch.float64)

    Source: Ye et al. 2023, https://proceedings.mlr.press/v202/ye23b.html
    """
    capped = torch.where(similarities > ALIKE, 1, similarities).double()
    count = num_examples.to(capped)
    return project_to_simplex(count / count.sum().clamp(min=1) + capped / (2 * prior))


def directions(models: Mapping[str, Tensor]) -> Params:
    """Stacked models, each divided by its norm: ``theta_j / ||theta_j||``.

    A zero model is unchanged.

    Example:
        >>> directions({"w": torch.tensor([[3.0], [0.0]]), "b": torch.tensor([4.0, 0.0])})
        {'w': tensor([[0.6000],
                [0.0000]]), 'b': tensor([0.8000, 0.0000])}
    """
    length = torch.linalg.vector_norm(flat_parameters(models), dim=1)
    length = torch.where(length > 0, length, 1)
    return {
        name: each / length.view(-1, *[1] * (each.dim() - 1))
        for name, each in models.items()
        if each.is_floating_point()
    }


def alignment(params: Mapping[str, Tensor], direction: Mapping[str, Tensor]) -> Tensor:
    """Projection of a direction v onto a model of length 1: ``<v, theta> / ||theta||`` (pFedGraph).

    Args:
        params: theta, the model being trained, a dict from name to tensor.
        direction: v, a dict of tensors with some or all names of `params`. Tensors of theta that
            have no counterpart in v are not used. No gradient flows to v.

    Returns:
        Scalar. The value is 0 if all entries of theta are 0. The dtype is float32 for a theta in
        half precision.

    Example:
        >>> theta = {"w": torch.tensor([3.0, 4.0])}
        >>> alignment(theta, {"w": torch.tensor([1.0, 0.0])})
        tensor(0.6000)

    Source: Ye et al. 2023, https://proceedings.mlr.press/v202/ye23b.html
    """
    theta = torch.cat([widened(params[name]).flatten() for name in direction])
    v = torch.cat([widened(each.detach()).flatten() for each in direction.values()])
    length: Tensor = torch.linalg.vector_norm(theta)
    return (v * theta).sum() / length.clamp(min=torch.finfo(theta.dtype).tiny)
