"""Partitions with few edges between clients: communities (Louvain, Leiden), METIS and LDG."""

import math
import random
from collections.abc import Iterable
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from ...checks import Count, Natural, Weight, imported, install
from ...graph import Graph
from ...kinds import typed
from ...progress import shown
from ...sparse.gather import ranges
from ...warn import warn
from ..undirected import pairs, undirected
from .checks import announced, check_num_clients, filled

SLOW = 1_000_000  # undirected edges above which networkx takes minutes


@typed
def louvain_partition(
    graph: Graph,
    num_clients: int,
    *,
    delta: Natural = 20,
    resolution: Weight = 1.0,
    seed: int = 0,
    engine: Literal["networkx", "igraph"] = "networkx",
) -> list[Tensor]:
    """Assign Louvain communities to clients of about equal size (FGSSL).

    Let ``s = floor(num_nodes / num_clients)``. A community of more than ``s - delta`` nodes is cut
    into chunks of ``s - delta`` nodes, in order of node id. The remainder becomes a smaller
    community. Communities are assigned round-robin in order of size, largest first. A client that
    would exceed ``s + delta`` nodes is skipped. The paper does not specify some details. This
    function adds three rules. A chunk has at least one node. Communities of equal size are ordered
    by their smallest node ids. A community that fits no client goes to the client with the fewest
    nodes; if there are several such clients, to the first of them.

    Args:
        graph: a graph. Directions and weights of edges are ignored.
        num_clients: number of clients. Each client gets at least one node.
        delta: allowed deviation of a client's size, at least 0. For small clients, choose a value
            below the default, since the default cuts communities into small pieces and gives a
            warning.
        resolution: resolution of the communities, at least 0. The larger the resolution, the more
            communities are found, and the smaller they are.
        seed: random seed of Louvain.
        engine: library that runs Louvain. The published tables were made with ``"networkx"``.
            ``"igraph"`` (the extra `partitions`) is faster than networkx on large graphs. The
            communities of igraph differ from those of networkx, but have equal quality. With
            networkx, a warning is given if the graph has more than 1,000,000 edges.

    Returns:
        One sorted int64 tensor of node ids per client; every node belongs to exactly one client.

    Raises:
        ValueError: if `num_clients` is below 1 or above the number of nodes, or if any other
            argument is out of range.
        ImportError: if the engine is not installed.

    Example:
        >>> graph = fgl.data.load("synthetic")
        >>> [part.numel() for part in fgl.data.partitions.louvain_partition(graph, 3)]
        [928, 880, 900]

    Source: Huang et al., Federated Graph Semantic and Structural Learning, IJCAI 2023;
    https://github.com/alibaba/FederatedScope
    """
    check_num_clients(num_clients, graph.num_nodes)
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
    delta: Natural = 20,
    resolution: Weight = 1.0,
    iterations: Count = 2,
    seed: int = 0,
) -> list[Tensor]:
    """Find Leiden communities with igraph, and assign them to clients as `louvain_partition` does.

    Communities found by Leiden are always connected. Communities found by Louvain may be
    disconnected. This function needs the extra `partitions`.

    Args:
        graph: a graph. Directions and weights of edges are ignored.
        num_clients: number of clients. Each client gets at least one node.
        delta: allowed deviation of a client's size, at least 0.
        resolution: resolution of the communities, at least 0. The larger the resolution, the more
            communities are found, and the smaller they are.
        iterations: number of iterations, at least 1. Every iteration except the first starts from
            the result of the previous iteration.
        seed: random seed of Leiden.

    Returns:
        One sorted int64 tensor of node ids per client; every node belongs to exactly one client.

    Raises:
        ValueError: if `num_clients` is below 1 or above the number of nodes, or if any other
            argument is out of range.
        ImportError: if igraph is not installed.

    Example:
        >>> graph = fgl.data.load("synthetic")
        >>> parts = fgl.data.partitions.leiden_partition(graph, 3)
        >>> sum(part.numel() for part in parts), max(part.numel() for part in parts) <= 922 + 20
        (2708, True)

    Source: Traag et al., From Louvain to Leiden, https://arxiv.org/abs/1810.08473
    """
    check_num_clients(num_clients, graph.num_nodes)
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


def _networkx(
    edges: Tensor, num_nodes: int, resolution: float, seed: int
) -> Iterable[Iterable[int]]:
    from networkx import Graph as Network
    from networkx.algorithms.community import louvain_communities

    if len(edges) > SLOW:
        warn(
            f"networkx takes minutes to hours for {len(edges)} edges; Louvain by igraph does "
            'not: engine="igraph", or partition louvain_igraph of a task'
        )
    network: Network[int] = Network()
    network.add_nodes_from(range(num_nodes))
    network.add_edges_from(edges.tolist())
    with announced("Louvain by networkx", len(edges), SLOW // 4):
        return list(louvain_communities(network, resolution=resolution, seed=seed))


def _igraph(
    edges: Tensor, num_nodes: int, seed: int, method: str, **options: Any
) -> list[list[int]]:
    """Find communities by a method of igraph; igraph uses a random number generator of Python."""
    igraph = imported("igraph", "for its communities", install("partitions"))
    igraph.set_random_number_generator(random.Random(seed))
    try:
        with announced(f"{method} by igraph", len(edges), 10 * SLOW):
            network = igraph.Graph(n=num_nodes, edges=edges.numpy())
            communities = partial(getattr(network, f"community_{method}"), **options)()
    finally:
        igraph.set_random_number_generator(random)  # igraph's default
    label = torch.tensor(communities.membership, dtype=torch.int64)
    return [own.tolist() for own in label.argsort(stable=True).split(label.bincount().tolist())]


def deal(
    communities: Iterable[Iterable[int]], graph: Graph, num_clients: int, delta: int
) -> list[Tensor]:
    """Assign each community to one client; the clients get about equal numbers of nodes."""
    size = graph.num_nodes // num_clients
    chunk = max(size - delta, 1)
    whole = [sorted(nodes) for nodes in communities]
    if num_clients > 1 and 2 * delta >= size and max(map(len, whole)) > chunk:
        warn(
            f"Expected delta to be less than half of the {size} nodes of a client, but got "
            f"{delta}: communities are cut into pieces of {chunk}, and few edges stay. Try "
            f"delta={size // 5}"
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


@typed
def metis_partition(
    graph: Graph, num_clients: int, *, seed: int = 0, recursive: bool | None = None
) -> list[Tensor]:
    """Partition a graph by METIS: clients of almost equal size, with few edges between clients.

    If the graph is small, METIS may return an empty part. In that case, the first node of the
    largest part is moved to the empty part. This function needs the extra `partitions`.

    Args:
        graph: a graph. Directions and weights of edges are ignored.
        num_clients: number of clients. Each client gets at least one node.
        seed: random seed of METIS; -1 means METIS's default seed.
        recursive: how METIS cuts the graph: by recursive bisection (True), or into all parts at
            once, by a k-way cut (False). The default is True for up to 8 clients, as in pymetis.

    Returns:
        One sorted int64 tensor of node ids per client; every node belongs to exactly one client.

    Raises:
        ValueError: if `num_clients` is below 1 or above the number of nodes.
        ImportError: if pymetis is not installed.

    Example:
        >>> graph = fgl.data.load("synthetic")
        >>> parts = fgl.data.partitions.metis_partition(graph, 3)
        >>> sum(part.numel() for part in parts), max(part.numel() for part in parts) < 1.05 * 903
        (2708, True)

    Source: Karypis & Kumar, https://doi.org/10.1137/S1064827595287997
    """
    pymetis = imported("pymetis", "for METIS", install("partitions"))
    n = graph.num_nodes
    check_num_clients(num_clients, n)
    source, target = undirected(graph.edge_index.cpu(), n).to(torch.int32)  # METIS uses int32
    begins = np.zeros(n + 1, np.int32)
    np.cumsum(target.bincount(minlength=n).numpy(), out=begins[1:])
    del target
    owner = torch.zeros(n, dtype=torch.int64)
    if num_clients > 1:
        options = pymetis.Options(seed=seed + (seed >= 0))  # C's generator treats 0 as 1
        adjacency = pymetis.CSRAdjacency(begins, source.numpy())
        with announced("METIS", source.numel() // 2, 10_000_000):
            cut = pymetis.part_graph(num_clients, adjacency, options=options, recursive=recursive)
        owner = torch.tensor(cut.vertex_part)
    return [part.to(graph.device) for part in filled(owner, num_clients)]


BLOCKS = 64  # number of blocks for small graphs: nodes of one block do not see each other
LARGEST = 2**14  # nodes of a block: a table of nodes x 100 parts takes 13 MB


@typed
def ldg_partition(
    graph: Graph,
    num_clients: int,
    *,
    passes: Count = 10,
    slack: Weight = 0.05,
    block: Count | None = None,
    seed: int = 0,
) -> list[Tensor]:
    """Partition a graph by LDG: assign nodes one by one to clients whose sizes are bounded.

    Let C be the capacity ``ceil((1 + slack) * n / num_clients)``. A node v goes to the part i with
    the largest ``|N(v) in P_i| * (1 - |P_i| / C)``. If none of v's neighbours has a part yet, or if
    part i is full, v goes to the smallest part. From the second pass on, all nodes are placed
    again. If the current pass has not yet placed a neighbour, the neighbour's part in the previous
    pass is used.

    Nodes are placed in blocks of consecutive ids. For speed, all nodes of one block are placed at
    once. So the choice for a node does not depend on the choices for other nodes of the block.
    Still, no part exceeds the capacity. The function needs memory for the edges, for a table of
    size block x clients, for about 30 bytes per node, and for one byte per edge. Edges that are
    sorted by target can be passed as a memory-mapped file.

    Args:
        graph: a graph with both directions of every edge, since an edge affects only its target.
        num_clients: number of clients. Each client gets at least one node.
        passes: number of passes; 1 means LDG, and more passes mean restreaming LDG.
        slack: largest allowed excess of a client's size over the mean size, as a fraction of the
            mean size.
        block: number of nodes that are placed at once. With 1, the function follows the published
            rule. The default is 1/64 of the nodes, but at most 16,384. With more than 100 clients,
            the default is smaller.
        seed: random seed for the order of the blocks. All passes use the same order of the nodes.

    Returns:
        One sorted int64 tensor of node ids per client. Every node belongs to exactly one client,
        and no client has more than C nodes.

    Raises:
        ValueError: if `num_clients` is below 1 or above the number of nodes, if `passes` or `block`
            is below 1, or if `slack` is negative.

    Example:
        >>> graph = fgl.data.load("synthetic")
        >>> parts = fgl.data.partitions.ldg_partition(graph, 3)
        >>> sum(part.numel() for part in parts), max(part.numel() for part in parts) <= 948
        (2708, True)

    Source: Stanton & Kliot 2012, https://doi.org/10.1145/2339530.2339722 (the rule); Nishimura &
    Ugander 2013, https://doi.org/10.1145/2487575.2487696 (more passes)
    """
    n = graph.num_nodes
    check_num_clients(num_clients, n)
    if block is None:
        block = max(1, min(n // BLOCKS, LARGEST, 100 * LARGEST // num_clients))
    capacity = math.ceil(round(n * (1 + slack) / num_clients, 6))  # as a float, 1.1 is above 1.1
    ends, sources = _by_target(graph.edge_index.cpu(), n)
    generator = torch.Generator().manual_seed(seed)
    starts = (torch.randperm(-(-n // block), generator=generator) * block).tolist()
    owner = torch.full((n,), num_clients, dtype=torch.int32)  # an extra part holds unplaced nodes
    with shown("LDG", passes * len(starts), unit="blocks") as advance:
        for _ in range(passes):
            size = torch.zeros(num_clients, dtype=torch.int64)
            for start in starts:
                stop = min(start + block, n)
                begin, end = (int(ends[start - 1]) if start else 0), int(ends[stop - 1])
                degree = ends[start:stop].diff(prepend=ends.new_tensor([begin]))
                owners = owner.index_select(0, sources[begin:end])
                part = _placed(_counts(degree, owners, num_clients), size, capacity)
                owner[start:stop] = part
                size += part.bincount(minlength=num_clients)
                advance(1)
    return [part.to(graph.device) for part in filled(owner.long(), num_clients)]


def _by_target(edge_index: Tensor, num_nodes: int) -> tuple[Tensor, Tensor]:
    """Sort edges by target node; return the end of each node's block of edges, and all sources.

    The edges of node v have the sources ``sources[ends[v - 1] : ends[v]]``.
    """
    source, target = edge_index
    if bool((target[1:] < target[:-1]).any()):
        source = source[target.argsort(stable=True)]
    return target.bincount(minlength=num_nodes).cumsum(0), source


def _counts(degree: Tensor, owners: Tensor, num_parts: int) -> Tensor:
    """Number of neighbours per part, for each node of a block, int64 ``[block, parts]``."""
    base = torch.arange(0, len(degree) * (num_parts + 1), num_parts + 1)
    key = base.repeat_interleave(degree, output_size=len(owners)).add_(owners)
    count = key.bincount(minlength=len(degree) * (num_parts + 1))
    return count.view(len(degree), num_parts + 1)[:, :num_parts]


def _placed(count: Tensor, size: Tensor, capacity: int) -> Tensor:
    """Assign a part to each node of a block, int64 ``[block]``; parts stay within the capacity."""
    score = count * (1 - size.double() / capacity)
    part = score.argmax(1)
    part[score.amax(1) <= 0] = len(size)  # no placed neighbour, or only full parts
    order = part.argsort(stable=True)  # sorted by part, then by index
    demand = part.bincount(minlength=len(size) + 1)
    rank = torch.arange(len(part)) - (demand.cumsum(0) - demand)[part[order]]
    room = torch.cat([capacity - size, size.new_zeros(1)])
    rest = order[rank >= room[part[order]]].sort().values
    part[rest] = len(size)
    grown = size + part.bincount(minlength=len(size) + 1)[: len(size)]
    part[rest] = _smallest(grown, len(rest))
    return part


def _smallest(size: Tensor, count: int) -> Tensor:
    """Assign `count` nodes one by one, always to the part that is smallest so far."""
    if not count:
        return size.new_zeros(0)
    low = size.sort().values
    rises = (low * torch.arange(1, len(low) + 1) - low.cumsum(0) < count).sum()  # parts that grow
    top = (low[:rises].sum() + count) // rises + 1  # no part grows beyond this size
    # A part's size before each node that it may get.
    level, part = ranges(size, (top - size).clamp(min=0))
    return part[(level * len(size) + part).argsort()][:count]
