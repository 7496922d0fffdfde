"""S2FGL: two terms of a client's loss align its embeddings with those of the received model."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from .. import federation as fed
from ..checks import Count, PositiveShare, Share, Weight
from ..federation import Means, Message, Method, Outbox, Params, Ragged, State
from ..graph import Graph
from ..losses.weighted_mean import weighted_mean
from ..nn import observed
from ..sparse import gather_rows
from .fedproto import mean_prototypes, prototypes
from .inputs import check_prototypes, check_sees_all, embedder

RAMP = 1e-6  # separates eigenvectors of the same eigenvalue


@fed.layer(checks=[fed.check_averages, fed.check_one_architecture])
def s2fgl(
    fedavg: Method,
    *,
    knowledge: Weight = 5.0,
    alignment: Weight = 1.0,
    frequencies: Count = 10,
    neighbours: Count = 3,
    books: Count = 4,
    book_share: PositiveShare = 0.7,
    restart: Share = 0.85,
) -> Method:
    """FedAvg that aligns a client's embeddings with those of the received model (S2FGL).

    A client ranks its nodes by ``max_j P_ij t_j + restart sum_j P_ij t_j``. Here
    ``P = (I - (1 - restart) D^-1 A)^-1``. The value t_j is 1 if node j is a training node, and 0
    otherwise. The client then looks at the first third of the ranked nodes. For each class, the
    client sends the number and the mean embedding of the nodes of this class. The server computes
    `books` codebooks. For each codebook, a random fraction of the clients is sampled. A row of the
    codebook is the mean embedding of one class over these clients, or 0 if none of them has the
    class. Let c run over all rows of all codebooks, let h be a client's embeddings, and let g be
    the embeddings of the received model. From the second round on, the loss is

    ``CE + knowledge mean_i KL(softmax_c cos(g_i, c), softmax_c cos(h_i, c)) + alignment A(h, g)``,

    ``A = sum_f mean (v_f v_f^T h - u_f u_f^T g)^2`` over the first fifth of the ranked nodes. The
    vectors v_f are eigenvectors of a similarity graph's Laplacian: the first `frequencies` and the
    last `frequencies`. The similarity graph connects each node to itself and to the `neighbours`
    nodes whose embeddings h have the largest cosine with the node's own embedding. The cosines are
    the weights of the edges. The vectors u_f are the corresponding eigenvectors for g. No gradient
    flows through the eigenvectors.

    The public code passes the Laplacian of a directed graph to a solver for symmetric matrices. So
    the results are not eigenvectors, and they differ from call to call. Here an edge has one
    weight: the average over the edge's two directions. Several eigenvectors can have the same
    eigenvalue, such as 0 for a graph with several components. To make these eigenvectors unique, a
    number between 0 and 1e-6 is added to each diagonal entry of the Laplacian. This number grows
    with the node's index. So the eigenvectors with eigenvalue 0 are the same for h and for g if
    both similarity graphs have the same components. In the public code, h and g have different
    eigenvectors with eigenvalue 0. This is one reason why A is smaller here than in the public
    code, and why the gradient of A differs. If a client has fewer nodes than `frequencies`, its
    number of nodes is used instead. The public code raises an error if the first fifth of the
    ranked nodes has at most `frequencies` nodes. The public code also raises an error for clients
    without training nodes. Here a client without training nodes does not change its model. For such
    a client, CE is 0, and the other two terms of the loss are at their minimum when training
    starts. So the exact gradient is 0. Here the loss of such a client is set to 0, since Adam would
    otherwise make full steps from rounding errors in the gradient.

    A codebook of the public code uses the labels of all nodes in the first third of the ranking,
    and these can be validation and test nodes. Here a codebook uses only labels of training nodes.
    Both versions use the same labels if at least a third of the client's nodes are training nodes,
    since training nodes have the first ranks. In the public code, the number of rows of a codebook
    depends on the largest label of the first client. Classes with larger labels have no row. The
    public code computes a client's embeddings before the last training step, with dropout. Here the
    embeddings are computed with the trained model that the client sends, without dropout. In the
    public code, a client's weight is its number of nodes. But the server of the public code
    shuffles the list of clients without shuffling the list of weights. So a client can get the
    weight of another client. The public code also computes other weights, from the distances
    between test nodes and training nodes (``LPS``), but does not use them. The public code applies
    dropout during evaluation. The network of the public code is an ACM-GCN with a linear head. Here
    the task determines the clients' weights and the network.

    The public script trains with SGD (learning rate .2), 10 steps, a width of 128 and dropout .1.

    Args:
        fedavg: FedAvg built for a task; the server must send the mean of the models. The model must
            take ``return_embedding=True``, and the loss must see all nodes in each step.
        knowledge: weight of the term with the codebooks. The public code uses .05 times 100, which
            is 5.
        alignment: weight of A.
        frequencies: number of eigenvectors with small eigenvalues; equally many eigenvectors with
            large eigenvalues are used.
        neighbours: number of neighbours of each node in the similarity graph. The node itself is
            not counted.
        books: number of codebooks.
        book_share: fraction of the clients that the server samples for each codebook, at least one
            client. The codebook contains averages over these clients.
        restart: alpha of the ranking, between 0 and 1.

    Raises:
        TypeError: if the model has no embeddings.
        ValueError: if a number is out of range, or if the server of `fedavg` does not send the mean
            of the models. The method's functions raise a ValueError if a client holds a collection,
            or if a client trains on sampled nodes.

    Example:
        >>> s2fgl(fgl.fedavg(fgl.nn.GCN(4, 8, 2)), books=2)
        s2fgl(fedavg(GCN(...), ...), books=2, ...)

    Source: Tan et al. 2025, https://arxiv.org/abs/2507.02409;
    https://github.com/Wonder7racer/S2FGL
    """
    embed = embedder(fedavg.model)

    @torch.no_grad()
    def receive(message: Message, state: State, graph: Graph) -> tuple[Params, Any]:
        params, context = fedavg.receive(message, state, graph)
        ranking = state["ranking"] if "ranking" in state else ranked(graph, restart=restart)
        context = {**context, "ranking": Ragged(ranking)}
        if "books" not in message:
            return params, context
        focus = ranking[: len(ranking) // 5]
        before = embed(params, graph)
        book = {"books": message["books"], "before": Ragged(before), "focus": Ragged(focus)}
        return params, {**context, **book}

    def loss(params: Params, graph: Graph, context: Any) -> Tensor:
        if "books" not in context:
            return fedavg.loss(params, graph, context)
        with observed(fedavg.model) as passes:
            total = fedavg.loss(params, graph, context)
        h, g, focus = passes[-1].embedding, context["before"].values, context["focus"]
        check_sees_all("s2fgl", len(h), len(g))
        book_loss = by_book(h, g, context["books"].flatten(0, 1), context["before"].mask)
        some = graph.training_mask.any().to(total.dtype)  # else gradients are rounding
        total = total + some * knowledge * book_loss
        if not len(focus):
            return total
        h, g = gather_rows(h, focus.values), gather_rows(g, focus.values)
        apart = by_frequency(h, g, focus.mask, frequencies=frequencies, neighbours=neighbours)
        return total + some * alignment * apart

    @torch.no_grad()
    def send(params: Params, context: Any, state: State, graph: Graph) -> tuple[Message, State]:
        message, new_state = fedavg.send(params, context, state, graph)
        ranking = context["ranking"].values
        chosen = torch.zeros_like(graph.node_mask)
        chosen[ranking[: len(ranking) // 3]] = True
        read = graph.replace(train_mask=chosen & graph.training_mask, val_mask=None, test_mask=None)
        rows, _ = prototypes(embed(params, graph), read)
        count = graph.labels[read.training_mask].bincount(minlength=len(rows))
        return {**message, "prototypes": rows, "counts": count}, {**new_state, "ranking": ranking}

    def accept(message: Message, client: int, state: State) -> None:
        fedavg.accept(message, client, state)
        check_prototypes(message, fedavg.rules.max_examples)

    @torch.no_grad()
    def with_books(outbox: Outbox, new: State, means: Means, state: State) -> tuple[Outbox, State]:
        if not outbox:
            return outbox, new
        rows, count = means.inbox.stack("prototypes"), means.inbox.stack("counts")
        number = max(1, int(book_share * len(rows)))
        draws = [torch.randperm(len(rows), device=rows.device)[:number] for _ in range(books)]
        new_books = torch.stack([mean_prototypes(rows[drawn], count[drawn])[0] for drawn in draws])
        messages = fed.changed_messages(outbox, lambda message: {**message, "books": new_books})
        return messages, {**new, "books": new_books}

    aggregate = fed.after(fedavg.aggregate, with_books, reads=("prototypes", "counts"))
    return replace(
        fedavg, receive=receive, loss=loss, send=send, accept=accept, aggregate=aggregate
    )


def ranked(graph: Graph, *, restart: float = 0.85) -> Tensor:
    """Nodes sorted by their proximity to training nodes, nearest first, int64 ``[num_nodes]``.

    Args:
        graph: one graph. A dense matrix ``[num_nodes, num_nodes]`` is inverted.
        restart: alpha.

    Raises:
        ValueError: if the graph is a collection, or if the examples are pairs of nodes.

    Example:
        >>> edges = torch.tensor([[0, 1], [1, 0]])
        >>> y, mask = torch.tensor([0, 1, 0]), torch.tensor([False, True, False])
        >>> ranked(fgl.Graph(torch.eye(3), edges, y=y, train_mask=mask))
        tensor([1, 0, 2])
    """
    if not graph.num_nodes:
        return torch.arange(0, device=graph.device)
    labelled = graph.train_labels >= 0
    # As in the public code, rows are sources and an edge's value is 1.
    matrix = (graph.adj.T.to_dense() != 0).double()
    walk = matrix / (matrix.sum(1, keepdim=True) + 1e-6)
    closeness = torch.linalg.inv(torch.eye(len(walk)).to(walk) - (1 - restart) * walk)
    score: Tensor = (closeness * labelled).amax(1) + restart * (closeness * labelled).sum(1)
    return score.argsort(descending=True, stable=True)


def by_book(h: Tensor, g: Tensor, rows: Tensor, mask: Tensor) -> Tensor:
    """Mean of ``KL(p(g_i) || p(h_i))`` over the nodes i (the codebook term of S2FGL).

    ``p(h_i)`` is the softmax of the cosines between the embedding h_i and the rows of a codebook.

    Args:
        h: float ``[n, d]``.
        g: float ``[n, d]``, without a gradient.
        rows: float ``[R, d]``.
        mask: bool ``[n]``, True for each node that is not padding.

    Example:
        >>> by_book(torch.eye(2), torch.eye(2), torch.eye(2), torch.ones(2, dtype=torch.bool))
        tensor(0.)
    """
    teacher, student = ((cosines(each, rows)).log_softmax(1) for each in (g.detach(), h))
    return weighted_mean((teacher.exp() * (teacher - student)).sum(1), mask)


def by_frequency(
    h: Tensor, g: Tensor, mask: Tensor, *, frequencies: int, neighbours: int
) -> Tensor:
    """Distance between projections of h and g onto Laplacian eigenvectors (term A of S2FGL).

    ``sum_f mean (v_f v_f^T h - u_f u_f^T g)^2`` (see `s2fgl`).

    Args:
        h: float ``[m, d]``.
        g: float ``[m, d]``, without a gradient.
        mask: bool ``[m]``, True for each node that is not padding.
        frequencies: number of eigenvectors with the smallest eigenvalues. Equally many eigenvectors
            with the largest eigenvalues are used too. If there are fewer eigenvectors, all are
            used.
        neighbours: number of neighbours of a node in the similarity graph.

    Example:
        >>> x = torch.rand(6, 3)
        >>> there = torch.ones(6, dtype=torch.bool)
        >>> by_frequency(x, x, there, frequencies=2, neighbours=3)
        tensor(0.)
    """
    h, g = (torch.where(mask[:, None], each, 0) for each in (h, g.detach()))
    first = torch.arange(min(frequencies, len(h)), device=h.device)
    last = mask.sum() - 1 - first
    taken = torch.cat([first, last.clamp(min=0)])
    present = torch.cat([first < mask.sum(), last >= 0])
    parts = []
    for each in (h, g):
        vectors = eigenvectors(each.detach(), mask, neighbours).index_select(1, taken).to(h)
        parts.append(vectors.T[:, :, None] * (vectors.T @ each)[:, None])
    apart = (parts[0] - parts[1]).square().mean(2) * mask
    return (apart.sum(1) / mask.sum().clamp(min=1) * present).sum()


def eigenvectors(x: Tensor, mask: Tensor, neighbours: int) -> Tensor:
    """Eigenvectors of a similarity graph's Laplacian, sorted by eigenvalue; padding comes last.

    Args:
        x: float ``[m, d]``.
        mask: bool ``[m]``, True for each node that is not padding.
        neighbours: number of most similar nodes to which each node is connected. The node itself is
            not counted.

    Returns:
        float64 ``[m, m]``, one eigenvector per column.
    """
    x = x.double()
    cosine = torch.where(mask, cosines(x, x), -2)
    nearest = cosine.topk(min(neighbours + 1, len(x)), dim=1)
    weight = torch.zeros_like(cosine).scatter(1, nearest.indices, nearest.values)
    weight = torch.where(mask & mask[:, None], weight, 0)
    weight = (weight + weight.T) / 2
    degree = weight.sum(1)
    ramp = RAMP * torch.arange(len(x), device=x.device) / mask.sum().clamp(min=1)
    padding = torch.where(mask, 0, 4 * (1 + degree.abs().amax()))
    vectors: Tensor = torch.linalg.eigh(torch.diag(degree + ramp + padding) - weight)[1]
    return vectors


def cosines(x: Tensor, y: Tensor) -> Tensor:
    """The cosines of all pairs of rows, float ``[n, m]``.

    All cosines of a row of zeros are 0.
    """
    unit, other = (torch.nn.functional.normalize(each, dim=1, eps=1e-8) for each in (x, y))
    return unit @ other.T
