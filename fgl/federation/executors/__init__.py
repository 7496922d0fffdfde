"""Executors: how a round reaches its clients, and where the clients' states are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ..gate.uploads import Limits
from ..method.message import Message, State

Value = float | tuple[float, float]  # of a metric: a number, or a sum and its divisor


@dataclass
class Answer:
    """A client's answer in a round.

    Args:
        message: the client's message; None if it could not be reached.
        losses: the client's local losses, one per step.
        num_examples: number of examples that it trained on; with 0 its losses are left out of the
            round's mean.
        problem: the reason why there is no message.
        paid: the number of answers to this question for which the client can have paid; above 1 if
            it was asked again and may have given other bits.

    Example:
        >>> Answer(None, problem="timed out").message is None
        True
    """

    message: Message | None
    losses: list[float] = field(default_factory=list)
    num_examples: int = 1
    problem: str = ""
    paid: int = 1


class Executor(Protocol):
    """An interface to the clients: in this process, one at a time or in batches, or elsewhere.

    `train` makes the clients' new states. A new state counts once `keep` names its client, after
    the round has accepted the client's message. `fgl.federation.round.play` plays a round over any
    of them.

    Example:
        >>> graph = fgl.Graph(torch.eye(2), torch.tensor([[0], [1]]), y=torch.tensor([0, 1]))
        >>> method = fgl.fedavg(fgl.nn.GCN(2, 8, 2))
        >>> executor: Executor = fgl.federation.Loop(method, [graph], seed=0)
        >>> executor.num_clients, executor.states
        (1, {})
    """

    num_clients: int
    padding: float  # share of the nodes that the last round's batches were padded with
    one_by_one: str  # why a batch could not train some clients, who then trained one by one
    elsewhere: bool  # whether clients run on machines of their own, whose errors are not one's own
    limits: Limits  # bounds on their answers; see `fgl.run`

    @property
    def states(self) -> dict[int, State]:
        """The clients' states; a client that never took part has none."""
        ...

    @property
    def untraced(self) -> str:
        """The reason why local steps are not repeated from a trace any more; empty if they are."""
        ...

    def join(self) -> Iterable[tuple[int, Answer]]:
        """Ask every client for its joining message; returns the answers, in any order."""
        ...

    def train(
        self, index: int, outbox: Mapping[int, Message], who: Sequence[int]
    ) -> Iterable[tuple[int, Answer]]:
        """Train the clients `who` in round `index`; returns their answers, in any order."""
        ...

    def keep(self, index: int, accepted: Sequence[int]) -> None:
        """Keep the new states of `accepted`, and discard the new states of the others."""
        ...

    def score(self, index: int, outbox: Mapping[int, Message]) -> dict[int, dict[str, Value]]:
        """Each client's own score of the model that it deploys; empty if there is no score."""
        ...
