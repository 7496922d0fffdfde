"""FedDEP: generated embeddings of missing neighbours, learned from other clients' prototypes."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn.functional import smooth_l1_loss

from .. import federation as fed
from ..checks import Count, Natural, Share, Weight, reject_if
from ..federation import Means, Message, Method, OptimizerFactory, Outbox, Params, Ragged, State
from ..graph import Graph
from ..graph.neighbours import hidden_neighbours
from ..losses import cross_entropy, nearest_features
from ..losses.weighted_mean import weighted_mean
from ..nn import DeepNeighbours
from ..nn.deep_neighbours import fused
from .adafgl import within
from .fedper import fedper
from .grouped_embeddings import grouped
from .inputs import check_one_graph, check_prototypes, latest_uploads, network_of

KEYS = ("prototypes", "counts")  # entries that a client sends besides its classifier
Targets = Literal["drawn", "nearest"]


@fed.layer(checks=[fed.check_averages, fed.check_one_architecture])
def feddep(
    fedavg: Method,
    *,
    num_prototypes: Count = 5,
    encoder_epochs: Natural = 30,
    gen_local_epochs: Natural = 1,
    gen_epochs: Natural = 200,
    gen_hide: Share = 0.5,
    count_weight: Weight = 1.0,
    embedding_weight: Weight = 1.0,
    label_weight: Weight = 1.0,
    targets: Targets = "drawn",
) -> Method:
    """FedAvg of a classifier that also reads embeddings generated for missing neighbours (FedDEP).

    The model is a `fgl.nn.DeepNeighbours`. In its first round, a client trains an encoder locally
    (`DeepEncoder`). The client uses Adam on minibatches of 64 nodes, with 5 sampled neighbours per
    node and layer. The client then groups its nodes by k-means on their embeddings. The mean
    embeddings of the groups are the client's prototypes. The client sends the prototypes and the
    number of nodes in each group. The mean of a node's group then replaces the node's embedding.
    The server forwards the prototypes of each client to all other clients. A client that receives
    prototypes trains its generator in two stages. In the first stage, the client hides a fraction
    of its validation nodes and minimises ``L = a SmoothL1(c, m) + b near(z, hidden) + l CE`` over
    training nodes. The three terms compare predictions with three targets: numbers of hidden
    neighbours, embeddings of hidden neighbours, and labels. In the second stage, only the layers
    that generate embeddings are trained further, with the loss
    ``(L + b sum_j near(z, prototypes of j)) / K``. The sum is over the clients j whose prototypes
    arrived. K is the number of these clients, plus 1 for the client itself. Each term of the sum is
    computed from all nodes. For each generated neighbour in z, ``near(z, e)`` takes the squared
    distance to the nearest embedding in e, averaged over entries (`fgl.losses.nearest_features`).
    Classifiers are averaged in all rounds. Clients do not send generators, and each client uses its
    own generator.

    The public code uses the protocol of FedSage+: a client sends its generator and the generator's
    inputs to all other clients, and these clients return gradients. A client's data influence the
    returned gradients only through the client's prototypes. So here clients send prototypes, and
    each client itself computes the gradients that the other clients would return, as in the paper's
    abstract ("pseudo-FL"). As in the public code, two softmaxes are applied in a row: one to the
    encoder's output, and one inside the cross-entropy. The generator also predicts how many
    neighbours a node lacks. This predicted number is rounded to the nearest integer when neighbours
    are generated for a graph, and when generated embeddings are compared with hidden neighbours.
    The predicted number of neighbours is rounded down when generated embeddings are compared with
    prototypes. Here the input of each layer is the output of the previous layer. In the paper's
    appendix, the input of each layer is the embedding. A node's embedding is the mean over P slots,
    including empty slots.

    The clustering differs from the clustering in the public code. Here k-means runs on the
    encoder's embeddings. The public code applies k-means and then DEC to the embeddings of a
    stacked autoencoder. Here the prototype of a sampled node is used. The public code sometimes
    uses the prototype of a hidden neighbour instead. The public code also ignores a prototype if
    the sum of the prototype's entries is negative. Here each step counts the gradient of ``L``
    once, and the public code counts it twice. Here a step samples the generator's noise once for
    the comparisons with all clients j. The public code also adds the gradients for one client to
    the gradients for the next client. Here every forward pass generates neighbours for the whole
    graph, without noise or dropout. The public code generates these neighbours only once, in
    training mode and after nodes were hidden. The public code also computes scores on graphs
    without generated neighbours. All clients start from the same generator. Clients do not send
    counts of missing neighbours, since no client uses these counts. When embeddings are computed,
    both layers of the encoder use the same sample of neighbours. The term ``l CE`` is computed with
    a copy of the classifier that the client receives after the first round. In the public code,
    this term uses the generator's own classifier, which is randomly initialised. Here and in the
    public code, this classifier is trained for `gen_local_epochs` steps and then discarded. So
    classifiers are trained for one round before any neighbour is generated. Here the optimiser of a
    generator keeps its state from step to step. The public code creates a new optimiser (SGD with
    learning rate .1) in each step. The published 200 epochs correspond to 100 exchanges of two
    steps. The public code trains the classifier on minibatches of 64 nodes with 5 sampled
    neighbours per layer; here the task defines the minibatches. Unlike the paper, this
    implementation does not claim differential privacy of edges.

    Args:
        fedavg: FedAvg built for a task; the server must send the mean of the models. Generators
            also use the optimiser of `fedavg`.
        num_prototypes: number of groups of a client's embeddings; 5 in the public code.
        encoder_epochs: passes of the encoder over the training nodes.
        gen_local_epochs: number of steps in the first stage. These steps train the whole generator
            and a copy of the classifier, and use no prototypes.
        gen_epochs: number of steps in the second stage. These steps train only the layers for
            embeddings, and use other clients' prototypes.
        gen_hide: fraction of the validation nodes to hide.
        count_weight: a.
        embedding_weight: b.
        label_weight: l.
        targets: the prototypes of another client with which each generated neighbour is compared.
            ``"nearest"``: the nearest prototype. ``"drawn"``: the prototype of a sampled node of
            the other client.

    Raises:
        ValueError: if a number is out of range, if the model is not a `fgl.nn.DeepNeighbours`, or
            if the server of `fedavg` does not send the mean of the models. The method's functions
            raise a ValueError if a client holds a collection, has no labels, or has no validation
            mask.

    Example:
        >>> feddep(fgl.fedavg(fgl.nn.DeepNeighbours(4, 8, 2)), gen_epochs=20)
        feddep(fedavg(DeepNeighbours(...), ...), gen_epochs=20, ...)

    Source: Zhang et al. 2024, https://arxiv.org/abs/2401.04336; https://github.com/zkzhangke/FedDEP
    """
    model = network_of(fedavg, DeepNeighbours, "feddep", "model='deep' in a task")
    base = fedper(fedavg, shared=("classifier",))
    learn = partial(
        generated,
        model,
        epochs=(gen_local_epochs, gen_epochs),
        weights=(count_weight, embedding_weight, label_weight),
        targets=targets,
        optimizer=fedavg.train.optimizer,
    )

    def receive(message: Message, state: State, graph: Graph) -> tuple[Params, Any]:
        check_client(graph)
        params, context = base.receive(fed.drop(message, KEYS), state, graph)
        own = state if "cluster" in state else grouped(model, graph, num_prototypes, encoder_epochs)
        others = prototypes_of_others(message)
        if others and not params["mends"]:
            hidden = hidden_nodes(model, graph, own, gen_hide)
            params = {**params, **learn(params, *hidden, others)}
        return params, {**context, **fed.pick(own, KEYS), "cluster": Ragged(own["cluster"])}

    def send(params: Params, context: Any, state: State, graph: Graph) -> tuple[Message, State]:
        message, new_state = base.send(params, context, state, graph)
        sent = fed.pick(context, KEYS)
        return {**message, **sent}, {**new_state, **sent, "cluster": context["cluster"].values}

    def accept(message: Message, client: int, state: State) -> None:
        base.accept(message, client, state)
        rows, _ = check_prototypes(message, fedavg.rules.max_examples)
        # The rows are means of hyperbolic tangents.
        reject_if(rows.abs().max() > 1.001, "prototypes in [-1, 1]", f"{rows.abs().max():g}")

    def relayed(outbox: Outbox, new: State, means: Means, state: State) -> tuple[Outbox, State]:
        if not outbox:
            return outbox, new
        latest = latest_uploads(state, means.inbox, KEYS)
        messages = {k: {**message, **but(latest, str(k))} for k, message in outbox.items()}
        return messages, {**new, **latest}

    def deploy(message: Message, state: State, graph: Graph) -> Params:
        plain = fed.drop(message, KEYS)
        return fedavg.deploy({**plain, "model": base.receive(plain, state, graph)[0]}, state, graph)

    changed: Any = {"receive": receive, "send": send, "accept": accept, "deploy": deploy}
    return replace(base, **changed, aggregate=fed.after(base.aggregate, relayed, reads=KEYS))


def check_client(graph: Graph) -> None:
    """Raise a ValueError unless a client has a single graph with all fields for FedDEP."""
    check_one_graph(graph, "feddep")
    reject_if(graph.edge_label_index is not None, "feddep's examples to be nodes", "pairs of nodes")
    _ = graph.labels  # numbers have no classes
    reject_if(graph.val_mask is None, "feddep's clients to have val_mask", "none")


def but(prototypes: Mapping[str, Any], client: str) -> dict[str, Any]:
    """Return the prototypes of all clients except one."""
    return {key: fed.drop(each, [client]) for key, each in prototypes.items()}


def prototypes_of_others(message: Message) -> dict[str, tuple[Tensor, Tensor]]:
    """The prototypes of all other clients, and each prototype's number of nodes."""
    rows, counts = (message.get(key, {}) for key in KEYS)
    return {k: (rows[k], counts[k]) for k in rows if counts[k].sum()}


def hidden_nodes(
    model: DeepNeighbours, graph: Graph, own: Mapping[str, Any], share: float
) -> tuple[Graph, Tensor, Tensor]:
    """Remove a random fraction `share` of the validation nodes from a client's graph.

    Returns:
        Three results: the graph of the m remaining nodes; each remaining node's number of removed
        neighbours, int64 ``[m]``; and the removed neighbours' embeddings, float ``[m, P, d]``,
        which are 0 in empty slots.
    """
    nodes: Any = graph.val_mask.nonzero().squeeze(1)  # type: ignore[union-attr]
    order = torch.randperm(len(nodes), device=nodes.device)
    hidden, width = nodes[order[: int(share * len(nodes))]], model.generator.num_neighbours
    rows = graph.replace(x=own["prototypes"][own["cluster"]])
    stay, missing, targets = hidden_neighbours(graph, hidden, width, rows)
    return graph.subgraph(stay), missing, targets


def generated(
    model: DeepNeighbours,
    params: Params,
    graph: Graph,
    missing: Tensor,
    hidden: Tensor,
    others: Mapping[str, tuple[Tensor, Tensor]],
    *,
    epochs: tuple[int, int],
    weights: tuple[float, float, float],
    targets: Targets,
    optimizer: OptimizerFactory,
) -> Params:
    """Train a client's generator: at first all layers, then only the layers for embeddings.

    Returns:
        A dict with the trained tensors of the generator, and with ``"mends"`` set to 1. The keys
        are names of tensors of `model`.
    """
    mask, number = graph.training_mask, missing.clamp(max=hidden.shape[1])

    def loss(params: Params, prototypes: Mapping[str, tuple[Tensor, Tensor]]) -> Tensor:
        """The loss ``(L + b sum_j near(z, prototypes of j)) / K`` (see `feddep`)."""
        own, rest = within(params, "generator."), within(params, "classifier.")
        count, embeddings = functional_call(model.generator, own, (graph.x, graph.adj))
        read = graph.x, graph.adj, fused(count, embeddings)
        logits = functional_call(model.classifier, rest, read)
        apart = smooth_l1_loss(count, missing.to(count.dtype), reduction="none")
        close = nearest_features(embeddings, count.round(), hidden, number, mask=mask)
        total = weights[0] * weighted_mean(apart, mask) + weights[1] * close
        total = total + weights[2] * cross_entropy(logits, graph.labels, mask)
        for rows, counts in prototypes.values():
            total = total + weights[1] * compared(embeddings, count, rows, counts, targets)
        return total / (len(prototypes) + 1)

    names = [n for n in params if n.startswith(("generator.", "classifier."))]
    last = [n for n in names if n.startswith("generator.embedding.")]
    with fed.in_mode(model.generator, True), fed.in_mode(model.classifier, True):
        for steps, prototypes, learns in ((epochs[0], {}, names), (epochs[1], dict(others), last)):
            step: Any = [(prototypes,)] * steps
            params = fed.minimise(loss, params, step, optimizer=optimizer, names=learns).params
    trained = {n: p for n, p in params.items() if n.startswith("generator.")}
    return {**trained, "mends": torch.ones_like(params["mends"])}


def compared(z: Tensor, count: Tensor, rows: Tensor, counts: Tensor, targets: Targets) -> Tensor:
    """Distance from the generated embeddings to another client's prototypes.

    Args:
        z: generated embeddings, float ``[n, P, d]``.
        count: float ``[n]``, each node's number of generated neighbours; the numbers are rounded
            down.
        rows: float ``[K, d]``, the prototypes.
        counts: int64 ``[K]``, each prototype's number of nodes; at least one number is above 0.
        targets: the prototypes to compare with: either one prototype per node, sampled in
            proportion to `counts`, or the nearest prototype of each generated neighbour.
    """
    if not len(z):
        return z.sum()
    if targets == "nearest":
        references = rows[counts > 0].expand(len(z), -1, -1)
    else:
        references = rows[torch.multinomial(counts.double(), len(z), replacement=True)][:, None]
    number = counts.new_full((len(z),), references.shape[1])
    return nearest_features(z, count, references, number)
