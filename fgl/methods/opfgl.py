"""O-pFGL: clients send class sums once, the server trains on them, then clients train locally."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from .. import federation as fed
from ..checks import Count, Natural, Share, Weight, check_number, reject_if
from ..federation import Broadcast, Message, Method, OfSums, Outbox, Params, Ragged, State
from ..graph import Graph
from ..losses.weighted_mean import weighted_mean
from ..nn.observe import outputs
from ..sparse.matrix import check_degrees
from ..sparse.rows import widened
from ..warn import warn
from . import surrogate
from .inputs import check_one_graph, check_sees_all
from .local import with_own

UPLOAD = ("sums", "num_examples")


@fed.layer(checks=[fed.check_averages, fed.check_model_alone, fed.check_one_architecture])
def opfgl(
    fedavg: Method,
    *,
    propagations: Natural = 1,
    expand: Natural = 1,
    sure: Share = 1.0,
    min_degree: Natural = 20,
    label_steps: Natural = 2,
    label_share: Share = 0.9,
    nodes_per_class: Count = 1,
    condense_steps: Natural = 3000,
    feature_lr: Weight = 5e-3,
    edge_lr: Weight = 1e-3,
    condense_width: Count = 128,
    alignment: Weight = 10.0,
    smoothness: Weight = 0.1,
    fit_steps: Natural = 3000,
    fit_lr: Weight = 1e-4,
    distil: Weight = 0.2,
    distil_least: Weight = 0.0,
    distil_most: float = 0.15,
) -> Method:
    """Communicate only in the first round; afterwards each client adapts the model (O-pFGL).

    In the first round no client trains. For each class with at least two labelled nodes, a client
    sends three values: the number of these nodes, the sum of ``h`` over these nodes, and the sum of
    ``h^2`` over these nodes. Here ``h = [x || S x || ...]`` contains the results of 0 to
    `propagations` propagation steps, with ``S = D^-1/2 (A + I) D^-1/2``. The server reads only sums
    over clients, so `fgl.transforms.secure_sum` works with this method. If only one client has a
    class, the server learns this client's sums. If this class has two nodes, the sums reveal the
    features of both nodes. The server uses the sums to compute the mean and the standard deviation
    of each class. Then the server generates a graph in which the classes have about these means and
    deviations (`surrogate.Condensation`). Then the server trains the initial model on the generated
    graph, and sends the trained model ``f_g`` to all clients. From the second round on, clients and
    server send nothing. In the second round a client starts from f_g. In later rounds the client
    starts from its own model. The client minimises

    ``fedavg's loss + 1/n sum_v gamma_v KL(f_g(v) || f(v))``.

    The sum is over the client's n nodes v. The weight of node v is
    ``gamma_v = clamp(beta sum_c F_vc / (1 + log(1 + H_c)))``, where beta is the argument `distil`.
    The matrix ``F`` contains the propagated labels (see `propagated_labels`). Each training node
    has a score: the fraction of the node's training neighbours that have the node's class. ``H_c``
    is the sum of the scores of all training nodes of class c. So a client learns frequent classes
    mainly from its own labels, and learns rare classes mainly from f_g.

    Before the sums are computed, some nodes that are not training nodes also get labels. Such a
    node must meet three conditions. The node's degree must be at least `min_degree`. One class must
    have a large fraction of the node's propagated labels, at least `sure`. This class must be one
    of the `expand` classes with the largest H_c. The node then gets this class as its label.

    The public code differs in the following places. In the public code, clients upload means and
    deviations instead of sums. In the public code, each client trains the initial model on the
    server's graph. The client keeps the model that scores best on its own validation nodes. Here
    only the server trains on this graph, and it keeps the model of the last step. In the public
    code, clients keep the fine-tuned model that has the best validation score. Here the caller
    selects the round. Each loop of the public code runs one step more than the loop here. The
    public code labels a node by ``F / (sum F + 1e-9)``. This value reaches 1 only in float32, and
    only if sum F is above about .03. So if `min_degree` is small, the public code gives labels to
    fewer nodes than this method. In a directed graph, this method counts a node's outgoing edges as
    its degree. The public code counts incoming edges instead. On ogbn-arxiv, the graph of the
    public code's server has ``ceil(rate n_c)`` nodes of class c. Features in the public code are 0
    or 1. The server's learning rates are chosen for such features. For much smaller features, such
    as rows divided by their sums, these learning rates are too small.

    Args:
        fedavg: FedAvg built for a task. From the second round on, clients use the loss and the
            local training of `fedavg`. The optimiser's state is kept between rounds. The published
            setting for Cora is Adam with a rate of 5e-5.
        propagations: largest number of propagation steps in ``h = [x || S x || ...]``.
        expand: number of classes for which further nodes get labels; with 0, no further node gets a
            label.
        sure: fraction between 0 and 1. A node gets a label only if one class has at least this
            fraction of the node's propagated labels.
        min_degree: smallest degree of a node that gets a label.
        label_steps: number of steps of label propagation.
        label_share: weight of the neighbours' labels in each step of label propagation, between 0
            and 1.
        nodes_per_class: number of nodes per class in the server's graph.
        condense_steps: steps in which the server generates its graph.
        feature_lr: learning rate of Adam for the features of the server's graph.
        edge_lr: learning rate of Adam for the edges of the server's graph.
        condense_width: width of the edge network.
        alignment: weight of the distance between the class moments of the server's graph and the
            class moments over all clients.
        smoothness: weight of the similarity between connected nodes.
        fit_steps: steps of the server's training on its graph.
        fit_lr: learning rate of the server's training.
        distil: beta, the weight of the distillation.
        distil_least: smallest weight gamma_v of a node.
        distil_most: largest weight gamma_v of a node.

    Raises:
        ValueError: if a number is out of range, if the server of `fedavg` does not send the mean of
            the models, or if clients train tensors outside the model. The method's functions raise
            a ValueError if a client holds a collection of graphs, or if a local step sees only some
            of the nodes.

    Example:
        >>> opfgl(fgl.fedavg(fgl.nn.GCN(4, 8, 2)), distil=0.5)
        opfgl(fedavg(GCN(...), ...), distil=0.5, ...)

    Source: Yan et al. 2024, https://arxiv.org/abs/2411.11304; https://github.com/Youth-49/O-pFGL
    """
    check_number("distil_most", distil_most, at_least=distil_least)
    model, names = fedavg.model, fed.trainable(fedavg)
    propagate = partial(propagated_labels, steps=label_steps, share=label_share)
    adam = partial(torch.optim.Adam, lr=fit_lr)
    condense = surrogate.Condensation(
        hops=propagations, per_class=nodes_per_class, steps=condense_steps, feature_lr=feature_lr,
        edge_lr=edge_lr, width=condense_width, alignment=alignment, smoothness=smoothness,
    )  # fmt: skip

    def plain(message: Message, state: State) -> Message:
        return with_own(fed.drop(message, ["fitted"]), state)

    @torch.no_grad()
    def receive(message: Message, state: State, graph: Graph) -> tuple[Params, Any]:
        check_one_graph(graph, "opfgl")
        params, context = fedavg.receive(plain(message, state), state, graph)
        alone = "model" in state or "fitted" in message
        context = {**context, "alone": torch.tensor(alone)}
        if not alone:
            return params, context
        teacher: Any = state.get("teacher", params)
        with fed.in_mode(fed.stand_in(model), False):
            answers = fed.predict(model, teacher, graph).softmax(1)
        weight = distil * class_weights(graph)[None] * propagate(graph)
        weight = weight.sum(1).clamp(distil_least, distil_most).to(answers)
        weight = weight * bool(graph.num_train)  # else gradients are only rounding
        targets = {"answers": Ragged(answers), "weight": Ragged(weight)}
        return params, {**context, **targets, "teacher": teacher}

    def batches(graph: Graph, context: Any) -> Sequence[tuple[Graph, Any]]:
        steps = fed.local_steps(fedavg.train, graph, context) if context["alone"] else []
        check_not_sampled(steps, graph)
        return steps

    def loss(params: Params, graph: Graph, context: Any) -> Tensor:
        if "answers" not in context:
            return fedavg.loss(params, graph, context)
        with outputs(fed.stand_in(model)) as passes:
            total = fedavg.loss(params, graph, context)
        answers, weight = context["answers"], context["weight"]
        check_sees_all("opfgl", len(passes[-1]), len(answers))
        return total + divergence(passes[-1], answers.values, weight.values, answers.mask)

    @torch.no_grad()
    def send(params: Params, context: Any, state: State, graph: Graph) -> tuple[Message, State]:
        if context["alone"]:
            _, new_state = fedavg.send(params, context, state, graph)
            return {}, {**new_state, "model": params, "teacher": context["teacher"]}
        labels = graph.train_labels
        if expand:
            chosen = class_weights(graph).argsort(stable=True)[:expand]
            labels = expanded(graph, propagate(graph), chosen, sure=sure, min_degree=min_degree)
        x = widened(graph.x.to_dense())
        rows = surrogate.hop_rows(graph.adj.astype(x.dtype).gcn_norm, x, propagations)
        sums = surrogate.class_sums(rows, labels, graph.num_outputs)
        return {"sums": sums, "num_examples": torch.tensor(graph.num_train)}, state

    def accept(message: Message, client: int, state: State) -> None:
        fed.check_keys(message, () if "fitted" in state else UPLOAD, "the upload")
        if "fitted" not in state:
            surrogate.check_sums(message["sums"], fedavg.rules.max_examples)

    def serve(sums: Params, num_clients: int, state: State) -> tuple[Outbox, State]:
        start: Any = state["model"]
        like = start[min(names)]
        aim = surrogate.moments(fed.combine(lambda total: total.to(like.device), sums))
        lacking = surrogate.what_lacks(sums, num_clients)
        if lacking:
            warn(f"{lacking}: the server makes no model of them")
            return {}, state
        aim = surrogate.Moments(*(part.to(like.dtype) for part in aim))
        with fed.in_mode(model, True), torch.enable_grad():
            fitted = surrogate.trained_on(
                condense(aim), model, start, names, steps=fit_steps, optimizer=adam
            )
        message: Message = {"model": fitted, "fitted": torch.tensor(True)}
        return Broadcast(message, num_clients), {**state, **message, "moments": aim._asdict()}

    def deploy(message: Message, state: State, graph: Graph) -> Params:
        return fedavg.deploy(plain(message, state), state, graph)

    train = replace(fedavg.train, num_steps=None, batches=batches, keep_optimizer=True)
    changed: Any = {"receive": receive, "loss": loss, "send": send, "accept": accept}
    changed |= {"aggregate": OfSums("sums", serve), "deploy": deploy, "train": train}
    return replace(fedavg, **changed, rules=replace(fedavg.rules, ragged=UPLOAD))


def check_not_sampled(steps: Sequence[tuple[Graph, Any]], graph: Graph) -> None:
    """Raise a ValueError if local steps use sampled nodes."""
    want = "opfgl's local steps to see all nodes"
    reject_if(len(steps) and steps[0][0].x is not graph.x, want, "sampled ones")


def divergence(logits: Tensor, answers: Tensor, weight: Tensor, mask: Tensor) -> Tensor:
    """Mean over a mask's n nodes: ``1/n sum_v gamma_v KL(answers_v || softmax(logits_v))``.

    Example:
        >>> answers, one = torch.tensor([[1.0, 0.0]]), torch.ones(1)
        >>> divergence(torch.zeros(1, 2), answers, one, one.bool())  # log 2
        tensor(0.6931)
    """
    entropy = torch.xlogy(answers, answers).sum(1)
    return weighted_mean(weight * (entropy - (answers * logits.log_softmax(1)).sum(1)), mask)


def known_labels(graph: Graph) -> Tensor:
    """Labels as rows, float64 ``[n, C]``: one-hot for training nodes, 0 for other nodes."""
    return one_hot(graph.train_labels + 1, graph.num_outputs + 1)[:, 1:].double()


def propagated_labels(graph: Graph, *, steps: int, share: float) -> Tensor:
    """Propagate labels along edges: ``F <- clamp(share D^-1/2 A D^-1/2 F + (1 - share) Y, 0, 1)``.

    The rows of Y are the one-hot labels of the training nodes, or 0 for other nodes. The first F is
    Y. If no label reaches a node, all classes have equal fractions at this node.

    Args:
        graph: a graph with class labels.
        steps: number of steps.
        share: weight of the neighbours.

    Returns:
        float64 ``[n, C]``; rows do not sum to 1.

    Example:
        >>> edges = torch.tensor([[0, 1], [1, 0]])
        >>> graph = fgl.Graph(torch.ones(3, 1), edges, y=torch.tensor([0, 1, 1]),
        ...                   train_mask=torch.tensor([True, False, False]))
        >>> propagated_labels(graph, steps=1, share=0.75)
        tensor([[0.2500, 0.0000],
                [0.7500, 0.0000],
                [0.5000, 0.5000]], dtype=torch.float64)

    Source: Yan et al. 2024, https://arxiv.org/abs/2411.11304 (public code)
    """
    first = known_labels(graph)
    adj = graph.adj.astype(first.dtype)
    check_degrees(adj.value)
    degree = adj @ torch.ones_like(first[:, :1])
    scale = torch.where(degree > 0, degree, 1) ** -0.5
    labels = first
    for _ in range(steps):
        labels = (share * scale * (adj @ (scale * labels)) + (1 - share) * first).clamp(0, 1)
    return torch.where(labels.sum(1, keepdim=True) == 0, 1 / labels.shape[1], labels)


def class_weights(graph: Graph) -> Tensor:
    """Weight of each class in the distillation: ``1 / (1 + log(1 + H_c))``, float64 ``[C]``.

    Each training node has a score: the fraction of the node's training neighbours that have the
    node's class. ``H_c`` is the sum of the scores of all training nodes of class c. A node without
    a training neighbour has the score 0.

    Example:
        >>> edges = torch.tensor([[0, 1], [1, 0]])
        >>> class_weights(fgl.Graph(torch.ones(3, 1), edges, y=torch.tensor([0, 0, 1])))
        tensor([0.4765, 1.0000], dtype=torch.float64)

    Source: Yan et al. 2024, https://arxiv.org/abs/2411.11304 (public code)
    """
    own = known_labels(graph)
    neighbours = graph.adj.astype(own.dtype) @ own
    number = neighbours.sum(1)
    agreement = (neighbours * own).sum(1) / torch.where(number == 0, 1, number)
    return 1 / (1 + (agreement[:, None] * own).sum(0).log1p())


def expanded(
    graph: Graph, spread: Tensor, chosen: Tensor, *, sure: float, min_degree: int
) -> Tensor:
    """Labels of training nodes, and of other nodes for which label propagation is sure of a class.

    Args:
        graph: a graph with class labels.
        spread: propagated labels, float64 ``[n, C]``.
        chosen: int64 ``[k]``, the chosen classes.
        sure: a node gets a label only if the largest entry of the node's row in `spread`, divided
            by the sum of the row, is at least this fraction.
        min_degree: smallest degree of a node that gets a label.

    Returns:
        int64 ``[n]``, -1 for a node without a label.

    Example:
        >>> edges = torch.tensor([[0, 1], [1, 0]])
        >>> graph = fgl.Graph(torch.ones(2, 1), edges, y=torch.tensor([1, 0]),
        ...                   train_mask=torch.tensor([True, False]))
        >>> spread = propagated_labels(graph, steps=1, share=0.75)
        >>> expanded(graph, spread, torch.tensor([1]), sure=1.0, min_degree=1)
        tensor([1, 1])
    """
    labels = graph.train_labels
    share, label = (spread / spread.sum(1, keepdim=True)).max(1)
    degree = torch.bincount(graph.edge_index[0], minlength=graph.num_nodes)
    new = (labels < 0) & (share >= sure) & torch.isin(label, chosen) & (degree >= min_degree)
    return torch.where(new, label, labels)
