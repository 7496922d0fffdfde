"""An estimate of the memory that a run needs, made before the run."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from fgl.checks import check_number
from fgl.federation import (
    Batch,
    Broadcast,
    Here,
    Inbox,
    Loop,
    Method,
    choose,
    in_mode,
    num_bytes,
    num_participants,
    num_steps,
    stage,
)
from fgl.graph import EDGE_FIELDS, EXAMPLE_FIELDS, NODE_FIELDS, Graph
from fgl.graph.fields import present as present_fields
from fgl.sparse import Pattern, SparseMatrix, rows_of

from .live_bytes import LiveBytes

if TYPE_CHECKING:
    from fgl.tasks import Task

ENTRIES = 2_000_000  # nodes and edges of a client that is tried as a whole
MADE = (2, 4)  # clients of a dry run of a batch
UPLOADS = 64  # of a dry run of the server, if they take at most this much memory
UPLOADS_SIZE = 64_000_000


@dataclass(frozen=True)
class Estimate:
    """The memory that a run needs beside the clients' graphs, in bytes.

    Args:
        clients: number of clients.
        clients_at_once: number of clients that train as one batch.
        step: memory for the training of a batch's first client, free again after the batch.
        step_more: the same for each further client of the batch.
        kept: memory for operators that are made from the clients' graphs once, for all clients.
        message: size of one client's message and new state together.
        state: size of the state that one client keeps from round to round.
        sent: size of the server's messages to all clients.
        aggregate: memory for the server's aggregation.
        evaluate: memory for scoring.
        present: number of clients that take part in a round; default all.

    Example:
        >>> parts = dict.fromkeys(("step_more", "kept", "state", "sent", "aggregate"), 0)
        >>> made = Estimate(10, 1, step=100, message=5, evaluate=20, **parts)
        >>> made.client, made.round, made.at(5).round
        (105, 150, 150)
    """

    clients: int
    clients_at_once: int
    step: int
    step_more: int
    kept: int
    message: int
    state: int
    sent: int
    aggregate: int
    evaluate: int
    present: int | None = None

    @property
    def client(self) -> int:
        """Memory for one client's local training and its message."""
        return self.step + self.message

    @property
    def round(self) -> int:
        """Memory for a round: the part of the round that needs most decides."""
        present = self.clients if self.present is None else self.present
        at_once = min(self.clients_at_once, present)
        before = self.kept + self.sent + self.clients * self.state
        uploads = present * self.message
        waiting = (present - at_once) * self.message
        training = waiting + self.step + (at_once - 1) * self.step_more + at_once * self.message
        return before + max(training, uploads + max(self.aggregate, self.evaluate))

    def at(self, clients_at_once: int) -> Estimate:
        """The estimate for another number of clients at once."""
        return replace(self, clients_at_once=clients_at_once)

    def fitting(self, available: int) -> int | None:
        """Largest number of clients at once for this memory: as now, or a half, a quarter, ..."""
        at_once = self.clients_at_once
        while at_once and self.at(at_once).round > available:
            at_once //= 2
        return at_once or None

    def __str__(self) -> str:
        return f"about {said(self.round)} of memory over the data, {said(self.client)} for a client"


def estimate(
    method: Method,
    clients: Sequence[Graph] | Task,
    *,
    clients_at_once: int | Literal["all", "auto"] = "auto",
    evaluate: Callable[..., Any] | None = None,
    participation: float = 1.0,
) -> Estimate:
    """Estimate the memory of a run from one small dry run, whose tensors are counted.

    The largest client trains for one round, alone or as a batch of two and of four copies. The
    server aggregates their messages, and `evaluate` is called once. The memory of these is then
    scaled to the number of clients of a batch and of a round. A client with more than two million
    nodes and edges is tried at an eighth and at a quarter of its size, and its need is extrapolated
    linearly. Tensors that only later messages contain, such as FedGL's pseudo graph, are not
    counted.

    Args:
        method: the method of the run.
        clients: the clients' graphs, or a task, as for `fgl.run`; they are not changed.
        clients_at_once: as for `fgl.run`. With "auto", if the loss does not run in a batch, clients
            are tried one at a time, as in the run.
        evaluate: as for `fgl.run`; default the task's, or none.
        participation: as for `fgl.run`.

    Returns:
        An `Estimate`, without the memory that Python and torch themselves load.

    Raises:
        TypeError: if the clients are something else than graphs.
        ValueError: without clients, for another `clients_at_once`, or a method with an exchange.
        Others: as a first round with this `clients_at_once` does.

    Example:
        >>> graph = fgl.Graph(torch.eye(2), torch.tensor([[0], [1]]), y=torch.tensor([0, 1]))
        >>> method = fgl.fedavg(fgl.nn.GCN(2, 8, 2))
        >>> small, large = (estimate(method, [graph] * k).round for k in (5, 50))
        >>> small < large
        True
    """
    here = Here(clients, clients_at_once)
    here.check(method)
    graphs, evaluate = here.graphs, evaluate or here.evaluate(method)
    check_number("participation", participation, above=0, at_most=1)
    if method.rules.exchange > 1:  # the first round of an exchange says nothing of the others
        raise ValueError(
            f"Expected a method whose rounds are alike, but got one with an exchange of "
            f"{method.rules.exchange}"
        )
    number, present = len(graphs), num_participants(len(graphs), participation)
    tried = partial(_parts, method, graphs, present)
    if clients_at_once != "auto":
        parts = tried(present if clients_at_once == "all" else clients_at_once)
    else:
        own = [copy.copy(graph) for graph in graphs]  # what is made of a graph stays with the copy
        at_once = choose(method, own).clients_at_once
        try:
            parts = tried(at_once)
        except Exception:
            if at_once == 1:
                raise
            parts = tried(1)
    scored = _evaluated(method, evaluate, number)
    return Estimate(number, **parts, evaluate=scored, present=present)


def available(device: torch.device | str = "cpu") -> int | None:
    """Free memory for this process in bytes; None if it cannot be determined.

    Example:
        >>> found = available()
        >>> found is None or found > 0
        True
    """
    if torch.device(device).type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    free: list[int] = []
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        free += [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable")]
        group = Path("/sys/fs/cgroup")
        limit = (group / "memory.max").read_text().strip()
        if limit != "max":
            free.append(int(limit) - int((group / "memory.current").read_text()))
    except (OSError, ValueError):
        pass
    return min(free, default=None)


def _parts(method: Method, clients: Sequence[Graph], present: int, at_once: int) -> dict[str, int]:
    """An estimate without scoring, for this number of clients in a round and at once.

    If models differ, the kind of model that needs most decides.
    """
    at_once = min(at_once, present)
    kinds: dict[Any, list[Graph]] = {}
    for graph in clients:
        kind = () if method.own.models is None else method.own.models.kind(graph)
        kinds.setdefault(kind, []).append(graph)
    number = len(clients)
    each = [_of_kind(method, some, number, present, at_once) for some in kinds.values()]
    most = {name: max(parts[name] for parts in each) for name in each[0]}
    return {**most, "kept": sum(parts["kept"] for parts in each)}


def _of_kind(
    method: Method, clients: Sequence[Graph], number: int, present: int, at_once: int
) -> dict[str, int]:
    """The parts of an estimate, as if all clients were of this kind."""
    at_once = min(at_once, len(clients))
    largest = max(clients, key=_size)
    if method.train.batches is None:  # in the second step everything is there
        steps = min(2, num_steps(method.train))
        method = replace(method, train=replace(method.train, num_steps=steps))
    shares = [1.0] if _size(largest) <= ENTRIES else [1 / 4, 1 / 8]
    counts = number, present, at_once
    tried = [_dry(method, part(largest, share), *counts) for share in shares]
    made = {name: _line(shares, [each[name] for each in tried]) for name in tried[0]}
    kept = int(made["kept"] * _of_the_largest(clients, at_once))
    return {"clients_at_once": at_once, **made, "kept": kept}


def _of_the_largest(clients: Sequence[Graph], at_once: int) -> float:
    """The clients' total size in units of the largest; a batch pads nodes and joins edges."""
    nodes = sorted((graph.num_nodes for graph in clients), reverse=True)
    edges = [graph.num_edges for graph in clients]
    groups = [nodes[i : i + at_once] for i in range(0, len(nodes), at_once)]
    padded = sum(len(group) * group[0] for group in groups)
    return (padded + sum(edges)) / max(nodes[0] + max(edges), 1)


def _dry(method: Method, graph: Graph, number: int, present: int, at_once: int) -> dict[str, int]:
    """The parts of an estimate, by a round of a few such clients."""
    counts = [1] if at_once == 1 else [n for n in MADE if n < at_once] or [at_once]
    found = [_round(method, [fresh(graph) for _ in range(n)], number, present) for n in counts]
    first, last = found[0], found[-1]
    steps = max(counts[-1] - counts[0], 1)
    more = (last["step"] - first["step"]) // steps if len(found) > 1 else 0
    if len(found) == 1 and counts[0] > 1:
        more = last["step"] // counts[0]
    step = first["step"] - (counts[0] - 1) * more
    kept = last["kept"] // counts[-1]
    return {**last, "step": step, "step_more": more, "kept": kept}


def _round(method: Method, graphs: list[Graph], number: int, present: int) -> dict[str, int]:
    """Memory for a round; the server gets `present` messages and sends `number`."""
    count, who = len(graphs), range(len(graphs))
    state: Any = {"model": method.common()}
    outbox: Any = Broadcast(state, count)
    how: Any = {"seed": 0}
    executor = Loop(method, graphs, **how) if count == 1 else Batch(method, graphs, count, **how)
    if method.rules.joining is not None:
        said: Any = {client: answer.message for client, answer in executor.join()}
        outbox, state = method.rules.joining.welcome(Inbox(said, count, outbox), state)
    devices = [graphs[0].device] if graphs[0].device.type == "cuda" else []
    with torch.random.fork_rng(devices), in_mode(method.model, False):
        with LiveBytes() as training:
            answers = dict(executor.train(0, outbox, who))
        uploads = {client: answer.message or {} for client, answer in answers.items()}
        executor.keep(0, who)
        message = max(num_bytes(upload) for upload in uploads.values())
        kept = max(num_bytes(executor.states[client]) for client in who)
        most = max(8, min(UPLOADS, UPLOADS_SIZE // max(message, 1)))
        for some in (min(present, most), present):
            several = {k: uploads[k % count] for k in range(some)}
            inbox = Inbox(several, some, Broadcast(outbox[0], some))
            try:
                with stage(0, 0, None, "aggregate"), LiveBytes() as server:
                    new, _ = method.aggregate(inbox, state)
                break
            except Exception:  # as of a rule that withstands so many bad ones among all alone
                if some == present:
                    raise
    sent = sum(num_bytes(each) for each in {id(m): m for m in new.values()}.values())
    personal = len(new) and not isinstance(new, Broadcast)
    return {
        "step": max(training.peak - training.now, 0),
        "kept": max(training.now - count * (message + kept), 0),
        "message": message + kept,
        "state": kept,
        "sent": int(sent * (number / some if personal else 1)),
        "aggregate": int(server.peak * present / some),
    }


def _evaluated(method: Method, evaluate: Callable[..., Any] | None, number: int) -> int:
    """Memory for scoring."""
    if evaluate is None:
        return 0
    start: Any = Broadcast({"model": method.common()}, number)
    scoring, still = LiveBytes(), in_mode(method.model, False)
    with torch.random.fork_rng([]), still, stage(0, 0, None, "evaluate"), scoring:
        if not evaluate(start, {}):  # those alone are scored who have taken part
            evaluate(start, {client: {} for client in range(number)})
    return scoring.peak


def fresh(graph: Graph) -> Graph:
    """A copy of the graph without cached operators."""
    given = {each.name: getattr(graph, each.name) for each in fields(Graph)}
    copied: dict[str, Any] = {
        name: value.clone() if isinstance(value, Tensor) else value for name, value in given.items()
    }
    if isinstance(graph.x, SparseMatrix):
        own = graph.x.pattern
        pattern = Pattern(own.crow.clone(), own.col.clone(), graph.x.shape, own.backend)
        value = graph.x.value
        copied["x"] = SparseMatrix(pattern, None if value is None else value.clone())
    return Graph(**copied)


def _size(graph: Graph) -> int:
    return graph.num_nodes + graph.num_edges


def part(graph: Graph, share: float) -> Graph:
    """A graph of every fourth or eighth node and edge; edges' ends are taken modulo its nodes."""
    if share == 1.0:
        return graph
    step = round(1 / share)
    if graph.batch is not None:
        return graph.select(torch.arange(0, graph.num_graphs, step, device=graph.device))
    nodes = torch.arange(0, graph.num_nodes, step, device=graph.device)
    given = present_fields(graph, (*NODE_FIELDS, *EDGE_FIELDS, *EXAMPLE_FIELDS))
    part: dict[str, Any] = {name: value[::step] for name, value in given.items()}
    if graph.edge_label_index is not None:
        part["edge_label_index"] = graph.edge_label_index[:, ::step] % len(nodes)
    x = rows_of(graph.x, nodes)
    edges = graph.edge_index[:, ::step] % len(nodes)
    return Graph(x, edges, num_classes=graph.num_classes, backend=graph.backend, **part)


def _line(shares: Sequence[float], values: Sequence[int]) -> int:
    """The value at share 1, on the line through the values at smaller shares."""
    if len(shares) == 1:
        return values[0]
    slope = (values[0] - values[1]) / (shares[0] - shares[1])
    return max(int(values[0] + slope * (1 - shares[0])), 0)


def said(size: float) -> str:
    for unit in ("bytes", "kB", "MB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} GB"
