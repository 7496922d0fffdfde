"""The same run with one thread of torch and with two: are the bits the same?

    python benchmarks/reliability/threads.py --json benchmarks/results/threads.json

Three networks, small and large graphs, the loop and the batch: three rounds of FedAvg each.
"""

from __future__ import annotations

import itertools
import sys
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from harness.flags import arguments
from harness.machine import machine, write

import fgl
from fgl import Training
from fgl.federation.saved.identity import digest

NETWORKS = {"GCN": fgl.nn.GCN, "GAT": fgl.nn.GAT, "SAGE": fgl.nn.SAGE}


def end(network: str, num_nodes: int, at_once: Any, threads: int) -> str:
    """A digest of the model and the states after three rounds."""
    torch.set_num_threads(threads)
    generator = torch.Generator().manual_seed(0)
    clients = []
    for size in (num_nodes, num_nodes // 2, num_nodes // 3):
        edges = torch.randint(size, (2, 5 * size), generator=generator)
        x = torch.rand(size, 200, generator=generator)
        y = torch.randint(5, (size,), generator=generator)
        clients.append(fgl.Graph(x, edges, y=y, num_classes=5))
    torch.manual_seed(0)
    train = Training(partial(torch.optim.SGD, lr=0.1), num_steps=2)
    method = fgl.fedavg(NETWORKS[network](200, 64, 5), train=train)
    return digest(fgl.run(method, clients, num_rounds=3, clients_at_once=at_once))


def main(argv: list[str] | None = None) -> int:
    args = arguments(argv)
    cases = []
    for network, nodes, at_once in itertools.product(NETWORKS, (150, 3000), (1, "all")):
        one, two, again = (end(network, nodes, at_once, threads) for threads in (1, 2, 1))
        if one != again:
            raise RuntimeError("Expected a run with one thread to repeat itself, but it did not")
        case = {"network": network, "nodes": nodes, "clients_at_once": at_once}
        cases.append({**case, "same_bits": one == two})
        print(cases[-1], flush=True)
    differ = sum(not case["same_bits"] for case in cases)
    print(f"{differ} of {len(cases)} differ")
    report = {"benchmark": "threads", "cases": cases, "differ": differ}
    write({**report, "machine": machine()}, args.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
