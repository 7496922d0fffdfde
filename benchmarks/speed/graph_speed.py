"""Seconds of a round of local training on clients of many graphs, beside a plain PyG loop.

    python benchmarks/speed/graph_speed.py --json benchmarks/results/graph_speed.json
    python benchmarks/speed/graph_speed.py --report            the table, from that file

Both train the GIN of GPFL for one epoch on every client's 128-graph minibatches with Adam, whose
state lives on; the PyG loop is that of a `DataLoader` per client. They take turns, all with the
allocator and the collector as in `fgl.run`; each number is the median of `--rounds` rounds after
two to warm up. ``seconds`` are of the clock, ``cpu`` of this
process, which says more on a busy machine. Then, how much of a round of GPFL is the server's.
"""

import itertools
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
import torch.nn.functional as F
from harness.flags import arguments
from harness.machine import RESULTS, kept, machine, write
from harness.report import publish
from papers.gpfl import TABLES
from torch import nn
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GINConv, global_add_pool

import fgl
from fgl import Training
from fgl.federation import Batch, Broadcast, Loop, graph_minibatches
from fgl.federation.process import memory_kept, young_only

ADAM = {"lr": 1e-3, "weight_decay": 5e-4}


class Net(nn.Module):
    """GPFL's network as one writes it with PyG."""

    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.pre = nn.Linear(features, 64)
        mlps = [nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64)) for _ in range(3)]
        self.convs = nn.ModuleList(GINConv(mlp) for mlp in mlps)
        self.post = nn.Linear(64, 64)
        self.readout = nn.Linear(64, classes)

    def forward(self, data: Any) -> torch.Tensor:
        h = self.pre(data.x)
        for conv in self.convs:
            h = F.dropout(conv(h, data.edge_index).relu(), 0.5, self.training)
        h = self.post(global_add_pool(h, data.batch)).relu()
        return self.readout(F.dropout(h, 0.5, self.training))


def pyg_round(clients: list[fgl.Graph], classes: int) -> Callable[[], None]:
    models = [Net(clients[0].num_features, classes) for _ in clients]
    optimizers = [torch.optim.Adam(model.parameters(), **ADAM) for model in models]
    loaders = []
    for client in clients:
        each = [client.select(torch.tensor([i])) for i in range(client.num_graphs)]
        data = [Data(x=g.x, edge_index=g.edge_index, y=g.y) for g in each]
        loaders.append(DataLoader(data, batch_size=128, shuffle=True))

    def once() -> None:
        for model, optimizer, loader in zip(models, optimizers, loaders, strict=True):
            for batch in loader:
                optimizer.zero_grad()
                F.cross_entropy(model(batch), batch.y).backward()
                optimizer.step()

    return once


def fgl_round(clients: list[fgl.Graph], classes: int, at_once: Any) -> Callable[[], None]:
    model = fgl.nn.GIN(clients[0].num_features, 64, classes, dropout=0.5)
    how = partial(torch.optim.Adam, **ADAM)
    train = Training(how, batches=graph_minibatches, keep_optimizer=True)
    method = fgl.fedavg(model, train=train)
    size = len(clients) if at_once == "all" else at_once
    executor = Batch(method, clients, size, seed=0) if size > 1 else Loop(method, clients, seed=0)
    outbox: Any = Broadcast({"model": method.initial()}, len(clients))
    index, everybody = 0, range(len(clients))

    def once() -> None:
        nonlocal index, outbox
        answers = executor.train(index, outbox, everybody)
        outbox = {client: {"model": answer.message["model"]} for client, answer in answers}
        executor.keep(index, everybody)
        index += 1

    return once


def measure(rounds: dict[str, Callable[[], None]], count: int) -> dict[str, dict[str, float]]:
    """Median seconds of each, taking turns."""
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in rounds}
    with memory_kept(), young_only():  # as in `fgl.run`
        for i, (name, once) in itertools.product(range(count + 2), rounds.items()):
            start, cpu = time.perf_counter(), time.process_time()
            once()
            if i >= 2:
                taken[name].append((time.perf_counter() - start, time.process_time() - cpu))
    pairs = {name: zip(*times, strict=True) for name, times in taken.items()}
    medians = {name: map(statistics.median, both) for name, both in pairs.items()}
    return {name: {"seconds": s, "cpu": c} for name, (s, c) in medians.items()}


def server_share(dataset: str, clients: int, rounds: int) -> dict[str, Any]:
    """Median seconds of a round of GPFL, of the server in it, and of the clients' answers to it."""
    spent: dict[str, list[float]] = {"aggregate": [], "send": []}

    def clocked(function: Callable[..., Any], name: str) -> Callable[..., Any]:
        def call(*given: Any) -> Any:
            start = time.perf_counter()
            made = function(*given)
            spent[name].append(time.perf_counter() - start)
            return made

        return call

    task, method = TABLES["gpfl-table2"].row("GPFL, alpha 5").at(dataset, clients).load()
    method = replace(method, **{name: clocked(getattr(method, name), name) for name in spent})
    result = fgl.run(method, task, num_rounds=rounds + 2, clients_at_once=8)
    sends = [sum(spent["send"][i : i + clients]) for i in range(0, len(spent["send"]), clients)]
    taken = {
        "round": [record.seconds for record in result.history],
        "server": spent["aggregate"],
        "answers": sends,
    }
    medians = {name: statistics.median(times[2:]) for name, times in taken.items()}
    share = medians["server"] / medians["round"]
    return {"dataset": dataset, **medians, "server_share": share}


def text(measured: dict[str, Any]) -> str:
    """Two tables: local training beside PyG, and the server's share of a round."""
    cases: dict[tuple[str, int], dict[str, float]] = {}
    for run in measured["runs"]:
        cases.setdefault((run["dataset"], run["threads"]), {})[run["name"]] = run["seconds"]
    names = list(next(iter(cases.values())))
    box = measured["machine"]
    out = [f"{box['cpu']}, torch {box['torch']}, commit {box['commit']}; seconds of a round.", ""]
    out += [f"| dataset | threads | {' | '.join(names)} | PyG / best |"]
    out += ["|---" * (len(names) + 3) + "|"]
    for (dataset, threads), taken in cases.items():
        ratio = taken["pyg"] / min(taken[name] for name in names if name != "pyg")
        cells = " | ".join(f"{taken[name]:.3f}" for name in names)
        out.append(f"| {dataset} | {threads} | {cells} | {ratio:.2f} |")
    out += ["", "| dataset | a round of GPFL | server | clients' answers to it |", "|---" * 4 + "|"]
    for each in measured["gpfl"]:
        share = each["answers"] / each["round"]
        cells = f"{each['round']:.3f} | {each['server_share']:.1%} | {share:.1%}"
        out.append(f"| {each['dataset']} | {cells} |")
    return "\n".join(out) + "\n"


def main() -> None:
    args = arguments(
        datasets=["PROTEINS", "NCI1"],
        clients=25,
        alpha=1.0,
        at_once=["1", "10", "all"],
        threads=[1, 2],
        rounds=7,
        report=False,
    )
    if args.report:
        publish("graph-speed", text(kept(RESULTS / "graph_speed.json")))
        return
    found = []
    torch.set_num_threads(1)
    servers = [server_share(dataset, args.clients, args.rounds) for dataset in args.datasets]
    print(servers, flush=True)
    for dataset in args.datasets:
        graph = fgl.Graph.join(*fgl.data.load_graphs(dataset, attributes=False))
        parts = fgl.data.partitions.dirichlet_partition(graph.y, args.clients, alpha=args.alpha)
        clients, _ = fgl.data.splits.fold_clients(graph, parts, fold=0)
        for threads in args.threads:
            torch.set_num_threads(threads)
            rounds = {"pyg": pyg_round(clients, graph.num_classes)}
            for each in args.at_once:
                at_once: Any = each if each == "all" else int(each)
                name = "loop" if at_once == 1 else f"batch, {each} clients at once"
                rounds[name] = fgl_round(clients, graph.num_classes, at_once)
            taken = measure(rounds, args.rounds)
            for name, times in taken.items():
                ratio = {key: taken["pyg"][key] / value for key, value in times.items()}
                print(dataset, threads, name, times, "pyg /", ratio, flush=True)
                found.append({"dataset": dataset, "threads": threads, "name": name, **times})
    made = {"clients": args.clients, "machine": machine(), "runs": found, "gpfl": servers}
    write(made, args.json)


if __name__ == "__main__":
    main()
