"""Executors, which connect a round to its clients and store the clients' states."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ..gate.uploads import Limits
from ..method.message import Message, State

Value = float | tuple[float, float]  # a metric: a number, or a sum and its divisor


@dataclass
class Answer:
    """A client's answer in a round.

    Args:
        message: the client's message; None if the client could not be reached.
        losses: the client's local losses, one per step.
        num_examples: the client's number of training examples. If this number is 0, the round's
            mean loss does not include the client's losses.
        problem: the reason why there is no message.
        paid: largest number of answers with a privacy cost that the client may have given in this
            round. `paid` is above 1 if the request was repeated and the client may have given two
            or more different answers to it.

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
    """An interface to the clients of a run, which are in this process or on other computers.

    `train` computes the clients' new states. A round then calls `keep` with the clients whose
    messages the server has accepted. Only the new states of these clients take effect.
    `fgl.federation.round.play` plays a round with any executor.

    Example:
        >>> graph = fgl.Graph(torch.eye(2), torch.tensor([[0], [1]]), y=torch.tensor([0, 1]))
        >>> method = fgl.fedavg(fgl.nn.GCN(2, 8, 2))
        >>> executor: Executor = fgl.federation.Loop(method, [graph], seed=0)
        >>> executor.num_clients, executor.states
        (1, {})
    """

    num_clients: int
    padding: float  # fraction of padded nodes in the last round's batches
    one_by_one: str  # reason why some clients could not train as a batch and trained one by one
    elsewhere: bool  # whether clients are remote; their errors do not end the run
    limits: Limits  # bounds on the clients' answers; see `fgl.run`

    @property
    def states(self) -> dict[int, State]:
        """The states of the clients.

        A client that has never taken part has no state.
        """

    def join(self) -> Iterable[tuple[int, Answer]]:
        """Request the joining message of every client.

        Return a pair of client and answer for each client, in any order.
        """

    def train(
        self, index: int, outbox: Mapping[int, Message], who: Sequence[int]
    ) -> Iterable[tuple[int, Answer]]:
        """Train the clients in `who` in round `index`.

        Return a pair of client and answer for each client in `who`, in any order.
        """

    def keep(self, index: int, accepted: Sequence[int]) -> None:
        """Keep the new states of the clients in `accepted`.

        Discard the new states of all other clients.
        """

    def score(self, index: int, outbox: Mapping[int, Message]) -> dict[int, dict[str, Value]]:
        """Return each client's metrics of the model that the client deploys.

        The result is empty if clients have no score function.
        """
