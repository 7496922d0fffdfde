"""FedProto: clients send the mean embedding of each class instead of a model."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from .. import federation as fed
from ..checks import Weight, reject_if
from ..federation import Broadcast, Inbox, Message, Method, Outbox, Params, State
from ..graph import Graph
from ..losses.weighted_mean import weighted_mean
from ..nn import observed
from .own_models import own_models


@fed.layer(checks=[fed.check_averages])
def fedproto(fedavg: Method, *, weight: Weight = 1.0, draw: bool = True) -> Method:
    """Exchange the mean embedding of each class instead of models (FedProto).

    Every client initialises its own model. After training, client i sends ``C_i^c``, the mean
    embedding of its training examples of class c (Eq. 3). The server sends ``C^c`` to all clients.
    ``C^c`` is the mean of ``C_i^c`` over the clients that have class c. A client minimises
    ``loss + lambda mean_v ||h_v - C^{y_v}||^2 / d``, where v runs over the client's training
    examples, and d is the width of an embedding. The second term of this loss is 0 in the first
    round. While a class c has no ``C^c``, the examples of this class contribute 0 to the second
    term. If no participant has class c, the earlier ``C^c`` is kept.

    In the paper's Eq. 6, a client's weight is proportional to the client's number of examples. In
    Eq. 7, the loss compares means of embeddings. This method follows the authors' code instead,
    with four exceptions. The authors also score predictions that use the nearest ``C^c`` among a
    client's own classes. Here a model predicts with its head. The authors' server drops ``C^c`` if
    no participant has class c. The authors take embeddings from the forward passes of the last
    epoch. These passes use dropout, and each pass precedes a training step. Here embeddings are
    computed after training, as in Eq. 3 and in FedTGP's code. Embeddings of `fgl.nn` networks are
    taken before the activation. The authors' embeddings are taken after the activation.

    Args:
        fedavg: FedAvg built for a task. The task's model must take ``return_embedding=True``, and
            the task's examples must have class labels.
        weight: lambda, at least 0; the authors use 1.
        draw: if true, each client initialises its own model, as in the authors' code; if false, all
            clients start from the common model. Clients with different networks always initialise
            their own models.

    Raises:
        TypeError: if the model does not take ``return_embedding``, or if it cannot be
            re-initialised (see `drawn`).
        ValueError: if `weight` is negative, or if the server of `fedavg` does not send the mean of
            the models. The method's functions raise a ValueError if a client has no class labels,
            or if the number of embeddings is not the client's number of examples.

    Example:
        >>> graph = fgl.Graph(torch.eye(2), torch.tensor([[0], [1]]), y=torch.tensor([0, 2]),
        ...                   num_classes=3)
        >>> method = fedproto(fgl.fedavg(fgl.nn.GCN(2, 8, 3)))
        >>> params, context = method.receive({"model": method.initial()}, {}, graph)
        >>> message, _ = method.send(params, context, {}, graph)
        >>> message["prototypes"].shape, message["classes"]
        (torch.Size([3, 8]), tensor([ True, False,  True]))

    Source: Tan et al. 2022, https://arxiv.org/abs/2105.00243; https://github.com/yuetan031/FedProto
    """

    @torch.no_grad()
    def aggregate(inbox: Inbox, state: State) -> tuple[Outbox, State]:
        rows, has = inbox.stack("prototypes"), inbox.stack("classes")
        mean, present = mean_prototypes(rows, has)
        before = state.get("prototypes", torch.zeros_like(mean))
        earlier = state.get("classes", torch.zeros_like(present))
        new = torch.where(present[:, None], mean, before)
        message: Message = {"prototypes": new, "classes": earlier | present}
        return Broadcast(message, inbox.num_clients), {**state, **message}

    return replace(near_prototypes(fedavg, weight, draw=draw), aggregate=aggregate)


def near_prototypes(fedavg: Method, weight: float, *, draw: bool = False) -> Method:
    """Make clients send prototypes and learn from received prototypes (FedProto and FedTGP).

    Example:
        >>> near_prototypes(fgl.fedavg(fgl.nn.GCN(2, 8, 3)), 1.0).send.__name__
        'send'
    """
    base = own_models(fedavg, draw=draw and fedavg.own.models is None)
    with observed(fedavg.model):
        pass  # raises if the model has no embeddings

    def receive(message: Message, state: State, graph: Graph) -> tuple[Params, Any]:
        params, context = base.receive(message, state, graph)
        return params, {**context, **fed.pick(message, ("prototypes", "classes"))}

    def loss(params: Params, graph: Graph, context: Any) -> Tensor:
        with observed(fed.stand_in(base.model)) as passes:
            total = base.loss(params, graph, context)
        if "prototypes" not in context:
            return total
        anchors = context["prototypes"], context["classes"]
        return total + weight * distance(passes[-1].embedding, graph, *anchors)

    @torch.no_grad()
    def send(params: Params, context: Any, state: State, graph: Graph) -> tuple[Message, State]:
        message, new_state = base.send(params, context, state, graph)
        rest = fed.drop(message, ["model"])
        with base.at(graph), fed.in_mode(fed.stand_in(base.model), False):
            embedding = fed.predict(base.model, params, graph, return_embedding=True)[1]
        rows, has = prototypes(embedding, graph)
        return {**rest, "prototypes": rows, "classes": has}, new_state

    return replace(base, receive=receive, loss=loss, send=send)


def mean_prototypes(rows: Tensor, has: Tensor) -> tuple[Tensor, Tensor]:
    """Each class's mean prototype over the clients that have the class, and a mask of classes.

    Args:
        rows: float ``[K, C, d]``, the clients' prototypes.
        has: bool ``[K, C]``, True for each prototype that exists.

    Returns:
        Two tensors. The means are float ``[C, d]``. The mask is bool ``[C]``. For a class that no
        client has, the mean is 0 and the mask is False.

    Example:
        >>> rows = torch.tensor([[[1.0], [5.0]], [[3.0], [7.0]]])
        >>> mean_prototypes(rows, torch.tensor([[True, False], [True, False]]))
        (tensor([[2.],
                [0.]]), tensor([ True, False]))
    """
    count = has.sum(0)
    return (rows * has[..., None]).sum(0) / count.clamp(min=1)[:, None], count > 0


def prototypes(embedding: Tensor, graph: Graph) -> tuple[Tensor, Tensor]:
    """Mean embedding of each class's training examples (FedProto, Eq. 3), and a mask of classes.

    Args:
        embedding: float ``[num_examples, d]``.
        graph: a graph with labels, C classes and a training mask.

    Returns:
        Two tensors. The means are float ``[C, d]``. The mask is bool ``[C]``. For a class without a
        training example, the mean is 0 and the mask is False.

    Raises:
        ValueError: if there are no class labels, or if the number of embeddings is not the number
            of examples.

    Example:
        >>> graph = fgl.Graph(torch.eye(3), torch.zeros(2, 0).long(), y=torch.tensor([1, 1, 0]),
        ...                   num_classes=3)
        >>> prototypes(torch.tensor([[1.0], [3.0], [5.0]]), graph)
        (tensor([[5.],
                [2.],
                [0.]]), tensor([ True,  True, False]))
    """
    y, weight = labelled(embedding, graph)
    classes = -1 if graph.num_classes is None else graph.num_classes
    one_hot = torch.nn.functional.one_hot(y, classes).to(embedding.dtype)
    count = (one_hot * weight[:, None]).sum(0)
    total = (one_hot * weight[:, None]).T @ embedding
    return total / count.clamp(min=1)[:, None], count > 0


def distance(embedding: Tensor, graph: Graph, rows: Tensor, has: Tensor) -> Tensor:
    """Mean squared difference between the entries of embeddings and of their classes' prototypes.

    ``1 / (n d) sum_v ||h_v - C^{y_v}||^2`` over the n training examples. If the class of a training
    example has no prototype, the example adds 0.

    Args:
        embedding: h, float ``[num_examples, d]``.
        graph: a graph with labels and a training mask.
        rows: prototypes C, float ``[num_classes, d]``, which get no gradient.
        has: bool ``[num_classes]``, True for each class that has a prototype.

    Returns:
        Scalar.

    Example:
        >>> graph = fgl.Graph(torch.eye(2), torch.zeros(2, 0).long(), y=torch.tensor([0, 1]))
        >>> rows, has = torch.tensor([[1.0, 0.0], [9.0, 9.0]]), torch.tensor([True, False])
        >>> distance(torch.zeros(2, 2), graph, rows, has)
        tensor(0.2500)
    """
    y, weight = labelled(embedding, graph)
    return weighted_mean((embedding - rows.detach()[y]).square().mean(-1) * has[y], weight)


def labelled(embedding: Tensor, graph: Graph) -> tuple[Tensor, Tensor]:
    """Labels (0 outside the training split), and the training mask as numbers.

    Raises:
        ValueError: if there are no class labels, or if the number of embeddings is not the number
            of examples.

    Example:
        >>> graph = fgl.Graph(torch.eye(2), torch.zeros(2, 0).long(), y=torch.tensor([1, 0]),
        ...                   train_mask=torch.tensor([True, False]))
        >>> labelled(torch.zeros(2, 2), graph)
        (tensor([1, 0]), tensor([1., 0.]))
    """
    y: Any = graph.y
    wrong = y is None or y.is_floating_point() or y.dim() != 1
    got = getattr(y, "dtype", "none")
    reject_if(wrong, "examples to have class labels, whose prototypes are sent", got)
    want = f"one embedding for each of the {len(y)} examples"
    reject_if(len(embedding) != len(y), want, len(embedding))
    mask = torch.ones_like(y, dtype=torch.bool) if graph.train_mask is None else graph.train_mask
    return torch.where(mask, y, 0), mask.to(embedding.dtype)
