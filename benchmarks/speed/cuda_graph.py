"""A batch's local step as a CUDA graph: whether it can be captured, its numbers, its time.

    python benchmarks/speed/cuda_graph.py --json out/cuda_graph.json
    python benchmarks/speed/cuda_graph.py --nodes 200 --clients 10      random graphs, no Cora

A step is what `train_cohort` takes: the losses of all clients, one backward, one fused Adam, which
is capturable here. It is captured once and replayed; the same step without a graph takes turns with
it. `step_ms` and `replayed_ms` are medians per step, ``replayed_over_step`` is their ratio.
`largest_difference` is that of the parameters after as many steps of both, where nothing is drawn:
without dropout, and for FGSSL without its random views. What cannot be captured is reported with
its error.

Under the pretended device of the tests everything runs but for what only a device has: the order of
additions, the memory that a graph's results share, kernels that cannot be captured, and time.
"""

import sys
import warnings
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
from fgl.federation.executors.batch.steps import StepPlan, View
from fgl.federation.executors.batch.train_cohort import _optimizer, _stack, _step
from fgl.federation.training.optimizer import Layout
from fgl.federation.training.train import trainable, training

WARM = 3  # steps before a capture: optimisers make their state in the first
TOLERANCE = 1e-5  # of parameters after as many steps
ADAM = partial(torch.optim.Adam, lr=0.01, capturable=True)


class Step:
    """A local step of all clients, on tensors that stay where they are."""

    def __init__(self, method: fgl.Method, clients: Sequence[fgl.Graph]) -> None:
        message = {"model": method.initial()}
        received = [method.receive(message, {}, graph) for graph in clients]
        params, contexts = zip(*received, strict=True)
        layout = Layout(params[0], clients[0])
        self.stacks = _stack([layout.turn(own) for own in params], ())
        self.start = {name: stack.clone() for name, stack in self.stacks.items()}
        names = trainable(method)
        self.leaves = {n: stack.requires_grad_() for n, stack in self.stacks.items() if n in names}
        self.stepper = _optimizer(method.train, params[0], self.leaves)
        plan = StepPlan(method.train, Cohort(clients), contexts, range(len(clients)))
        self.view = View(method, layout).at(*plan.at(0))

    def __call__(self) -> torch.Tensor:
        return _step(self.view, self.stacks, self.leaves, self.stepper)

    @torch.no_grad()
    def restart(self) -> None:
        """Parameters and the optimiser's state as they were at first, in the same tensors."""
        for name, stack in self.stacks.items():
            stack.copy_(self.start[name])
        for state in self.stepper.state.values():
            for value in state.values():
                value.zero_()


def captured(step: Step) -> Callable[[], None]:
    """The replay of a step."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(WARM):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    replay: Callable[[], None] = graph.replay
    return replay


def method_of(name: str, clients: Sequence[fgl.Graph], *, drawn: bool) -> fgl.Method:
    """FedAvg of a GCN, or FGSSL; with dropout and random views, or without."""
    first, setting = clients[0], SETTINGS[name]
    torch.manual_seed(0)
    sizes = first.num_features, setting["hidden"], first.num_classes
    model = fgl.nn.GCN(*sizes, dropout=0.5 if drawn else 0.0).to(first.device)
    method = fgl.fedavg(model, train=fgl.Training(ADAM, num_steps=1))
    if name != "fgssl":
        return method
    still = {} if drawn else dict.fromkeys(("local_view", "global_view"), lambda x, adj: (x, adj))
    return example("fgssl").fgssl(method, **still)


def difference(method: fgl.Method, clients: Sequence[fgl.Graph], count: int) -> float:
    """How far the parameters are from each other after so many steps, taken and replayed."""
    plain, other = Step(method, clients), Step(method, clients)
    replay = captured(other)
    other.restart()
    for _ in range(count):
        plain()
        replay()
    torch.cuda.synchronize()
    gaps = [(plain.leaves[n] - other.leaves[n]).detach().abs().max() for n in plain.leaves]
    return float(torch.stack(gaps).max())


def times(method: fgl.Method, clients: Sequence[fgl.Graph], count: int, repeats: int) -> Any:
    """Milliseconds of a step, taken and replayed."""
    plain, other = Step(method, clients), Step(method, clients)
    replay = captured(other)

    def each(call: Callable[[], Any]) -> Callable[[], float]:
        return lambda: seconds(lambda: [call() for _ in range(count)], "cuda") / count

    took = alternated({"step": each(plain), "replayed": each(replay)}, repeats)
    found = {f"{name}_ms": round(1e3 * value, 4) for name, value in took.items()}
    ratio = took["replayed"] / took["step"] if took["step"] else float("nan")
    return {**found, "replayed_over_step": round(ratio, 3)}


def measure(name: str, clients: Sequence[fgl.Graph], count: int, repeats: int) -> dict[str, Any]:
    """One case; an error ends it and is told."""
    found: dict[str, Any] = {}
    still, drawn = (method_of(name, clients, drawn=drawn) for drawn in (False, True))
    try:
        with training(still.model, clients[0].device, 0):
            found["largest_difference"] = difference(still, clients, count)
            found["same"] = found["largest_difference"] <= TOLERANCE
        with training(drawn.model, clients[0].device, 0):
            found |= times(drawn, clients, count, repeats)
    except Exception as error:
        found["error"] = f"{type(error).__name__}: {error}".split("\n")[0][:300]
    return found


def main(argv: list[str] | None = None) -> dict[str, Any]:
    args = arguments(
        argv,
        clients=(10, 100),
        nodes=flag(int, "of each client: random graphs in place of Cora"),
        steps=flag(50, "that are timed together"),
        repeats=7,
        only=some(SETTINGS),
    )
    warnings.filterwarnings("ignore", message="This instance was constructed with capturable")
    numbers: dict[str, Any] = {}
    for num_clients in args.clients:
        if args.nodes is None:
            clients = cora(num_clients, "cuda")[1]
        else:
            clients = [synthetic(args.nodes, seed).to("cuda") for seed in range(num_clients)]
        for name in args.only:
            key = f"{name}/K={num_clients}"
            numbers[key] = measure(name, clients, args.steps, args.repeats)
            print(key, numbers[key], flush=True)
    report = {"benchmark": "cuda_graph", "machine": machine(), "steps": args.steps, **numbers}
    write(report, args.json)
    return report


if __name__ == "__main__":
    main()
