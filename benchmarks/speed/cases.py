"""Cases of the speed benchmarks: a federation and a method by name, and what a round of it takes.

`CASES` are those that `at_once.py` and `limits.py` measure: Cora in 5 to 1,000 clients, dense and
sparse features, small and large random graphs, graphs of NCI1, and the recipes' own tasks.
"""

import itertools
import statistics
import time
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import torch
from harness.machine import example
from papers import TABLES
from speed.rounds import SETTINGS, cora, synthetic

import fgl

Case = Callable[[], tuple[fgl.Method, list[fgl.Graph]]]
ADAM = partial(torch.optim.Adam, lr=0.01)


def gcn(clients: Sequence[fgl.Graph], hidden: int, steps: int, **how: Any) -> fgl.Method:
    """FedAvg of a GCN on such clients."""
    torch.manual_seed(0)
    first = clients[0]
    sizes = first.num_features, hidden, first.num_classes
    model = fgl.nn.GCN(*sizes, **{"dropout": 0.5, **how})
    return fgl.fedavg(model, train=fgl.Training(ADAM, num_steps=steps))


def on_cora(name: str, num_clients: int) -> tuple[fgl.Method, list[fgl.Graph]]:
    """``gcn_fedavg`` or ``fgssl`` on Cora."""
    clients = _cora(num_clients)
    method = gcn(clients, **SETTINGS[name])
    return (example("fgssl").fgssl(method) if name == "fgssl" else method), clients


@cache
def _cora(num_clients: int) -> list[fgl.Graph]:
    return cora(num_clients, "cpu")[1]


def on_random(num_clients: int, num_nodes: int) -> tuple[fgl.Method, list[fgl.Graph]]:
    """The growth benchmark's: average degree 8, 10 of 100 words a node."""
    clients = [synthetic(num_nodes, seed) for seed in range(num_clients)]
    return gcn(clients, 16, 3), clients


def wide(num_clients: int, num_nodes: int, num_features: int, share: float) -> Any:
    """Random graphs with `share` of their features filled; dense where that is a tenth or more."""
    clients = []
    for seed in range(num_clients):
        graph = synthetic(num_nodes, seed)
        generator = torch.Generator().manual_seed(seed)
        x = torch.rand(num_nodes, num_features, generator=generator)
        x = torch.where(x < share, 1.0, 0.0)
        clients.append(graph.replace(x=x if share >= 0.1 else fgl.SparseMatrix.from_dense(x)))
    return gcn(clients, 64, 3), clients


def of_table(table: str, row: str, dataset: str, num_clients: int) -> Any:
    """A row of a paper's table."""
    task, method = TABLES[table].row(row).at(dataset, num_clients).load()
    return method, list(task.clients)


CASES: dict[str, Case] = {
    f"{name}/K={k}": partial(on_cora, name, k) for name in SETTINGS for k in (5, 10, 30, 100, 1000)
}
CASES |= {f"nodes={n}": partial(on_random, 10, n) for n in (100, 1_000, 10_000, 100_000)}
CASES |= {f"clients={k}": partial(on_random, k, 50) for k in (10, 100, 1_000, 10_000)}
CASES |= {
    "dense": partial(wide, 10, 700, 750, 1 / 3),
    "sparse": partial(wide, 10, 1_800, 6_800, 0.005),
    "NCI1": partial(of_table, "gpfl-table2", "FedAvg, alpha 5", "NCI1", 25),
    "PROTEINS": partial(of_table, "gpfl-table2", "FedAvg, alpha 5", "PROTEINS", 25),
    "gpfl": partial(of_table, "gpfl-table2", "GPFL, alpha 5", "NCI1", 25),
    "fedego": partial(of_table, "fedego-table2", "FedEgo", "cora", 5),
    "fedgl": partial(of_table, "fedgl-table2", "FedGL", "cora", 6),
}


def rounds(method: fgl.Method, clients: Any, at_once: Any, count: int, cpu: bool = True) -> float:
    """Median seconds of a round after the first: of this process, or of the clock."""
    clock = time.process_time if cpu else time.perf_counter
    stamps: list[float] = []

    def stamp(record: Any, result: Any) -> None:
        stamps.append(clock())

    run = partial(fgl.run, method, clients, clients_at_once=at_once, callbacks=[stamp])
    run(num_rounds=count + 1)
    return statistics.median(b - a for a, b in itertools.pairwise(stamps))
