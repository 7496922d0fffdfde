"""Local training of FGSSL, FedGL, GPFL and FedEgo beside plain PyG twins of them.

    python benchmarks/speed/recipes.py --json benchmarks/results/recipes.json
    python benchmarks/speed/recipes.py --only fgssl fedego     these alone, the others stay

All clients train once, from what the server sent after a first round: the same sizes, optimiser
and number of steps in both, which is checked. A twin (`twins/`) computes the recipe's loss, as
`tests/test_twins.py` shows. What is timed of ours is what a round does with a client: receive,
train, and make the message; the twin loads the model, trains, and copies it. GPFL's and FedGL's
twins make their answers and their logits too; FedEgo's makes no mashed trees, which ours does. All
take turns in one process; numbers are medians, of processor time unless ``--clock`` says ``wall``.
"""

import copy
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from harness.flags import arguments, flag, some
from harness.machine import alternated, example, kept, machine, write
from speed.cases import CASES
from speed.rounds import PygGCN
from speed.twins import fedego, fedgl, fgssl, gpfl
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GCNConv

import fgl
from fgl.federation import Batch, Loop, choose
from fgl.federation.training.minibatches import num_steps

NAMES = {"fgssl": "fgssl/K=10", "fedgl": "fedgl", "gpfl": "gpfl", "fedego": "fedego"}
Steps = Callable[[], int]  # trains all clients, and says how many steps that were


class WithEmbedding(PygGCN):
    """Logits, and what the last hidden layer puts out."""

    def forward(self, x: Any, edge_index: Any) -> Any:
        h = self.conv1(x, edge_index)
        out = torch.nn.functional.dropout(h.relu(), 0.5, self.training)
        return self.conv2(out, edge_index), h


class Weighted(torch.nn.Module):
    """A GCN of an operator that is given as edges and weights."""

    def __init__(self, features: int, hidden: int, classes: int, dropout: float) -> None:
        super().__init__()
        self.dropout = dropout
        self.conv1 = GCNConv(features, hidden, normalize=False)
        self.conv2 = GCNConv(hidden, classes, normalize=False)

    def forward(self, x: Any, edges: Any, weight: Any) -> Any:
        h = self.conv1(x, edges, weight).relu()
        h = torch.nn.functional.dropout(h, self.dropout, self.training)
        return self.conv2(h, edges, weight)


def ours(method: fgl.Method, clients: Any, result: Any, at_once: int) -> Steps:
    """Local training as a round has it, from what the server has sent."""
    given: dict[str, Any] = {"seed": 0, "states": copy.deepcopy(dict(result.client_states))}
    executor: Loop = Loop(method, clients, **given)
    if at_once > 1:
        executor = Batch(method, clients, at_once, or_alone=True, **given)

    def train() -> int:
        done = executor.train(1, result.outbox, range(len(clients)))
        count = sum(len(answer.losses) for _, answer in done)
        executor._new.clear()
        return count

    return train


def fitted(method: fgl.Method, model: Any, batches: Any, loss: Any, optimizer: Any = None) -> int:
    """Steps of one client's local training."""
    optimizer = optimizer or method.train.optimizer(list(model.parameters()))
    count = 0
    for batch in batches:
        optimizer.zero_grad()
        loss(model, batch).backward()
        optimizer.step()
        count += 1
    return count


def each_client(server: Any, rows: list[Any], train: Callable[[Any, int], int]) -> Steps:
    """Every client loads the server's model, trains its own, and hands a copy of it back."""
    models = [copy.deepcopy(server) for _ in rows]

    def one(client: int) -> int:
        models[client].load_state_dict(copy.deepcopy(server.state_dict()))
        models[client].train()
        count = train(models[client], client)
        copy.deepcopy(models[client].state_dict())
        return count

    return lambda: sum(one(client) for client in range(len(rows)))


def fgssl_twin(method: fgl.Method, clients: Any, result: Any) -> Steps:
    data = [graph.to_pyg(Data) for graph in clients]
    teacher = WithEmbedding(*sizes(method, clients[0]))
    steps = num_steps(method.train)

    def train(model: Any, client: int) -> int:
        batches = [data[client]] * steps
        return fitted(method, model, batches, lambda net, batch: fgssl.loss(net, teacher, batch))

    return each_client(teacher, data, train)


def fedgl_twin(method: fgl.Method, clients: Any, result: Any) -> Steps:
    data = [graph.to_pyg(Data) for graph in clients]
    sent = [result.outbox[client] for client in range(len(clients))]
    beta = example("fedgl").fedgl.__kwdefaults__["beta"]

    def train(model: Any, client: int) -> int:
        own, told = data[client], sent[client]
        ends = torch.stack([told["row"], told["col"]])
        edges = fedgl.operator(own.edge_index, ends, told["weight"], own.num_nodes, beta)
        given = own.x, own.y, own.train_mask, told["labels"], edges
        batches = [given] * num_steps(method.train)
        count = fitted(method, model, batches, lambda net, batch: fedgl.loss(net, *batch))
        model.eval()
        with torch.no_grad():
            model(own.x, *edges).softmax(1)
        return count

    server = Weighted(*sizes(method, clients[0]), method.model.dropout)
    return each_client(server, data, train)


def gpfl_twin(method: fgl.Method, clients: Any, result: Any) -> Steps:
    loaders = []
    for graph in clients:
        each = [graph.select(torch.tensor([i])) for i in range(graph.num_graphs)]
        rows = [Data(x=g.x, edge_index=g.edge_index, y=g.y) for g in each]
        loaders.append(DataLoader(rows, batch_size=128, shuffle=True))
    probes = example("gpfl").random_graphs(clients[0].num_features, 0)
    asked = Data(x=probes.x, edge_index=probes.edge_index, batch=probes.batch)
    server = gpfl.Net(clients[0].num_features, 64, clients[0].num_classes)
    kept: dict[int, Any] = {}

    def train(model: Any, client: int) -> int:
        if client not in kept:
            kept[client] = method.train.optimizer(list(model.parameters()))
        count = fitted(method, model, loaders[client], gpfl.loss, kept[client])
        gpfl.answers(model, asked)
        return count

    return each_client(server, loaders, train)


def fedego_twin(method: fgl.Method, clients: Any, result: Any) -> Steps:
    data = [graph.to_pyg(Data) for graph in clients]
    hidden, features = method.model.reduction.weight.shape
    dropout = method.model.dropout
    server = fedego.Net(features, hidden, clients[0].num_classes, dropout=dropout)
    kept: dict[int, Any] = {}

    def train(model: Any, client: int) -> int:
        if client not in kept:
            kept[client] = method.train.optimizer(list(model.parameters()))
        return fitted(method, model, fedego.batches(data[client]), fedego.loss, kept[client])

    return each_client(server, data, train)


TWINS = {"fgssl": fgssl_twin, "fedgl": fedgl_twin, "gpfl": gpfl_twin, "fedego": fedego_twin}


def sizes(method: fgl.Method, graph: fgl.Graph) -> tuple[int, int, int]:
    """Features, hidden units and classes of a GCN of two layers."""
    return graph.num_features, len(method.model.convs[0].bias), len(method.model.convs[1].bias)


def compare(name: str, repeats: int, cpu: bool) -> dict[str, Any]:
    """Milliseconds of all clients' local training, and how many times faster ours is."""
    method, clients = CASES[NAMES[name]]()
    at_once = choose(method, clients).clients_at_once
    result = fgl.run(method, clients, num_rounds=1, clients_at_once=1)
    variants = {"twin": TWINS[name](method, clients, result)}
    variants["loop"] = ours(method, clients, result, 1)
    variants[f"batch_{len(clients)}"] = ours(method, clients, result, len(clients))
    if at_once not in (1, len(clients)):
        variants[f"batch_{at_once}"] = ours(method, clients, result, at_once)
    steps = {variant: train() for variant, train in variants.items()}
    if len(set(steps.values())) > 1:
        raise ValueError(f"Expected all to take as many steps, but got {steps}")
    clock = time.process_time if cpu else time.perf_counter

    def timed(train: Steps) -> float:
        start = clock()
        train()
        return clock() - start

    took = alternated(
        {variant: lambda train=train: timed(train) for variant, train in variants.items()}, repeats
    )
    auto = "loop" if at_once == 1 else f"batch_{at_once}"
    return {
        "clients": len(clients),
        "steps": steps["twin"],
        "ms": {variant: round(1e3 * value, 2) for variant, value in took.items()},
        "auto": auto,
        "auto_over_twin": round(took["twin"] / took[auto], 2),
        "loop_over_twin": round(took["twin"] / took["loop"], 2),
    }


def main(argv: list[str] | None = None) -> dict[str, Any]:
    args = arguments(
        argv, only=some(NAMES), repeats=7, threads=1, clock=flag("cpu", choices=["cpu", "wall"])
    )
    torch.set_num_threads(args.threads)
    found: dict[str, Any] = kept(args.json).get("cases", {})
    report: dict[str, Any] = {}
    for name in args.only:
        found[name] = compare(name, args.repeats, args.clock == "cpu")
        print(name, found[name], flush=True)
        report = {"benchmark": "recipes", "clock": args.clock, "machine": machine()}
        report["cases"] = {each: found[each] for each in NAMES if each in found}
        write(report, args.json)
    return report


if __name__ == "__main__":
    main()
