"""Partitions: how fast they are, how much memory they take, how many edges they cut.

    python benchmarks/speed/partitions.py --json benchmarks/results/partitions.json
    python benchmarks/speed/partitions.py --graphs cora pubmed --json ...   these; the rest stays
    python benchmarks/speed/partitions.py --report                          docs/speed.md

Every case is a process of its own, of one thread. Seconds are the processor's, for the partition
alone; memory is the peak of the whole process, with the graph in it.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from harness.flags import SUPPRESS, arguments, flag, some
from harness.machine import RESULTS, kept, machine, pyplot, write
from harness.report import publish

import fgl

CLIENTS = 10
GROWING = {f"growth-{n}": n for n in (10_000, 30_000, 100_000, 300_000, 1_000_000)}
GRAPHS = ("cora", "pubmed", "100k", "arxiv-like", "products-like", *GROWING)
LONG = {  # networkx would take hours
    "networkx": ("cora", "pubmed", "100k", "growth-10000", "growth-30000", "growth-100000"),
}


def graph(name: str) -> fgl.Graph:
    """The graph, its features left out where it is synthetic."""
    if name == "100k":
        return fgl.data.large_graph(100_000, 700_000, num_features=1)
    if name in GROWING:
        return fgl.data.large_graph(GROWING[name], 7 * GROWING[name], num_features=1)
    found = fgl.data.load(name)
    return found.replace(x=torch.zeros(found.num_nodes, 1))


CUTS: dict[str, Callable[..., list[torch.Tensor]]] = {
    "networkx": fgl.data.partitions.louvain_partition,
    "louvain_igraph": partial(fgl.data.partitions.louvain_partition, engine="igraph"),
    "leiden": fgl.data.partitions.leiden_partition,
    "metis": fgl.data.partitions.metis_partition,
    "ldg": fgl.data.partitions.ldg_partition,
}


def one(cut: str, path: str) -> dict[str, Any]:
    """What one partition of the graph in a file takes, and how good it is."""
    torch.set_num_threads(1)
    edges, y = torch.load(path, mmap=True)
    whole = fgl.Graph(torch.zeros(y.numel(), 1), edges.long(), y=y)
    del edges
    wall, processor = time.perf_counter(), time.process_time()
    parts = CUTS[cut](whole, CLIENTS)
    out = {"seconds": time.process_time() - processor, "wall": time.perf_counter() - wall}
    out["peak_gb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    processor = time.process_time()
    owner = torch.empty(whole.num_nodes, dtype=torch.int32)
    for client, part in enumerate(parts):
        owner[part] = client
    source, target = owner[whole.edge_index[0]], owner[whole.edge_index[1]]
    out["edges_kept"] = float((source == target).double().mean())
    clients = fgl.data.partitions.partition_graph(whole, parts)
    out["cut_seconds"] = time.process_time() - processor
    sizes = [own.num_nodes for own in clients]
    shares = [own.y.bincount(minlength=whole.num_classes) / own.num_nodes for own in clients]
    share = whole.y.bincount() / whole.num_nodes
    skew = [float((own - share).abs().sum()) / 2 for own in shares]
    out |= {"smallest": min(sizes), "largest": max(sizes), "label_skew": sum(skew) / len(skew)}
    return {name: round(value, 4) for name, value in out.items()}


def run(*arguments: str) -> str:
    """This file in a process of its own, of one thread."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, __file__, *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, env=environment, text=True)
    return done.stdout


def measure(name: str, cuts: list[str]) -> dict[str, Any]:
    """All partitions of one graph."""
    out: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, "graph.pt"))
        out[f"{name}/sizes"] = json.loads(run("--make", name, path))
        for cut in cuts:
            if name in LONG.get(cut, GRAPHS):
                out[f"{name}/{cut}"] = json.loads(run("--one", cut, path))
                print(name, cut, out[f"{name}/{cut}"], flush=True)
    return out


def report(numbers: dict[str, Any]) -> None:
    """The table in docs/speed.md and the curves."""
    box = numbers["machine"]
    lines = [
        "| graph | partition | seconds | peak GB | edges kept | clients' nodes | label skew |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in GRAPHS:
        for cut in CUTS:
            case = numbers.get(f"{name}/{cut}")
            if case is None or name in GROWING:
                continue
            nodes, edges = numbers[f"{name}/sizes"]
            what = f"{name}, {nodes:,} nodes, {edges:,} edges"
            lines.append(
                f"| {what} | {cut} | {case['seconds']:.3g} | {case['peak_gb']:.2f} | "
                f"{100 * case['edges_kept']:.1f} % | {case['smallest']:,} to {case['largest']:,} | "
                f"{case['label_skew']:.2f} |"
            )
    lines += ["", f"{box['cpu']}, one thread, commit {box['commit']}.", ""]
    if picture(numbers):
        lines += ["![partitions](../../../docs/images/partitions.png)", ""]
    publish("partitions", "\n".join(lines) + "\n")


def picture(numbers: dict[str, Any]) -> bool:
    """Seconds and memory as nodes grow, on two logarithmic axes; whether there are any."""
    drawn = False
    figure, axes = pyplot().subplots(1, 2, figsize=(9, 3.5))
    heads = {"seconds": "processor seconds", "peak_gb": "peak GB"}
    for axis, (key, head) in zip(axes, heads.items(), strict=True):
        for cut in CUTS:
            found = [(n, numbers.get(f"{name}/{cut}")) for name, n in GROWING.items()]
            points = [(n, case[key]) for n, case in found if case]
            if len(points) > 1:
                axis.loglog(*zip(*points, strict=True), marker="o", label=cut)
                drawn = True
        axis.set(xlabel="nodes (7 edges each)", ylabel=head)
        axis.yaxis.set_major_formatter("{x:g}")
    axes[1].yaxis.set_minor_formatter("{x:g}")  # its numbers are less than a decade apart
    axes[0].legend(*axes[0].get_legend_handles_labels())
    figure.tight_layout()
    if drawn:
        figure.savefig(RESULTS.parents[1] / "docs" / "images" / "partitions.png", dpi=100)
    return drawn


def main() -> None:
    args = arguments(
        graphs=some(GRAPHS),
        cuts=some(CUTS),
        report=False,
        make=flag(str, SUPPRESS, nargs=2),
        one=flag(str, SUPPRESS, nargs=2),
    )
    if args.make:
        whole = graph(args.make[0])
        torch.save((whole.edge_index.to(torch.int32), whole.y), args.make[1])
        print(json.dumps([whole.num_nodes, whole.num_edges // 2]))
        return
    if args.one:
        print(json.dumps(one(*args.one)))
        return
    if args.report:
        report(kept(RESULTS / "partitions.json"))
        return
    numbers = kept(args.json) | {"benchmark": "partitions", "machine": machine()}
    for name in args.graphs:
        numbers |= measure(name, args.cuts)
        write(numbers, args.json)


if __name__ == "__main__":
    main()
