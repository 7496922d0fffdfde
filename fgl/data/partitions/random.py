"""Random partitions: clients of equal size, clients within communities, or clients that overlap."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from ...checks import Count, Share, reject_if
from ...graph import Graph
from ...kinds import typed
from ...seeds import fold_in
from .checks import check_num_clients


@typed
def random_partition(graph: Graph, num_clients: int, *, seed: int = 0) -> list[Tensor]:
    """Assign nodes or graphs to clients at random; the clients' sizes differ by at most one.

    Args:
        graph: the graph.
        num_clients: number of clients.
        seed: random seed. A split into training and test nodes may get the same seed. The split
            then draws other random numbers than this function, so the split does not depend on the
            partition.

    Returns:
        One int64 tensor per client, with the ids of the client's nodes or graphs in ascending
        order. Every node or graph belongs to exactly one client.

    Raises:
        ValueError: if `num_clients` is below 1, or if it is above the number of nodes or graphs.

    Example:
        >>> graph = fgl.Graph(torch.ones(5, 1), torch.tensor([[0, 1], [1, 0]]))
        >>> [part.numel() for part in fgl.data.partitions.random_partition(graph, 2)]
        [3, 2]
    """
    n = graph.num_nodes if graph.batch is None else graph.num_graphs
    check_num_clients(num_clients, n)
    generator = torch.Generator().manual_seed(fold_in(seed, "partition"))
    order = torch.randperm(n, generator=generator)
    return [part.sort().values.to(graph.device) for part in order.tensor_split(num_clients)]


def community_clients(
    communities: Sequence[Tensor], clients: Count, *, share: Share = 0.5, seed: int = 0
) -> list[Tensor]:
    """Draw several clients from each community; a client gets a fraction of the community's nodes.

    Clients draw independently, so clients of one community overlap. If `share` is one half, two
    clients of one community have on average half of their nodes in common.

    Args:
        communities: int64 node ids, one tensor per community, for example the result of
            `metis_partition`.
        clients: number of clients per community.
        share: fraction of a community's nodes that each client of this community draws. The number
            of drawn nodes is rounded down.
        seed: random seed.

    Returns:
        One sorted int64 tensor of node ids per client: first the clients of the first community,
        then the clients of the second community, and so on.

    Raises:
        ValueError: if `clients` or `share` is out of range.

    Example:
        >>> communities = [torch.arange(5), torch.arange(5, 12)]
        >>> [part.tolist() for part in community_clients(communities, 2)]
        [[0, 4], [3, 4], [5, 8, 9], [6, 7, 8]]

    Source: Baek et al. 2023, https://arxiv.org/abs/2206.10206
    """
    generator = torch.Generator().manual_seed(seed)
    parts = []
    for community in communities:
        n = community.numel()
        for _ in range(clients):
            chosen = torch.randperm(n, generator=generator)[: int(share * n)].sort().values
            parts.append(community[chosen.to(community.device)])
    return parts


# Fractions of the nodes per client in FedGL's settings: its Table 2, and D1 to D4 of its Table 5.
PROPORTIONS = {
    "table2": (0.3, 0.4, 0.5, 0.5, 0.6, 0.7),
    "D1": (0.3, 0.4, 0.5),
    "D2": (0.2, 0.4, 0.6),
    "D3": (0.5, 0.6, 0.7, 0.8),
    "D4": (0.2, 0.4, 0.5, 0.7, 0.7, 0.9),
}


def overlapping_partition(
    graph: Graph, proportions: Iterable[float], *, common: float | None = None, seed: int = 0
) -> list[Tensor]:
    """Draw a fraction of the nodes for each client independently, so that clients overlap (FedGL).

    Args:
        graph: the graph.
        proportions: for each client, the fraction of the nodes that it draws, between 0 and 1.
            Numbers of nodes are rounded.
        common: fraction of the nodes that all clients hold (the overlap ratio in the paper's Table
            6). The common nodes are drawn first. Apart from the common nodes, no node is held by
            all clients. By default no common nodes are drawn, and clients draw independently. The
            probability that all clients hold a given node is then the product of all `proportions`.
        seed: random seed.

    Returns:
        One sorted int64 tensor of node ids per client. Parts overlap, and some nodes may be in no
        part.

    Raises:
        ValueError: if a proportion is out of range or smaller than `common`, or if the proportions
            are too large: all clients would then share further nodes besides the common nodes.

    Example:
        >>> graph = fgl.Graph(torch.ones(10, 1), torch.tensor([[0], [1]]))
        >>> [part.numel() for part in fgl.data.partitions.overlapping_partition(graph, [0.3, 0.5])]
        [3, 5]

    Source: FedGL, Information Sciences 2024
    """
    n = graph.num_nodes
    proportions = list(proportions)
    generator = torch.Generator().manual_seed(seed)
    low = 0.0 if common is None else common
    for client, share in enumerate(proportions):
        reject_if(not 0 <= low <= share <= 1, f"client {client}'s share in [{low}, 1]", share)
    reject_if(not proportions, "proportions to be at least one", "none")
    sizes = [round(share * n) for share in proportions]
    shared = torch.randperm(n, generator=generator)[: round(low * n)]
    owns = torch.zeros(len(sizes), n, dtype=torch.bool)
    owns[:, shared] = True
    for client, size in enumerate(sizes):
        order = torch.randperm(n, generator=generator)
        rest = order[~owns[client, order]]
        owns[client, rest[: size - shared.numel()]] = True
    if common is not None:
        _move_apart(owns, shared, generator)
    return [own.nonzero().squeeze(1).to(graph.device) for own in owns]


def _move_apart(owns: Tensor, shared: Tensor, generator: torch.Generator) -> None:
    """Change `owns` in place so that each node outside `shared` is missing at some client.

    If all clients hold such a node, one random client replaces the node by another random node.
    """
    everywhere = owns.all(0)
    everywhere[shared] = False
    for node in everywhere.nonzero().flatten().tolist():
        for client in torch.randperm(len(owns), generator=generator).tolist():
            others = owns.sum(0) - owns[client].int()
            free = (~owns[client] & (others < len(owns) - 1)).nonzero().flatten()
            if free.numel():
                chosen = free[torch.randint(free.numel(), (), generator=generator)]
                owns[client, node] = False
                owns[client, chosen] = True
                break
        else:
            raise ValueError(
                "Expected proportions to leave each node outside of some client, but got "
                f"{owns.sum(1).tolist()} of {owns.shape[1]} nodes"
            )
