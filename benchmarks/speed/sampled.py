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

"reads" are the trees' own reads of the neighbour table, in the same order, with nothing around
them. Two ways to make them faster are measured as well: "huge pages" for the table, and "one line",
a node's degree and neighbours in one cache line of 64 bytes.
"""

from __future__ import annotations

import itertools
import mmap
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
from sampler import random_graph
from torch import Tensor

import fgl
from fgl.ego import EgoSampler
from fgl.ego.trees import BITS
from fgl.sampler import NeighbourSampler

FEATURES = 100
LINE = 16  # int32 of a cache line
BATCHES = 12


def loader(graph: Any, seeds: Tensor, batch: int, fanouts: tuple[int, ...], replace: bool) -> Any:
    from torch_geometric.loader import NeighborLoader

    how = {"num_neighbors": list(fanouts), "replace": replace, "batch_size": batch}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return NeighborLoader(graph, input_nodes=seeds, **how)


def in_huge_pages(tensor: Tensor) -> Tensor:
    """The same numbers where the kernel may use pages of 2 MB."""
    size = tensor.numel() * tensor.element_size()
    memory = mmap.mmap(-1, -(-size // 2**21) * 2**21 + 2**21)
    memory.madvise(mmap.MADV_HUGEPAGE)
    out = torch.frombuffer(memory, dtype=tensor.dtype, count=tensor.numel()).view(tensor.shape)
    return out.copy_(tensor)


class OneLine:
    """`EgoSampler` whose table is a line per node: degree and neighbours, or where they are."""

    def __init__(self, sampler: EgoSampler) -> None:
        self.fanouts = sampler.fanouts
        begin, degree = sampler.table.long().unbind(1)
        line = torch.zeros(len(degree), LINE, dtype=torch.int32)
        line[:, 0] = degree
        row = torch.arange(len(degree)).repeat_interleave(degree)
        place = torch.arange(len(row)) - begin[row]
        fits = degree[row] < LINE
        line[row[fits], place[fits] + 1] = sampler.neighbour[fits]
        more = degree >= LINE
        line[more, 1] = (degree[more].cumsum(0) - degree[more] + line.numel()).int()
        self.lines = in_huge_pages(torch.cat([line.flatten(), sampler.neighbour[~fits]]))

    def __call__(self, centres: Tensor) -> Tensor:
        found, parents = [centres[:, None]], centres
        for fanout in self.fanouts:
            base = parents.long() * LINE
            degree = self.lines.index_select(0, base)
            far = self.lines.index_select(0, base + 1)
            start = torch.where(degree < LINE, base + 1, far)
            entry = torch.randint(2**BITS, (len(parents), fanout))
            entry.mul_(degree[:, None]).bitwise_right_shift_(BITS).add_(start[:, None])
            parents = self.lines.index_select(0, entry.flatten())
            found.append(parents.view(len(centres), -1))
        return torch.cat(found, 1)


def reads(sampler: EgoSampler, centres: Tensor) -> list[tuple[Tensor, Tensor]]:
    """What a call of the sampler reads: tables and the rows of them, in order."""
    found, parents = [], centres
    for fanout in sampler.fanouts:
        found.append((sampler.table, parents))
        begin, degree = sampler.table.index_select(0, parents)[:, :, None].unbind(1)
        entry = torch.randint(2**BITS, (len(parents), fanout))
        entry.mul_(degree).bitwise_right_shift_(BITS).add_(begin)
        found.append((sampler.neighbour, entry.flatten()))
        parents = sampler.neighbour.index_select(0, entry.flatten())
    return found


def read(pairs: list[tuple[Tensor, Tensor]]) -> None:
    for table, index in pairs:
        table.index_select(0, index)


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
    huge = EgoSampler(graph, fanouts)
    huge.table, huge.neighbour = in_huge_pages(huge.table), in_huge_pages(huge.neighbour)

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
        "reads": taking(read, [reads(trees, each) for each in seeds]),
        "huge_pages": taking(huge, seeds),
        "one_line": taking(OneLine(trees), seeds),
    }
    found = alternated(timed, repeats)
    each = {name: round(1e6 * seconds / batch, 3) for name, seconds in found.items()}
    times = {
        name: round(each[other] / each[name], 1)
        for name, other in (
            ("draw", "loader"),
            ("batch", "loader_features"),
            ("trees", "loader_replace"),
        )
    }
    return {
        "nodes": nodes,
        "batch": batch,
        "fanouts": list(fanouts),
        "nodes_per_seed": round(ours(seeds[0]).num_nodes / batch, 1),
        "microseconds_per_seed": each,
        "times_faster": times,
    }


def growth(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Time per seed on the largest graph over that on the smallest, and so for the reads alone."""

    def key(row: dict[str, Any]) -> Any:
        return row["batch"], row["fanouts"]

    out = []
    for (batch, fanouts), group in itertools.groupby(sorted(rows, key=key), key):
        of = sorted(group, key=lambda row: row["nodes"])
        small, large = (row["microseconds_per_seed"] for row in (of[0], of[-1]))
        out.append(
            {
                "batch": batch,
                "fanouts": fanouts,
                "times": {name: round(large[name] / small[name], 2) for name in large},
                "trees_longer": round(large["trees"] - small["trees"], 3),
                "reads_longer": round(large["reads"] - small["reads"], 3),
            }
        )
    return out


def table(report: dict[str, Any]) -> str:
    """What was measured, as text."""
    of, lines = report["machine"], []
    lines.append(
        f"{of['cpu']}, {of['threads']} thread(s), torch {of['torch']}; seeds per second.\n"
    )
    heads = "nodes | seeds | fan-outs | subgraphs | loader | x | with features | loader | x | "
    lines.append(f"| {heads}trees | loader | x |")
    lines.append("|---" * 12 + "|")
    for row in sorted(report["rows"], key=lambda r: (r["fanouts"], r["batch"], r["nodes"])):
        us, times = row["microseconds_per_seed"], row["times_faster"]
        cells = [f"{row['nodes']:,}", str(row["batch"]), ", ".join(map(str, row["fanouts"]))]
        for one, other in (
            ("draw", "loader"),
            ("batch", "loader_features"),
            ("trees", "loader_replace"),
        ):
            cells += [f"{1e6 / us[one]:,.0f}", f"{1e6 / us[other]:,.0f}", f"**{times[one]}**"]
        lines.append(f"| {' | '.join(cells)} |")
    lines.append("\nTime per seed at the most nodes over that at the fewest:\n")
    names = ["trees", "huge_pages", "one_line", "reads", "draw", "loader", "loader_replace"]
    heads = " | ".join(name.replace("_", " ") for name in names)
    lines.append(f"| seeds | fan-outs | {heads} | trees take longer | reads take longer |")
    lines.append("|---" * 11 + "|")
    for row in report["growth"]:
        cells = [str(row["batch"]), ", ".join(map(str, row["fanouts"]))]
        cells += [str(row["times"][name]) for name in names]
        cells += [f"{row['trees_longer']} us", f"{row['reads_longer']} us"]
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
