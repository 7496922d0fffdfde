"""Options of a batch's local step and what each would gain, on Cora with 10 clients.

    python benchmarks/speed/step_options.py --json benchmarks/results/step_options.json

The step as it is (`torch.func.vmap`, one fused Adam for all) takes turns with itself, which shows
the noise, with Adam of `foreach`, with all parameters of a client in one tensor, and with a loss
that `torch.compile` has made. Milliseconds of a cohort's step, processor time, medians over the
turns. An option that does not run is reported with its error.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from harness.flags import arguments, flag
from harness.machine import alternated, machine, write
from speed.cases import CASES
from speed.limits import step_seconds

import fgl
from fgl.federation import Batch
from fgl.federation.executors.batch.steps import View

CASE = "gcn_fedavg/K=10"


def with_adam(method: fgl.Method, **how: Any) -> fgl.Method:
    adam = partial(torch.optim.Adam, lr=0.01, **how)
    return replace(method, train=replace(method.train, optimizer=adam))


class Flat(torch.nn.Module):
    """A model's parameters as one vector."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.names = [name for name, _ in model.named_parameters()]
        self.shapes = [p.shape for p in model.parameters()]
        self.all = torch.nn.Parameter(torch.cat([p.detach().flatten() for p in model.parameters()]))

    def parts(self, flat: Any) -> dict[str, Any]:
        each = flat.split([shape.numel() for shape in self.shapes])
        triples = zip(self.names, each, self.shapes, strict=True)
        return {name: part.view(shape) for name, part, shape in triples}


def flat(method: fgl.Method) -> fgl.Method:
    model = Flat(method.model)

    def loss(params: Any, graph: Any, context: Any) -> Any:
        return method.loss(model.parts(params["all"]), graph, context)

    return fgl.fedavg(model, loss=loss, train=method.train)


def steps(method: fgl.Method, clients: Any) -> Callable[[], float]:
    executor, index = Batch(method, clients, len(clients), seed=0), 0

    def once() -> float:
        nonlocal index
        index += 1
        return len(clients) * step_seconds(executor, method, index)

    once()
    return once


def compiled(method: fgl.Method, clients: Any) -> Callable[[], float]:
    """The losses of all clients, forward and backward, as `torch.compile` makes them."""
    made: Any = torch.compile(View.losses, dynamic=False)

    def once() -> float:
        with patch.object(View, "losses", made):
            return run()

    with patch.object(View, "losses", made):
        run = steps(method, clients)
    return once


def main(argv: list[str] | None = None) -> dict[str, Any]:
    args = arguments(argv, repeats=21, without=flag([], "options to leave out", nargs="*"))
    torch.set_num_threads(1)
    method, clients = CASES[CASE]()
    options: dict[str, Callable[[], Callable[[], float]]] = {
        "as it is": lambda: steps(method, clients),
        "as it is, again": lambda: steps(method, clients),
        "Adam, foreach": lambda: steps(with_adam(method, foreach=True), clients),
        "one tensor": lambda: steps(flat(method), clients),
        "compiled": lambda: compiled(method, clients),
    }
    ready, failed = {}, {}
    for name, make in options.items():
        if name in args.without:
            continue
        try:
            ready[name] = make()
        except Exception as error:
            failed[name] = f"{type(error).__name__}: {error}".split("\n")[0][:200]
    found = {name: round(1e3 * s, 3) for name, s in alternated(ready, args.repeats).items()}
    report = {"benchmark": "step_options", "case": CASE, "clock": "process", "machine": machine()}
    report |= {"ms": found, "failed": failed}
    print(report)
    write(report, args.json)
    return report


if __name__ == "__main__":
    main()
