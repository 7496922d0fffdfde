"""Limits of a client's local step: how far it is from what the machine could do.

    python benchmarks/speed/limits.py --json benchmarks/results/limits.json

For each case: the bytes that a local step must move and the multiplications that it must do, the
bandwidth of a copy and the rate of a matrix product measured between the repeats, and the fraction

    limit / measured,    limit = max(bytes / bandwidth, multiplications / rate).

Bytes: each parameter (of a first layer on sparse features, those of the features that a client has)
is read by the forward pass, its gradient is written and read, Adam reads and
writes the parameter and its two moments; where a step sees a minibatch, its share of all else;
features are read twice, with 4 more bytes an entry where
they are sparse; an operator's entries (8 bytes) are read once a product; what a layer puts out is
written and read, its gradient too; on trees the reduced features of each position are gathered.
Multiplications: three products for each linear layer, two for
the first; two for each propagation. Whatever else happens is not counted, so 1 cannot be reached.
A cohort's working set and the copy's are of the same size. Processor time, one thread.
"""

import math
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from harness.flags import arguments, some
from harness.machine import machine, write
from speed.cases import CASES

import fgl
from fgl import SparseMatrix
from fgl.federation import Batch, Broadcast, Loop, choose

ASKED = 0.5
NAMES = ("gcn_fedavg/K=10", "gcn_fedavg/K=100", "gcn_fedavg/K=1000", "dense", "sparse", "NCI1")
NAMES += ("fgssl/K=10", "gpfl", "fedego")
FLOAT, INDEX = 4, 4
PASSES = {"fgssl": 2}  # forward passes of a step beside the student's: the teacher, a second view


class Work:
    """What a step must do: bytes and multiplications, summed as layers are added."""

    def __init__(self) -> None:
        self.bytes = self.products = 0.0

    def linear(self, rows: int, entries: int, wide: int, out: int, first: bool) -> None:
        """``X W``, its entries read again for the gradient; no gradient to the first X."""
        self.products += entries * out * 2 + (0 if first else rows * wide * out)
        self.bytes += 4 * FLOAT * rows * out

    def spread(self, entries: int, rows: int, out: int) -> None:
        """``A H`` and its transpose."""
        self.products += 2 * entries * out
        self.bytes += 2 * entries * (FLOAT + INDEX) + 4 * FLOAT * rows * out

    def trained(self, parameters: int) -> None:
        """Forward, gradient, Adam."""
        self.bytes += 9 * FLOAT * parameters


def needed(method: fgl.Method, graph: fgl.Graph, passes: int, steps: int) -> Work:
    """What one client's step must do; every matrix of the model is met once by all nodes."""
    work, first = Work(), True  # `steps` minibatches are the whole of a client
    parameters = list(method.model.parameters())
    nodes, edges = graph.num_nodes, graph.num_edges + graph.num_nodes
    sparse = isinstance(graph.x, SparseMatrix)
    entries = graph.x.nnz if isinstance(graph.x, SparseMatrix) else graph.x.numel()
    work.bytes += 2 * entries * (FLOAT + INDEX * sparse)
    for weight in (p for p in parameters if p.dim() == 2):
        out, wide = weight.shape
        work.linear(nodes, entries if first else nodes * wide, wide, out, first)
        first = False
    for out in widths(method.model):
        work.spread(edges, nodes, out)
    share = (1 + passes / 3) / steps
    work.bytes, work.products = share * work.bytes, share * work.products
    trained = sum(p.numel() for p in parameters if p.requires_grad)
    if isinstance(graph.x, SparseMatrix):  # the first matrix has a column for each feature
        absent = graph.num_features - int(graph.x.to_dense().any(0).sum())
        trained -= absent * next(len(p) for p in parameters if p.dim() == 2)
    work.trained(trained)
    return work


def needed_on_trees(method: fgl.Method, graph: fgl.Graph) -> Work:
    """What a step on one minibatch of trees must do; a node that is drawn twice is reduced once."""
    work, model = Work(), method.model
    assert isinstance(model, fgl.nn.EgoSAGE) and method.train.batches is not None
    _, step = next(iter(method.train.batches(graph, {})))
    x, (count, size) = step["x"].values, step["trees"].values.shape
    sparse, wide = isinstance(x, SparseMatrix), model.reduction.out_features
    entries = x.nnz if isinstance(x, SparseMatrix) else x.numel()
    work.bytes += 2 * entries * (FLOAT + INDEX * sparse)
    work.linear(x.shape[0], entries, x.shape[1], wide, True)
    work.bytes += 4 * FLOAT * count * size * wide
    for depth in reversed(range(len(model.fanouts))):  # a layer takes the last depth away
        levels = [math.prod(model.fanouts[:level]) for level in range(depth + 2)]
        rows, children = count * sum(levels[:-1]), count * sum(levels[1:])
        work.products += 2 * children * wide
        work.bytes += 4 * FLOAT * rows * wide
        for _ in ("root", "neighbours"):
            work.linear(rows, rows * wide, wide, wide, False)
    work.linear(count, count * wide, wide, model.head.out_features, False)
    work.trained(sum(p.numel() for p in model.parameters()))
    return work


def widths(model: torch.nn.Module) -> list[int]:
    """What each propagation carries for a node."""
    layers = getattr(model, "convs", [])
    weights = [[p for p in layer.parameters() if p.dim() == 2] for layer in layers]
    # GIN has several, and sums before its network.
    return [first.shape[1] if rest else first.shape[0] for first, *rest in weights]


def machine_limits(size: int) -> tuple[float, float]:
    """Bytes per second of a copy, of a working set like the case's; multiplications per second."""
    source = torch.ones(max(size // 8, 1024))
    target = torch.empty_like(source)
    times = max(1, 2**25 // source.numel())
    copy = clocked(lambda: target.copy_(source), times)
    square = torch.ones(768, 768)
    product = clocked(lambda: square @ square, 3)
    return 2 * FLOAT * source.numel() / copy, 768**3 / product


def clocked(call: Callable[[], Any], times: int) -> float:
    """Seconds of one call of this process."""
    start = time.process_time()
    for _ in range(times):
        call()
    return (time.process_time() - start) / times


def step_seconds(executor: Loop, method: fgl.Method, index: int) -> float:
    """Seconds of all clients' local training, divided by their steps."""
    outbox: Any = Broadcast({"model": method.initial()}, executor.num_clients)
    start = time.process_time()
    answers = executor.train(index, outbox, range(executor.num_clients))
    taken = time.process_time() - start
    executor._new.clear()
    return taken / sum(len(answer.losses) for _, answer in answers)


def measure(name: str, repeats: int) -> dict[str, Any]:
    """One case: milliseconds of a step of the mean client, its limit, the fraction reached."""
    method, clients = CASES[name]()
    at_once = choose(method, clients).clients_at_once
    executor: Loop = Loop(method, clients, seed=0)
    if at_once > 1:
        executor = Batch(method, clients, at_once, or_alone=True, seed=0)
    passes, size = PASSES.get(name.split("/")[0], 0), 128
    minibatches = method.train.batches is not None
    steps = [-(-graph.num_train // size) if minibatches else 1 for graph in clients]
    each = [needed(method, graph, passes, n) for graph, n in zip(clients, steps, strict=True)]
    if isinstance(method.model, fgl.nn.EgoSAGE):
        each = [needed_on_trees(method, graph) for graph in clients]
    moved = statistics.mean(work.bytes for work in each)
    products = statistics.mean(work.products for work in each)
    warm = 1 if at_once == 1 else 12  # rounds, after which a batch repeats a traced step
    for index in range(warm):
        step_seconds(executor, method, index)
    found: list[tuple[float, float, float]] = []
    for index in range(repeats):
        speed, rate = machine_limits(int(at_once * moved / 3))
        found.append((step_seconds(executor, method, index + warm), speed, rate))
    taken, speed, rate = (statistics.median(values) for values in zip(*found, strict=True))
    limit = max(moved / speed, products / rate)
    return {
        "clients_at_once": at_once,
        "step_ms": round(1e3 * taken, 4),
        "megabytes": round(moved / 1e6, 3),
        "million_products": round(products / 1e6, 3),
        "copy_gb_per_s": round(speed / 1e9, 2),
        "giga_products_per_s": round(rate / 1e9, 2),
        "limit_ms": round(1e3 * limit, 4),
        "fraction": round(limit / taken, 3),
    }


def main(argv: list[str] | None = None) -> dict[str, Any]:
    args = arguments(argv, cases=some(CASES, list(NAMES)), repeats=7)
    torch.set_num_threads(1)
    found = {}
    for name in args.cases:
        found[name] = measure(name, args.repeats)
        print(name, found[name], flush=True)
    report = {"benchmark": "limits", "asked": ASKED, "machine": machine(), "cases": found}
    write(report, args.json)
    return report


if __name__ == "__main__":
    main()
