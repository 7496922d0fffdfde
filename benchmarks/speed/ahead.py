"""Sampled minibatches that are drawn ahead in a thread, from sorted reads, from huge pages.

    python benchmarks/speed/ahead.py --json benchmarks/results/ahead.json
    python benchmarks/speed/ahead.py --hidden 16 --threads 1     the other rows stay
    python benchmarks/speed/ahead.py --report    docs/minibatches.md, from that file

One client trains an epoch of SAGE in a round of FedAvg, 1,024 seeds a step, fan-outs 10 and 10, 100
features. The ways take turns, and a number is the median of the ratios of a turn to the plain way
of the same turn: of the clock, of the process's own seconds in all its threads, and of the seconds
that two free cores would need at least: the processor seconds of the busiest Python thread, or half
of all threads', whichever is more. On a shared machine the first one says little.

- ahead: a thread draws a step while the step before is trained. The bits are the same (checked).
- sorted seeds: the seeds of a batch are sorted, so their rows are read in order.
- sorted reads: the features of a batch are gathered in the graph's order and put back.
- huge pages: the sampler's tables and the features lie in pages of 2 MB, if the kernel has them.
- again: the plain way once more, which says how far a ratio is from 1 by chance.
- drawing: the steps are made and not trained; its share says what there is to gain.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

import torch
from harness.flags import arguments
from harness.machine import RESULTS, in_turn, kept, machine, ratio, write
from harness.report import publish
from products_sampled import TENTH, client
from sampled import in_huge_pages
from sampler import random_graph
from torch import Tensor

import fgl
from fgl.federation import Steps
from fgl.sampler import NeighbourSampler
from fgl.sparse import rows_of
from fgl.tasks.sampled_nodes import sampled_steps

SEEDS, STEPS, FEATURES = 1024, 4, 100
ADAM = partial(torch.optim.Adam, lr=0.003)
CLOCKS = ("clock", "process", "two free cores")
WAYS = ("again", "ahead", "sorted seeds", "sorted reads", "huge pages", "drawing")


class Ahead(Steps):
    """Steps of which the next one is made in a thread."""

    spent = 0.0  # seconds of the thread so far, of all instances

    def __init__(self, steps: Steps) -> None:
        super().__init__(len(steps), steps.make)
        self.pool = ThreadPoolExecutor(1)
        self.waiting: dict[int, Future[Any]] = {}

    def __getitem__(self, number: Any) -> Any:
        ready = self.waiting.pop(number, None)
        step = self.make(number) if ready is None else ready.result()
        if number + 1 < self.size:
            self.waiting[number + 1] = self.pool.submit(self.timed, number + 1)
        else:
            self.pool.shutdown()
        return step

    def timed(self, number: int) -> Any:
        """A step, made in the thread, whose processor seconds are added up."""
        start = time.thread_time()
        step = self.make(number)
        Ahead.spent += time.thread_time() - start
        return step


class Sorted(NeighbourSampler):
    """A sampler that reads its seeds in the order of the graph."""

    def unchecked(self, seeds: Tensor, *, generator: torch.Generator | None = None) -> fgl.Graph:
        return super().unchecked(seeds.sort().values, generator=generator)


def in_order(x: Any, ids: Tensor) -> Any:
    """`rows_of` that reads in the order of memory."""
    order = ids.argsort()
    rows = rows_of(x, ids[order])
    return torch.empty_like(rows).index_copy_(0, order, rows)


def random_client(nodes: int) -> fgl.Graph:
    """A random graph of degree 10."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(nodes, FEATURES, generator=generator)
    y = torch.randint(47, (nodes,), generator=generator)
    return fgl.Graph(x, random_graph(nodes), y=y, num_classes=47)


def trained_on(graph: fgl.Graph, count: int) -> fgl.Graph:
    """The same graph, of which so many nodes train."""
    generator = torch.Generator().manual_seed(1)
    mask = torch.zeros(graph.num_nodes, dtype=torch.bool)
    mask[torch.randperm(graph.num_nodes, generator=generator)[:count]] = True
    return graph.replace(train_mask=mask)


def round_of(graph: fgl.Graph, hidden: int, batches: Callable[..., Any]) -> Callable[[], Any]:
    """A function that plays one round and returns the model."""
    torch.manual_seed(0)
    model = fgl.nn.SAGE(graph.num_features, hidden, graph.num_classes)
    method = fgl.fedavg(model, train=fgl.Training(ADAM, batches=batches, epochs=1))
    never = lambda outbox, states: {}  # noqa: E731  # a round alone is timed
    play = partial(fgl.run, method, [graph], num_rounds=1, evaluate=never, clients_at_once=1)
    return lambda: play().outbox[0]["model"]


def timed(function: Callable[[], Any]) -> Callable[[], Any]:
    """Seconds of the clock, of the process, and those that two free cores would need."""

    def now() -> tuple[float, ...]:
        return time.perf_counter(), time.process_time(), time.thread_time(), Ahead.spent

    def run() -> Any:
        start = now()
        function()
        clock, process, main, thread = (b - a for a, b in zip(start, now(), strict=True))
        return clock, process, max(main, thread, process / 2)

    return run


def compare(name: str, graph: fgl.Graph, hidden: int, threads: int, repeats: int) -> Any:
    """One row: all ways in turn on one graph."""
    torch.set_num_threads(threads)
    plain, by_order = NeighbourSampler(graph), Sorted(graph)
    large = NeighbourSampler(graph.replace(x=in_huge_pages(graph.x)))  # type: ignore[arg-type]
    large.table, large.neighbour = in_huge_pages(large.table), in_huge_pages(large.neighbour)

    def steps(sampler: NeighbourSampler) -> Callable[..., Steps]:
        return lambda _, context: sampled_steps(sampler, context, batch_size=SEEDS)

    one = round_of(graph, hidden, steps(plain))
    ahead = round_of(graph, hidden, lambda *of: Ahead(steps(plain)(*of)))
    if any(not torch.equal(a, b) for a, b in zip(one().values(), ahead().values(), strict=True)):
        raise RuntimeError("Expected drawing ahead to keep the bits, but the models differ")

    def gathered() -> Any:
        with mock.patch("fgl.sampler.rows_of", in_order):
            return one()

    ways = {
        "plain": one,
        "ahead": ahead,
        "sorted seeds": round_of(graph, hidden, steps(by_order)),
        "sorted reads": gathered,
        "huge pages": round_of(graph, hidden, steps(large)),
        "again": one,
        "drawing": lambda: list(steps(plain)(graph, {})),
    }
    load = os.getloadavg()[0]
    found: Any = in_turn({way: timed(run) for way, run in ways.items()}, repeats)
    out: dict[str, Any] = {
        "case": name,
        "hidden": hidden,
        "threads": threads,
        "load": round(load, 1),
    }
    for place, clock in enumerate(CLOCKS):
        of = {way: [pair[place] for pair in pairs] for way, pairs in found.items()}
        out[f"{clock}_seconds"] = round(sorted(of["plain"])[repeats // 2], 3)
        out[clock] = {way: ratio(of[way], of["plain"]) for way in WAYS}
    return out


def table(report: dict[str, Any]) -> str:
    """What was measured, as text."""
    of, lines = report["machine"], []
    lines.append(f"{of['cpu']}, {of['cores']} cores, torch {of['torch']}, commit {of['commit']}.\n")
    heads = " | ".join(WAYS)
    lines.append(f"| graph | hidden | threads | load | seconds of | plain | {heads} |")
    lines.append("|---" * 11 + "|")
    for row in report["rows"]:
        for clock in CLOCKS:
            cells = [row["case"], row["hidden"], row["threads"], row["load"], clock]
            cells.append(row[f"{clock}_seconds"])
            for way in WAYS:
                middle, (least, most) = row[clock][way]
                cells.append(f"{middle} ({least} to {most})")
            lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    args = arguments(
        nodes=10**6, tenth=TENTH, hidden=[16, 128], threads=[1, 2], repeats=5, report=False
    )
    if args.report:
        publish("ahead", table(kept(RESULTS / "ahead.json")))
        return
    found = {row_of(row): row for row in kept(args.json).get("rows", ())}
    for name, make in (
        (f"random, {args.nodes:,} nodes", partial(random_client, args.nodes)),
        (f"like products, {args.tenth:,} nodes", partial(client, args.tenth)),
    ):
        graph = trained_on(make(), SEEDS * STEPS)
        for hidden in args.hidden:
            for threads in args.threads:
                row = compare(name, graph, hidden, threads, args.repeats)
                found[row_of(row)] = row
                print(row, flush=True)
                rows = [found[key] for key in sorted(found)]
                write({"benchmark": "ahead", "machine": machine(), "rows": rows}, args.json)


def row_of(row: dict[str, Any]) -> tuple[Any, ...]:
    """What a row is kept under."""
    return tuple(row[key] for key in ("case", "hidden", "threads"))


if __name__ == "__main__":
    main()
