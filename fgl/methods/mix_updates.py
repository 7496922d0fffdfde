"""Mixes of updates: the server changes each client's model by a weighted mix of all updates."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ..aggregate import mix
from ..checks import Share, reject_if
from ..client_network import normalize_rows
from ..federation import Inbox, Method, Outbox, State, check_averages, layer, pair

Network = Callable[[Inbox, Tensor], tuple[Tensor, Tensor]]


@layer(checks=[check_averages])
def mix_updates(fedavg: Method, network: Network, *, self_weight: Share = 0.0) -> Method:
    """Change each client's model by the client's own weighted mix of updates (GPFL, Eq. 4 and 16).

    ``theta_i <- theta_i + rho dW_i + (1 - rho) sum_j A_ij dW_j``, where dW_j is the update of
    client j.

    Args:
        fedavg: FedAvg built for a task; the server must send the mean of the models.
        network: function ``(inbox, known) -> matrix, known``. The function returns the matrix
            ``[K, K]`` that mixes the participants' updates, and the network ``[K, K]``, which is
            stored for later rounds. The argument `known` is the network stored in the last round.
            For two clients that never took part in the same round, the entry of `known` is -1.
        self_weight: rho, between 0 and 1, the weight of a client's own update. The mix of all
            updates has the weight 1 - rho.

    Raises:
        ValueError: if `self_weight` is below 0 or above 1, or if the server of `fedavg` does not
            send the mean of the models.

    Example:
        >>> method = mix_updates(fgl.fedavg(torch.nn.Linear(1, 1)), uniform)
        >>> sent = {k: {"model": {"w": torch.tensor(1.0)}} for k in range(2)}
        >>> came = {k: {"model": {"w": torch.tensor(1.0 + 2 * k)}} for k in range(2)}
        >>> outbox, _ = method.aggregate(fgl.federation.Inbox(came, 2, sent), {})
        >>> outbox[0]["model"]["w"], outbox[1]["model"]["w"]
        (tensor(2.), tensor(2.))

    Source: GPFL, TMLR 2025
    """

    @torch.no_grad()
    def aggregate(inbox: Inbox, state: State) -> tuple[Outbox, State]:
        models, updates = inbox.stack("model"), inbox.changes("model")
        size, device = inbox.num_clients, next(iter(models.values())).device
        clients = torch.tensor(inbox.clients, device=device)
        never = torch.full((size, size), -1.0, device=device)
        remembered = state.get("network", never)
        matrix, learned = _checked(network(inbox, remembered[clients][:, clients]), len(clients))
        if len(clients) < size:  # shares of the participants
            matrix = normalize_rows(matrix)
        matrix = matrix + torch.diag((matrix.sum(1) == 0).to(matrix))  # for a client like no other
        mixed = mix(updates, matrix, self_weight=self_weight)
        new = {name: models[name] + (mixed[name] - updates[name]) for name in models}
        remembered = remembered.index_put((clients[:, None], clients), learned)
        return inbox.messages({"model": new}), {"network": remembered, "matrix": matrix}

    return replace(fedavg, aggregate=aggregate)


def _checked(result: Any, size: int) -> tuple[Tensor, Tensor]:
    """Check the shapes of the two matrices that a network returned, and return both."""
    both = pair(result, "network", "matrix, known")
    for name, each in zip(("matrix", "known"), both, strict=True):
        want = f"network's {name} to have shape {[size, size]}, one row per client that is here"
        reject_if(list(each.shape) != [size, size], want, list(each.shape))
    return both


def uniform(inbox: Inbox, known: Tensor) -> tuple[Tensor, Tensor]:
    """A network for `mix_updates` in which every client learns from all clients with equal weights.

    Returns:
        Two copies of the matrix ``[K, K]`` with entries ``1 / K``: one for mixing, and one to
        store.

    Example:
        >>> inbox = fgl.federation.Inbox({0: {}, 1: {}}, num_clients=2)
        >>> uniform(inbox, torch.full((2, 2), -1.0))[0]
        tensor([[0.5000, 0.5000],
                [0.5000, 0.5000]])
    """
    matrix = torch.full_like(known, 1 / len(inbox))
    return matrix, matrix
