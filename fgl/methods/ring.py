"""Ring: each client averages its model with two neighbours' models, without a server (D-FedGNN)."""

from dataclasses import replace

import torch

from ..aggregate import mean
from ..federation import Inbox, Message, Method, State, check_averages, layer


@layer(checks=[check_averages])
def ring(fedavg: Method) -> Method:
    """FedAvg of neighbours: ``theta_i <- (theta_{i-1} + theta_i + theta_{i+1}) / 3`` (D-FedGNN).

    An absent client is left out of all means and gets no message. If there are two clients, the
    mean contains each client's model once. The only known public implementation, in the code of
    FedEgo, adds the neighbour's model twice.

    Args:
        fedavg: FedAvg built for a task; the server must send the mean of the models.

    Raises:
        ValueError: if the server of `fedavg` does not send the mean of the models.

    Example:
        >>> inbox = fgl.federation.Inbox({k: {"model": {"w": torch.tensor(3.0 * k)}}
        ...                               for k in range(4)}, 4)
        >>> outbox, _ = ring(fgl.fedavg(torch.nn.Linear(1, 1))).aggregate(inbox, {})
        >>> [float(message["model"]["w"]) for message in outbox.values()]
        [4.0, 3.0, 6.0, 5.0]

    Source: Pei et al. 2021, Decentralized Federated Graph Neural Networks
    """
    return replace(fedavg, aggregate=average_neighbours)


def average_neighbours(inbox: Inbox, state: State) -> tuple[dict[int, Message], State]:
    """Average each client's model with the models of the client's two neighbours on the ring.

    Returns:
        ``{"model": mean, "num_clients": number of averaged models}`` for every participant.
    """
    models, n = inbox.each("model"), inbox.num_clients
    position = {client: i for i, client in enumerate(inbox)}
    outbox: dict[int, Message] = {}
    for client in inbox:
        around = sorted({(client - 1) % n, client, (client + 1) % n})
        places = [position[other] for other in around if other in position]
        parts = {name: [each[i] for i in places] for name, each in models.items()}
        average = mean(parts, torch.ones(len(places)))
        outbox[client] = {"model": average, "num_clients": torch.tensor(len(places))}
    return outbox, state
