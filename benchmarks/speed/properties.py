"""Graph properties against networkx, scipy and padded products; the auto-encoder against autograd.

    python benchmarks/speed/properties.py --quick --json out.json     400 graphs of each collection
    python benchmarks/speed/properties.py --json benchmarks/results/properties.json

All contestants start from the same edge tensors and are alternated; times are medians of the
process's own seconds on one thread, so that a neighbour on the machine does not count. networkx
does every graph that the others do. ``NCI1/six/networkx_over_fgl`` is how many times longer it
takes for all six properties, ``NCI1/closeness/...`` for the only one of them that is expensive.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import networkx as nx
import numpy as np
import scipy.sparse
import torch
from harness.flags import arguments, flag
from harness.machine import alternated, machine, write
from scipy.sparse.csgraph import shortest_path
from torch import Tensor

import fgl
from fgl import client_network as cn
from fgl.properties import graph_properties
from fgl.properties.measures import closeness

Edges = list[Tensor]
Calls = dict[str, Callable[[], Tensor]]


def networkx_graph(edge_index: Tensor, num_nodes: int) -> Any:
    graph = nx.Graph()
    graph.add_nodes_from(range(num_nodes))
    graph.add_edges_from(edge_index.T.tolist())
    return graph


def networkx_closeness(graph: Any) -> float:
    return sum(nx.closeness_centrality(graph).values()) / len(graph)


def networkx_six(graph: Any) -> list[float]:
    """All six; the sums over degrees by plain loops, which is the fastest there."""
    degree = [d for _, d in graph.degree()]
    mean, m = sum(degree) / len(degree), graph.number_of_edges()
    return [
        mean,
        nx.density(graph),
        sum(d * d for d in degree) / len(degree) - mean**2,
        sum(d * math.log(d) for d in degree if d) / (2 * m),
        -(1 / mean + 2),
        networkx_closeness(graph),
    ]


def wasserman_faust(distance: np.ndarray) -> float:
    """Mean closeness from a matrix of distances, infinite where there is no path."""
    n, near = len(distance), np.isfinite(distance)
    others, total = near.sum(1) - 1, np.where(near, distance, 0).sum(1)
    return float(np.mean(others**2 / np.maximum(total, 1))) / max(n - 1, 1)


def scipy_closeness(edge_index: Tensor, num_nodes: int) -> float:
    one = np.ones(edge_index.shape[1])
    matrix = scipy.sparse.csr_array((one, edge_index.numpy()), shape=(num_nodes, num_nodes))
    return wasserman_faust(shortest_path(matrix, unweighted=True))


def padded_closeness(edges: Edges, sizes: list[int], numbers: int = 2**22) -> Tensor:
    """Powers of padded adjacency matrices, graphs of about the same size at a time."""
    order = sorted(range(len(sizes)), key=sizes.__getitem__)
    out = torch.empty(len(sizes))
    while order:
        widest, count = sizes[order[0]], 1
        while count < len(order) and (count + 1) * sizes[order[count]] ** 2 <= numbers:
            widest, count = sizes[order[count]], count + 1
        chosen, order = order[:count], order[count:]
        adj = torch.zeros(count, widest, widest)
        for place, graph in enumerate(chosen):
            adj[place][tuple(edges[graph])] = 1
        n = torch.tensor([sizes[graph] for graph in chosen])
        now = torch.eye(widest) * (torch.arange(widest) < n[:, None])[:, None]
        step, before, hop = adj + torch.eye(widest), torch.zeros(count, widest), 0
        while True:
            after = (torch.bmm(now, step) > 0).float() * (torch.arange(widest) < n[:, None])[
                :, None
            ]
            if torch.equal(after, now):
                break
            before += now.sum(2)
            now, hop = after, hop + 1
        reached = now.sum(2)
        far = hop * reached - before
        each = (reached - 1).clamp(min=0) ** 2 / far.clamp(min=1)
        out[chosen] = each.sum(1) / (n * (n - 1)).clamp(min=1)
    return out


def contestants(name: str, most: int | None) -> tuple[Calls, Calls, dict[str, int]]:
    """Calls for all six properties and for closeness alone, and what the collection is like."""
    graphs = fgl.data.load_graphs(name)[0][:most]
    edges, sizes = [g.edge_index for g in graphs], [g.num_nodes for g in graphs]
    first = np.cumsum([0, *sizes[:-1]]).tolist()
    edge_index = torch.cat([e + at for e, at in zip(edges, first, strict=True)], 1)
    batch = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    pairs = list(zip(edges, sizes, strict=True))
    six: Calls = {
        "fgl": lambda: graph_properties(edge_index, batch),
        "networkx": lambda: torch.tensor([networkx_six(networkx_graph(*p)) for p in pairs]),
    }
    one: Calls = {
        "fgl": lambda: closeness(edge_index, batch),
        "networkx": lambda: torch.tensor([networkx_closeness(networkx_graph(*p)) for p in pairs]),
        "scipy": lambda: torch.tensor([scipy_closeness(*p) for p in pairs]),
        "padded": lambda: padded_closeness(edges, sizes),
    }
    return six, one, {"graphs": len(graphs), "nodes": sum(sizes), "largest": max(sizes)}


def one_graph(num_nodes: int) -> Calls:
    """Closeness of one random graph of average degree 6."""
    generator = torch.Generator().manual_seed(0)
    edge_index = torch.randint(num_nodes, (2, 3 * num_nodes), generator=generator)
    edge_index = edge_index[:, edge_index[0] != edge_index[1]]
    both = torch.unique(torch.cat([edge_index, edge_index.flip(0)], 1), dim=1)
    return {
        "fgl": lambda: closeness(both, num_nodes),
        "networkx": lambda: torch.tensor([networkx_closeness(networkx_graph(both, num_nodes))]),
        "scipy": lambda: torch.tensor([scipy_closeness(both, num_nodes)]),
    }


def compare(title: str, calls: Calls, repeats: int) -> dict[str, float]:
    """Seconds of each, how much longer than ours the others take, and how far they are off."""
    seconds = alternated({name: lambda c=call: own(c) for name, call in calls.items()}, repeats)
    ours = seconds.pop("fgl")
    found = {f"{title}/fgl_seconds": ours}
    want = calls["fgl"]()
    for name, value in seconds.items():
        found[f"{title}/{name}_seconds"] = value
        found[f"{title}/{name}_over_fgl"] = value / ours
        found[f"{title}/{name}_difference"] = float((calls[name]() - want).abs().max())
    return found


def own(call: Callable[[], Any]) -> float:
    """The process's own seconds of a call."""
    start = time.process_time()
    call()
    return time.process_time() - start


def auto_encoder(clients: int) -> Calls:
    """`reconstruct`, and the same by autograd and torch's optimisers."""
    generator = torch.Generator().manual_seed(0)
    network = cn.normalize_rows(torch.rand(clients, clients, generator=generator))
    features = cn.pooled_features(torch.randn(clients, 10_000, generator=generator))

    def start() -> torch.Generator:
        return torch.Generator().manual_seed(1)

    def by_autograd(fused: bool) -> Tensor:
        params = cn.autoencoder.init_encoder(features.shape[1], generator=start())
        leaves = [value.requires_grad_() for value in params.values()]
        optimizer = torch.optim.Adam(leaves, lr=1e-3, weight_decay=5e-4, fused=fused)
        for _ in range(100):
            optimizer.zero_grad()
            cn.autoencoder.link_loss(cn.autoencoder.encode(network, features, params)).backward()
            optimizer.step()
        return cn.autoencoder.encode(network, features, params).detach()

    return {
        "fgl": lambda: cn.reconstruct(network, features, generator=start()),
        "autograd": lambda: by_autograd(False),
        "autograd_fused": lambda: by_autograd(True),
    }


def main(argv: list[str] | None = None) -> dict[str, Any]:
    args = arguments(argv, quick=flag(False, "400 graphs of each, one repeat"), repeats=5)
    torch.set_num_threads(1)
    repeats = 1 if args.quick else args.repeats
    numbers: dict[str, Any] = {}
    for name in ("NCI1", "PROTEINS"):
        six, one, sizes = contestants(name, 400 if args.quick else None)
        numbers |= {f"{name}/{key}": value for key, value in sizes.items()}
        numbers |= compare(f"{name}/six", six, repeats)
        numbers |= compare(f"{name}/closeness", one, repeats)
    numbers |= compare("random/n=2000/closeness", one_graph(2000), repeats)
    numbers |= compare("reconstruct/k=25", auto_encoder(25), 4 * repeats)
    report = {"benchmark": "properties", "clock": "process", "machine": machine(), **numbers}
    write(report, args.json)
    return report


if __name__ == "__main__":
    for key, value in main().items():
        print(key, value)
