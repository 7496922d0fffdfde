"""FedTGP: from the clients' prototypes, the server learns prototypes that are far apart."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from .. import federation as fed
from ..checks import Count, Positive, Weight
from ..federation import Broadcast, Inbox, Message, Method, Outbox, Params, State
from .fedproto import mean_prototypes, near_prototypes


@fed.layer(checks=[fed.check_averages])
def fedtgp(
    fedavg: Method,
    *,
    weight: Weight = 10.0,
    margin: Weight = 100.0,
    server_lr: Positive = 0.01,
    server_epochs: Count = 100,
    server_batch: Count = 10,
) -> Method:
    """FedProto with a server that trains the prototypes before it sends them (FedTGP, Eq. 5 to 9).

    The server has a trainable row for each class c. A hidden layer and an output layer compute the
    prototype ``z_c`` from this row. The server trains the rows and both layers. The training moves
    ``z_c`` near the clients' prototypes ``C_i^c`` of class c, and away from the clients' prototypes
    of other classes, with a margin between classes. The server minimises
    ``-log softmax_c'(-||C_i^c - z_c'|| - delta [c' = c])``. The margin ``delta`` depends on the
    mean prototypes of the classes. For each class, the server computes the distance between the
    class's mean prototype and the nearest mean prototype of any other class. The largest of these
    distances is ``delta``, unless it exceeds `margin`; then ``delta`` is `margin`. After the
    training, the server sends ``z_c`` of every class to all clients. Clients train and predict as
    in `fedproto`.

    This method follows the authors' code, with two exceptions. In the authors' code, clients
    predict the class of the nearest prototype. Here clients predict with the model's output, since
    `deploy` returns a model. If two prototypes are equal, the gradient of the distance between them
    is 0 here, and NaN in the authors' code.

    Args:
        fedavg: FedAvg built for a task, with the properties that `fedproto` requires.
        weight: lambda, weight of the distance to prototypes in a client's loss, at least 0. The
            authors' script uses 10.
        margin: tau, the largest margin, at least 0.
        server_lr: learning rate of the server's SGD, above 0. In the authors' script, this rate
            equals the clients' learning rate.
        server_epochs: S, number of passes in a round over all prototypes of the clients.
        server_batch: number of prototypes in a step of the server.

    Raises:
        TypeError: if the model does not take ``return_embedding``.
        ValueError: if a number is out of range, or if the server of `fedavg` does not send the mean
            of the models.

    Example:
        >>> fedtgp(fgl.fedavg(fgl.nn.GCN(4, 8, 2)), server_epochs=5)
        fedtgp(fedavg(GCN(...), ...), server_epochs=5, ...)

    Source: Zhang et al. 2024, https://arxiv.org/abs/2401.03230; https://github.com/TsingZ0/FedTGP
    """

    def aggregate(inbox: Inbox, state: State) -> tuple[Outbox, State]:
        prototypes, has = inbox.stack("prototypes"), inbox.stack("classes")
        if not has.any():
            return {}, state
        rows, classes = prototypes[has], has.nonzero()[:, 1]
        generator = state["generator"] if "generator" in state else drawn_like(prototypes[0])
        bound = largest_gap(prototypes, has).clamp(max=margin)
        trained = {name: value.clone() for name, value in generator.items()}
        one_hot = torch.eye(has.shape[1], dtype=rows.dtype, device=rows.device)[classes]
        # `descend` writes in place
        with torch.no_grad(), torch.autocast(rows.device.type, enabled=False):
            for _ in range(server_epochs):
                order = torch.randperm(len(rows)).to(rows.device)
                batches = (each[order].split(server_batch) for each in (rows, one_hot))
                for some, own in zip(*batches, strict=True):
                    descend(trained, some, own, bound, server_lr)
        with torch.no_grad():
            message: Message = {"prototypes": made(trained), "classes": torch.ones_like(has[0])}
        return Broadcast(message, inbox.num_clients), {**state, "generator": trained}

    return replace(near_prototypes(fedavg, weight), aggregate=aggregate)


def drawn_like(rows: Tensor) -> Params:
    """Initialise the network with which the server computes prototypes (see `made`).

    The network has a row of d entries for each of the C classes, and two layers ``[d, d]``.

    Example:
        >>> made(drawn_like(torch.zeros(3, 4))).shape
        torch.Size([3, 4])
    """
    classes, width = rows.shape
    names = {"rows": nn.Embedding(classes, width), "hidden": nn.Linear(width, width)}
    modules = nn.ModuleDict({**names, "out": nn.Linear(width, width)})
    return {name: value.detach().to(rows) for name, value in modules.state_dict().items()}


def made(params: Mapping[str, Tensor]) -> Tensor:
    """A network's prototypes: ``W_2 relu(W_1 e_c + b_1) + b_2`` (see `drawn_like`).

    Example:
        >>> made(drawn_like(torch.zeros(3, 4))).shape
        torch.Size([3, 4])
    """
    at: Any = params
    hidden = nn.functional.linear(at["rows.weight"], at["hidden.weight"], at["hidden.bias"])
    return nn.functional.linear(hidden.relu(), at["out.weight"], at["out.bias"])


@torch.no_grad()
def largest_gap(rows: Tensor, has: Tensor) -> Tensor:
    """The largest distance in FedTGP's Eq. 7, without the upper limit.

    Each class has one distance: from its mean prototype to the nearest mean prototype of another
    class.

    Args:
        rows: float ``[K, C, d]``, the clients' prototypes.
        has: bool ``[K, C]``, True for each prototype that exists.

    Returns:
        Scalar; infinite if there is only one class.

    Example:
        >>> rows = torch.tensor([[[0.0], [3.0], [8.0]]])
        >>> largest_gap(rows, torch.tensor([[True, True, True]]))
        tensor(5.)
    """
    mean, present = mean_prototypes(rows, has)
    means = mean[present]
    apart = torch.cdist(means, means, compute_mode="donot_use_mm_for_euclid_dist")
    return apart.fill_diagonal_(torch.inf).min(1).values.max()


def descend(params: Params, rows: Tensor, own: Tensor, margin: Tensor, lr: float) -> None:
    """Take one SGD step, which changes a network of prototypes in place (FedTGP, Eq. 8).

    The loss is the mean of ``-log softmax_c(-||C - z_c|| - margin [c is the class])`` over the
    prototypes C. A formula computes the gradient, since autograd takes more than twice as long, and
    a round has hundreds of steps.

    Args:
        params: a network from `drawn_like`; changed in place.
        rows: C, float ``[n, d]``, prototypes of clients.
        own: float ``[n, C]``, the classes of the prototypes in one-hot form.
        margin: scalar.
        lr: learning rate.

    Example:
        >>> params = drawn_like(torch.zeros(2, 1))
        >>> before = params["rows.weight"].clone()
        >>> descend(params, torch.ones(1, 1), torch.eye(2)[:1], torch.tensor(2.0), 0.0)
        >>> params["rows.weight"].equal(before)
        True
    """
    first, last = params["hidden.weight"], params["out.weight"]
    hidden = nn.functional.linear(params["rows.weight"], first, params["hidden.bias"]).relu()
    apart = nn.functional.linear(hidden, last, params["out.bias"]) - rows[:, None]
    distance = torch.linalg.vector_norm(apart, dim=2)
    slope = own - (-(distance + margin * own)).softmax(1)
    slope = torch.where(distance == 0, 0, slope / distance) * (lr / len(rows))
    of_last = (slope[..., None] * apart).sum(0)  # lr times the gradient at each layer's output
    of_hidden = (of_last @ last) * (hidden > 0)
    of_rows = of_hidden @ first
    last.addmm_(of_last.T, hidden, alpha=-1)
    first.addmm_(of_hidden.T, params["rows.weight"], alpha=-1)
    params["out.bias"].sub_(of_last.sum(0))
    params["hidden.bias"].sub_(of_hidden.sum(0))
    params["rows.weight"].sub_(of_rows)
