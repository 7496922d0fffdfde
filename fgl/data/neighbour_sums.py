"""Sums of neighbours' features over all clients, which FedGCN exchanges before it trains."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..checks import check_choice
from ..graph import Graph
from ..kinds import typed
from ..sparse import SparseMatrix
from ..sparse.matrix import dense, rows_of
from .asked_rows import Total, asked_rows
from .borders import Borders, borders


class NeighbourSums(NamedTuple):
    """Graphs of FedGCN's clients after their exchange.

    Args:
        clients: graphs whose features are sums, and whose weighted edges are the operator.
        whole: the same of the whole graph.
        num_bytes: what was sent before, up and down, by all clients.

    Example:
        >>> graph = fgl.Graph(torch.eye(2), torch.tensor([[0, 1], [1, 0]]))
        >>> made = neighbour_sums(graph, [torch.tensor([0, 1])], hops=1)
        >>> NeighbourSums(*made).num_bytes
        0
    """

    clients: list[Graph]
    whole: Graph
    num_bytes: int


@typed
def neighbour_sums(
    graph: Graph, parts: Sequence[Tensor], *, hops: int, total: Total | None = None
) -> NeighbourSums:
    """Add up the features of each node's neighbours, including neighbours at other clients.

    Features become the rows of ``P X``, edges are the entries of the whole graph's
    ``P = D^-1/2 (A + I) D^-1/2`` with P as weight, self-loops among them: so degrees are
    the true ones. A ``GCN(..., normalize=False, summed=True)`` reads such a graph as a GCN reads
    the graph before.

    - ``hops=0``: nothing is exchanged; P is made from a client's own subgraph.
    - ``hops=1``: a client has the rows of ``P X`` of its own nodes. Its first convolution is what
      it would be on the whole graph; the second one knows own nodes alone.
    - ``hops=2``: it has the rows of its nodes' neighbours too, as nodes in no mask, with the edges
      into its own nodes. Two convolutions are what they would be on the whole graph.

    The exchange is by way of the server, a row with the id of its node each (a row of `x`'s dtype,
    as if dense): a client sends, for every node of another client with neighbours among its own,
    their part ``sum_u x_u / sqrt(d_u)`` of its sum; the node's client is sent the total. For two
    hops it also sends its own parts for nodes that others have as neighbours, and is sent the sums
    and degrees of its nodes' neighbours elsewhere. The features themselves do not travel, but the
    part of a single neighbour is its features, scaled. The paper encrypts the parts; this does not,
    unless a `total` does: `fgl.transforms.secure_rows`.

    Args:
        graph: the whole graph.
        parts: int64 node ids, one tensor per client; no node is in two of them.
        hops: 0, 1 or 2.
        total: adds up the rows that clients ask for, of the graphs of `asked_rows`, and says what
            each client is told (float64 ``[rows, F + 1]``) and how many bytes that took. With two
            hops clients ask for the rows of their neighbours elsewhere too; the last column of a
            row is its node's degree. Nodes of no client are in no sum. Default: in the open.

    Raises:
        ValueError: if `hops` is another number, parts are not disjoint, or the graph of a `total`
            has weights.

    Example:
        >>> graph = fgl.Graph(torch.eye(3), torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]))
        >>> parts = [torch.tensor([0]), torch.tensor([1, 2])]
        >>> made = neighbour_sums(graph, parts, hops=1)
        >>> made.clients[0].x, made.num_bytes
        (tensor([[0.5000, 0.4082, 0.0000]]), 80)

    Source: Yao et al., FedGCN, https://arxiv.org/abs/2201.12433
    """
    check_choice("hops", hops, (0, 1, 2))
    cut = borders(graph, parts)
    whole = summed(graph)
    if hops == 0:
        return NeighbourSums([summed(graph.subgraph(part)) for part in parts], whole, 0)
    if total is not None:
        return _exchanged(graph, whole, parts, hops, total)
    clients = [whole.subgraph(part) for part in parts]
    if hops == 2:
        each = zip(clients, borders(whole, parts), strict=True)
        clients = [_with_neighbours(own, whole, edges) for own, edges in each]
    return NeighbourSums(clients, whole, _num_bytes(graph, cut, hops))


def summed(graph: Graph) -> Graph:
    """A graph whose features are ``P X`` and whose weighted edges are P, its `gcn_norm`.

    Example:
        >>> graph = fgl.Graph(torch.eye(2), torch.tensor([[0, 1], [1, 0]]))
        >>> summed(graph).x
        tensor([[0.5000, 0.5000],
                [0.5000, 0.5000]])
    """
    x: Any = graph.x
    operator = graph.adj.astype(x.dtype).gcn_norm
    pattern, value = operator.pattern, operator.value
    if isinstance(x, SparseMatrix):
        product = _scipy(operator) @ _scipy(x)
        x = SparseMatrix.from_scipy(product, x.dtype).to(graph.device)
    else:
        x = operator @ x
    edges = torch.stack([pattern.col, pattern.row])
    return graph.replace(x=x, edge_index=edges, edge_weight=value)


def _scipy(matrix: SparseMatrix) -> Any:
    from scipy.sparse import csr_matrix

    pattern = matrix.pattern
    parts = (matrix.values.double(), pattern.col, pattern.crow)
    return csr_matrix(tuple(part.cpu().numpy() for part in parts), shape=matrix.shape)


def _with_neighbours(own: Graph, whole: Graph, cut: Borders) -> Graph:
    """A client's graph with its nodes' neighbours elsewhere, and the edges from these."""
    weight: Any = whole.edge_weight
    ids, place = whole.edge_index[0, cut.edge].unique(return_inverse=True)
    x = rows_of(whole.x, ids)
    edges = torch.stack([own.num_nodes + place, cut.node])
    node_id = ids if whole.node_id is None else whole.node_id[ids]
    return own.append(x, edges, edge_weight=weight[cut.edge], node_id=node_id)


def _exchanged(
    graph: Graph, whole: Graph, parts: Sequence[Tensor], hops: int, total: Total
) -> NeighbourSums:
    """The clients' graphs from the rows that they ask for, and from what each knows itself."""
    cut = borders(whole, parts)
    places = [each.node.unique() for each in cut]
    far = [whole.edge_index[0, each.edge].unique() for each in cut]
    own = [part[place] for part, place in zip(parts, places, strict=True)]
    nodes = [torch.cat(pair) for pair in zip(own, far, strict=True)] if hops == 2 else own
    answers, num_bytes = total(asked_rows(graph, parts, nodes))
    clients = []
    for part, place, ids, edges, rows in zip(parts, places, far, cut, answers, strict=True):
        degree = rows[:, -1:]
        sums = (rows[:, :-1] / degree.sqrt()).to(whole.x.dtype)
        client = whole.subgraph(part)
        x = dense(client.x).index_copy(0, place, sums[: len(place)])
        if hops == 2:
            position = torch.searchsorted(ids, whole.edge_index[0, edges.edge])
            weight = (degree[len(place) + position, 0] * edges.degree[edges.node]).rsqrt()
            into = torch.stack([client.num_nodes + position, edges.node])
            node_id = ids if whole.node_id is None else whole.node_id[ids]
            client = client.append(
                sums[len(place) :], into, edge_weight=weight.to(x.dtype), node_id=node_id
            )
            x = torch.cat([x, sums[len(place) :]])
        sparse = isinstance(whole.x, SparseMatrix)
        clients.append(client.replace(x=SparseMatrix.from_dense(x) if sparse else x))
    return NeighbourSums(clients, whole, num_bytes)


def _num_bytes(graph: Graph, cut: Sequence[Borders], hops: int) -> int:
    """The bytes of the exchange that `neighbour_sums` describes."""

    def different(*columns: Tensor) -> int:
        return int(torch.stack(columns).unique(dim=1).shape[1])

    size: int = graph.x.dtype.itemsize
    row = graph.num_features * size + 8  # the id of a node is an int64
    total = sum(different(each.node, each.client) + different(each.node) for each in cut) * row
    if hops == 1:
        return total
    pairs = [(each.client, each.neighbour) for each in cut]
    num_rows = different(*torch.cat([torch.stack(pair) for pair in pairs], 1))
    return total + num_rows * row + sum(different(*pair) for pair in pairs) * (row + size)
