"""Mixes of models: the server sends each client its own weighted mix of the clients' models."""

from typing import Any

import torch
from torch import Tensor

from ..aggregate import mean, mix
from ..client_network import flat_parameters, similarity
from ..client_network.network import softmax_attention
from ..federation import Inbox, Message, Method, Params, State, pick, trainable


def mix_models(inbox: Inbox, matrix: Tensor, **more: Any) -> tuple[dict[int, Message], State]:
    """Send each participant its own mix of the clients' models: ``u_i = sum_j A_ij theta_j``.

    Only models of participants are mixed. An absent client keeps the last message that it received.

    Args:
        inbox: the clients' models.
        matrix: A, float ``[K, K]``. Row i contains the weights of participant i's mix.
        more: further tensors ``[K, ...]``, or dicts of such tensors. The matrix mixes these tensors
            as it mixes the models.

    Returns:
        Two results. The first result contains one message per participant i. The message is
        ``{"model": u_i, "num_clients": K}``, extended by row i of each further mixed tensor. The
        second result is the server's state, ``{"matrix": A}``.

    Example:
        >>> inbox = fgl.federation.Inbox({k: {"model": {"w": torch.tensor(4.0 * k)}}
        ...                               for k in (1, 2)}, num_clients=3)
        >>> outbox, _ = mix_models(inbox, torch.tensor([[0.5, 0.5], [0.0, 1.0]]))
        >>> {client: float(message["model"]["w"]) for client, message in outbox.items()}
        {1: 6.0, 2: 8.0}
    """
    stacks = {"model": inbox.stack("model"), **more}
    mixed: dict[str, Any] = {key: mix(stack, matrix) for key, stack in stacks.items()}
    mixed["num_clients"] = torch.full((len(inbox),), len(inbox))
    return inbox.messages(mixed), {"matrix": matrix}


def mean_for_strangers(
    inbox: Inbox, outbox: dict[int, Message], state: State
) -> tuple[dict[int, Message], State]:
    """Add messages with the mean of the received models, for clients that never took part.

    Args:
        inbox: the clients' models.
        outbox: the messages to the participants.
        state: the server's state. The entry ``"seen"`` marks the clients that took part in earlier
            rounds.

    Returns:
        The messages, and a dict with the new value of the state's entry ``"seen"``.

    Example:
        >>> inbox = fgl.federation.Inbox({k: {"model": {"w": torch.tensor(2.0 * k)}}
        ...                               for k in (1, 2)}, num_clients=3)
        >>> outbox, seen = mean_for_strangers(inbox, {}, {})
        >>> float(outbox[0]["model"]["w"]), seen["seen"].tolist()
        (3.0, [False, True, True])
    """
    participated = state.get("seen", torch.zeros(inbox.num_clients, dtype=torch.bool))
    participated = participated.index_fill(0, torch.tensor(inbox.clients), True)
    strangers = (~participated).nonzero().flatten().tolist()
    if strangers:
        model = mean(inbox.each("model"), torch.ones(len(inbox)))
        common: Message = {"model": model, "num_clients": torch.tensor(len(inbox))}
        outbox = dict(sorted({**outbox, **dict.fromkeys(strangers, common)}.items()))
    return outbox, {"seen": participated}


def mix_similar(
    inbox: Inbox, state: State, rows: Tensor, *, scale: float
) -> tuple[dict[int, Message], State]:
    """Mix the models of clients with similar rows, by a softmax of cosines (FED-PUB and FedAux).

    A client that has never taken part gets the mean of the participants' models.
    """
    attention = softmax_attention(similarity(rows, centre=False), scale=scale)
    outbox, new = mix_models(inbox, attention)
    outbox, participated = mean_for_strangers(inbox, outbox, state)
    return outbox, {**new, **participated}


def moved(inbox: Inbox, initial: Params) -> Tensor:
    """Each client's model minus the initial model: ``theta_i - theta_0``.

    Args:
        inbox: the clients' models. If clients send only parts of their models, the parts are used.
        initial: theta_0. Only tensors in theta_0 are used, so a batch norm's statistics are
            ignored.

    Returns:
        float ``[K, P]``, one client per row.

    Example:
        >>> inbox = fgl.federation.Inbox({0: {"model": {"w": torch.tensor([3.0, 4.0])}}}, 1)
        >>> moved(inbox, {"w": torch.ones(2)})
        tensor([[2., 3.]])
    """
    models = inbox.stack("model").items()
    return flat_parameters({name: each - initial[name] for name, each in models if name in initial})


def initial_parameters(method: Method) -> Params:
    """Initial values of a method's trainable parameters, without batch norm statistics.

    Example:
        >>> list(initial_parameters(fgl.fedavg(torch.nn.BatchNorm1d(1))))
        ['weight', 'bias']
    """
    return pick(method.initial(), trainable(method))
