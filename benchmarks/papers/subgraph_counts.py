"""FED-PUB's clients counted: those of `tasks.SubgraphNodes` beside the generators' own METIS.

    python benchmarks/papers/subgraph_counts.py --metis libmetis.so.5 --json \
        benchmarks/results/subgraph_counts.json
    python benchmarks/papers/subgraph_counts.py --report

The public generators call METIS 5.1.0 by ctypes, with all defaults: no seed, all parts at once.
``--metis`` is that library (Debian's libmetis5 has it); the task calls pymetis, which brings a
newer METIS. What stands beside it is written without fgl: networkx finds the component and gives
METIS its neighbours, edges are counted by networkx, overlapping clients are drawn by Python's
`random.sample` in the generators' order (seed 1234, communities 2, 6, 10).
"""

from __future__ import annotations

import ctypes
import functools
import random
import statistics
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import networkx as nx
from harness.flags import arguments, flag
from harness.machine import RESULTS, kept, machine, write
from harness.report import publish

from fgl import data

CLIENTS, COMMUNITIES, EACH = (5, 10, 20), (2, 6, 10), 5
SEED = 1234  # of the generators
DATASETS = ("cora", "citeseer", "amazon_photo")
JSON = RESULTS / "subgraph_counts.json"
Parts = list[list[int]]


def component(dataset: str) -> Any:
    """The largest component as networkx has it, nodes from 0 in the dataset's order."""
    graph = data.load(dataset)
    whole = nx.Graph()
    whole.add_nodes_from(range(graph.num_nodes))
    whole.add_edges_from(graph.edge_index.t().tolist())
    whole.remove_edges_from(list(nx.selfloop_edges(whole)))
    nodes = sorted(max(nx.connected_components(whole), key=len))
    return nx.relabel_nodes(whole.subgraph(nodes), {node: i for i, node in enumerate(nodes)})


def by_metis(library: Any, graph: Any, count: int) -> tuple[int, Parts]:
    """The lost edges that METIS says, and its parts: k-way, all options at their defaults."""
    near = [sorted(graph[node]) for node in range(len(graph))]
    begins = [0]
    for own in near:
        begins.append(begins[-1] + len(own))
    integers = ctypes.c_int32
    xadj = (integers * len(begins))(*begins)
    adjncy = (integers * begins[-1])(*(other for own in near for other in own))
    options = (integers * 40)()
    library.METIS_SetDefaultOptions(options)
    n, one, k, cut = integers(len(graph)), integers(1), integers(count), integers()
    part = (integers * len(graph))()
    numbers = [ctypes.byref(each) for each in (n, one)]
    status = library.METIS_PartGraphKway(
        *numbers, xadj, adjncy, None, None, None, ctypes.byref(k), None, None, options,
        ctypes.byref(cut), part,
    )  # fmt: skip
    if status != 1:
        raise RuntimeError(f"Expected METIS to return 1, but got {status}")
    return cut.value, [[i for i, own in enumerate(part) if own == p] for p in range(count)]


def by_fgl(dataset: str, count: int) -> Parts:
    """The parts of the task where METIS has the seed that it has without one."""
    whole = data.largest_component(data.load(dataset))
    return [
        p.tolist() for p in data.partitions.metis_partition(whole, count, seed=-1, recursive=False)
    ]


def counts(graph: Any, parts: Parts) -> dict[str, list[int]]:
    """Nodes and edges (both directions, as PyG counts) of each client."""
    inside = [2 * graph.subgraph(part).number_of_edges() for part in parts]
    return {"nodes": [len(part) for part in parts], "edges": inside}


def measure(dataset: str, library: Any) -> dict[str, Any]:
    """Both ways' clients of a dataset: disjoint ones with the lost edges, overlapping ones."""
    graph = component(dataset)
    whole = data.largest_component(data.load(dataset))
    found: dict[str, Any] = {"disjoint": {}, "overlapping": {}}
    found["component"] = {
        "generators": [len(graph), 2 * graph.number_of_edges()],
        "fgl": [whole.num_nodes, whole.num_edges],
    }
    cuts = {}
    for count in sorted({*CLIENTS, *COMMUNITIES}):
        lost, theirs = by_metis(library, graph, count)
        cuts[count] = {"generators": theirs, "fgl": by_fgl(dataset, count)}
        if count in CLIENTS:
            told: Any = {name: counts(graph, parts) for name, parts in cuts[count].items()}
            for own in told.values():
                own["lost"] = graph.number_of_edges() - sum(own["edges"]) // 2
            told |= {"same": cuts[count]["fgl"] == theirs, "said": lost}
            found["disjoint"][str(count)] = told
    for name in ("generators", "fgl"):
        random.seed(SEED)
        for count in COMMUNITIES:
            drawn = [
                random.sample(nodes, len(nodes) // 2)
                for nodes in cuts[count][name]
                for _ in range(EACH)
            ]
            found["overlapping"].setdefault(str(EACH * count), {})[name] = counts(graph, drawn)
    return found


def mean(what: str, own: dict[str, list[int]]) -> float:
    return round(statistics.mean(own[what]), 1)


def text(report: dict[str, Any]) -> str:
    """A line a dataset and number of clients."""
    heads = ["dataset", "clients", "nodes of a client", "edges of a client", "lost edges"]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]

    def pair(own: dict[str, Any], of: Any) -> str:
        one, two = of(own["generators"]), of(own["fgl"])
        return str(one) if one == two else f"{one} / {two}"

    for dataset, found in report["datasets"].items():
        for layout in ("disjoint", "overlapping"):
            for clients, own in found[layout].items():
                mine = [pair(own, functools.partial(mean, what)) for what in ("nodes", "edges")]
                lost = pair(own, lambda each: each["lost"]) if layout == "disjoint" else ""
                first = [dataset, f"{clients}, {layout}", *mine, lost]
                lines.append(f"| {' | '.join(first)} |")
    return "\n".join(lines) + "\n"


def main(argv: list[str] | None = None) -> None:
    args = arguments(
        argv, metis=flag("libmetis.so.5", "METIS 5.1.0 as a shared library"), report=False
    )
    if args.report:
        return publish("subgraph-counts", text(kept(JSON)))
    library = ctypes.CDLL(args.metis)
    found = {dataset: measure(dataset, library) for dataset in DATASETS}
    report = {"metis": "5.1.0", "datasets": found, "machine": machine()}
    write(report, args.json)
    sys.stdout.write(text(report))


if __name__ == "__main__":
    main()
