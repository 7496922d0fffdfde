"""Rounds of a federation and their time: a PyG loop as users write it, our loop, our batch.

    python benchmarks/speed/rounds.py --quick --json out.json     under a minute: K = 10
    python benchmarks/speed/rounds.py --json benchmarks/results/speed.json
    python benchmarks/speed/report.py                             docs/speed.md and its picture

Rounds of all variants are alternated in one process; numbers are medians, ratios of medians. A
batch's rounds are those after its step was traced, which takes 33 steps and some .3 seconds.
Cora (FGL_DATA), class-capped split, Louvain; a round is broadcast, local training, aggregation and
evaluation of the global model. Every ratio has a name: ``gcn_fedavg/K=10/batch_over_pyg`` is how
many times faster the batch is than the PyG loop, ``..._least`` and ``..._most`` its range over
the turns.
"""

import copy
import gc
import statistics
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
import torch.nn.functional as F
from harness.flags import arguments, flag, some
from harness.machine import example, in_turn, machine, ratio, seconds, write

import fgl

CLIENTS = (5, 10, 30, 100, 1000)
AT_ONCE = (10, 20, 64, "all")
ROUNDS = 3  # of each variant between those of the others
STEPS = 34  # before the first round that is measured: a batch then repeats a traced step
SETTINGS = {"gcn_fedavg": {"hidden": 64, "steps": 3}, "fgssl": {"hidden": 128, "steps": 4}}


class PygGCN(torch.nn.Module):
    """A GCN as PyG's tutorial has it."""

    def __init__(self, features: int, hidden: int, classes: int, cached: bool = False) -> None:
        from torch_geometric.nn import GCNConv

        super().__init__()
        self.conv1 = GCNConv(features, hidden, cached=cached)
        self.conv2 = GCNConv(hidden, classes, cached=cached)

    def forward(self, x: Any, edge_index: Any) -> Any:
        x = F.dropout(self.conv1(x, edge_index).relu(), 0.5, self.training)
        return self.conv2(x, edge_index)


def pyg_rounds(
    clients: Sequence[Any], whole: Any, hidden: int, steps: int, cached: bool
) -> Callable[[], float]:
    """Rounds of FedAvg as a user would write them: dense features, deep copies of state dicts."""
    from torch_geometric.data import Data

    data, test = [c.to_pyg(Data) for c in clients], whole.to_pyg(Data)
    device = str(whole.device)
    sizes = (whole.num_features, hidden, whole.num_classes)
    torch.manual_seed(0)
    server = PygGCN(*sizes).to(device)
    models = [PygGCN(*sizes, cached).to(device) for _ in data]

    def local(model: Any, batch: Any) -> Any:
        model.load_state_dict(copy.deepcopy(server.state_dict()))
        model.train()
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        for _ in range(steps):
            optimizer.zero_grad()
            logits = model(batch.x, batch.edge_index)
            mask = batch.train_mask
            loss = F.cross_entropy(logits[mask], batch.y[mask])
            loss.backward()
            optimizer.step()
        return copy.deepcopy(model.state_dict())

    def one_round() -> None:
        active = [(m, d, int(d.train_mask.sum())) for m, d in zip(models, data, strict=True)]
        total = sum(n for *_, n in active)
        uploads = [(local(m, d), n / total) for m, d, n in active if n]
        keys = server.state_dict()
        server.load_state_dict({k: sum(u[k] * w for u, w in uploads) for k in keys})
        server.eval()
        with torch.no_grad():
            predicted = server(test.x, test.edge_index).argmax(1)
        float((predicted == test.y)[test.test_mask].float().mean())

    return lambda: statistics.median(seconds(one_round, device) for _ in range(ROUNDS))


def our_rounds(
    name: str, clients: Sequence[Any], whole: Any, hidden: int, steps: int, at_once: Any
) -> Callable[[], float]:
    """Rounds of `fgl.run`, without the first ones, which make what later ones use."""
    torch.manual_seed(0)
    sizes = whole.num_features, hidden, whole.num_classes
    model = fgl.nn.GCN(*sizes, dropout=0.5).to(whole.device)
    train = fgl.Training(partial(torch.optim.Adam, lr=0.01), num_steps=steps)
    method = fgl.fedavg(model, train=train)
    if name == "fgssl":
        method = example("fgssl").fgssl(method)
    evaluate = fgl.evaluate_on(method, whole, clients)
    options = {"evaluate": evaluate, "clients_at_once": at_once}

    def rounds() -> float:
        first = 1 + -(-STEPS // steps)
        result = fgl.run(method, clients, num_rounds=first + ROUNDS, **options)
        return statistics.median(record.seconds for record in result.history[first:])

    return rounds


def cora(num_clients: int, device: str) -> tuple[Any, list[Any]]:
    graph = fgl.data.splits.split(fgl.data.load("cora"), "class_capped", dataset="cora").to(device)
    delta = min(20, graph.num_nodes // num_clients // 10)
    parts = fgl.data.partitions.louvain_partition(graph, num_clients, delta=delta)
    return graph, fgl.data.partitions.partition_graph(graph, parts)


def compare(num_clients: int, repeats: int, device: str, names: Sequence[str]) -> dict[str, float]:
    """Milliseconds per round and ratios at one number of clients."""
    whole, clients = cora(num_clients, device)
    out: dict[str, float] = {}
    for name in names:
        setting = SETTINGS[name]
        variants = {
            "pyg": pyg_rounds(clients, whole, **setting, cached=False),
            "pyg_cached": pyg_rounds(clients, whole, **setting, cached=True),
            "loop": our_rounds(name, clients, whole, **setting, at_once=1),
        }
        # All 1,000 models at once would be 0.4 GB for every copy.
        groups = [n for n in AT_ONCE if (num_clients <= 100 if n == "all" else n <= num_clients)]
        for at_once in groups:
            rounds = our_rounds(name, clients, whole, **setting, at_once=at_once)
            variants[f"batch_{at_once}"] = rounds
        turns = in_turn(variants, repeats)
        batches = [values for name, values in turns.items() if name.startswith("batch_")]
        turns["batch"] = min(batches, key=statistics.median)
        took = {name: statistics.median(values) for name, values in turns.items()}
        key = f"{name}/K={num_clients}"
        for variant, value in took.items():
            out[f"{key}/{variant}_ms"] = round(1e3 * value, 2)
            if not variant.startswith("pyg"):
                out[f"{key}/{variant}_over_pyg"] = round(took["pyg"] / value, 2)
                _, (least, most) = ratio(turns["pyg"], turns[variant])
                out[f"{key}/{variant}_over_pyg_least"] = least
                out[f"{key}/{variant}_over_pyg_most"] = most
                out[f"{key}/{variant}_over_pyg_cached"] = round(took["pyg_cached"] / value, 2)
        out[f"{key}/batch_over_loop"] = round(took["loop"] / took["batch"], 2)
        print(key, {k: round(1e3 * v, 1) for k, v in took.items()}, flush=True)
        gc.collect()
    return out


def synthetic(num_nodes: int, seed: int, features: int = 100, degree: int = 8) -> Any:
    """A random graph of an even average degree with 10 words a node."""
    generator = torch.Generator().manual_seed(seed)
    edges = torch.randint(num_nodes, (2, degree // 2 * num_nodes), generator=generator)
    words = torch.randint(features, (num_nodes, 10), generator=generator).sort(1).values
    pattern = fgl.sparse.pattern.Pattern(
        torch.arange(0, 10 * num_nodes + 1, 10), words.flatten(), (num_nodes, features)
    )
    return fgl.Graph(
        fgl.SparseMatrix(pattern),
        torch.cat([edges, edges.flip(0)], 1),
        y=torch.randint(7, (num_nodes,), generator=generator),
        num_classes=7,
    )


def main(argv: list[str] | None = None) -> dict[str, Any]:
    quick, only = flag(False, "K = 10 only, under a minute"), some(SETTINGS)
    how = {"clients": CLIENTS, "repeats": 5, "threads": 1, "device": "cpu"}
    args = arguments(argv, quick=quick, only=only, **how)
    torch.set_num_threads(args.threads)
    numbers: dict[str, Any] = {}
    for num_clients in (10,) if args.quick else args.clients:
        repeats = min(args.repeats, 2 if num_clients >= 1000 else 3 if args.quick else args.repeats)
        numbers |= compare(num_clients, repeats, args.device, args.only)
    report = {"benchmark": "speed", "machine": machine(), "device": args.device, **numbers}
    write(report, args.json)
    return report


if __name__ == "__main__":
    main()
