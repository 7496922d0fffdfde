"""Sums of neighbours' features, which FedGCN's clients exchange before training.

`borders` returns the edges that a partition cuts. `asked_rows` returns one graph per client.
Multiplication by the adjacency of this graph gives the client's part of the sums.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from ..checks import check_index, reject_if
from ..graph import Graph
from ..graph.windows import check_no_series
from ..sparse import SparseMatrix
from ..sparse.gather import ranges
from ..sparse.matrix import dense, rows_of


class Borders(NamedTuple):
    """Edges into a client's nodes from other clients, and the degrees of the client's nodes.

    Args:
        edge: int64 ``[m]``, ids of the edges in the whole graph.
        node: int64 ``[m]``, the target of each edge. The target is a node of this client, given as
            an index into this client's part.
        client: int64 ``[m]``, the client that holds the edge's source.
        neighbour: int64 ``[m]``, the source of each edge. The source is a node of another client,
            given as an index into that client's part.
        degree: int64 ``[num_nodes]``, the in-degree that each node of this client has in the whole
            graph.

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


def borders(graph: Graph, parts: Sequence[Tensor]) -> list[Borders]:
    """Find the edges into each client from all other clients; clients must be disjoint.

    An undirected edge is stored as two edges, one per direction. If the two ends belong to
    different clients, each client gets the stored edge that leads to its own node. An edge from a
    node that no client holds is not returned, but the target's degree counts this edge.

    Args:
        graph: the whole graph.
        parts: int64 node ids, one tensor per client. No node may be in two parts.

    Returns:
        One `Borders` per client. The edges in a `Borders` have the order of the graph's edges.

    Raises:
        TypeError: if a part is not int64.
        ValueError: if a node id is out of range, or if a node id occurs twice.

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
        wrong = part.unique().numel() != part.numel() or (owner[part] >= 0).any()
        reject_if(wrong, "parts to be disjoint", "a node twice")
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


def asked_rows(graph: Graph, parts: Sequence[Tensor], asked: Sequence[Tensor]) -> list[Graph]:
    """Build one graph per client; a product with its adjacency gives the client's part of the sums.

    Client k requests a row for a node v. This row (k, v) is ``sum_u [x_u / sqrt(d_u), 1]``, where u
    runs over v and the neighbours of v, and ``d_u`` is 1 plus the in-degree of u. A client's graph
    has the client's own nodes, followed by one added node for each row that any client requests.
    The added nodes have only zeros as features. An edge leads from a client's node u to the added
    node for row (k, v) if u occurs in the sum of this row. The client's part of the sums is
    ``adj @ x``, restricted to the added nodes.

    Args:
        graph: the whole graph, without weights.
        parts: int64 node ids, one tensor per client.
        asked: int64 node ids, one tensor per client: the nodes whose sums the client requests.

    Returns:
        One graph per client, with float64 features ``[n + R, F + 1]``. Here n is the number of the
        client's own nodes, and R is the number of rows that all clients request. The `train_mask`
        of a client's graph marks the rows that this client requests.

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
    # Edges into the nodes of the rows, with self-loops, repeated for each request of a node.
    order = target.argsort(stable=True)
    counts = degree - 1
    first = counts.cumsum(0) - counts
    index, row = ranges(first[rows], counts[rows])
    into = source[order[index]]
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
    """Graphs of FedGCN's clients after the exchange of sums.

    Args:
        clients: one graph per client. The features of the graph are the sums, and its edges and
            edge weights are the entries of the operator P.
        whole: the whole graph, whose features and edges are replaced in the same way.
        num_bytes: bytes that the exchange sent to and from all clients.

    Example:
        >>> graph = fgl.Graph(torch.eye(2), torch.tensor([[0, 1], [1, 0]]))
        >>> made = neighbour_sums(graph, [torch.tensor([0, 1])], hops=1)
        >>> NeighbourSums(*made).num_bytes
        0
    """

    clients: list[Graph]
    whole: Graph
    num_bytes: int


def neighbour_sums(
    graph: Graph, parts: Sequence[Tensor], *, hops: Literal[0, 1, 2], total: Total | None = None
) -> NeighbourSums:
    """Sum the features of each node's neighbours, including neighbours held by other clients.

    Let ``P = D^-1/2 (A + I) D^-1/2`` be the normalised adjacency of the whole graph. The new
    features are rows of ``P X``. Each nonzero entry of P becomes an edge, and the value of the
    entry becomes the edge's weight. The edges include self-loops. The degrees in P are therefore
    degrees in the whole graph. A ``GCN(..., normalize=False, summed=True)`` on the result equals a
    GCN on the original graph.

    - ``hops=0``: nothing is exchanged; each client computes P from its own subgraph.
    - ``hops=1``: a client gets the rows of ``P X`` for its own nodes. The first convolution gives
      the same result as on the whole graph. The second convolution reads no nodes of other clients.
    - ``hops=2``: a client also gets the rows of its nodes' neighbours. The neighbours, and the
      edges from them to the client's own nodes, are added to the client's graph. All masks are
      False for these neighbours. Two convolutions give the same result as on the whole graph.

    All rows go through the server. Each row is sent with the id of its node. Rows are dense and
    have the dtype of `x`. Suppose that client A holds a node v, and client B holds neighbours u of
    v. Client B then sends ``sum_u x_u / sqrt(d_u)``, which is B's part of the sum for v. The server
    adds up the parts of all clients, and sends the total to client A. With two hops, client A also
    requests the sum and the degree of each neighbour u of its nodes. All clients, including client
    A, then send their parts of the sum for u. Features of individual nodes are not sent, with one
    exception: if v has only one neighbour at B, then B's part equals the scaled features of this
    neighbour. In the paper, clients encrypt their parts of a sum. This function sends these parts
    without encryption, unless `total` encrypts them, as `fgl.transforms.secure_rows` does.

    Args:
        graph: the whole graph.
        parts: int64 node ids, one tensor per client. No node may be in two parts.
        hops: 0, 1 or 2.
        total: a function that adds up the clients' parts of the requested rows. The only argument
            of `total` is the list of graphs that `asked_rows` returns. The function `total` returns
            two values: the rows for each client (float64 ``[rows, F + 1]``), and the number of
            bytes sent. With two hops, clients also request the rows of their neighbours at other
            clients. The last entry of a row is the degree of the row's node. The sums do not
            include nodes that no client holds. By default the rows are added without encryption.

    Raises:
        ValueError: if `hops` is below 0 or above 2, if a node is in two parts, or if `total` is
            given and the graph has weights.

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
    """Replace a graph's features by ``P X`` and the edges by P's entries; `gcn_norm` computes P.

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
    """Extend a client's graph by adjacent nodes of other clients and the edges from these nodes."""
    weight: Any = whole.edge_weight
    ids, place = whole.edge_index[0, cut.edge].unique(return_inverse=True)
    x = rows_of(whole.x, ids)
    edges = torch.stack([own.num_nodes + place, cut.node])
    node_id = ids if whole.node_id is None else whole.node_id[ids]
    return own.append(x, edges, edge_weight=weight[cut.edge], node_id=node_id)


def _exchanged(
    graph: Graph, whole: Graph, parts: Sequence[Tensor], hops: int, total: Total
) -> NeighbourSums:
    """Build each client's graph from the rows that it requests and from its own data."""
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
    """Number of bytes sent in the exchange that `neighbour_sums` describes."""

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
