"""Louvain communities as clients of about the same size (FGSSL)."""

from __future__ import annotations

import torch
from torch import Tensor

from ...graph import Graph
from ..undirected import undirected
from .checks import check_num_clients


def louvain_partition(
    graph: Graph,
    num_clients: int,
    *,
    delta: int = 20,
    resolution: float = 1.0,
    seed: int = 0,
) -> list[Tensor]:
    """Louvain communities, dealt out to clients of about the same size (FGSSL).

    With ``s = floor(num_nodes / num_clients)``, a community of more than ``s - delta`` nodes is cut
    into chunks of that size, in order of node id; the remainder stays a community. Communities are
    dealt in order of size, largest first, round-robin; a client that would exceed ``s + delta``
    nodes is skipped. What the rule leaves open: chunks have at least one node; among communities of
    equal size that with the smallest node id is first; one that fits nowhere goes to the smallest
    client (among equals the first).

    Args:
        graph: taken as undirected and unweighted.
        num_clients: number of clients; each gets at least one node.
        delta: slack of the sizes, at least 0.
        resolution: above 1 for more and smaller communities.
        seed: of Louvain.

    Returns:
        One sorted int64 tensor of node ids per client; every node is in exactly one.

    Raises:
        ValueError: if `num_clients` is not in ``[1, num_nodes]``, or `delta` is negative.

    Example:
        >>> graph = fgl.data.load("synthetic")
        >>> [part.numel() for part in fgl.data.louvain_partition(graph, 3)]
        [928, 880, 900]

    Source: Huang et al., Federated Graph Semantic and Structural Learning, IJCAI 2023;
    https://github.com/alibaba/FederatedScope
    """
    from networkx import Graph as Network
    from networkx.algorithms.community import louvain_communities

    check_num_clients(num_clients, graph.num_nodes)
    if delta < 0:
        raise ValueError(f"Expected delta to be at least 0, but got {delta}")
    network: Network[int] = Network()
    network.add_nodes_from(range(graph.num_nodes))
    network.add_edges_from(undirected(graph.edge_index, graph.num_nodes).t().tolist())
    communities = louvain_communities(network, resolution=resolution, seed=seed)

    size = graph.num_nodes // num_clients
    chunk = max(size - delta, 1)
    chunks = [
        nodes[start : start + chunk]
        for nodes in map(sorted, communities)
        for start in range(0, len(nodes), chunk)
    ]
    parts: list[list[int]] = [[] for _ in range(num_clients)]
    turn = 0
    for nodes in sorted(chunks, key=lambda nodes: (-len(nodes), nodes[0])):
        order = [(turn + i) % num_clients for i in range(num_clients)]
        fits = (c for c in order if len(parts[c]) + len(nodes) <= size + delta)
        client = next(fits, None)
        if client is None:
            client = min(range(num_clients), key=lambda c: len(parts[c]))
        parts[client] += nodes
        turn = (client + 1) % num_clients
    return [torch.tensor(sorted(part), device=graph.device) for part in parts]
