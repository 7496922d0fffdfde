"""Local training: every client alone, nothing is shared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..federation import Inbox, Message, Method
from ..federation.method import State


def local(fedavg: Method) -> Method:
    """No federation: every client goes on with the model that it trained.

    Args:
        fedavg: what clients train, and how.

    Example:
        >>> method = local(fgl.fedavg(torch.nn.Linear(1, 1)))
        >>> inbox = fgl.federation.Inbox({1: {"model": {"w": torch.tensor(2.0)}}}, num_clients=2)
        >>> method.aggregate(inbox, {})[0]
        {1: {'model': {'w': tensor(2.)}}}
    """
    return replace(fedavg, aggregate=keep_own)


def keep_own(inbox: Inbox, state: State) -> tuple[Mapping[int, Message], State]:
    """Every client gets its own model back."""
    return {client: {"model": message["model"]} for client, message in inbox.items()}, state
