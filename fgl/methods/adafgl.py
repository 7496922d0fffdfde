"""AdaFGL's second step: each client trains networks that refine a federated model's output."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call

from .. import federation as fed
from ..checks import Share, reject_if
from ..federation import Message, Method, Params, Ragged, State
from ..graph import Graph
from ..losses import cross_entropy
from ..losses.weighted_mean import weighted_mean
from ..nn import AdaFGL
from ..nn.adafgl import normalised
from .fedgta import spread
from .inputs import check_one_graph, network_of
from .local import local


@fed.layer(checks=[fed.check_one_architecture])
def adafgl(fedavg: Method, *, threshold: Share = 0.9) -> Method:
    """Train each client's personal model on top of a frozen federated model (AdaFGL, step 2).

    The model is a `fgl.nn.AdaFGL`. The model's extractor was trained in the first step of AdaFGL,
    by FedAvg or any other method. `fgl.tasks.adapted` runs both steps of AdaFGL. Clients send
    nothing. In the first round a client splits the training nodes into two random halves, and
    propagates labels from the first half to the second half. The function `propagation_accuracy`
    propagates these labels and computes the accuracy on the second half. If this accuracy is at
    least `threshold`, the client minimises ``CE(MLP(S)) + mean (MLP(S) - P)^2``. The second term of
    this loss compares the logits of ``MLP(S)`` with the probabilities P, over all nodes. If the
    accuracy is below `threshold`, the client minimises ``CE(own) + CE(smooth) + CE(signed)``, the
    losses of its three networks.

    The public code trains each client without interruption, so this method keeps the optimiser's
    state between rounds. In the public code, each client predicts with the model of one epoch: the
    epoch in which the client's validation score was best. Here the caller chooses one round, and
    all clients predict with their models of this round. In the public code each client initialises
    its own networks. Here all clients start from the same initial networks, which are never
    averaged. The public code also uses the labels of nodes that are in no split. Here such labels
    are not used. The published settings are Adam (learning rate .01, weight decay 5e-4), 200
    epochs, 3 hops, alpha .05, beta .2, a width of 64 and dropout .5. As in the public code, each
    client uses either ``MLP(S)`` or the three networks `own`, `smooth` and `signed`. The accuracy
    of label propagation decides between these two choices. The paper instead mixes the outputs of
    all networks.

    Args:
        fedavg: FedAvg built for a task. The loss above replaces the loss of `fedavg`.
        threshold: a value between 0 and 1. A client treats neighbours as similar if the accuracy of
            label propagation is at least `threshold`.

    Raises:
        ValueError: if `threshold` is out of range, or if the model is not a `fgl.nn.AdaFGL`.

    Example:
        >>> model = fgl.nn.AdaFGL(fgl.nn.GCN(4, 8, 2), 4, 8, 2)
        >>> adafgl(fgl.fedavg(model), threshold=0.8)
        adafgl(fedavg(AdaFGL(...)), threshold=0.8)

    Source: Li et al. 2024, https://arxiv.org/abs/2401.11750; https://github.com/xkLi-Allen/AdaFGL
    """
    model = network_of(fedavg, AdaFGL, "adafgl", "fgl.tasks.adapted makes one of a task")

    @torch.no_grad()
    def receive(message: Message, state: State, graph: Graph) -> tuple[Params, Any]:
        params, context = fedavg.receive(message, state, graph)
        check_one_graph(graph, "adafgl")
        reject_if(not graph.num_nodes, "adafgl's clients to have nodes", "none")
        pairs = graph.edge_label_index is not None
        reject_if(pairs, "adafgl's examples to be nodes", "pairs of nodes")
        if "model" not in state:
            like = params["homophilous"]
            homophilous = propagation_accuracy(graph) >= threshold
            params = {**params, "homophilous": torch.full_like(like, float(homophilous))}
        with fed.in_mode(model, False):
            answers = fed.predict(model.extractor, within(params, "extractor."), graph).softmax(1)
        propagated = model.propagated(graph.x, graph.adj, answers)
        return params, {**context, "seen": Ragged(propagated), "answers": Ragged(answers)}

    def loss(params: Params, graph: Graph, context: Any) -> Tensor:
        answers, mask = context["answers"].values, context["answers"].mask
        inputs = (context["seen"].values, answers, mask)
        homo, *hetero = functional_call(model.personal, within(params, "personal."), inputs)
        apart = weighted_mean((homo - answers).square().mean(1), mask)
        fit = cross_entropy(homo, graph.labels, graph.train_mask) + apart
        fits = [cross_entropy(each, graph.labels, graph.train_mask) for each in hetero]
        return torch.where(params["homophilous"] > 0, fit, torch.stack(fits).sum())

    train = replace(fedavg.train, keep_optimizer=True)
    return local(replace(fedavg, receive=receive, loss=loss, train=train))


def within(params: Params, prefix: str) -> Params:
    """Select the tensors of one module; the module's prefix is removed from their names."""
    return {n.removeprefix(prefix): t for n, t in params.items() if n.startswith(prefix)}


def propagation_accuracy(graph: Graph, *, steps: int = 10, alpha: float = 0.5) -> float:
    """Propagate labels from half of the training nodes; return the accuracy on the other half.

    In the matrix ``F_0``, the row of a node in the first half is the node's one-hot label. All
    other rows of ``F_0`` are uniform over the classes. Each step computes
    ``F <- alpha A^ F + (1 - alpha) F_0`` with ``A^ = D^-1/2 (A + I) D^-1/2``. The step then adds
    the one-hot label to the row of each node in the first half. The halves are sampled with torch's
    global generator.

    Args:
        graph: a graph with class labels.
        steps: number of propagation steps.
        alpha: weight of the neighbours.

    Returns:
        The accuracy, between 0 and 1, or 0 if the second half is empty.

    Example:
        >>> edges = torch.tensor([[0, 1], [1, 0]])
        >>> graph = fgl.Graph(torch.ones(2, 1), edges, y=torch.tensor([1, 1]), num_classes=2)
        >>> propagation_accuracy(graph)
        1.0

    Source: Li et al. 2024, https://arxiv.org/abs/2401.11750 (public code)
    """
    labels, nodes = graph.labels, graph.training_mask.nonzero().squeeze(1)
    nodes = nodes[torch.randperm(nodes.numel(), device=nodes.device)]
    shown, hidden = nodes.tensor_split([nodes.numel() // 2])
    if not hidden.numel():
        return 0.0
    classes = int(graph.num_classes or 1)
    matrix = normalised(graph.adj.to_dense().double())
    first = torch.full_like(matrix[:, :1], 1 / classes).repeat(1, classes)
    first[shown] = torch.eye(classes, dtype=first.dtype, device=first.device)[labels[shown]]
    shown_labels = torch.zeros_like(first).index_copy(0, shown, first[shown])
    scores = spread(matrix, first, shown_labels, steps=steps, alpha=alpha)
    return float((scores[hidden].argmax(1) == labels[hidden]).double().mean())
