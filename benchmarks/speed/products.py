"""A client with a tenth of a graph of the size of ogbn-products: a full-batch round of a GCN.

    python benchmarks/speed/products.py --json benchmarks/results/products.json
    python benchmarks/speed/products.py --nodes 50000 --edges 1000000     to try it
    python benchmarks/speed/products.py --report             docs/speed.md, from that file

The graph is made, METIS cuts it into ten clients, whose features are mapped from files. Then one
client plays a round of FedAvg (one step of Adam), or all ten do, one after the other. Seconds are
the processor's and the clock's; memory is the process's peak, counted anew once they are made.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from harness.flags import arguments
from harness.machine import RESULTS, kept, machine, process_memory, write
from harness.report import publish

import fgl
from fgl.data.large import LIKE


def products_clients(folder: str, nodes: int | None, edges: int | None, k: int) -> list[fgl.Graph]:
    """Clients of METIS's cut of the graph like ogbn-products, or of a smaller one of its kind."""
    options: dict[str, Any] = dict(LIKE["products-like"])
    options |= {"num_nodes": nodes or options["num_nodes"]}
    options |= {"num_edges": edges or options["num_edges"]}
    whole = fgl.data.splits.split(fgl.data.large_graph(**options), "random")
    parts = fgl.data.partitions.metis_partition(whole, k)
    return fgl.data.partitions.partition_graph(whole, parts, folder=folder)


def round_of(clients: list[fgl.Graph]) -> fgl.Result:
    torch.manual_seed(0)
    model = fgl.nn.GCN(clients[0].num_features, 64, clients[0].num_classes, dropout=0.5)
    train = fgl.Training(partial(torch.optim.Adam, lr=0.01), num_steps=1)
    return fgl.run(fgl.fedavg(model, train=train), clients, num_rounds=2, clients_at_once=1)


def measured(numbers: dict[str, Any], name: str, work: Callable[[], Any]) -> Any:
    """What the work returns; its seconds, and the process's peak, are added to the numbers."""
    wall, processor = time.perf_counter(), time.process_time()
    done = work()
    numbers[f"{name}/processor_seconds"] = round(time.process_time() - processor, 2)
    numbers[f"{name}/seconds"] = round(time.perf_counter() - wall, 2)
    numbers[f"{name}/peak_gb"] = round(process_memory("VmHWM") / 1e3, 2)
    print(name, {k: v for k, v in numbers.items() if k.startswith(f"{name}/")}, flush=True)
    return done


def table(numbers: dict[str, Any]) -> str:
    """Each stage's seconds and peak of memory."""
    of, client = numbers["machine"], numbers["client"]
    out = [f"{of['cpu']}, {of['threads']} thread(s), commit {of['commit']}; a client has"]
    out += [f"{client['nodes']:,} nodes and {client['edges']:,} edges.", ""]
    out += ["| | processor seconds | seconds | a round | peak GB |", "|---|---|---|---|---|"]
    stages = {
        "make": "make the graph, cut it, write the features",
        "one client": "one client, two rounds",
        "all clients": "ten clients, two rounds",
    }
    for name, said in stages.items():
        columns = ("processor_seconds", "seconds", "round_seconds", "peak_gb")
        cells = [str(numbers.get(f"{name}/{column}", "")) for column in columns]
        out.append(f"| {said} | {' | '.join(cells)} |")
    return "\n".join(out) + "\n"


def main() -> None:
    args = arguments(nodes=int, edges=int, clients=10, threads=1, report=False)
    if args.report:
        publish("products", table(kept(RESULTS / "products.json")))
        return
    torch.set_num_threads(args.threads)
    numbers: dict[str, Any] = {"benchmark": "products", "machine": machine()}
    with tempfile.TemporaryDirectory() as folder:
        make = partial(products_clients, folder, args.nodes, args.edges, args.clients)
        clients = measured(numbers, "make", make)
        numbers["client"] = {"nodes": clients[0].num_nodes, "edges": clients[0].num_edges // 2}
        Path("/proc/self/clear_refs").write_text("5")
        for name, some in (("one client", clients[:1]), ("all clients", clients)):
            result = measured(numbers, name, partial(round_of, some))
            numbers[f"{name}/round_seconds"] = round(result.history[-1].seconds, 2)
        write(numbers, args.json)


if __name__ == "__main__":
    main()
