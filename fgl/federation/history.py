"""History of a run: what happened in each round, and what is left after the last."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .method.message import Message
from .method.method import State


@dataclass
class Round:
    """What happened in a round.

    Args:
        round: its number, from 0.
        participants: clients that were sent a message.
        dropped: clients whose message did not count, and why.
        zero_weight: participants without a training node.
        copies: clients whose upload is detectably no work of their own, and what it is: the model
            that was sent, another client's upload, or one and the same number. They count, unless
            `Limits` refuses them.
        loss: mean local loss of the clients that counted and have a training node.
        padding: share of the nodes that cohorts were padded with.
        one_by_one: why a batch refused these clients, so that they trained one after the other, and
            do so in later rounds too; only where nobody said how many train at once.
        bytes_down, bytes_up: size of all messages that crossed the wire, malformed ones left out.
        seconds: from broadcast to the end of evaluation; rounds are equal in spite of it.
        metrics: what `evaluate` returned.

    Example:
        >>> Round(round=0, participants=[0, 1]).dropped
        {}
    """

    round: int
    participants: list[int]
    dropped: dict[int, str] = field(default_factory=dict)
    zero_weight: list[int] = field(default_factory=list)
    copies: dict[int, str] = field(default_factory=dict)
    loss: float = math.nan
    padding: float = 0.0
    one_by_one: str = ""
    bytes_down: int = 0
    bytes_up: int = 0
    seconds: float = field(default=0.0, compare=False)
    metrics: dict[str, float] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """Whether nobody's upload counted.

        Example:
            >>> Round(0, [0, 1], {0: "dropped out"}).is_empty
            False
        """
        return len(self.dropped) >= len(self.participants)


@dataclass
class Result:
    """A federation after its last round.

    Args:
        outbox: what the server would send each client next; ``outbox[0]["model"]`` is the model.
        server_state: what the server keeps.
        client_states: what each client keeps.
        history: one `Round` per round.
        form: what most clients' uploads have been so far: names, dtypes and shapes, with which
            later uploads are compared.
        config: what the run was told, and under ``"layers"`` what each builder of its method was
            set to, innermost first.

    Example:
        >>> Result({0: {"model": {}}}, {}, {}, []).history
        []
    """

    outbox: Mapping[int, Message]
    server_state: State
    client_states: dict[int, State]
    history: list[Round]
    form: dict[str, Any] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
