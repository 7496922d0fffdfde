"""Random clients of the same size."""

from __future__ import annotations

import torch
from torch import Tensor

from ...graph import Graph
from .checks import check_num_clients


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
    check_num_clients(num_clients, graph.num_nodes)
    order = torch.randperm(graph.num_nodes, generator=torch.Generator().manual_seed(seed))
    return [part.sort().values.to(graph.device) for part in order.tensor_split(num_clients)]
