"""Rates of a machine: a short calibration of what a client of a method costs on it."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import torch

from fgl import Method, SparseMatrix, run
from fgl.checks import check_count, check_number
from fgl.federation import Round
from fgl.graph import EDGE_FIELDS, Graph
from fgl.graph.fields import present

from .cost import Line, Rates
from .memory import Estimate, estimate, fresh, part

ROUNDS = 3  # that are timed after the first one
SERVED = (2, 8)  # clients whose messages the server is tried with
SHARE = 1 / 4  # of the client that is tried as a smaller one
COUNTS = (100.0, 10.0, 1.0, 1.0)  # of the rounds: a smaller client may fit a cache
RESIDENT = "print(next(w for w in open('/proc/self/status') if w.startswith('VmRSS')).split()[1])"


def calibrate(
    method: Method,
    client: Graph,
    *,
    clients_at_once: int = 1,
    modules: Sequence[str] = ("fgl",),
    clock: Callable[[], float] = time.process_time,
) -> Rates:
    """Measure what a client of a method costs on this machine, by a few rounds of a few clients.

    Rounds of copies of the client are timed: as it is, with half of its edges, at a quarter of its
    size, and with three times the copies. The time of a round is taken as linear in the number of
    clients, their nodes and edges, with no negative part, and memory likewise; see `cost`. Where no
    such line fits, the client as it is counts most. So it should be about as large as those that
    are asked for: a client that fits a cache says little of one that does not. Bytes are counted in
    these rounds.

    Args:
        method: the method whose rounds are alike.
        client: a typical client's graph; it is not changed.
        clients_at_once: number of clients that train as one batch.
        modules: what a process imports, whose memory is measured in a fresh process, on Linux;
            with no module, a process takes no memory.
        clock: seconds; default the processor's, of this process.

    Returns:
        The rates, without what Flower adds.

    Raises:
        TypeError: for `modules` that are no names, such as one string.
        ValueError: for a method with an exchange.
        RuntimeError: if a fresh process cannot import `modules`, with what it wrote.
        Others: as a first round does.

    Warns:
        UserWarning: if the client is too small, or the machine too busy, to see time grow with
            nodes or edges.

    Example:
        >>> graph = fgl.data.load("synthetic")
        >>> method = fgl.fedavg(fgl.nn.GCN(graph.num_features, 8, graph.num_classes))
        >>> rates = calibrate(method, graph, modules=())
        >>> rates.down == fgl.federation.num_bytes({"model": method.common()})
        True
    """
    check_count(clients_at_once=clients_at_once)
    if isinstance(modules, str) or not all(isinstance(name, str) for name in modules):
        raise TypeError(f"Expected modules to be a sequence of names, but got {modules!r}")
    small = part(client, SHARE)
    graphs, sizes, needs = [client, _thinner(client), small], [], []
    rows: list[tuple[float, ...]] = []
    seconds = []
    for graph in graphs:
        sizes.append((1.0, graph.num_nodes, graph.num_edges))
        needs.append(estimate(method, [graph] * clients_at_once, clients_at_once=clients_at_once))
    for graph, count in [*((graph, 1) for graph in graphs), (small, 3)]:
        number = count * clients_at_once
        taken, last = _played(method, graph, number, clients_at_once, clock)
        rows.append((1, number, number * graph.num_nodes, number * graph.num_edges))
        seconds.append(taken)
    start, *train = line(rows, seconds, COUNTS)
    if not any(train[1:]) or small.num_nodes == client.num_nodes:
        warnings.warn(
            "Calibrating saw no line of time in nodes and edges, so a cost may not grow as they do:"
            f" a client of {client.num_nodes} nodes and {client.num_edges} edges is too small, or "
            "this machine is too busy, to see one",
            stacklevel=2,
        )

    def of(name: str) -> Line:
        own = clients_at_once if name == "kept" else 1
        return line(sizes, [getattr(need, name) / own for need in needs])

    served: list[Estimate] = [estimate(method, [small] * k, clients_at_once=1) for k in SERVED]
    counts = [(1.0, float(k)) for k in SERVED]
    return Rates(
        clients_at_once,
        start,
        tuple(train),
        last.bytes_down // number,
        last.bytes_up // number,
        data=line(sizes, [_held(graph) for graph in graphs]),
        step=of("step"),
        step_more=of("step_more"),
        kept=of("kept"),
        message=needs[0].message,
        state=needs[0].state,
        sent=line(counts, [each.sent for each in served]),
        aggregate=line(counts, [each.aggregate for each in served]),
        process=_process(modules),
    )


def flower_line(rounds: Sequence[tuple[int, int, float]]) -> Line:
    """What Flower adds to a round, for `Rates.flower`, from rounds that were measured on it.

    Args:
        rounds: of each its participants, the bytes of one participant's messages, and processor
            seconds beyond those of training: seconds of the clock times the cores that were busy.

    Returns:
        Processor seconds per participant and per byte of its messages; one round alone says the
        first, and the second is 0.

    Raises:
        TypeError: if a number is not one.
        ValueError: if there is no round, or a number is out of range.

    Example:
        >>> [round(rate, 6) for rate in flower_line([(4, 0, 8.0), (4, 1_000_000, 16.0)])]
        [2.0, 2e-06]
    """
    if not rounds:
        raise ValueError("Expected rounds to be at least one, but got none")
    for count, size, seconds in rounds:
        check_count(participants=count)
        check_number("bytes", size, at_least=0)
        check_number("seconds", seconds, at_least=0)
    if len(rounds) == 1:
        return rounds[0][2] / rounds[0][0], 0.0
    rows = [(float(count), float(count * size)) for count, size, _ in rounds]
    return line(rows, [seconds for *_, seconds in rounds])


def line(
    rows: Sequence[Sequence[float]], values: Sequence[float], counts: Sequence[float] = (1.0,)
) -> Line:
    """The rates, none negative, with the least relative error of ``rows @ rates`` to the values.

    A row's error counts `counts` times, all alike by default.

    Example:
        >>> [round(rate, 6) for rate in line([(1, 10), (1, 30)], [7, 17])]
        [2.0, 0.5]
    """
    from scipy.optimize import nnls  # slow to import

    table = torch.tensor(rows, dtype=torch.float64)
    wanted = torch.tensor(values, dtype=torch.float64)
    if not wanted.any():
        return (0.0,) * table.shape[1]
    weight = torch.tensor(counts) / wanted.clamp(min=float(wanted.max()) * 1e-6)
    scale = table.amax(0).clamp(min=1e-300)
    found, _ = nnls((table / scale * weight[:, None]).numpy(), (wanted * weight).numpy())
    return tuple((torch.from_numpy(found) / scale).tolist())


def _played(
    method: Method, graph: Graph, number: int, at_once: int, clock: Callable[[], float]
) -> tuple[float, Round]:
    """Median seconds of a round of copies of a client, and the last round."""
    stamps: list[float] = []
    rounds: list[Round] = []

    def stamp(record: Round, _: Any) -> None:
        stamps.append(clock())
        rounds.append(record)

    copies = [fresh(graph) for _ in range(number)]
    with torch.random.fork_rng([]):
        run(method, copies, num_rounds=ROUNDS + 1, clients_at_once=at_once, callbacks=[stamp])
    return statistics.median(after - before for before, after in pairwise(stamps)), rounds[-1]


def _thinner(graph: Graph) -> Graph:
    """The same nodes with every second edge; half of a graph whose edges are bound to examples."""
    if graph.batch is not None or graph.edge_label_index is not None:
        return part(graph, 1 / 2)
    own = {name: value[::2] for name, value in present(graph, EDGE_FIELDS).items()}
    return graph.replace(edge_index=graph.edge_index[:, ::2], **own)


def _held(graph: Graph) -> int:
    """Bytes of the tensors of a graph."""
    total = 0
    for value in vars(fresh(graph)).values():
        parts: list[Any] = [value]
        if isinstance(value, SparseMatrix):
            parts = [value.pattern.crow, value.pattern.col, value.value]
        total += sum(each.numel() * each.element_size() for each in parts if torch.is_tensor(each))
    return total


def _process(modules: Sequence[str]) -> int:
    """Resident bytes of a fresh process that has imported these modules."""
    if not modules:
        return 0
    names = ", ".join(modules)
    command = [sys.executable, "-P", "-c", f"import {names}\n{RESIDENT}"]  # not from this folder
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(
            f"Expected modules to be what a fresh process can import, but got {names!r}, which "
            f"ended with {done.returncode}:\n{done.stderr}"
        )
    return int(done.stdout.split()[-1]) * 1024
