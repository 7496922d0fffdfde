"""Sampled neighbourhoods: `NeighbourSampler` and `EgoSampler` against PyG's NeighborLoader.

    python benchmarks/speed/sampled.py --json benchmarks/results/sampled.json
    python benchmarks/speed/sampled.py --report    the table, from that file

Random graphs of average degree 10, without any locality; the same fan-outs, as many seeds a batch.
Seconds of this process on one thread, median over batches, the samplers taking turns.

- subgraphs: `NeighbourSampler.draw`, against NeighborLoader without features. Both draw without
  replacement, and say each node once and each drawn edge.
- with features: the batch with its rows of 100 features, against NeighborLoader with them.
- trees: `EgoSampler`, against NeighborLoader with replacement. The trees say a node as often as it
  is drawn; the loader's subgraph says it once.
"""

import itertools
import sys
import time
import warnings
from collections.abc import Callable
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
from fgl.sampler import NeighbourSampler

FEATURES = 100
DEGREE = 10
BATCHES = 12
AGAINST = {"draw": "loader", "batch": "loader_features", "trees": "loader_replace"}


def random_graph(num_nodes: int) -> Tensor:
    """Both directions of ``5 num_nodes`` uniform edges."""
    generator = torch.Generator().manual_seed(0)
    edges = torch.randint(num_nodes, (2, num_nodes * DEGREE // 2), generator=generator)
    return torch.cat([edges, edges.flip(0)], 1)


def loader(graph: Any, seeds: Tensor, batch: int, fanouts: tuple[int, ...], replace: bool) -> Any:
    from torch_geometric.loader import NeighborLoader

    how = {"num_neighbors": list(fanouts), "replace": replace, "batch_size": batch}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return NeighborLoader(graph, input_nodes=seeds, **how)


def taking(function: Callable[[Any], Any], inputs: list[Any]) -> Callable[[], float]:
    """Median seconds of the function on the inputs, this process's own."""

    def run() -> float:
        found = []
        for value in inputs:
            start = time.process_time()
            function(value)
            found.append(time.process_time() - start)
        return sorted(found)[len(found) // 2]

    return run


def compare(nodes: int, batch: int, fanouts: tuple[int, ...], repeats: int) -> dict[str, Any]:
    """Microseconds per seed of everything, on one graph."""
    from torch_geometric.data import Data

    edges = random_graph(nodes)
    graph = fgl.Graph(torch.randn(nodes, FEATURES), edges)
    order = torch.randperm(nodes)
    seeds = list(order[: batch * min(BATCHES, nodes // batch)].split(batch))
    ours, trees = NeighbourSampler(graph, fanouts), EgoSampler(graph, fanouts)

    def theirs(x: Tensor | None, replace: bool) -> Callable[[], float]:
        data = Data(x=x, edge_index=edges, num_nodes=nodes)
        source = loader(data, torch.cat(seeds), batch, fanouts, replace)

        def run() -> float:
            batches = iter(source)
            return taking(lambda _: next(batches), seeds)()

        return run

    timed = {
        "draw": taking(ours.draw, seeds),
        "loader": theirs(None, False),
        "batch": taking(ours, seeds),
        "loader_features": theirs(graph.x, False),  # type: ignore[arg-type]
        "trees": taking(trees, seeds),
        "loader_replace": theirs(None, True),
    }
    found = alternated(timed, repeats)
    each = {name: round(1e6 * seconds / batch, 3) for name, seconds in found.items()}
    times = {name: round(each[other] / each[name], 1) for name, other in AGAINST.items()}
    return {
        "nodes": nodes,
        "batch": batch,
        "fanouts": list(fanouts),
        "nodes_per_seed": round(ours(seeds[0]).num_nodes / batch, 1),
        "microseconds_per_seed": each,
        "times_faster": times,
    }


def growth(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Time per seed on the largest graph over that on the smallest."""

    def key(row: dict[str, Any]) -> Any:
        return row["batch"], row["fanouts"]

    out = []
    for (batch, fanouts), group in itertools.groupby(sorted(rows, key=key), key):
        of = sorted(group, key=lambda row: row["nodes"])
        small, large = (row["microseconds_per_seed"] for row in (of[0], of[-1]))
        times = {name: round(large[name] / small[name], 2) for name in large}
        out.append({"batch": batch, "fanouts": fanouts, "times": times})
    return out


def table(report: dict[str, Any]) -> str:
    """What was measured, as text."""
    of = report["machine"]
    on = f"{of['cpu']}, {of['threads']} thread(s), torch {of['torch']}"
    lines = [f"{on}; seeds per second.\n"]
    heads = "nodes | seeds | fan-outs | subgraphs | loader | x | with features | loader | x | "
    lines.append(f"| {heads}trees | loader | x |")
    lines.append("|---" * 12 + "|")
    for row in sorted(report["rows"], key=lambda r: (r["fanouts"], r["batch"], r["nodes"])):
        us, times = row["microseconds_per_seed"], row["times_faster"]
        cells = [f"{row['nodes']:,}", str(row["batch"]), ", ".join(map(str, row["fanouts"]))]
        for one, other in AGAINST.items():
            cells += [f"{1e6 / us[one]:,.0f}", f"{1e6 / us[other]:,.0f}", f"**{times[one]}**"]
        lines.append(f"| {' | '.join(cells)} |")
    lines.append("\nTime per seed at the most nodes over that at the fewest:\n")
    names = ["trees", "draw", "loader", "loader_replace"]
    heads = " | ".join(name.replace("_", " ") for name in names)
    lines.append(f"| seeds | fan-outs | {heads} |")
    lines.append("|---" * 6 + "|")
    for row in report["growth"]:
        cells = [str(row["batch"]), ", ".join(map(str, row["fanouts"]))]
        cells += [str(row["times"][name]) for name in names]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    args = arguments(nodes=[10**4, 10**5, 10**6], batches=[128, 1024], repeats=5, report=False)
    if args.report:
        publish("sampled", table(kept(RESULTS / "sampled.json")))
        return
    torch.set_num_threads(1)
    rows = []
    for fanouts in ((6, 6), (10, 10)):
        for nodes in args.nodes:
            for batch in args.batches:
                rows.append(compare(nodes, batch, fanouts, args.repeats))
                print(rows[-1], flush=True)
                write({"machine": machine(), "rows": rows, "growth": growth(rows)}, args.json)


if __name__ == "__main__":
    main()
