"""FGGP: each client learns a second view of its graph; the server clusters clients' prototypes."""

import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from .. import federation as fed
from ..aggregate import mean
from ..checks import Count, Positive, reject_if
from ..client_network import finch
from ..client_network.grouping import nearest_rows
from ..federation import Means, Message, Method, Outbox, Params, Ragged, State
from ..graph import Graph
from ..losses import cross_entropy, unit_rows
from ..nn import GCN, observed
from ..sparse import sum_rows
from .fedproto import labelled

AUGMENTOR = "augmentor."  # before the names of the augmentor's two matrices


@fed.layer(checks=[fed.check_averages, fed.check_model_alone, fed.check_one_architecture])
def fggp(
    fedavg: Method, *, neighbours: Count = 3, every: Count = 20, temperature: Positive = 0.5
) -> Method:
    """Train a GCN on two views of each graph; the server clusters class prototypes (FGGP).

    The second view connects each node to the nearest other nodes. These are the nodes whose
    embeddings have the largest cosine with the node's embedding. The received model computes the
    embeddings. After a number of rounds, the nearest nodes are computed again (see `every`). A
    network named augmentor samples the edges of the second view. The augmentor has two convolutions
    with the output R. The augmentor's logits are ``l = R R^T``. The augmentor keeps an edge with
    probability ``(l / max l + A) / 2``, with a straight-through gradient (Eq. 10). The loss is

    ``CE(view 1) + CE(view 2) + BCE(l, A) + align(P_2, P_1)``.

    P_1 and P_2 are the class means of the embeddings in view 1 and view 2. In these means, a
    training node belongs to the class of its label. Any node outside the training mask belongs to
    the class that the model predicts, and the node's weight is the predicted probability. The term
    `align` is a contrastive loss: the two means of one class are a positive pair, and means of
    different classes are negative pairs (Eq. 13). The server averages the clients' models and
    augmentors. Clients also send P_1, their prototypes. The server clusters the prototypes of each
    class (FINCH, Eq. 4 to 6) and sends the means of the clusters. `by_prototypes` predicts with
    these means.

    This method follows the authors' code, with five exceptions. Here `deploy` returns a model, and
    the output of this model is scored. The authors instead score the output of `by_prototypes`,
    which predicts with prototypes from the last rounds. Therefore the authors' last layer starts
    every round from its initial weights. Here the last layer is averaged like all other layers. The
    authors' network has three layers and uses batch norm without parameters. Here the network is a
    `GCN`. Here clients have the weights of `fedavg`. In the authors' code, a client's weight is its
    number of nodes. Here P_1 is computed after training. Here dropout is off while P_1 is computed,
    and while the nearest nodes are found. If a client lacks a class, the authors' code gives wrong
    labels to the client's prototypes of all later classes. Here all prototypes get the correct
    labels.

    Args:
        fedavg: FedAvg built for a task. The task's model must be a `fgl.nn.GCN` that normalises
            edges.
        neighbours: number of nearest other nodes to which the second view connects each node, at
            least 1. The authors use 3.
        every: number of rounds between two searches for nearest nodes, at least 1. Only rounds in
            which the client takes part are counted. The authors use 10 for citation graphs and 20
            for all other graphs.
        temperature: temperature of the alignment, above 0; the authors use 0.5.

    Raises:
        TypeError: if the model is not a `fgl.nn.GCN`.
        ValueError: if a number is out of range, if the server of `fedavg` does not send the mean of
            the models, or if clients train tensors outside the model. The method's functions raise
            a ValueError if a client has no node.

    Example:
        >>> fggp(fgl.fedavg(fgl.nn.GCN(4, 8, 2)), neighbours=2)
        fggp(fedavg(GCN(...), ...), neighbours=2, ...)

    Source: Wan et al. 2024, https://doi.org/10.1609/aaai.v38i14.29468;
    https://github.com/GuanchengWan/FGGP
    """
    model: Any = fedavg.model
    fits = type(model) is GCN and not model.summed and model.convs[0].normalize
    want = "a fgl.nn.GCN that normalises the client's edges, since the second view has other edges"
    reject_if(not fits, f"fggp to be given {want}", type(model).__name__, TypeError)
    first = drawn(fedavg)

    def embed(params: Params, graph: Graph) -> tuple[Tensor, Tensor]:
        own = fed.drop(params, first)
        with fed.in_mode(model, False):
            out, hidden = fed.predict(model, own, graph, return_embedding=True)
        return out, hidden.relu()

    @torch.no_grad()
    def receive(message: Message, state: State, graph: Graph) -> tuple[Params, Any]:
        reject_if(not graph.num_nodes, "fggp's clients to have nodes", "none")
        params, context = fedavg.receive(message, state, graph)
        rounds: Any = state.get("rounds", torch.tensor(0))
        nearest = state.get("near")
        if nearest is None or int(rounds) % every == 0:
            nearest = nearest_rows(embed(params, graph)[1], neighbours)
        sent = message.get("augmentor", first)
        union = Ragged(both_views(graph, nearest))
        round_context = {"union": union, "near": Ragged(nearest), "rounds": rounds}
        return {**params, **sent}, {**context, **round_context}

    def loss(params: Params, graph: Graph, context: Any) -> Tensor:
        own = fed.drop(params, first)
        with observed(model) as passes:
            total = fedavg.loss(own, graph, context)
        matrix = dense(context["union"].values, context["union"].mask, passes[-1].output)
        logits, drawn_edges = augmented(params, graph, matrix)
        other = second_view(model, own, graph, drawn_edges, matrix)
        label, sure = believed(passes[-1].output, graph)
        means = [
            class_means(hidden, label, sure, passes[-1].output.shape[1])
            for hidden in (other[1], passes[-1].embedding.relu())
        ]
        y, weight = labelled(other[0], graph)
        total = total + cross_entropy(other[0], y, weight) + edge_loss(logits, matrix, graph)
        return total + align(*means[0], *means[1], temperature=temperature)

    @torch.no_grad()
    def send(params: Params, context: Any, state: State, graph: Graph) -> tuple[Message, State]:
        own = fed.drop(params, first)
        message, new_state = fedavg.send(own, context, state, graph)
        out, hidden = embed(own, graph)
        rows, has = class_means(hidden, *believed(out, graph), out.shape[1])
        says = {"augmentor": {name: params[name] for name in first}}
        new_state = {**new_state, "rounds": context["rounds"] + 1, "near": context["near"].values}
        return {**message, **says, "prototypes": rows, "classes": has}, new_state

    @torch.no_grad()
    def with_groups(outbox: Outbox, new: State, means: Means, state: State) -> tuple[Outbox, State]:
        if not outbox:
            return outbox, state
        inbox = means.inbox
        augmentor = mean(inbox.each("augmentor"), inbox.stack("num_examples"))
        rows, has = clustered(inbox.stack("prototypes"), inbox.stack("classes"), inbox.num_clients)
        more: Message = {"augmentor": augmentor, "prototypes": rows, "classes": has}
        return fed.changed_messages(outbox, lambda message: {**message, **more}), {**new, **more}

    method = replace(fedavg, receive=receive, loss=loss, send=send)
    method = replace(method, own=replace(fedavg.own, personal=first))
    reads = ("augmentor", "num_examples", "prototypes", "classes")
    return replace(method, aggregate=fed.after(fedavg.aggregate, with_groups, reads=reads))


def drawn(method: Method) -> Params:
    """The augmentor's initial matrices, ``[d, F]`` and ``[d, d]``, the same in every call.

    Example:
        >>> [list(w.shape) for w in drawn(fgl.fedavg(fgl.nn.GCN(4, 8, 2))).values()]
        [[8, 4], [8, 8]]
    """
    like = method.initial()["convs.0.lin.weight"]
    generator = torch.Generator().manual_seed(0)
    sizes = ((len(like), like.shape[1]), (len(like), len(like)))
    each = [2 * torch.rand(size, generator=generator) - 1 for size in sizes]
    return {f"{AUGMENTOR}{i}": (w / math.sqrt(w.shape[1])).to(like) for i, w in enumerate(each)}


def both_views(graph: Graph, nearest: Tensor) -> Tensor:
    """Distinct edges ``[E, 2]``: the edges of the graph, edges to nearest nodes, and self-loops.

    Example:
        >>> graph = fgl.Graph(torch.eye(2), torch.tensor([[0], [1]]))
        >>> both_views(graph, torch.tensor([[1], [0]])).tolist()
        [[0, 0], [0, 1], [1, 0], [1, 1]]
    """
    nodes = torch.arange(graph.num_nodes, device=nearest.device)
    joined = torch.stack([nodes[:, None].expand_as(nearest), nearest], -1).flatten(0, 1)
    edges = torch.cat([graph.edge_index.T, joined, torch.stack([nodes, nodes], 1)])
    once: Tensor = edges.unique(dim=0)
    return once


def dense(edges: Tensor, mask: Tensor, like: Tensor) -> Tensor:
    """The 0-1 matrix ``A[source, target]`` of edges, with the rows and the dtype of `like`."""
    size = like.shape[0]
    return sum_rows(mask.to(like), edges[:, 0] * size + edges[:, 1], size * size).view(size, size)


def uniform_noise(like: Tensor) -> Tensor:
    """Uniform noise in the shape of a matrix."""
    return torch.rand_like(like)


def augmented(params: Params, graph: Graph, matrix: Tensor) -> tuple[Tensor, Tensor]:
    """The augmentor's logits for all pairs of nodes, and edges sampled from the logits (Eq. 10).

    Returns:
        Two tensors, float ``[n, n]``: the logits, and the normalised edges, which have a
        straight-through gradient.
    """
    x: Any = graph.x
    scale = matrix.sum(1).clamp(min=1).rsqrt()
    operator = scale[:, None] * matrix * scale
    hidden = operator @ (x @ params[f"{AUGMENTOR}0"].T)
    hidden = (operator @ (hidden @ params[f"{AUGMENTOR}1"].T)).relu()
    logits = hidden @ hidden.T
    share = (logits / (logits.amax() + 1e-6) + matrix) / 2
    eps = torch.finfo(share.dtype).eps
    noise, share = (each.clamp(eps, 1 - eps) for each in (uniform_noise(share), share))
    soft = (noise.logit() + share.logit()).sigmoid()
    edges = (soft.detach().round() + soft - soft.detach()).triu(1)
    real = graph.node_mask.to(share)
    edges = (edges + edges.T) * real[:, None] * real
    edges = edges + torch.eye(len(edges), dtype=edges.dtype, device=edges.device)
    scale = edges.sum(1).rsqrt()
    return logits, scale[:, None] * edges * scale


def second_view(
    model: GCN, params: Params, graph: Graph, drawn_edges: Tensor, matrix: Tensor
) -> tuple[Tensor, Tensor]:
    """A GCN's logits and embedding; all layers use sampled edges, except for the last layer."""
    h: Any = graph.x
    last = len(model.convs) - 1
    for depth in range(last):
        h = drawn_edges @ (h @ params[f"convs.{depth}.lin.weight"].T)
        h = (h + params[f"convs.{depth}.bias"]).relu()
        embedding = h
        h = F.dropout(h, model.dropout, model.training)
    scale = matrix.sum(0).clamp(min=1).rsqrt()
    h = (scale[:, None] * matrix.T * scale) @ (h @ params[f"convs.{last}.lin.weight"].T)
    return h + params[f"convs.{last}.bias"], embedding


def edge_loss(logits: Tensor, matrix: Tensor, graph: Graph) -> Tensor:
    """Binary cross-entropy of the logits, over all pairs of nodes.

    The edges and the pairs without an edge have equal total weights.
    """
    real = graph.node_mask.to(logits)
    pairs, edges = real.sum() ** 2, matrix.sum()
    free = (pairs - edges).clamp(min=1)
    each = matrix * F.softplus(-logits) * (free / edges) + (1 - matrix) * F.softplus(logits)
    return pairs / (2 * free) * (each * real[:, None] * real).sum() / pairs


def believed(logits: Tensor, graph: Graph) -> tuple[Tensor, Tensor]:
    """Labels and confidences of nodes: true for training nodes, predicted for other nodes.

    Padding has confidence 0.
    """
    y, weight = labelled(logits, graph)
    sure, guess = logits.softmax(1).max(1)
    train = weight > 0
    return torch.where(train, y, guess), torch.where(train, 1, sure) * graph.node_mask


def class_means(
    hidden: Tensor, label: Tensor, sure: Tensor, num_classes: int
) -> tuple[Tensor, Tensor]:
    """Each label's weighted mean of rows, ``[C, d]``, and a mask ``[C]`` of the labels that occur.

    Example:
        >>> class_means(torch.tensor([[1.0], [4.0]]), torch.tensor([1, 1]), torch.ones(2), 2)[1]
        tensor([False,  True])
    """
    one_hot = F.one_hot(label, num_classes).to(hidden.dtype) * sure[:, None]
    total = one_hot.sum(0)
    return (one_hot / (total + 1e-6)).T @ hidden, total > 0


def align(
    one: Tensor, has: Tensor, other: Tensor, _: Tensor, *, temperature: float = 0.5
) -> Tensor:
    """Contrastive loss between the class means of two views, averaged over classes (FGGP, Eq. 13).

    ``-log exp(<a_c, b_c>) / (exp(<a_c, b_c>) + sum_{k != c} exp(<a_c, a_k>) + exp(<a_c, b_k>))``.
    Rows are normalised to length 1, and exponents are divided by the temperature.

    Example:
        >>> rows, has = torch.eye(2), torch.tensor([True, True])
        >>> align(rows, has, rows, has, temperature=1.0)  # log(1 + 2 / e)
        tensor(0.5514)
    """
    a, b = unit_rows(one), unit_rows(other)
    within, across = a @ a.T / temperature, a @ b.T / temperature
    self_ = torch.eye(len(a), dtype=torch.bool, device=a.device)
    both = torch.cat([within.masked_fill(self_ | ~has, -torch.inf),
                      across.masked_fill(~has, -torch.inf)], 1)  # fmt: skip
    both = torch.where(has[:, None], both, 0)
    return ((both.logsumexp(1) - across.diagonal()) * has).sum() / has.sum().clamp(min=1)


def clustered(rows: Tensor, has: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """Cluster each class's prototypes; return means ``[C, most, d]`` of clusters, and a mask.

    Args:
        rows: float ``[K, C, d]``, the clients' prototypes.
        has: bool ``[K, C]``, True for each prototype that exists.
        most: largest number of clusters of a class, at least K.

    Example:
        >>> rows = torch.tensor([[[1.0, 0.0]], [[1.0, 0.2]]])
        >>> clustered(rows, torch.ones(2, 1, dtype=torch.bool), 3)[1]
        tensor([[ True, False, False]])
    """
    centres = rows.new_zeros(rows.shape[1], most, rows.shape[2])
    present = torch.zeros(centres.shape[:2], dtype=torch.bool, device=rows.device)
    for c in range(len(centres)):
        own = rows[has[:, c], c]
        if len(own):
            cluster = finch(own)
            size = int(cluster.max()) + 1
            centres[c, :size] = torch.stack([own[cluster == k].mean(0) for k in range(size)])
            present[c, :size] = True
    return centres, present


def by_prototypes(
    embedding: Tensor, rows: Tensor, has: Tensor, *, k: int = 30, temperature: float = 0.1
) -> Tensor:
    """Class scores: the k nearest prototypes vote with weights ``exp(cos / temperature)``.

    Args:
        embedding: float ``[n, d]``.
        rows: float ``[C, M, d]``, prototypes.
        has: bool ``[C, M]``, True for each prototype that exists.
        k: number of nearest prototypes that vote; if there are fewer than k, all of them vote.
        temperature: above 0.

    Example:
        >>> rows, has = torch.eye(2)[:, None], torch.ones(2, 1, dtype=torch.bool)
        >>> by_prototypes(torch.tensor([[0.9, 0.1]]), rows, has).argmax(1)
        tensor([0])
    """
    classes = has.nonzero()[:, 0]
    cosine = unit_rows(embedding) @ unit_rows(rows[has]).T
    value, index = cosine.topk(min(k, cosine.shape[1]), dim=1)
    share = (value / temperature).softmax(1)
    return share.new_zeros(len(share), len(rows)).scatter_add(1, classes[index], share)
