"""Trees per second: `EgoSampler` against PyG's NeighborLoader and a loop over sampled edges.

    python benchmarks/speed/sampler.py --json benchmarks/results/sampler.json
    python benchmarks/speed/sampler.py --report    the table, from that file

All draw six neighbours and six of each of those, with replacement, on random graphs of average
degree 10. NeighborLoader (with torch-sparse, or pyg-lib where it is) returns one subgraph per
batch; the loop makes trees of that, reading the sampled edges from their tensor one by one, as the
authors' way is. The three take turns; a median of their batches counts. Rates are for one thread.
"""

from __future__ import annotations

import statistics
import sys
import time
import warnings
from collections import defaultdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from harness.flags import arguments
from harness.machine import RESULTS, alternated, kept, machine, write
from harness.report import publish
from torch import Tensor

import fgl
from fgl.ego import EgoSampler

FANOUTS = (6, 6)
DEGREE = 10


def random_graph(num_nodes: int) -> Tensor:
    """Both directions of ``5 num_nodes`` uniform edges."""
    generator = torch.Generator().manual_seed(0)
    edges = torch.randint(num_nodes, (2, num_nodes * DEGREE // 2), generator=generator)
    return torch.cat([edges, edges.flip(0)], 1)


def loader(edges: Tensor, num_nodes: int, batch: int, batches: int) -> Any:
    from torch_geometric.data import Data
    from torch_geometric.loader import NeighborLoader

    data = Data(edge_index=edges, num_nodes=num_nodes)
    centres = torch.randint(num_nodes, (batch * batches,))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return NeighborLoader(
            data, num_neighbors=list(FANOUTS), replace=True, batch_size=batch, input_nodes=centres
        )


def trees_of(subgraph: Any) -> list[list[int]]:
    """A batch's trees from its sampled edges, one after the other."""
    children = defaultdict(list)
    source, target = subgraph.edge_index
    for edge in range(source.numel()):
        children[int(target[edge])].append(int(source[edge]))
    trees = []
    for centre in range(subgraph.batch_size):
        near = children[centre][: FANOUTS[0]]
        tree = [centre, *near]
        for node in near:
            tree += children[node][: FANOUTS[1]]
        trees.append(tree)
    return trees


def median(batches: list[float]) -> float:
    return statistics.median(batches)


def ours(sampler: EgoSampler, batch: int, batches: int) -> float:
    """Median seconds of a batch."""
    found = []
    for _ in range(batches):
        centres = torch.randint(sampler.num_nodes, (batch,))
        start = time.perf_counter()
        sampler(centres)
        found.append(time.perf_counter() - start)
    return median(found)


def theirs(source: Any, *, trees: bool) -> float:
    """Median seconds of a batch of NeighborLoader, with or without making trees of it."""
    found = []
    batches = iter(source)
    while True:
        start = time.perf_counter()
        subgraph = next(batches, None)
        if subgraph is None:
            return median(found)
        if trees:
            trees_of(subgraph)
        found.append(time.perf_counter() - start)


def compare(num_nodes: int, batch: int, edges: Tensor, repeats: int) -> dict[str, Any]:
    graph = fgl.Graph(torch.ones(num_nodes, 1), edges)
    sampler = EgoSampler(graph, FANOUTS)
    few = loader(edges, num_nodes, batch, 12)
    seconds = alternated(
        {
            "fgl": lambda: ours(sampler, batch, 100),
            "neighbor_loader": lambda: theirs(few, trees=False),
            "python_loop": lambda: theirs(few, trees=True),
        },
        repeats,
    )
    rate = {name: batch / value for name, value in seconds.items()}
    return {
        "nodes": num_nodes,
        "batch": batch,
        "trees_per_second": {name: round(value) for name, value in rate.items()},
        "times_neighbor_loader": round(rate["fgl"] / rate["neighbor_loader"], 1),
        "times_python_loop": round(rate["fgl"] / rate["python_loop"], 1),
        "microseconds_per_tree": round(1e6 * seconds["fgl"] / batch, 3),
    }


def table(report: dict[str, Any]) -> str:
    """What was measured, as text."""
    heads = ("nodes", "batch", "fgl", "NeighborLoader", "in Python")
    heads += ("against the loader", "against Python", "us per tree")
    out = [f"| {' | '.join(heads)} |"]
    out.append("|---" * 8 + "|")
    for row in report["rows"]:
        rates = " | ".join(f"{rate:,}" for rate in row["trees_per_second"].values())
        ratios = f"{row['times_neighbor_loader']} | {row['times_python_loop']}"
        end = f"{row['microseconds_per_tree']:.2f}"
        out.append(f"| {row['nodes']:,} | {row['batch']} | {rates} | {ratios} | {end} |")
    return "\n".join(out) + "\n"


def main() -> None:
    args = arguments(nodes=[10**4, 10**5, 10**6], batches=[32, 1024], repeats=5, report=False)
    if args.report:
        publish("fedego-sampler", table(kept(RESULTS / "sampler.json")))
        return
    torch.set_num_threads(1)
    rows = []
    for num_nodes in args.nodes:
        edges = random_graph(num_nodes)
        for batch in args.batches:
            rows.append(compare(num_nodes, batch, edges, args.repeats))
            print(rows[-1])
    flat = {
        str(batch): round(of[-1]["microseconds_per_tree"] / of[0]["microseconds_per_tree"], 2)
        for batch in args.batches
        if (of := [row for row in rows if row["batch"] == batch])
    }
    print("largest against smallest graph, time per tree:", flat)
    write({"machine": machine(), "rows": rows, "largest_against_smallest": flat}, args.json)


if __name__ == "__main__":
    main()
