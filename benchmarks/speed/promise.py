"""Memory as a promise: what `predict.estimate` says beside the peak that is measured.

    python benchmarks/speed/promise.py --json benchmarks/results/promise.json
    python benchmarks/speed/promise.py --cases "FedGL on Cora, 6 clients"     the others stay

Each case runs in a process of its own: three rounds, scored. The peak is what the kernel has seen
resident over what was resident before the run, after a small run of the same kind (which loads what
torch loads once). Freed memory goes back at once. Asked: within `ASKED` of the measured peak.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from harness.flags import SUPPRESS, arguments, flag, some
from harness.machine import kept, machine, write
from speed.cases import of_table, on_cora, on_random, wide
from speed.memory import resident
from speed.predict.memory import estimate

import fgl
from fgl import tasks

ASKED = 0.2
Made = tuple[fgl.Method, list[fgl.Graph]]


def links(num_nodes: int) -> Made:
    """Autoencoders of random graphs, with as many negatives as edges."""
    method, clients = on_random(5, num_nodes)
    model = fgl.nn.VGAE(100, 32, 16)

    def loss(params: Any, graph: Any, context: Any) -> torch.Tensor:
        z = torch.func.functional_call(model, params, (graph.x, graph.adj))
        z = z[0] if isinstance(z, tuple) else z
        pairs = torch.randint(graph.num_nodes, graph.edge_index.shape)
        return fgl.losses.sampled_reconstruction(z, graph.edge_index, pairs)

    return fgl.fedavg(model, loss=loss, train=method.train), clients


def of_task(setting: Any, num_clients: int) -> Made:
    """FedAvg on a task."""
    task = replace(setting, clients=num_clients).load(seed=0)
    return task.fedavg, list(task.clients)


ARXIV = {"dataset": "arxiv-like", "partition": "metis"}
CASES: dict[str, tuple[Callable[[int], Made], int, Any]] = {  # size of the case, clients at once
    "nodes, 10 x 100,000, loop": (lambda n: on_random(10, n), 100_000, 1),
    "nodes, 10 x 100,000, all": (lambda n: on_random(10, n), 100_000, "all"),
    "nodes, 1,000 x 50, 100": (lambda n: on_random(1000, n), 50, 100),
    "dense features, 5 x 20,000, loop": (lambda n: wide(5, n, 750, 1 / 3), 20_000, 1),
    "Cora, 100 clients, all": (lambda n: on_cora("gcn_fedavg", n), 100, "all"),
    "FGSSL on Cora, 100 clients, 20": (lambda n: on_cora("fgssl", n), 100, 20),
    "links, 5 x 50,000, loop": (links, 50_000, 1),
    "graphs, NCI1, 5 clients, loop": (
        partial(of_table, "gpfl-table2", "FedAvg, alpha 5", "NCI1"),
        5,
        1,
    ),
    "graphs, NCI1, 25 clients, all": (
        partial(of_table, "gpfl-table2", "FedAvg, alpha 5", "NCI1"),
        25,
        "all",
    ),
    "arxiv-like, 10 clients, loop": (partial(of_task, tasks.Nodes(**ARXIV)), 10, 1),
    "arxiv-like, 10 clients, sampled": (partial(of_task, tasks.SampledNodes(**ARXIV)), 10, 1),
    "overlapping nodes, Cora, 6 clients": (partial(of_task, tasks.OverlappingNodes()), 6, 1),
    "FedGL on Cora, 6 clients": (partial(of_table, "fedgl-table2", "FedGL", "cora"), 6, 1),
    "FedEgo on Cora, 5 clients": (partial(of_table, "fedego-table2", "FedEgo", "cora"), 5, 1),
    "GPFL on NCI1, 25 clients, 10": (
        partial(of_table, "gpfl-table2", "GPFL, alpha 5", "NCI1"),
        25,
        10,
    ),
}
# Clients of the run before; a table has few numbers of them.
SMALL = {"Cora": 3, "FGSSL": 3, "graphs": 25, "GPFL": 25, "FedGL": 6, "FedEgo": 5}
SMALL |= {"arxiv": 2, "overlapping": 6}


def work(name: str) -> dict[str, float]:
    """Measure a case in this process: megabytes."""
    torch.set_num_threads(1)
    make, size, at_once = CASES[name]
    small = next((n for word, n in SMALL.items() if name.startswith(word)), 30)
    run = partial(fgl.run, num_rounds=3)
    run(*make(small), clients_at_once=at_once if at_once == 1 else 2)
    method, clients = make(size)
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # or the run would take what making the case has freed
    Path("/proc/self/clear_refs").write_text("5")
    before = resident("VmRSS")
    run(method, clients, clients_at_once=at_once)
    measured = resident("VmHWM") - before
    promised = estimate(*make(size), clients_at_once=at_once)
    return {"promised": promised.round / 1e6, "measured": measured / 1e6}


def measure(name: str) -> dict[str, float]:
    """Measure a case in a fresh process."""
    limits = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "0"}
    paths = {"PYTHONPATH": str(Path(fgl.__file__).parents[1])}
    command = [sys.executable, __file__, "--case", name]
    out = subprocess.run(
        command, env=os.environ | limits | paths, stdout=subprocess.PIPE, text=True, check=True
    )
    found: dict[str, float] = json.loads(out.stdout.splitlines()[-1])
    return found


def main(argv: list[str] | None = None) -> int:
    args = arguments(argv, cases=some(CASES), case=flag(str, SUPPRESS))
    if args.case:
        print(json.dumps(work(args.case)))
        return 0
    found: dict[str, Any] = kept(args.json).get("cases", {})
    for name in args.cases:
        each = measure(name)
        ratio = each["promised"] / each["measured"]
        found[name] = {key: round(value, 1) for key, value in each.items()}
        found[name]["ratio"] = round(ratio, 3)
        print(name, found[name], flush=True)
        cases = {case: found[case] for case in CASES if case in found}
        report = {"benchmark": "promise", "asked": ASKED, "machine": machine(), "cases": cases}
        write(report, args.json)
    return int(any(abs(each["ratio"] - 1) > ASKED for each in found.values()))


if __name__ == "__main__":
    sys.exit(main())
