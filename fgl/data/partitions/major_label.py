"""Clients in which most nodes have one of a few labels, and a global test graph (FedEgo)."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ...checks import Share, check_count, reject_if
from ...graph import Graph
from ...graph.fields import mask_of


def major_label_partition(
    graph: Graph,
    num_clients: int,
    *,
    num_major: int = 3,
    major_rate: Share = 0.8,
    share: Share = 0.5,
    global_share: Share = 0.3,
    num_test: int = 200,
    seed: int = 0,
) -> tuple[Graph, list[Graph]]:
    """Draw a global test graph, and overlapping clients that mostly hold nodes of a few labels.

    Isolated nodes are dropped. The N nodes that remain form the pool. From the pool,
    ``int(global_share N)`` nodes are drawn uniformly. These nodes are removed from the pool and
    become the global test graph. The clients then draw from the pool one after the other. A client
    first draws `num_major` major labels, and then a sample of ``S = int(share N)`` nodes. The
    client's test nodes are later removed from the pool; the other nodes of the sample stay in it.
    ``int(major_rate S)`` nodes of the sample have one of the client's major labels. If the pool has
    fewer nodes with these labels, all of these nodes are used. The rest of the sample is drawn from
    the rest of the pool. A sample has fewer than S nodes if the pool is exhausted. Nodes without an
    edge inside the sample are dropped. The n remaining nodes are in random order. Of these n nodes,
    the last `num_test` are the client's test nodes. The ``n // 5`` nodes before the test nodes are
    validation nodes, and the rest are training nodes.

    Two clients may therefore share a training node. Also, a test or validation node of one client
    may be a training node of a second client.

    Args:
        graph: an undirected graph with labels.
        num_clients: number of clients.
        num_major: number of major labels per client.
        major_rate: fraction of a client's sample that has a major label. With 0, the whole sample
            is drawn from the whole pool.
        share: size of a client's sample, as a fraction of the N nodes.
        global_share: size of the global test graph, as a fraction of the N nodes.
        num_test: number of test nodes per client.
        seed: random seed.

    Returns:
        The global test graph, and one graph per client. A client's graph has the client's masks. In
        the global test graph, all nodes are test nodes, and some nodes may have no edge. `node_id`
        holds the nodes' ids in the given graph.

    Raises:
        ValueError: if an argument is out of range, or if a client has no training node.

    Example:
        >>> graph = fgl.data.load("synthetic")
        >>> test, clients = fgl.data.partitions.major_label_partition(graph, 2)
        >>> test.num_nodes, [int(client.test_mask.sum()) for client in clients]
        (812, [200, 200])

    Source: Zhang et al., FedEgo, https://arxiv.org/abs/2208.13685
    """
    _check(graph, num_clients, num_major, num_test)
    generator = torch.Generator().manual_seed(seed)
    y = graph.labels.cpu()
    edges = graph.edge_index.cpu()
    edges = edges[:, edges[0] != edges[1]]  # a node whose only edge is a self-loop is isolated
    linked = edges.unique()
    total = linked.numel()
    free = mask_of(linked, graph.num_nodes)
    held_out = _some(linked, int(global_share * total), generator)
    free[held_out] = False
    clients = []
    for client in range(num_clients):
        labels = torch.randperm(int(graph.num_classes or 0), generator=generator)[:num_major]
        candidates = free & torch.isin(y, labels)
        size = int(share * total)
        major = _some(candidates.nonzero().squeeze(1), int(major_rate * size), generator)
        rest = free.clone()
        rest[major] = False
        other = _some(rest.nonzero().squeeze(1), size - major.numel(), generator)
        own_nodes = _linked(edges, torch.cat([major, other]), generator)
        own = _client(graph, own_nodes, num_test)
        others = f"{num_test} test and {own.num_nodes // 5} validation nodes"
        expected = f"client {client} to have a training node besides {others}"
        reject_if(own.num_train == 0, expected, f"{own.num_nodes} nodes in all")
        free[own_nodes[-num_test:]] = False
        clients.append(own)
    test = graph.subgraph(held_out.to(graph.device))
    everything = torch.ones(test.num_nodes, dtype=torch.bool, device=graph.device)
    return test.replace(train_mask=None, val_mask=None, test_mask=everything), clients


def _linked(edges: Tensor, nodes: Tensor, generator: torch.Generator) -> Tensor:
    """All nodes in `nodes` with an edge to another node in `nodes`, in random order."""
    inside = torch.isin(edges, nodes).all(0)
    linked: Tensor = edges[:, inside].unique()
    return linked[torch.randperm(linked.numel(), generator=generator)]


def _client(graph: Graph, nodes: Tensor, num_test: int) -> Graph:
    """The induced subgraph; training nodes come first, then validation nodes, then test nodes."""
    n = nodes.numel()
    position = torch.arange(n)
    test = position >= n - num_test
    val = ~test & (position >= n - num_test - n // 5)
    masks = {"train_mask": ~test & ~val, "val_mask": val, "test_mask": test}
    cut = graph.subgraph(nodes.to(graph.device))
    return cut.replace(**{name: mask.to(graph.device) for name, mask in masks.items()})


def _some(nodes: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Draw `count` of the nodes; if there are fewer nodes, return all of them."""
    return nodes[torch.randperm(nodes.numel(), generator=generator)[:count]]


def _check(graph: Graph, num_clients: int, num_major: int, num_test: int) -> None:
    check_count(num_clients=num_clients, num_test=num_test)
    classes = graph.num_classes if len(graph.labels) else 0  # float targets have no classes
    reject_if(not 1 <= num_major <= (classes or 0), f"num_major to be in [1, {classes}]", num_major)


def unseen_nodes(clients: Sequence[Graph]) -> list[Tensor]:
    """Mask of each client's unseen test nodes: those that are not training nodes of any client.

    Clients overlap, so a test node of one client may be a training node of a second client. In that
    case, the model that the server sends to the first client may have been trained on the first
    client's test node.

    Args:
        clients: graphs with `node_id`, training masks and test masks.

    Returns:
        bool ``[num_nodes]`` per client.

    Raises:
        ValueError: if a graph has no `node_id`.

    Example:
        >>> _, clients = fgl.data.partitions.major_label_partition(fgl.data.load("synthetic"), 3)
        >>> [int(unseen.sum()) for unseen in unseen_nodes(clients)]
        [200, 116, 53]
    """
    without = [client for client, graph in enumerate(clients) if graph.node_id is None]
    reject_if(without, "clients to have node_id", f"none in clients {without}")
    graphs: list[Any] = list(clients)
    total = 1 + max(int(graph.node_id.max()) for graph in graphs)
    trained = torch.cat([graph.node_id[graph.train_mask] for graph in graphs])
    times = trained.bincount(minlength=total)
    return [g.test_mask & (times[g.node_id] == g.train_mask.long()) for g in graphs]
