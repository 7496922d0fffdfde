"""FedGM: clients condense their graphs, and the server trains on the condensed graphs."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn.functional import cross_entropy

from .. import federation as fed
from ..checks import Count, Natural, Share, Weight, reject_if
from ..federation import Broadcast, Inbox, Message, Method, Outbox, Params, State
from ..graph import Graph
from ..graph.fields import learned
from ..nn.pair_weights import PairWeights
from .inputs import check_one_graph, latest_uploads
from .own_models import check_drawable, drawn
from .surrogate import trained_on

KEYS = (("x", "y", "adjacency"), ("gradient", "count"))  # of a client's first upload; of later ones


@fed.layer(checks=[fed.check_averages, fed.check_model_alone, fed.check_one_architecture])
def fedgm(
    fedavg: Method,
    *,
    reduction: Share = 0.84,
    condense_steps: Natural = 1000,
    adjacency_steps: Natural = 5,
    feature_steps: Count = 15,
    condense_lr: Weight = 0.01,
    condense_width: Count = 128,
    fit_steps: Natural = 600,
    fit_lr: Weight = 0.01,
    fit_decay: Weight = 5e-4,
) -> Method:
    """Train the server's model on small graphs that reproduce the clients' gradients (FedGM).

    In its first round, a client with n training nodes creates ``int(reduction n)`` condensed nodes.
    Classes are about as frequent among the condensed nodes as among the training nodes. A condensed
    node starts with the features of a random training node of the same class. All pairs of
    condensed nodes are connected by edges (`PairWeights`). The client repeats two actions
    `condense_steps` times: it initialises a new model, and it takes one Adam step. Adam changes the
    edge network for `adjacency_steps` steps, then the features for `feature_steps` steps, and so
    on. All steps minimise

    ``sum_c (n_c / max n_c) ||grad CE_c(condensed) - grad CE_c(own)||^2``.

    CE_c is the mean cross-entropy over training nodes of class c, and n_c is the number of
    condensed nodes of class c. The client sends the condensed graph of the step that had the
    smallest loss. The server combines the clients' condensed graphs into one graph, and trains a
    newly initialised model on this graph. All clients use this model. In later rounds clients send
    ``grad CE_c(own)``, evaluated at a model that the server has initialised. The server then takes
    one Adam step on the features of the condensed nodes. This Adam step minimises the loss above,
    with the clients' gradient ``sum_k (n_kc / n_c) grad_k CE_c`` in place of one client's own
    gradient. After this step, the server trains a newly initialised model. Clients train nothing
    else.

    The public code differs in five places. The public code's GCN of width 256 initialises weights
    and biases uniformly in ``+-1 / sqrt(width of the input)``. Here the task determines the network
    and its initialisation. The public code samples neighbours and at most 256 nodes per class. Here
    a client's gradient is computed over all nodes. The public code samples initial features class
    by class but sorts labels by class size. So a condensed node's label and initial features can
    belong to different classes. Here the label and the initial features always belong to the same
    class. The public code applies each client's edge network to the nodes of all clients, and keeps
    only the block of the client's own nodes. So the batch norm statistics of an edge network are
    computed over the nodes of all clients. Here a client applies its edge network only to its own
    nodes. In the public code, the server scores its model on validation nodes after each training
    step, and uses the model that scored best. In a real federation, only clients have validation
    nodes. So here the server uses the model of the last step.

    Args:
        fedavg: FedAvg built for a task. Only the model of `fedavg` is used. The loss and the local
            training of `fedavg` are ignored.
        reduction: number of condensed nodes per training node, between 0 and 1.
        condense_steps: number of Adam steps with which a client condenses its graph.
        adjacency_steps: number of consecutive steps that change only the edge network.
        feature_steps: number of consecutive steps that change only the features.
        condense_lr: learning rate of condensation, at clients and at the server.
        condense_width: width of the edge network.
        fit_steps: number of training steps of the server in a round; the second half of these steps
            uses a tenth of the learning rate.
        fit_lr: learning rate of the server's training.
        fit_decay: weight decay of the server's training.

    Raises:
        TypeError: if the model cannot be re-initialised.
        ValueError: if a number is out of range, if the server of `fedavg` does not send the mean of
            the models, or if clients train tensors outside the model.

    Example:
        >>> fedgm(fgl.fedavg(fgl.nn.GCN(4, 8, 2)), reduction=0.2)
        fedgm(fedavg(GCN(...), ...), reduction=0.2, ...)

    Source: Zhang et al. 2025, FedGM; https://github.com/hanhan1900/FedGM
    """
    model, names = fedavg.model, sorted(fed.trainable(fedavg))
    check_drawable(model)
    adam = partial(torch.optim.Adam, lr=condense_lr)
    turns = adjacency_steps, feature_steps
    condensing = partial(condense, model, names, adam=adam, turns=turns, steps=condense_steps)

    def fit(params: Params, graph: Graph) -> Params:
        for steps, lr in ((fit_steps // 2, fit_lr), (fit_steps - fit_steps // 2, fit_lr / 10)):
            rule = partial(torch.optim.Adam, lr=lr, weight_decay=fit_decay)
            params = trained_on(graph, model, params, names, steps=steps, optimizer=rule)
        return params

    def receive(message: Message, state: State, graph: Graph) -> tuple[Params, Any]:
        check_one_graph(graph, "fedgm")
        params, context = fedavg.receive(fed.drop(message, ["probe"]), state, graph)
        return params, {**context, "probe": message.get("probe", message["model"])}

    def send(params: Params, context: Any, state: State, graph: Graph) -> tuple[Message, State]:
        with fed.in_mode(model, True), torch.enable_grad():
            if "count" not in state:
                return first_upload(graph)
            gradients = class_gradients(model, names, context["probe"], graph)
        return {"gradient": gradients, "count": state["count"]}, state

    def first_upload(graph: Graph) -> tuple[Message, State]:
        y = condensed_labels(graph, reduction)
        x = first_features(graph, y)
        x, adjacency = condensing(graph, (x, y, PairWeights(graph.num_features, condense_width)))
        count = y.bincount(minlength=int(graph.num_classes or 1))
        adjacency = adjacency.to(x.dtype)  # of half precision under autocast
        return {"x": x, "y": y, "adjacency": adjacency}, {"count": count}

    def accept(message: Message, client: int, state: State) -> None:
        has_graph = str(client) in state.get("x", {})
        fed.check_keys(message, KEYS[has_graph], "the upload")
        if has_graph:
            check_gradients(message, {name: model.state_dict()[name] for name in names})
            most = fedavg.rules.max_examples
            reject_if((message["count"] > most).any(), f"count to be at most {most:g}", "more")
        else:
            check_condensed(message, fedavg.rules.max_examples)

    def aggregate(inbox: Inbox, state: State) -> tuple[Outbox, State]:
        first = {k: message for k, message in inbox.items() if "x" in message}
        graphs = latest_uploads(state, first, KEYS[0])
        if not sum(map(len, graphs["y"].values())):
            return {}, state
        moments = {} if first else state.get("moments", {})
        with fed.in_mode(model, True), torch.enable_grad():
            uploads = with_gradients(inbox)
            if uploads:
                step = matched(graphs, uploads, state["probe"], moments)
                graphs["x"], moments = step.params, step.optimizer
            probe, used = drawn(model), fit(drawn(model), side_by_side(graphs))
        sent: Message = {"model": used, "probe": probe}
        kept_moments = {"moments": moments} if moments else {}
        return Broadcast(sent, inbox.num_clients), {**sent, **graphs, **kept_moments}

    def matched(graphs: Any, uploads: list[Any], probe: Params, moments: Any) -> fed.Trained:
        """Take an Adam step on the condensed features, to match the gradients that clients sent."""
        target, weight = class_means(uploads, names)

        def loss(features: Params) -> Tensor:
            whole = side_by_side({**graphs, "x": features}, len(weight))
            return apart(model, list(target), probe, whole, target, weight)

        return fed.minimise(loss, graphs["x"], [()], optimizer=adam, state=moments)

    changed: Any = {"receive": receive, "send": send, "accept": accept, "aggregate": aggregate}
    train = replace(fedavg.train, num_steps=0, batches=None, epochs=None)
    rules = replace(fedavg.rules, ragged=KEYS[0] + KEYS[1])
    return replace(fedavg, **changed, train=train, rules=rules)


def check_condensed(message: Message, most: float) -> None:
    """Raise a ValueError unless an upload contains one graph of at most the allowed size."""
    x, y, adjacency = (message[key] for key in KEYS[0])
    if x.dtype != adjacency.dtype or y.dtype != torch.int64 or (y < 0).any():
        raise ValueError(
            "Expected y to be labels, and x and adjacency to be of one dtype, but got "
            f"{y.dtype}, {x.dtype} and {adjacency.dtype}, with a smallest y of {y.min()}"
        )
    wrong = x.dim() != 2 or y.shape != x.shape[:1] or adjacency.shape != (len(x), len(x))
    reject_if(wrong, "x, y and adjacency to be of the same nodes", "others")
    reject_if(len(x) > most, f"x to have at most {most:g} nodes", len(x))


def with_gradients(inbox: Inbox) -> list[Any]:
    """The uploads that contain gradients.

    An upload is left out if it has no condensed node, or if its number of classes is not the most
    common number among the uploads.
    """
    uploads = [each for each in inbox.values() if "gradient" in each and each["count"].any()]
    usual = Counter(len(each["count"]) for each in uploads).most_common(1)
    return [each for each in uploads if len(each["count"]) == usual[0][0]]


def class_means(uploads: list[Any], names: list[str]) -> tuple[Params, Tensor]:
    """Return two results with C rows: ``sum_k (n_kc / n_c) grad_k CE_c`` and ``n_c / max n_c``."""
    gradients = {n: torch.stack([each["gradient"][n] for each in uploads]) for n in names}
    count = torch.stack([each["count"] for each in uploads]).to(gradients[names[0]])
    of_class = count.sum(0)
    share = count / torch.where(of_class == 0, 1, of_class)
    target = fed.combine(partial(torch.einsum, "kc,kc...->c...", share), gradients)
    return target, of_class / of_class.max()


def check_gradients(message: Mapping[str, Any], params: Params) -> None:
    """Raise an error unless an upload has each class's count and gradients.

    Example:
        >>> params, count = {"w": torch.zeros(3)}, torch.tensor([4, 0])
        >>> check_gradients({"gradient": {"w": torch.zeros(2, 3)}, "count": count}, params)
    """
    gradient, count = message["gradient"], message["count"]
    wrong = not isinstance(count, Tensor) or count.dtype != torch.int64 or count.dim() != 1
    reject_if(wrong, "count to be int64 [num_classes]", "another tensor")
    if (count < 0).any():
        raise ValueError(f"Expected count to be at least 0, but got {int(count.min())}")
    if not isinstance(gradient, Mapping) or gradient.keys() != params.keys():
        got = list(gradient) if isinstance(gradient, Mapping) else type(gradient).__name__
        raise ValueError(f"Expected gradient to have {list(params)}, but got {got}")
    for name, own in params.items():
        shape, each = [len(count), *own.shape], gradient[name]
        reject_if(
            list(each.shape) != shape or each.dtype != own.dtype,
            f"gradient[{name!r}] to be {own.dtype} {shape}",
            f"{each.dtype} {list(each.shape)}",
        )


def condense(
    model: Any,
    names: list[str],
    graph: Graph,
    start: tuple[Tensor, Tensor, PairWeights],
    *,
    adam: Any,
    turns: tuple[int, int],
    steps: int,
) -> tuple[Tensor, Tensor]:
    """Condense a client's graph; return the features and edge weights with the smallest loss."""
    x, y, edges = start
    x = x.clone().requires_grad_()
    net = {n: p.detach().to(x).clone().requires_grad_() for n, p in edges.named_parameters()}
    if not len(y):
        return x.detach(), x.detach().new_zeros(0, 0)
    adams = adam(list(net.values())), adam([x])
    count = y.bincount(minlength=int(graph.num_classes or 1)).to(x)
    best, best_graph = float("inf"), (x.detach(), functional_call(edges, net, (x,)).detach())
    for step in range(steps):
        params = {name: p.to(x.device) for name, p in drawn(model).items()}
        adjacency = functional_call(edges, net, (x,))
        target = class_gradients(model, names, params, graph)
        synthetic = whole_graph(x, y, adjacency, graph.num_classes)
        loss = apart(model, names, params, synthetic, target, count / count.max())
        if float(loss.detach()) < best:
            best, best_graph = float(loss.detach()), (x.detach().clone(), adjacency.detach())
        for each in adams:
            each.zero_grad()
        loss.backward()
        adams[step % sum(turns) >= turns[0]].step()
    return best_graph


def apart(
    model: Any, names: list[str], params: Params, graph: Graph, target: Params, weight: Tensor
) -> Tensor:
    """The distance ``sum_c w_c ||grad CE_c(graph) - wanted_c||^2``, over the graph's classes."""
    gradients = class_gradients(model, names, params, graph, create_graph=True)
    present = graph.labels.bincount(minlength=len(weight)) > 0
    total = weight.new_zeros(len(weight))
    for name in names:
        total = total + (gradients[name] - target[name]).square().flatten(1).sum(1)
    return (weight * torch.where(present, total, 0)).sum()


def class_gradients(
    model: Any, names: list[str], params: Params, graph: Graph, *, create_graph: bool = False
) -> Params:
    """Gradients ``[C, ...]`` of each class's mean cross-entropy over the class's training nodes.

    The gradient is 0 for a class without a training node.
    """
    leaves = {n: p.clone().requires_grad_(n in names) for n, p in params.items()}
    used, rows = [leaves[name] for name in names], []
    logits = fed.predict(model, leaves, graph)
    for c in range(int(graph.num_classes or 1)):
        mask = graph.training_mask & (graph.labels == c)
        if not mask.any():
            rows.append([torch.zeros_like(each) for each in used])
            continue
        loss = cross_entropy(logits[mask], graph.labels[mask])
        grads = torch.autograd.grad(loss, used, retain_graph=True, create_graph=create_graph)
        rows.append(list(grads))
    by_name = zip(names, zip(*rows, strict=True), strict=True)
    return {name: torch.stack(each) for name, each in by_name}


def condensed_labels(graph: Graph, reduction: float) -> Tensor:
    """Labels for the condensed nodes, with the class proportions of the client's training nodes.

    Example:
        >>> none = torch.zeros(2, 0, dtype=torch.int64)
        >>> graph = fgl.Graph(torch.ones(5, 1), none, y=torch.tensor([1, 1, 1, 0, 0]))
        >>> condensed_labels(graph, 0.5)
        tensor([0, 1])
    """
    labels = graph.labels[graph.training_mask]
    count = labels.bincount(minlength=int(graph.num_classes or 1))
    few = (count.double() * reduction).long()
    few[count.argmax()] += int(labels.numel() * reduction) - few.sum()
    return torch.arange(len(few), device=labels.device).repeat_interleave(few)


def first_features(graph: Graph, y: Tensor) -> Tensor:
    """For each label in `y`, features of a random training node of this class, float ``[n, d]``."""
    rows = []
    for c, number in zip(*y.unique_consecutive(return_counts=True), strict=True):
        nodes = (graph.training_mask & (graph.labels == c)).nonzero().squeeze(1)
        nodes = nodes[torch.randperm(len(nodes), device=nodes.device)]
        rows.append(nodes.repeat(-(-int(number) // len(nodes)))[: int(number)])
    x = graph.x.to_dense()
    chosen: Tensor = x[torch.cat(rows)] if rows else x[:0]
    return chosen


def whole_graph(x: Tensor, y: Tensor, adjacency: Tensor, num_classes: int | None) -> Graph:
    """A complete graph whose edges have the given weights."""
    pairs = (~torch.eye(len(y), dtype=torch.bool, device=x.device)).nonzero().T
    weight = adjacency[pairs[0], pairs[1]]
    checked = Graph(x.detach(), pairs, y=y, num_classes=num_classes, edge_weight=weight.detach())
    return learned(checked, x=x, edge_weight=weight)


def side_by_side(condensed: Any, num_classes: int | None = None) -> Graph:
    """The union of all clients' condensed graphs, in the order of the clients."""
    order = sorted(condensed["y"], key=int)
    x, y = (torch.cat([condensed[key][k] for k in order]) for key in ("x", "y"))
    adjacency = torch.block_diag(*[condensed["adjacency"][k] for k in order])
    pairs = torch.block_diag(*[torch.ones_like(condensed["adjacency"][k]) for k in order])
    pairs = pairs.fill_diagonal_(0).nonzero().T
    weight = adjacency[pairs[0], pairs[1]]
    checked = Graph(x.detach(), pairs, y=y, num_classes=num_classes, edge_weight=weight)
    return learned(checked, x=x)
