"""Communities, by Louvain or Leiden, as clients of about the same size (FGSSL)."""

from __future__ import annotations

import random
from collections.abc import Iterable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ...checks import check_choice, check_count, check_number, check_weight, install
from ...graph import Graph
from ...kinds import typed
from ...warn import warn
from ..undirected import pairs
from .checks import announced, check_num_clients

ENGINES = ("networkx", "igraph")
SLOW = 1_000_000  # undirected edges above which networkx takes minutes


@typed
def louvain_partition(
    graph: Graph,
    num_clients: int,
    *,
    delta: int = 20,
    resolution: float = 1.0,
    seed: int = 0,
    engine: str = "networkx",
) -> list[Tensor]:
    """Louvain communities, dealt out to clients of about the same size (FGSSL).

    With ``s = floor(num_nodes / num_clients)``, a community of more than ``s - delta`` nodes is cut
    into chunks of that size, in order of node id; the remainder stays a community. Communities are
    dealt in order of size, largest first, round-robin; a client that would exceed ``s + delta``
    nodes is skipped. Left open by the rule: chunks have at least one node; among communities of
    equal size that with the smallest node id is first; one that fits nowhere goes to the smallest
    client (among equals the first).

    Args:
        graph: taken as undirected and unweighted.
        num_clients: number of clients; each gets at least one node.
        delta: slack of the sizes, at least 0; for small clients give less than the default, which
            would cut their communities into pieces (with a warning).
        resolution: at least 0; above 1 for more and smaller communities.
        seed: of Louvain.
        engine: whose Louvain. ``"networkx"`` made the published tables; ``"igraph"`` (the extra
            `partitions`) finds other communities, as good, and is the one for a large graph. Above
            1,000,000 edges networkx warns.

    Returns:
        One sorted int64 tensor of node ids per client; every node is in exactly one.

    Raises:
        ValueError: if `num_clients` is not in ``[1, num_nodes]``, or another number out of range.
        ImportError: if the engine is not installed.

    Example:
        >>> graph = fgl.data.load("synthetic")
        >>> [part.numel() for part in fgl.data.partitions.louvain_partition(graph, 3)]
        [928, 880, 900]

    Source: Huang et al., Federated Graph Semantic and Structural Learning, IJCAI 2023;
    https://github.com/alibaba/FederatedScope
    """
    check_choice("engine", engine, ENGINES)
    _check(graph, num_clients, delta, resolution)
    edges = pairs(graph.edge_index.cpu(), graph.num_nodes)
    if engine == "networkx":
        communities = _networkx(edges, graph.num_nodes, resolution, seed)
    else:
        communities = _igraph(edges, graph.num_nodes, seed, "multilevel", resolution=resolution)
    return deal(communities, graph, num_clients, delta)


@typed
def leiden_partition(
    graph: Graph,
    num_clients: int,
    *,
    delta: int = 20,
    resolution: float = 1.0,
    iterations: int = 2,
    seed: int = 0,
) -> list[Tensor]:
    """Leiden communities by igraph, dealt out as `louvain_partition` does.

    Leiden mends Louvain's communities that are not connected. It needs the extra `partitions`.

    Args:
        graph: taken as undirected and unweighted.
        num_clients: number of clients; each gets at least one node.
        delta: slack of the sizes, at least 0.
        resolution: at least 0; above 1 for more and smaller communities.
        iterations: of the algorithm, at least 1; each iteration starts from the last one's result.
        seed: of Leiden.

    Returns:
        One sorted int64 tensor of node ids per client; every node is in exactly one.

    Raises:
        ValueError: if `num_clients` is not in ``[1, num_nodes]``, or another number out of range.
        ImportError: if igraph is not installed.

    Example:
        >>> graph = fgl.data.load("synthetic")
        >>> parts = fgl.data.partitions.leiden_partition(graph, 3)
        >>> sum(part.numel() for part in parts), max(part.numel() for part in parts) <= 922 + 20
        (2708, True)

    Source: Traag et al., From Louvain to Leiden, https://arxiv.org/abs/1810.08473
    """
    _check(graph, num_clients, delta, resolution)
    check_count(iterations=iterations)
    communities = _igraph(
        pairs(graph.edge_index.cpu(), graph.num_nodes),
        graph.num_nodes,
        seed,
        "leiden",
        objective_function="modularity",
        resolution=resolution,
        n_iterations=iterations,
    )
    return deal(communities, graph, num_clients, delta)


def _check(graph: Graph, num_clients: int, delta: int, resolution: float) -> None:
    check_num_clients(num_clients, graph.num_nodes)
    check_number("delta", delta, at_least=0, integer=True)
    check_weight(resolution=resolution)


def _networkx(
    edges: Tensor, num_nodes: int, resolution: float, seed: int
) -> Iterable[Iterable[int]]:
    from networkx import Graph as Network
    from networkx.algorithms.community import louvain_communities

    if len(edges) > SLOW:
        warn(
            f"networkx takes minutes to hours for {len(edges)} edges; Louvain by igraph does "
            'not: engine="igraph", or partition louvain_igraph of a task',
        )
    network: Network[int] = Network()
    network.add_nodes_from(range(num_nodes))
    network.add_edges_from(edges.tolist())
    with announced("Louvain by networkx", len(edges), SLOW // 4):
        return list(louvain_communities(network, resolution=resolution, seed=seed))


def _igraph(
    edges: Tensor, num_nodes: int, seed: int, method: str, **options: Any
) -> list[list[int]]:
    """Communities by one of igraph's methods, whose random numbers are Python's."""
    try:
        import igraph
    except ImportError as error:
        raise ImportError(
            f"Expected igraph to be installed, but got none: {install('partitions')}"
        ) from error
    igraph.set_random_number_generator(random.Random(seed))
    try:
        with announced(f"{method} by igraph", len(edges), 10 * SLOW):
            network = igraph.Graph(n=num_nodes, edges=edges.numpy())
            communities = partial(getattr(network, f"community_{method}"), **options)()
    finally:
        igraph.set_random_number_generator(random)  # as igraph itself begins
    label = torch.tensor(communities.membership, dtype=torch.int64)
    return [own.tolist() for own in label.argsort(stable=True).split(label.bincount().tolist())]


def deal(
    communities: Iterable[Iterable[int]], graph: Graph, num_clients: int, delta: int
) -> list[Tensor]:
    """The communities as clients of about the same size."""
    size = graph.num_nodes // num_clients
    chunk = max(size - delta, 1)
    whole = [sorted(nodes) for nodes in communities]
    if num_clients > 1 and 2 * delta > size and max(map(len, whole)) > chunk:
        warn(
            f"Expected delta to be at most half of the {size} nodes of a client, but got {delta}: "
            f"communities are cut into pieces of {chunk}, and few edges stay. Try "
            f"delta={size // 5}",
        )
    chunks = [
        nodes[start : start + chunk] for nodes in whole for start in range(0, len(nodes), chunk)
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
