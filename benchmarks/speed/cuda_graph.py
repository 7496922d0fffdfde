"""A batch's local step on a GPU, and the CUDA graph that a run repeats in its place.

    python benchmarks/speed/cuda_graph.py --json out/cuda_graph.json
    python benchmarks/speed/cuda_graph.py --nodes 200 --clients 10      random graphs, no Cora

A step is what `train_cohort` takes: the losses of all clients, one backward, one fused Adam. Steps
with a `Tracer`, which captures the second one, take turns with steps without it. `step_ms` and
`replayed_ms` are medians per step, ``replayed_over_step`` is their ratio. `largest_difference` is
that of the parameters after as many steps of both, from the same random state. `why` says what
could not be captured.
"""

import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from harness.flags import arguments, flag, some
from harness.machine import alternated, example, machine, seconds, write
from speed.rounds import SETTINGS, cora, synthetic

import fgl
from fgl.federation import Cohort
from fgl.federation.executors.batch import traced
from fgl.federation.executors.batch.steps import StepPlan, View
from fgl.federation.executors.batch.train_cohort import _alone, _optimizer, _stack, _step
from fgl.federation.training.optimizer import Layout
from fgl.federation.training.train import training

traced.AFTER = 1
ADAM = partial(torch.optim.Adam, lr=0.01)


class Step:
    """A local step of all clients."""

    def __init__(
        self, method: fgl.Method, clients: Sequence[fgl.Graph], tracer: traced.Tracer | None = None
    ) -> None:
        message = {"model": method.initial()}
        received = [method.receive(message, {}, graph) for graph in clients]
        params, contexts = zip(*received, strict=True)
        layout, cohort = Layout(params[0], clients[0]), Cohort(clients)
        alone = _alone(method, params[0], cohort)
        self.stacks = _stack([layout.turn(own) for own in params], ())
        self.leaves = {name: self.stacks[name].requires_grad_() for name in alone.leaves}
        self.stepper = _optimizer(alone, self.leaves)
        plan = StepPlan(method.train, cohort, contexts, range(len(clients)))
        self.view = View(method, layout).at(*plan.at(0))
        self.differentiate = tracer.differentiate if tracer else traced.differentiated

    def __call__(self) -> torch.Tensor:
        return _step(self.view, self.stacks, self.leaves, self.stepper, self.differentiate)


def method_of(name: str, clients: Sequence[fgl.Graph]) -> fgl.Method:
    """FedAvg of a GCN, or FGSSL."""
    first = clients[0]
    torch.manual_seed(0)
    sizes = first.num_features, SETTINGS[name]["hidden"], first.num_classes
    model = fgl.nn.GCN(*sizes, dropout=0.5).to(first.device)
    method = fgl.fedavg(model, train=fgl.Training(ADAM, num_steps=1))
    return example("fgssl").fgssl(method) if name == "fgssl" else method


def measure(name: str, clients: Sequence[fgl.Graph], count: int, repeats: int) -> dict[str, Any]:
    """Milliseconds of a step, taken and replayed, and how far their parameters are apart."""
    method, tracer = method_of(name, clients), traced.Tracer()
    plain, replayed = Step(method, clients), Step(method, clients, tracer)
    for step in (plain, replayed):
        with training(method.model, clients[0].device, 0):
            for _ in range(count):
                step()
    gaps = [(plain.leaves[n] - replayed.leaves[n]).detach().abs().max() for n in plain.leaves]
    found: dict[str, Any] = {"largest_difference": float(torch.stack(gaps).max())}

    def each(step: Step) -> Callable[[], float]:
        device = str(clients[0].device)
        return lambda: seconds(lambda: [step() for _ in range(count)], device) / count

    with training(method.model, clients[0].device, 0):
        took = alternated({"step": each(plain), "replayed": each(replayed)}, repeats)
    found |= {f"{variant}_ms": round(1e3 * value, 4) for variant, value in took.items()}
    ratio = took["replayed"] / took["step"] if took["step"] else float("nan")
    return {**found, "replayed_over_step": round(ratio, 3), "why": tracer.why}


def main(argv: list[str] | None = None) -> dict[str, Any]:
    args = arguments(
        argv,
        clients=(10, 100),
        nodes=flag(int, "of each client: random graphs in place of Cora"),
        device="cuda",
        steps=flag(50, "that are timed together"),
        repeats=7,
        only=some(SETTINGS),
    )
    numbers: dict[str, Any] = {}
    for num_clients in args.clients:
        if args.nodes is None:
            clients = cora(num_clients, args.device)[1]
        else:
            clients = [synthetic(args.nodes, seed).to(args.device) for seed in range(num_clients)]
        for name in args.only:
            key = f"{name}/K={num_clients}"
            numbers[key] = measure(name, clients, args.steps, args.repeats)
            print(key, numbers[key], flush=True)
    report = {"benchmark": "cuda_graph", "machine": machine(), "steps": args.steps, **numbers}
    write(report, args.json)
    return report


if __name__ == "__main__":
    main()
