"""FedTGP: from the clients' prototypes, the server learns prototypes that are far apart."""

from __future__ import annotations

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

    The server computes ``z_c`` from a trainable row for class c, by a hidden layer and an output
    layer. To keep classes apart by a margin, the server trains the rows and both layers on the
    clients' prototypes ``C_i^c``. The server minimises
    ``-log softmax_c'(-||C_i^c - z_c'|| - delta [c' = c])``. For each class, compute the distance
    between its mean prototype and the nearest other mean prototype. ``delta`` is the largest of
    these distances, but at most `margin`. Then the server sends ``z_c`` of every class to all
    clients. Clients do the same as in `fedproto`.

    This method follows the authors' code, with two exceptions. In the authors' code, clients
    predict the class of the nearest prototype. Here clients predict with the model's output, since
    `deploy` returns a model. If two rows are equal, the gradient of their distance is 0 here; it is
    NaN in the authors' code.

    Args:
        fedavg: FedAvg of a task; see `fedproto`.
        weight: lambda, weight of the clients' distance to the prototypes, at least 0; 10 in the
            authors' script.
        margin: tau, the largest margin, at least 0.
        server_lr: learning rate of the server's SGD, above 0; the authors' script uses the clients'
            rate.
        server_epochs: S, passes over the clients' prototypes in a round.
        server_batch: number of prototypes in a step of the server.

    Raises:
        TypeError: if the model does not take ``return_embedding``.
        ValueError: if a number is out of range, or the server of `fedavg` does not simply average
            the models.

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
        with torch.autocast(rows.device.type, enabled=False):  # `descend` writes in place
            for _ in range(server_epochs):
                order = torch.randperm(len(rows)).to(rows.device)
                batches = (each[order].split(server_batch) for each in (rows, classes))
                for some, own in zip(*batches, strict=True):
                    descend(trained, some, own, bound, server_lr)
        with torch.no_grad():
            message: Message = {"prototypes": made(trained), "classes": torch.ones_like(has[0])}
        return Broadcast(message, inbox.num_clients), {**state, "generator": trained}

    return replace(near_prototypes(fedavg, weight), aggregate=aggregate)


def drawn_like(rows: Tensor) -> Params:
    """A new network of prototypes with random weights: rows ``[C, d]`` and two layers ``[d, d]``.

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
    """The largest of all classes' distances in FedTGP's Eq. 7.

    A class's distance runs from its mean prototype to the nearest mean prototype of another class.

    Args:
        rows: float ``[K, C, d]``, the clients' prototypes.
        has: bool ``[K, C]``, marks the prototypes that exist.

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


@torch.no_grad()
def descend(params: Params, rows: Tensor, classes: Tensor, margin: Tensor, lr: float) -> None:
    """Take one SGD step, which changes a network of prototypes in place (FedTGP, Eq. 8).

    The loss is the mean of ``-log softmax_c(-||C - z_c|| - margin [c is the class])`` over the
    prototypes C. The gradient is computed by an explicit formula, since autograd takes more than
    twice as long and a round has hundreds of steps.

    Args:
        params: a network from `drawn_like`; changed in place.
        rows: C, float ``[n, d]``, prototypes of clients.
        classes: int64 ``[n]``, the classes of the prototypes.
        margin: scalar.
        lr: learning rate.

    Example:
        >>> params = drawn_like(torch.zeros(2, 1))
        >>> before = params["rows.weight"].clone()
        >>> descend(params, torch.ones(1, 1), torch.tensor([0]), torch.tensor(2.0), 0.0)
        >>> params["rows.weight"].equal(before)
        True
    """
    first, last = params["hidden.weight"], params["out.weight"]
    hidden = nn.functional.linear(params["rows.weight"], first, params["hidden.bias"]).relu()
    apart = nn.functional.linear(hidden, last, params["out.bias"]) - rows[:, None]
    distance = apart.norm(dim=2)
    own = torch.eye(len(hidden), dtype=rows.dtype, device=rows.device)[classes]
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
