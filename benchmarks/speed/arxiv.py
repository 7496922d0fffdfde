"""Seconds per round of FedAvg on a graph of the size of ogbn-arxiv, beside a PyG loop.

    python benchmarks/speed/arxiv.py --json benchmarks/results/arxiv.json
    python benchmarks/speed/arxiv.py --nodes 20000 --clients 10 --repeats 1     to try it
    python benchmarks/speed/arxiv.py --report             docs/speed.md, from that file

The graph is `arxiv-like` (170 thousand nodes, 1.2 million edges, 128 features, 40 classes), its
clients are Louvain's by igraph. A GCN with 64 hidden units takes 3 steps of Adam; a round is
broadcast, training, aggregation and evaluation on the whole graph. All ways take turns.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from harness.flags import arguments
from harness.machine import RESULTS, alternated, kept, machine, write
from harness.report import publish
from speed.rounds import our_rounds, pyg_rounds

import fgl

SETTING = {"hidden": 64, "steps": 3}


def compare(whole: fgl.Graph, num_clients: int, repeats: int) -> dict[str, float]:
    """Seconds per round at one number of clients."""
    parts = fgl.data.partitions.louvain_partition(whole, num_clients, engine="igraph")
    clients = fgl.data.partitions.partition_graph(whole, parts)
    variants = {
        "pyg": pyg_rounds(clients, whole, **SETTING, cached=False),
        "pyg_cached": pyg_rounds(clients, whole, **SETTING, cached=True),
        "loop": our_rounds("gcn_fedavg", clients, whole, **SETTING, at_once=1),
        "batch_10": our_rounds("gcn_fedavg", clients, whole, **SETTING, at_once=10),
    }
    took = alternated(variants, repeats)
    out = {f"K={num_clients}/{name}_seconds": round(value, 3) for name, value in took.items()}
    for name in ("loop", "batch_10"):
        out[f"K={num_clients}/{name}_over_pyg"] = round(took["pyg"] / took[name], 2)
    return out


def table(numbers: dict[str, Any]) -> str:
    """Seconds of a round, a line for each number of clients."""
    of = numbers["machine"]
    out = [f"{of['cpu']}, {of['threads']} thread(s), commit {of['commit']}; seconds a round.", ""]
    out += ["| clients | PyG | PyG, cached | loop | batch of 10 | loop / PyG | batch / PyG |"]
    out += ["|---|---|---|---|---|---|---|"]
    columns = ("pyg_seconds", "pyg_cached_seconds", "loop_seconds", "batch_10_seconds")
    for name in (key.split("/")[0] for key in numbers if key.endswith("/pyg_seconds")):
        cells = [f"{numbers[f'{name}/{column}']:.2f}" for column in columns]
        cells += [f"{numbers[f'{name}/{way}_over_pyg']:.1f}x" for way in ("loop", "batch_10")]
        out.append(f"| {name.removeprefix('K=')} | {' | '.join(cells)} |")
    return "\n".join(out) + "\n"


def main() -> None:
    args = arguments(nodes=169343, clients=(10, 100), repeats=3, threads=1, report=False)
    if args.report:
        publish("arxiv", table(kept(RESULTS / "arxiv.json")))
        return
    torch.set_num_threads(args.threads)
    whole = fgl.data.large_graph(args.nodes, round(6.837 * args.nodes))
    whole = fgl.data.splits.split(whole, "random")
    numbers: dict[str, Any] = {"benchmark": "arxiv", "machine": machine(), "nodes": args.nodes}
    for num_clients in args.clients:
        numbers |= compare(whole, num_clients, args.repeats)
        print(numbers, flush=True)
        write(numbers, args.json)


if __name__ == "__main__":
    main()
