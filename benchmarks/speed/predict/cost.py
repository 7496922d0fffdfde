"""A model of a round's cost: memory, bytes and seconds, in one process and on Flower."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

from fgl.checks import check_choice, check_count, check_number
from fgl.federation.participants import num_participants

from .memory import Estimate, said

PLACES = ("here", "simulated", "deployed")
Place = Literal["here", "simulated", "deployed"]
Line = tuple[float, ...]  # what there is always, and what each further unit adds
LENGTHS = {"sent": 2, "aggregate": 2, "flower": 2}  # of lines; of lines of sizes it is 3


@dataclass(frozen=True)
class Rates:
    """What one client of a method costs on one machine, as `calibrate` measures it.

    A line of sizes is ``(always, per node, per edge)`` of one client.

    Args:
        clients_at_once: number of clients that train as one batch in one process.
        start: processor seconds of a round that no client adds to.
        train: line of sizes, processor seconds that a client adds to a round.
        down: bytes that a client receives in a round.
        up: bytes that a client sends in a round.
        data: line of sizes, bytes of a client's graph.
        step: line of sizes, bytes, as in `Estimate`.
        step_more: line of sizes, bytes, as in `Estimate`.
        kept: line of sizes, bytes of the operators that are made from one client's graph.
        message: bytes, as in `Estimate`.
        state: bytes, as in `Estimate`.
        sent: bytes, as in `Estimate`, ``(always, per client)``.
        aggregate: bytes, as in `Estimate`, ``(always, per participant)``.
        process: bytes of a process that has imported what it needs.
        flower: processor seconds that Flower adds to a round, ``(per participant, per byte of a
            participant's messages)``; see `flower_line`.

    Raises:
        TypeError: if a number is not one.
        ValueError: if a number is negative, infinite or NaN, or a line has another length.

    Example:
        >>> line = (0.0, 80.0, 16.0)
        >>> rates = Rates(1, 0.5, (1.0, 0.001, 0.0), 40, 48, line, line, line, line, 48, 0, (0.0,
        ...               0.0), (0.0, 0.0))
        >>> rates.flower
        (0.0, 0.0)
    """

    clients_at_once: int
    start: float
    train: Line
    down: int
    up: int
    data: Line
    step: Line
    step_more: Line
    kept: Line
    message: int
    state: int
    sent: Line
    aggregate: Line
    process: int = 0
    flower: Line = (0.0, 0.0)

    def __post_init__(self) -> None:
        check_count(clients_at_once=self.clients_at_once)
        for field in fields(self):
            value, length = getattr(self, field.name), LENGTHS.get(field.name, 3)
            if field.type == "Line" and len(value) != length:
                wanted = f"{length} numbers"
                raise ValueError(f"Expected {field.name} to be {wanted}, but got {value}")
            for rate in value if field.type == "Line" else (value,):
                check_number(field.name, rate, at_least=0)


@dataclass(frozen=True)
class Cost:
    """The cost of one round, as `cost` computes it.

    Args:
        place: ``"here"``, ``"simulated"`` or ``"deployed"``.
        memory: bytes of the machine, or of the server where clients are deployed.
        client_memory: bytes of one client's process; in one process, what it adds to `memory`.
        bytes_down: bytes from the server to all participants.
        bytes_up: bytes from all participants to the server.
        training: seconds in which the clients train and the server aggregates.
        flower: seconds that Flower's processes add.
        sending: seconds in which the messages cross the server's line.

    Example:
        >>> print(Cost("deployed", 2 * 10**9, 10**9, 4 * 10**6, 5 * 10**6, 30.0, 6.0, 4.0))
        deployed: 40 s a round (training 30, Flower 6, sending 4), 9 MB sent, 2 GB for the server, \
1 GB for a client
    """

    place: str
    memory: int
    client_memory: int
    bytes_down: int
    bytes_up: int
    training: float
    flower: float
    sending: float

    @property
    def seconds(self) -> float:
        """Seconds of the round."""
        return self.training + self.flower + self.sending

    @property
    def bytes(self) -> int:
        """Bytes of all messages of the round."""
        return self.bytes_down + self.bytes_up

    def __str__(self) -> str:
        parts = f"training {self.training:.3g}, Flower {self.flower:.3g}"
        who = "the server" if self.place == "deployed" else "the machine"
        return (
            f"{self.place}: {self.seconds:.3g} s a round ({parts}, sending {self.sending:.3g}), "
            f"{said(self.bytes)} sent, {said(self.memory)} for {who}, "
            f"{said(self.client_memory)} for a client"
        )


def cost(
    rates: Rates,
    *,
    clients: int,
    nodes: int,
    edges: int,
    place: Place = "here",
    cores: int = 1,
    bandwidth: float | None = None,
    participation: float = 1.0,
) -> Cost:
    """Predict memory, bytes and time of a round from what a client costs; nothing is run.

    With K clients of n nodes and m edges together, of whom P take part, and t = train(n/K, m/K):

    - seconds in one process: ``start + P t``, on one thread, whatever `cores` is;
    - simulated on Flower: ``start + ceil(P / cores) (t + flower)``: one client per core, and who
      finds no core waits for the next wave;
    - deployed on Flower: ``start + P (t + flower) / min(cores, P) + P (down + up) / bandwidth``:
      all clients share the cores;
    - bytes: ``P down`` and ``P up``, the tensors of the messages, as a run counts them.

    A simulated machine holds `cores` client processes and a server. A Flower server holds every
    upload twice, packed and as tensors. What Flower itself keeps is not counted. Clients are alike:
    in a batch of unequal ones the padding comes on top.

    Args:
        rates: what one client costs, from `calibrate`.
        clients: number of clients K.
        nodes: nodes of all clients together.
        edges: columns of `edge_index` of all clients together.
        place: ``"here"``: one process, as `fgl.run` does it; ``"simulated"``: Flower's simulation
            on one machine; ``"deployed"``: a process of Flower for each turn of a client.
        cores: cores of all machines on which clients train.
        bandwidth: bytes per second of the server's line; by default sending takes no time.
        participation: as for `fgl.run`.

    Raises:
        TypeError: if a number is not one.
        ValueError: if a number is out of range, or for another place.

    Example:
        >>> line = (0.0, 0.0, 0.0)
        >>> rates = Rates(1, 0.5, (1.0, 0.001, 0.0), 40, 48, line, line, line, line, 48, 0, (0, 0),
        ...               (0, 0), flower=(4.0, 0.0))
        >>> cost(rates, clients=10, nodes=10_000, edges=0).seconds
        20.5
        >>> cost(rates, clients=10, nodes=10_000, edges=0, place="deployed", cores=2).seconds
        30.5
    """
    check_count(clients=clients, cores=cores)
    check_number("nodes", nodes, at_least=0, integer=True)
    check_number("edges", edges, at_least=0, integer=True)
    check_choice("place", place, PLACES)
    check_number("participation", participation, above=0, at_most=1)
    if bandwidth is not None:
        check_number("bandwidth", bandwidth, above=0)
    present, each = num_participants(clients, participation), (1, nodes / clients, edges / clients)
    train, messages = _at(rates.train, each), rates.down + rates.up
    data, kept = int(_at(rates.data, each)), int(_at(rates.kept, each))
    at_once = min(rates.clients_at_once, present) if place == "here" else 1
    made = Estimate(
        clients,
        at_once,
        step=int(_at(rates.step, each)),
        step_more=int(_at(rates.step_more, each)),
        kept=clients * kept,
        message=rates.message,
        state=rates.state,
        sent=int(_at(rates.sent, (1, clients))),
        aggregate=int(_at(rates.aggregate, (1, present))),
        evaluate=0,
        present=present,
    )
    sums = present * rates.down, present * rates.up
    if place == "here":
        memory = rates.process + clients * data + made.round
        return Cost(place, memory, data + made.client, *sums, rates.start + present * train, 0, 0)
    own = rates.process + data + kept + made.client
    server = rates.process + made.sent + 2 * present * rates.up + made.aggregate
    wide = min(cores, present)
    turns = -(-present // wide) if place == "simulated" else present / wide
    flower = turns * _at(rates.flower, (1, messages))
    training = rates.start + turns * train
    if place == "simulated":
        return Cost(place, server + wide * own, own, *sums, training, flower, 0)
    sending = 0.0 if bandwidth is None else present * messages / bandwidth
    return Cost(place, server, own, *sums, training, flower, sending)


def _at(line: Line, sizes: tuple[float, ...]) -> float:
    return sum(rate * size for rate, size in zip(line, sizes, strict=True))
