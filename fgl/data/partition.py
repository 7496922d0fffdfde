"""Partitions: which client gets which nodes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from ..graph import Graph
from .edges import undirected

# The clients' shares of the nodes in FedGL's settings; D4 is the usual one.
PROPORTIONS = {
    "D1": (0.3, 0.4, 0.5),
    "D2": (0.2, 0.4, 0.6),
    "D3": (0.5, 0.6, 0.7, 0.8),
    "D4": (0.3, 0.4, 0.5, 0.5, 0.6, 0.7),
}


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

    _check_num_clients(num_clients, graph.num_nodes)
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


def random_partition(graph: Graph, num_clients: int, *, seed: int = 0) -> list[Tensor]:
    """Nodes dealt out at random, sizes differing by at most one.

    Args:
        graph: the graph.
        num_clients: number of clients.
        seed: of the permutation.

    Returns:
        One sorted int64 tensor of node ids per client; every node is in exactly one.

    Raises:
        ValueError: if `num_clients` is not in ``[1, num_nodes]``.

    Example:
        >>> graph = fgl.Graph(torch.ones(5, 1), torch.tensor([[0, 1], [1, 0]]))
        >>> [part.numel() for part in fgl.data.random_partition(graph, 2)]
        [3, 2]
    """
    _check_num_clients(num_clients, graph.num_nodes)
    order = torch.randperm(graph.num_nodes, generator=torch.Generator().manual_seed(seed))
    return [part.sort().values.to(graph.device) for part in order.tensor_split(num_clients)]


def overlapping_partition(
    graph: Graph, proportions: Iterable[float], *, common: float | None = None, seed: int = 0
) -> list[Tensor]:
    """Every client draws its share of the nodes by itself, so that clients overlap (FedGL).

    Args:
        graph: the graph.
        proportions: one share of the nodes in ``[0, 1]`` per client, rounded to whole nodes.
        common: share of nodes that all clients hold (the paper's overlap ratio, its Table 6): they
            are drawn first, and no other node is held by all. Default: independent draws, of which
            about the product of the proportions is common to all.
        seed: of the draws.

    Returns:
        One sorted int64 tensor of node ids per client; parts overlap, some nodes may be in none.

    Raises:
        ValueError: if a share is out of range or smaller than `common`, or if the shares leave no
            room for a node outside.

    Example:
        >>> graph = fgl.Graph(torch.ones(10, 1), torch.tensor([[0], [1]]))
        >>> [part.numel() for part in fgl.data.overlapping_partition(graph, [0.3, 0.5])]
        [3, 5]

    Source: FedGL, Information Sciences 2024
    """
    n = graph.num_nodes
    proportions = list(proportions)
    generator = torch.Generator().manual_seed(seed)
    low = 0.0 if common is None else common
    for client, share in enumerate(proportions):
        if not 0 <= low <= share <= 1:
            raise ValueError(f"Expected client {client}'s share in [{low}, 1], but got {share}")
    if not proportions:
        raise ValueError("Expected proportions to be at least one, but got none")
    sizes = [round(share * n) for share in proportions]
    shared = torch.randperm(n, generator=generator)[: round(low * n)]
    held = torch.zeros(len(sizes), n, dtype=torch.bool)
    held[:, shared] = True
    for client, size in enumerate(sizes):
        order = torch.randperm(n, generator=generator)
        rest = order[~held[client, order]]
        held[client, rest[: size - shared.numel()]] = True
    if common is not None:
        _move_apart(held, shared, generator)
    return [own.nonzero().squeeze(1).to(graph.device) for own in held]


def _move_apart(held: Tensor, shared: Tensor, generator: torch.Generator) -> None:
    """Give away what all clients hold besides `shared`: each such node is swapped in one client."""
    everywhere = held.all(0)
    everywhere[shared] = False
    for node in everywhere.nonzero().flatten().tolist():
        for client in torch.randperm(len(held), generator=generator).tolist():
            others = held.sum(0) - held[client].int()
            free = (~held[client] & (others < len(held) - 1)).nonzero().flatten()
            if free.numel():
                chosen = free[torch.randint(free.numel(), (), generator=generator)]
                held[client, node] = False
                held[client, chosen] = True
                break
        else:
            raise ValueError(
                "Expected proportions to leave each node outside of some client, but got "
                f"{held.sum(1).tolist()} of {held.shape[1]} nodes"
            )


def union_graph(graph: Graph, parts: Sequence[Tensor]) -> Graph:
    """All that the clients hold together: their nodes, and the edges that at least one holds.

    Args:
        graph: the whole graph.
        parts: int64 node ids, one tensor per client.

    Returns:
        The subgraph, its nodes in order of their id, with `node_id`; an edge between two clients'
        nodes that none of them holds as a whole is lost.

    Example:
        >>> graph = fgl.Graph(torch.ones(4, 1), torch.tensor([[0, 1, 2], [1, 2, 3]]))
        >>> union = fgl.data.union_graph(graph, [torch.tensor([0, 1]), torch.tensor([2])])
        >>> union.num_nodes, union.edge_index.tolist()
        (3, [[0], [1]])

    Source: FedGL, Information Sciences 2024
    """
    seen = torch.zeros(graph.num_edges, dtype=torch.bool, device=graph.device)
    nodes = torch.zeros(graph.num_nodes, dtype=torch.bool, device=graph.device)
    for part in parts:
        own = torch.zeros_like(nodes)
        own[part] = True
        nodes |= own
        seen |= own[graph.edge_index].all(0)
    weight = None if graph.edge_weight is None else graph.edge_weight[seen]
    kept = graph.replace(edge_index=graph.edge_index[:, seen], edge_weight=weight)
    return kept.subgraph(nodes.nonzero().squeeze(1))


def partition_graph(graph: Graph, parts: Sequence[Tensor]) -> list[Graph]:
    """The clients' graphs: induced subgraphs, each with `node_id`.

    Edges between clients are lost; parts may overlap.

    Args:
        graph: the whole graph.
        parts: int64 node ids, one tensor per client, without repeats.

    Returns:
        One graph per part, its nodes in the order of the part.

    Example:
        >>> graph = fgl.Graph(torch.ones(3, 1), torch.tensor([[0, 1], [1, 2]]))
        >>> clients = fgl.data.partition_graph(graph, [torch.tensor([1, 2]), torch.tensor([0])])
        >>> [(client.num_edges, client.node_id.tolist()) for client in clients]
        [(1, [1, 2]), (0, [0])]
    """
    return [graph.subgraph(part) for part in parts]


def _check_num_clients(num_clients: int, num_nodes: int) -> None:
    if not 1 <= num_clients <= num_nodes:
        raise ValueError(f"Expected num_clients to be in [1, {num_nodes}], but got {num_clients}")
