"""FedAvg: the method from which all others start, and its four functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ...checks import reject_if
from ...graph import Graph
from ...graph.windows import by_answer
from ...kinds import check_takes, explained
from ...predict import predict, reads, stand_in
from ...targets import CLASSES, Target, checked_y
from ...warn import warn
from .compose import layer
from .message import Broadcast, Message, Params, State, check_model
from .method import Loss, Method, Receive, Training
from .rules import check_has_shapes
from .sums import Means, OfMeans

ONE_STEP = Training()


@layer
def fedavg(
    model: nn.Module,
    *,
    loss: Loss | None = None,
    train: Training = ONE_STEP,
    target: Target = CLASSES,
) -> Method:
    """Federated averaging: clients train the server's model, and the server averages their models.

    ``theta <- sum_k n_k theta_k / sum_k n_k``, n_k being the number of training examples.

    Args:
        model: the architecture, with the initial parameters.
        loss: ``(params, graph, context) -> scalar``; default `supervised`, the target's loss on the
            training examples.
        train: default one step of SGD with a learning rate of 0.1.
        target: what the values of ``graph.y`` are; default class labels.

    Raises:
        TypeError: if `model` is no module.
        ValueError: for another target beside a loss, which ignores it, or lazy layers that
            have not seen data.

    Example:
        >>> fedavg(fgl.nn.GCN(4, 8, 2)).send.__name__
        'send_model'

    Source: McMahan et al. 2017, https://arxiv.org/abs/1602.05629
    """
    check_has_shapes(model)
    if loss is not None:
        check_takes("loss", loss, ["params", "graph", "context"])
    reject_if(loss is not None and target != CLASSES, "target to be left out beside a loss", "one")
    return Method(
        model=model,
        loss=supervised(model, target) if loss is None else loss,
        receive=adopt_model(model),
        send=send_model,
        aggregate=average,
        deploy=deploy_received,
        train=train,
        accept=accept_all,
    )


@explained
def supervised(model: nn.Module, target: Target = CLASSES) -> Loss:
    """The loss of FedAvg: the target's loss on a client's training examples.

    Args:
        model: called as ``model(*graph.inputs)``, returns logits, or what the target needs.
        target: meaning of the values of ``graph.y``; default class labels, with cross-entropy.

    Returns:
        ``(params, graph, context) -> scalar``. It raises a ValueError for a graph without labels,
        for parameters whose names or shapes are not the model's, and for a model whose output is
        too small: fewer classes than the labels have, or a row per node where the examples are
        pairs. It raises a TypeError for labels that are floating-point numbers if no target is
        given, and for a model that returns no tensor.

    Example:
        >>> model = fgl.nn.GCN(2, 8, 2)
        >>> graph = fgl.Graph(torch.eye(2), torch.tensor([[0], [1]]), y=torch.tensor([0, 1]))
        >>> supervised(model)(dict(model.named_parameters()), graph, {}).shape
        torch.Size([])
    """
    shapes_of: dict[nn.Module, tuple[list[str], dict[str, torch.Size]]] = {}

    def loss(params: Params, graph: Graph, context: Message) -> Tensor:
        # A method whose model was replaced may still have this loss with the first model.
        called = stand_in(model)
        if called not in shapes_of:  # a lazy layer has no shapes before its first call
            shapes = {name: t.shape for name, t in called.state_dict().items()}
            shapes_of[called] = [name for name, _ in called.named_parameters()], shapes
        _check_params(called, params, *shapes_of[called])
        checked_y(target, graph.y)
        output = predict(model, params, graph, tie_weights=False)
        _check_output(called, output, graph, target)
        return target.loss(*by_answer(graph, graph.train_mask, output))

    return loss


def _check_params(
    model: nn.Module, params: Params, names: Sequence[str], shapes: Mapping[str, torch.Size]
) -> None:
    """Raise unless `params` are all of the model's."""
    missing = [name for name in names if name not in params]
    others = [name for name, tensor in params.items() if shapes.get(name) != tensor.shape]
    if missing or others:
        raise ValueError(
            f"Expected params to be all of the {type(model).__name__} that this loss is made of, "
            f"but got {others} of another shape or name, and {missing} missing"
        )


def _check_output(model: nn.Module, output: Any, graph: Graph, target: Target) -> None:
    """Raise unless the output has all classes, and a row per pair if examples are pairs."""
    if not isinstance(output, Tensor):
        raise TypeError(
            f"Expected the model to return a tensor, a row an example, but got a "
            f"{type(output).__name__} of {type(model).__name__}"
        )
    pairs = graph.edge_label_index is not None
    if pairs and "edge_label_index" not in reads(model).names:
        raise ValueError(
            "Expected a model whose forward reads edge_label_index, since the graph's examples are "
            f"pairs, but got {type(model).__name__}"
        )
    name, y = type(model).__name__, graph.y
    if graph.has("window_index"):
        return  # `by_answer` compares all of its shape
    if y is not None and output.dim() and len(output) != len(y):
        pool = ": pool them, as fgl.nn.GIN, or PyG's global_add_pool(x, batch), does"
        raise ValueError(
            f"Expected the model to give {len(y)} rows, one an example, but got {len(output)} "
            f"rows of {name}{pool if graph.batch is not None else ''}"
        )
    if target == CLASSES and output.dim() != 2:
        raise ValueError(
            "Expected the model to give a row of numbers an example, one a class, but got shape "
            f"{list(output.shape)} of {name}: y as float and target=fgl.targets.ANSWERS take one "
            "number an example"
        )
    classes = graph.num_classes if target == CLASSES else None
    if classes is not None and output.dim() == 2 and output.shape[1] < classes:
        raise ValueError(
            f"Expected the model to give {classes} numbers an example, one a class, "
            f"but got {output.shape[1]} of {name}"
        )


@explained
def adopt_model(model: nn.Module) -> Receive:
    """FedAvg's `receive`: start from the server's model; the context is the whole message.

    Args:
        model: the architecture; a received model must have the same names.

    Returns:
        ``(message, state, graph) -> params, context``.

    Example:
        >>> model = torch.nn.Linear(1, 1, bias=False)
        >>> message = {"model": {"weight": torch.zeros(1, 1)}}
        >>> params, context = adopt_model(model)(message, {}, None)
        >>> params["weight"], context is message
        (tensor([[0.]]), True)
    """
    template = {name: t.detach() for name, t in model.state_dict().items()}

    def receive(message: Message, state: State, graph: Graph) -> tuple[Params, Message]:
        _check_has_model(message)
        own = stand_in(model)
        check_model(message["model"], template if own is model else own.state_dict())
        params = message["model"]
        return params, message

    return receive


def _check_has_model(message: Message) -> None:
    reject_if("model" not in message, "message to have 'model'", f"keys {list(message)}")


@explained
def send_model(
    params: Params, context: Message, state: State, graph: Graph
) -> tuple[Message, State]:
    """FedAvg's `send`: the trained model and the number of training examples, `Graph.num_train`.

    Returns:
        ``{"model": params, "num_examples": int64 scalar}``, and the unchanged state.

    Example:
        >>> graph = fgl.Graph(torch.ones(3, 1), torch.zeros(2, 0, dtype=torch.int64))
        >>> send_model({"w": torch.zeros(1)}, {}, {}, graph)[0]["num_examples"]
        tensor(3)
    """
    return {"model": params, "num_examples": torch.tensor(graph.num_train)}, state


def send_mean(means: Means, state: State) -> tuple[Mapping[int, Message], State]:
    """Send every client the mean of the models.

    If no client has an example, the outbox is empty, a warning is given and every client keeps the
    old model.

    Returns:
        The outbox, and the state ``{"model": mean}``.

    Example:
        >>> inbox = fgl.federation.Inbox({0: {}}, num_clients=2)
        >>> means = Means({"model": {"w": torch.tensor(2.0)}}, inbox)
        >>> send_mean(means, {})[0][1]
        {'model': {'w': tensor(2.)}}
    """
    if "model" not in means:
        warn(
            "Expected num_examples to be positive, but got 0 from all: they keep the old model, "
            "since no client has a training example with a known answer",
        )
        return {}, state
    message: Message = {"model": means["model"]}
    return Broadcast(message, means.inbox.num_clients), dict(message)


average = OfMeans(send_mean, averages=True)
"""FedAvg's `aggregate`: the mean of the models, weighted by examples, goes to every client.

If no client has an example, the outbox is empty, a warning is given and every client keeps the
old model. (If a loss needs no labels, send the number of examples that it uses as
``num_examples``, such as the number of nodes.) It raises a ValueError if a number of examples is
negative.

Example:
    >>> message = {"model": {"w": torch.tensor(2.0)}, "num_examples": torch.tensor(5)}
    >>> average(fgl.federation.Inbox({0: message}, num_clients=1), {})[0][0]
    {'model': {'w': tensor(2.)}}
"""


@explained
def deploy_received(message: Message, state: State, graph: Graph) -> Params:
    """FedAvg's `deploy`: a client uses the model that it is sent.

    Raises:
        ValueError: if the message has no model.

    Example:
        >>> deploy_received({"model": {"w": torch.zeros(1)}}, {}, None)
        {'w': tensor([0.])}
    """
    _check_has_model(message)
    params: Params = message["model"]
    return params


@explained
def accept_all(message: Message, client: int, state: State) -> None:
    """FedAvg's `accept`: the general checks of a message are enough.

    Example:
        >>> accept_all({}, 0, {})
    """


@explained
def accept_equally(message: Message, client: int, state: State) -> None:
    """The server's check if all clients have equal weights: ``"num_examples"`` is at most 1.

    `Rules.max_examples` stays the size of the largest client, since other entries of an upload may
    count its examples.

    Example:
        >>> accept_equally({"num_examples": torch.tensor(2)}, 0, {})
        Traceback (most recent call last):
        ValueError: Expected num_examples to be at most 1, but got 2
    """
    count = message.get("num_examples", torch.tensor(1))
    if (count > 1).any():
        raise ValueError(f"Expected num_examples to be at most 1, but got {count.max()}")
