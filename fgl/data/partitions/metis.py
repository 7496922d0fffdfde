"""METIS's balanced cut as clients: few edges between them, and equal sizes."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ...checks import install
from ...graph import Graph
from ...kinds import typed
from ..undirected import undirected
from .checks import announced, check_num_clients, filled


@typed
def metis_partition(
    graph: Graph, num_clients: int, *, seed: int = 0, recursive: bool | None = None
) -> list[Tensor]:
    """Clients of almost equal size with few edges between them, by METIS.

    A part that METIS leaves empty (where there are few nodes) takes the first node of the largest.
    It needs the extra `partitions`.

    Args:
        graph: taken as undirected and unweighted.
        num_clients: number of clients; each gets at least one node.
        seed: of METIS; -1 is the one that METIS has without a seed.
        recursive: whether to cut in two again and again, or into all parts at once (k-way); default
            the former up to 8 clients, as pymetis does.

    Returns:
        One sorted int64 tensor of node ids per client; every node is in exactly one.

    Raises:
        ValueError: if `num_clients` is not in ``[1, num_nodes]``.
        ImportError: if pymetis is not installed.

    Example:
        >>> graph = fgl.data.load("synthetic")
        >>> parts = fgl.data.partitions.metis_partition(graph, 3)
        >>> sum(part.numel() for part in parts), max(part.numel() for part in parts) < 1.05 * 903
        (2708, True)

    Source: Karypis & Kumar, https://doi.org/10.1137/S1064827595287997
    """
    try:
        import pymetis
    except ImportError as error:
        raise ImportError(
            f"Expected pymetis to be installed, but got none: {install('partitions')}"
        ) from error
    n = graph.num_nodes
    check_num_clients(num_clients, n)
    source, target = undirected(graph.edge_index.cpu(), n).to(torch.int32)  # METIS counts in these
    begins = np.zeros(n + 1, np.int32)
    np.cumsum(target.bincount(minlength=n).numpy(), out=begins[1:])
    del target
    owner = torch.zeros(n, dtype=torch.int64)
    if num_clients > 1:
        options = pymetis.Options(seed=seed + (seed >= 0))  # C's generator takes 0 for 1
        adjacency = pymetis.CSRAdjacency(begins, source.numpy())
        with announced("METIS", source.numel() // 2, 10_000_000):
            cut = pymetis.part_graph(num_clients, adjacency, options=options, recursive=recursive)
        owner = torch.tensor(cut.vertex_part)
    return [part.to(graph.device) for part in filled(owner, num_clients)]
