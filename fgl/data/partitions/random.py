"""Random clients of the same size."""

from __future__ import annotations

import torch
from torch import Tensor

from ...graph import Graph
from ...kinds import typed
from ...seeds import fold_in
from .checks import check_num_clients


@typed
def random_partition(graph: Graph, num_clients: int, *, seed: int = 0) -> list[Tensor]:
    """Nodes, or graphs of a collection, dealt out at random, sizes differing by at most one.

    Args:
        graph: the graph.
        num_clients: number of clients.
        seed: of the permutation, which is independent of a random split's with the same seed.

    Returns:
        One sorted int64 tensor of nodes, or of graphs, per client; each is in exactly one.

    Raises:
        ValueError: if `num_clients` is not in ``[1, n]`` for n nodes or graphs.

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
