"""Sums of neighbours' features over all clients, which FedGCN exchanges before it trains.

`borders` are the edges that a partition cuts; `asked_rows` the rows that clients ask for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from ..checks import reject_if
from ..graph import Graph
from ..graph.checks import check_index
from ..graph.windows import check_no_series
from ..kinds import typed
from ..sparse import SparseMatrix
from ..sparse.matrix import dense, rows_of


class Borders(NamedTuple):
    """The edges into one client's nodes that come from other clients, and its nodes' degrees.

    Args:
        edge: int64 ``[m]``, which edges of the whole graph they are.
        node: int64 ``[m]``, the client's own node, its place in the client's part.
        client: int64 ``[m]``, whose the other node is.
        neighbour: int64 ``[m]``, the other node, its place in that client's part.
        degree: int64 ``[num_nodes]``, the edges into each own node in the whole graph.

    Example:
        >>> none = torch.zeros(0, dtype=torch.int64)
        >>> Borders(none, none, none, none, torch.tensor([2])).degree
        tensor([2])
    """

    edge: Tensor
    node: Tensor
    client: Tensor
    neighbour: Tensor
    degree: Tensor


@typed
def borders(graph: Graph, parts: Sequence[Tensor]) -> list[Borders]:
    """Edges into each client of a disjoint partition that come from other clients.

    An undirected edge is two, one into each of its ends, so both clients have it. An edge from a
    node that no client holds is no border, but counts in the degree.

    Args:
        graph: the whole graph.
        parts: int64 node ids, one tensor per client; no node is in two of them.

    Returns:
        One `Borders` per client, in the order of the graph's edges.

    Raises:
        TypeError: if a part is not int64.
        ValueError: if a node id is out of range, or in two parts or twice in one.

    Example:
        >>> graph = fgl.Graph(torch.ones(3, 1), torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]))
        >>> first, second = borders(graph, [torch.tensor([0, 1]), torch.tensor([2])])
        >>> first.node, first.client, first.neighbour, first.degree
        (tensor([1]), tensor([1]), tensor([0]), tensor([1, 2]))

    Source: the cross-client edges of Yao et al., FedGCN, https://arxiv.org/abs/2201.12433
    """
    owner = torch.full((graph.num_nodes,), -1, dtype=torch.int64, device=graph.device)
    place = torch.full_like(owner, -1)
    for client, part in enumerate(parts):
        check_index("parts", part, (None,), graph.num_nodes)
        if part.unique().numel() != part.numel() or (owner[part] >= 0).any():
            raise ValueError("Expected parts to be disjoint, but got a node twice")
        owner[part] = client
        place[part] = torch.arange(part.numel(), device=graph.device)
    source, target = graph.edge_index
    degree = target.bincount(minlength=graph.num_nodes)
    cut = (owner[source] >= 0) & (owner[source] != owner[target])
    sides = []
    for client, part in enumerate(parts):
        edge = (cut & (owner[target] == client)).nonzero().squeeze(1)
        far = source[edge]
        sides.append(Borders(edge, place[target[edge]], owner[far], place[far], degree[part]))
    return sides


Total = Callable[[Sequence[Graph]], tuple[Sequence[Tensor], int]]


@typed
def asked_rows(graph: Graph, parts: Sequence[Tensor], asked: Sequence[Tensor]) -> list[Graph]:
    """Graphs of what each client adds to the rows that all clients ask for.

    Row (k, v) is ``sum_u [x_u / sqrt(d_u), 1]`` over node v, which client k asks for, and its
    neighbours u, with ``d_u`` the edges into u and one. A client's graph has its own nodes, then a
    node without features for each row; edges go from own nodes into the rows that they belong to.
    So what the client adds is ``adj @ x`` of those rows.

    Args:
        graph: the whole graph, without weights.
        parts: int64 node ids, one tensor per client.
        asked: int64 node ids, those whose sums each client asks for.

    Returns:
        A graph per client, with float64 features ``[n + R, F + 1]``; `train_mask` are its own rows.

    Raises:
        ValueError: if the graph has weights.

    Example:
        >>> graph = fgl.Graph(torch.eye(2), torch.tensor([[0, 1], [1, 0]]))
        >>> one, two = asked_rows(graph, [torch.tensor([0]), torch.tensor([1])],
        ...                       [torch.tensor([0]), torch.tensor([], dtype=torch.int64)])
        >>> (two.adj.astype(torch.float64) @ two.x)[1]
        tensor([0.0000, 0.7071, 1.0000], dtype=torch.float64)

    Source: Yao et al., FedGCN, https://arxiv.org/abs/2201.12433
    """
    reject_if(graph.edge_weight is not None, "a graph without edge_weight", "one with it")
    source, target = graph.edge_index
    degree = target.bincount(minlength=graph.num_nodes) + 1
    owner, place = torch.full_like(degree, -1), torch.zeros_like(degree)
    for client, part in enumerate(parts):
        owner[part] = client
        place[part] = torch.arange(part.numel(), device=graph.device)
    rows = torch.cat(list(asked))
    # Edges into the nodes of the rows, each node with itself: as often as it is asked for.
    order = target.argsort(stable=True)
    counts = degree - 1
    first = counts.cumsum(0) - counts
    row = torch.arange(len(rows), device=graph.device).repeat_interleave(counts[rows])
    step = torch.arange(len(row), device=graph.device)
    start = first[rows] - (counts[rows].cumsum(0) - counts[rows])
    into = source[order[step + start.repeat_interleave(counts[rows])]]
    into = torch.cat([into, rows])
    row = torch.cat([row, torch.arange(len(rows), device=graph.device)])
    wanting = torch.arange(len(parts), device=graph.device).repeat_interleave(
        torch.tensor([len(ids) for ids in asked], device=graph.device)
    )
    uploads = []
    for client, part in enumerate(parts):
        own = owner[into] == client
        x = dense(graph.x)[part].double() / degree[part].sqrt()[:, None]
        x = torch.cat([x, torch.ones_like(x[:, :1])], 1)
        x = torch.cat([x, x.new_zeros(len(rows), x.shape[1])])
        edges = torch.stack([place[into[own]], part.numel() + row[own]])
        mask = torch.cat([torch.zeros_like(part, dtype=torch.bool), wanting == client])
        uploads.append(Graph(x, edges, train_mask=mask))
    return uploads


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
    graph: Graph, parts: Sequence[Tensor], *, hops: Literal[0, 1, 2], total: Total | None = None
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
    check_no_series(graph, "neighbour_sums")
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
