"""Copies of graphs within a collection."""

from typing import Any

import torch
from torch import Tensor

from ..checks import reject_if
from ..graph import Graph
from ..graph.fields import mask_of
from ..sparse import SparseMatrix

STEPS = 4  # of neighbourhood aggregation


def first_copies(graph: Graph) -> Tensor:
    """Mask of the graphs to keep: False for a graph that is a copy of an earlier graph.

    A copy has the edges, the node features and the edge features of an earlier graph. Labels and
    the order of nodes are not compared. ``random_split(graph, among=first_copies(graph))`` excludes
    later copies, so that no test graph is a copy of a training graph.

    Args:
        graph: the collection.

    Returns:
        bool ``[num_graphs]``.

    Raises:
        ValueError: if the graph has no `batch`.

    Example:
        >>> edges, batch = torch.tensor([[0, 3, 4], [1, 2, 5]]), torch.tensor([0, 0, 1, 1, 2, 2])
        >>> x = torch.tensor([[1.0], [2.0], [2.0], [1.0], [2.0], [1.0]])
        >>> first_copies(fgl.Graph(x, edges, batch=batch))
        tensor([ True, False,  True])

    Source: Ivanov et al. 2019, https://arxiv.org/abs/1910.12091, on copies in common collections
    """
    reject_if(graph.batch is None, "a collection", "a graph without batch: see fgl.Graph.join")
    distinct, kind = fingerprints(graph).unique(return_inverse=True)
    place = torch.arange(len(kind), device=kind.device)
    first = kind.new_full((len(distinct),), len(kind)).scatter_reduce_(0, kind, place, "amin")
    return mask_of(first, len(kind))


def fingerprints(graph: Graph) -> Tensor:
    """Hash of each graph in a collection; graphs with equal features and edges get equal hashes.

    The order of a graph's nodes does not change the graph's hash. The hash is computed by four
    steps of neighbourhood aggregation. Two different graphs get equal hashes if four steps of
    aggregation cannot distinguish the graphs. Two graphs that four steps can distinguish get equal
    hashes with a probability of only 2^-64.

    Example:
        >>> edges = torch.tensor([[0, 2], [1, 3]])
        >>> batch = torch.tensor([0, 0, 1, 1])
        >>> one, two = fingerprints(fgl.Graph(torch.ones(4, 1), edges, batch=batch))
        >>> one == two
        tensor(True)
    """
    node = node_fingerprints(graph, STEPS)
    owner: Any = graph.batch
    total = torch.zeros(graph.num_graphs, dtype=torch.int64, device=graph.device)
    total.index_add_(0, owner, mixed(node))
    return total if graph.u is None else mixed(total + rows_fingerprints(graph.u, graph))


def node_fingerprints(graph: Graph, steps: int) -> Tensor:
    """Hash each node's features; then, `steps` times, mix the neighbours' hashes into each hash.

    Example:
        >>> edges = torch.tensor([[0, 2], [1, 3]])
        >>> node_fingerprints(fgl.Graph(torch.ones(4, 1), edges), 1).unique().numel()
        2
    """
    node, edge = rows_fingerprints(graph.x, graph), torch.zeros_like(graph.edge_index[0])
    for name in ("edge_attr", "edge_weight", "edge_type"):
        if steps and (value := getattr(graph, name)) is not None:
            edge = mixed(edge + rows_fingerprints(value, graph))
    for name in ("node_type", "z", "pos"):
        if (value := getattr(graph, name)) is not None:
            node = mixed(node + rows_fingerprints(value, graph))
    source, target = graph.edge_index
    for _ in range(steps):
        message = mixed(mixed(node)[source] + edge)
        node = mixed(node + torch.zeros_like(node).index_add_(0, target, message))
    return node


def rows_fingerprints(values: Any, graph: Graph) -> Tensor:
    """Hash of each row of a matrix, or of each entry of a vector; zeros do not change a hash.

    Example:
        >>> graph = fgl.Graph(torch.eye(2), torch.tensor([[0], [1]]))
        >>> one, two = rows_fingerprints(torch.ones(2, 3), graph)
        >>> one == two
        tensor(True)
    """
    if not isinstance(values, SparseMatrix):
        values = values.unsqueeze(-1).flatten(1)
    rows, width = values.shape
    generator = torch.Generator().manual_seed(0)
    salt = torch.randint(torch.iinfo(torch.int64).max, (width,), generator=generator)
    salt, out = salt.to(graph.device), torch.zeros(rows, dtype=torch.int64, device=graph.device)
    if isinstance(values, SparseMatrix):
        pattern = values.pattern
        return out.index_add_(0, pattern.row, _salted(values.values, salt[pattern.col]))
    for column in range(width):  # not all at once: the features may be large
        out += _salted(values[:, column].to(graph.device), salt[column])
    return out


def _salted(values: Tensor, salt: Tensor) -> Tensor:
    """Hash of each number; the hash of 0 is 0, so that dense and sparse rows have equal hashes."""
    bits = values.double().contiguous().view(torch.int64)
    return torch.where(values == 0, 0, mixed(bits ^ salt))


def mixed(numbers: Tensor) -> Tensor:
    """Mix the bits of each number, so that each bit of the result depends on every original bit.

    Example:
        >>> mixed(torch.arange(1, 3)).double().log2().int().tolist()
        [62, 62]
    """
    for factor in (-0x61C8864680B583EB, -0x4B47D0C5E9A5B1C5):
        numbers = (numbers ^ (numbers >> 31)).mul(factor)
    return numbers ^ (numbers >> 29)
