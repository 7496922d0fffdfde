"""FedAvg, on which all methods are built, and servers that read only means or sums of uploads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ...aggregate import mean
from ...checks import reject_if
from ...graph import Graph
from ...graph.windows import by_answer
from ...kinds import check_takes
from ...predict import predict, reads, stand_in
from ...targets import CLASSES, Target, check_no_broadcast, checked_y
from ...warn import warn
from .compose import layer
from .describe import short_name
from .message import Aggregate, Broadcast, Inbox, Message, Params, State, check_model
from .method import Loss, Method, Receive, Training
from .rules import check_has_shapes


class Means(Mapping[str, Params]):
    """Means over a round's clients, as a mapping from a key to the mean of the clients' entries.

    Args:
        values: the means by key. ``"model"`` is missing if no client has an example.
        inbox: the messages of the clients over which the means are taken. A message contains only
            the entries that the server reads separately for each client. Most servers read only
            means. For these servers, each client's message in `inbox` is empty.

    Example:
        >>> means = Means({"model": {"w": torch.ones(1)}}, fgl.federation.Inbox({2: {}, 4: {}}, 5))
        >>> means["model"], means.clients, means.num_clients
        ({'w': tensor([1.])}, [2, 4], 5)
    """

    def __init__(self, values: Mapping[str, Params], inbox: Inbox) -> None:
        self._values = dict(values)
        self.inbox = inbox

    @classmethod
    def over(
        cls,
        inbox: Inbox,
        *,
        model: Params | None = None,
        equally: Collection[str] = (),
        reads: Collection[str] = (),
    ) -> Means:
        """The `Means` of an inbox; ``means["model"]`` is the given `model`.

        For each key in `equally`, the mean over clients is unweighted. From each upload,
        `Means.inbox` contains only the entries that `reads` names.

        Raises:
            TypeError: if an entry that `equally` names is not a dict of tensors.
            ValueError: if an upload lacks an entry that `equally` names.

        Example:
            >>> inbox = fgl.federation.Inbox({k: {"n": {"w": torch.tensor(k)}} for k in (1, 3)}, 4)
            >>> means = Means.over(inbox, equally=["n"])
            >>> means["n"], dict(means.inbox)
            ({'w': tensor(2)}, {1: {}, 3: {}})
        """
        values = {} if model is None else {"model": model}
        values |= {key: _plain_mean(inbox, key) for key in equally}
        entries = {k: {key: m[key] for key in reads if key in m} for k, m in inbox.items()}
        sent, payers = inbox.sent, inbox.asked
        return cls(values, Inbox(entries, inbox.num_clients, sent, inbox.round, payers))

    @property
    def clients(self) -> list[int]:
        """The clients over which the means are computed, in order."""
        return self.inbox.clients

    @property
    def num_clients(self) -> int:
        """Number of clients in the federation, whether present or absent."""
        return self.inbox.num_clients

    def __getitem__(self, key: str) -> Params:
        got = f"those of {list(self._values)}"
        reject_if(key not in self._values, f"a mean of {key!r}", got, KeyError)
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


Made = tuple[Mapping[int, Message], State]
Serve = Callable[[Means, State], Made]
ServeSums = Callable[[Params, int, State], Made]
Change = Callable[[Mapping[int, Message], State, Means, State], Made]


@dataclass(frozen=True)
class OfMeans:
    """A method's `aggregate` that needs only means over the clients' uploads.

    ``means["model"] = sum_k n_k theta_k / sum_k n_k``, where n_k is ``"num_examples"``. So it is
    known before a run which entries the server reads. Therefore `fgl.transforms.secure_sum` can
    pass means of masked uploads to the server, and `fgl.transforms.robust` can pass a robust mean
    of the models.

    Args:
        serve: ``(means, state) -> outbox, state``, the server's part. `means` is a `Means`. If no
            client in a round has an example, `means` contains no ``"model"``.
        equally: keys of further entries of an upload. Each such entry is a dict of tensors. `serve`
            reads the means of these tensors over the clients. In these means, all clients have
            equal weights.
        reads: keys of the entries that `serve` reads separately for each client. `serve` finds
            these entries in ``means.inbox``. A secure sum does not reveal these entries, and a
            robust mean does not protect them.
        averages: whether `serve` only sends the mean of the models to every client. Builders that
            replace the server require a method with ``averages=True``.

    Raises:
        TypeError: if `serve` does not accept two arguments, or if `equally` or `reads` is a string.
        ValueError: if `equally` names ``"model"`` or ``"num_examples"``.

    Example:
        >>> def serve(means, state):
        ...     message = {"model": {name: value / 2 for name, value in means["model"].items()}}
        ...     return dict.fromkeys(range(means.num_clients), message), message
        >>> one = {"model": {"w": torch.ones(1)}, "num_examples": torch.tensor(3)}
        >>> OfMeans(serve)(fgl.federation.Inbox({1: one}, num_clients=2), {})[0][0]
        {'model': {'w': tensor([0.5000])}}
    """

    serve: Serve
    equally: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    averages: bool = False

    def __post_init__(self) -> None:
        _check_takes("serve", self.serve, ("means", "state"))
        for name in ("equally", "reads"):
            object.__setattr__(self, name, _keys(name, getattr(self, name)))
        for name in ("__name__", "__qualname__"):  # a checkpoint compares functions by their names
            object.__setattr__(self, name, short_name(self.serve))
        weighted = [key for key in self.equally if key in ("model", "num_examples")]
        want = (
            "equally to name keys beside 'model' and 'num_examples', since the mean of the models"
        )
        reject_if(weighted, f"{want} is weighted by the clients' examples", weighted)

    def __call__(self, inbox: Inbox, state: State) -> Made:
        weight = inbox.stack("num_examples")
        model = mean(inbox.each("model"), weight) if weight.any() else None
        return self.serve_model(model, inbox, state)

    def serve_model(self, model: Params | None, inbox: Inbox, state: State) -> Made:
        """Call `serve` with the means of an inbox; ``means["model"]`` is the given `model`.

        If `model` is None, the means contain no ``"model"``.
        """
        return self.serve(
            Means.over(inbox, model=model, equally=self.equally, reads=self.reads), state
        )


def after(
    aggregate: Aggregate,
    change: Change,
    *,
    equally: Collection[str] = (),
    reads: Collection[str] = (),
    averages: bool = False,
) -> Aggregate:
    """A new `aggregate` that changes the results of the given `aggregate`.

    If `aggregate` is an `OfMeans`, the new server is an `OfMeans` too. So
    `fgl.transforms.secure_sum` and `fgl.transforms.robust` can wrap a method with this server.

    Args:
        aggregate: the server's function, of any type.
        change: ``(outbox, new, means, state) -> outbox, state``. The arguments `outbox` and `new`
            are the outbox and the state that `aggregate` returned. `state` is the state that
            `aggregate` received. `means` contains the means of the entries that `equally` names.
            The outbox is empty in a round in which no client has an example.
        equally: keys of an upload; the value of each key is a dict of tensors. `change` reads the
            means of these tensors over the clients, computed with equal weights.
        reads: keys of the entries that `change` reads separately for each client. `change` finds
            these entries in ``means.inbox``.
        averages: whether `change` returns the outbox unchanged. `OfMeans.averages` of the new
            server is True if `averages` and ``aggregate.averages`` are both True.

    Raises:
        TypeError: if `change` does not accept four arguments, or if `equally` or `reads` is a
            string.

    Example:
        >>> def count(outbox, new, means, state):
        ...     return outbox, {**new, "count": torch.tensor(len(means.clients))}
        >>> aggregate = after(fgl.federation.average, count)
        >>> one = {"model": {"w": torch.ones(1)}, "num_examples": torch.tensor(3)}
        >>> aggregate(fgl.federation.Inbox({0: one, 2: one}, 3), {})[1]
        {'model': {'w': tensor([1.])}, 'count': tensor(2)}
    """
    _check_takes("change", change, ("outbox", "new", "means", "state"))
    equally, reads = _keys("equally", equally), _keys("reads", reads)
    if not isinstance(aggregate, OfMeans):

        def changed(inbox: Inbox, state: State) -> Made:
            outbox, new = aggregate(inbox, state)
            return change(outbox, new, Means.over(inbox, equally=equally, reads=reads), state)

        changed.__qualname__ = short_name(change)
        return changed
    served = aggregate.serve

    def serve(means: Means, state: State) -> Made:
        outbox, new = served(means, state)
        return change(outbox, new, means, state)

    serve.__qualname__ = short_name(change)
    return OfMeans(
        serve,
        equally=tuple(dict.fromkeys((*aggregate.equally, *equally))),
        reads=tuple(dict.fromkeys((*aggregate.reads, *reads))),
        averages=averages and aggregate.averages,
    )


def _plain_mean(inbox: Inbox, key: str) -> Params:
    stacks = inbox.each(key)
    want = f"{key!r} of an upload to be a dict of tensors"
    reject_if(not isinstance(stacks, Mapping), want, "a tensor", TypeError)
    return mean(stacks, torch.ones(len(inbox)))


def _keys(name: str, keys: Any) -> tuple[str, ...]:
    got = f"the string {keys!r}"
    reject_if(isinstance(keys, str), f"{name} to be several keys", got, TypeError)
    return tuple(keys)


def _check_takes(name: str, function: Any, arguments: Collection[str]) -> None:
    """Raise an error if the function cannot be called with these positional arguments."""
    if isinstance(function, OfMeans | OfSums):
        call = f"a function of ({', '.join(arguments)})"
        raise TypeError(f"Expected {name} to be {call}, but got {function!r}")
    check_takes(name, function, arguments)


@dataclass(frozen=True)
class OfSums:
    """A method's `aggregate` that reads only the sum of one upload entry over the clients.

    The function `serve` receives only the sum and no individual upload. So such a method works with
    `fgl.transforms.secure_sum` without any change. Under a secure sum, clients send only this entry
    and ``"num_examples"``. If a client's upload lacks this entry, the client is left out of the sum
    and receives an empty message. If uploads have different layouts, only uploads with the most
    common layout are summed. If two layouts are equally common, no upload is summed, since neither
    layout is the most common. A warning names the clients that are left out.

    Args:
        key: key of the entry; the entry is a dict of floating-point tensors.
        serve: ``(sums, num_clients, state) -> outbox, state``.

    Example:
        >>> def serve(sums, num_clients, state):
        ...     return {}, {**state, "heard": sums}
        >>> inbox = fgl.federation.Inbox({k: {"of": {"n": torch.ones(1)}} for k in range(3)}, 3)
        >>> OfSums("of", serve)(inbox, {})
        ({}, {'heard': {'n': tensor([3.])}})
    """

    key: str
    serve: ServeSums

    def __call__(self, inbox: Inbox, state: State) -> tuple[Mapping[int, Message], State]:
        parts = {k: message[self.key] for k, message in inbox.items() if self.key in message}
        odd = _of_odd_layout(parts)
        if odd:
            warn(
                f"Clients {odd} sent {self.key!r} of another layout than most: their uploads do "
                "not count"
            )
        counting = [each for client, each in parts.items() if client not in odd]
        if not counting:
            return {client: {} for client in inbox}, state
        stacks = {name: [each[name] for each in counting] for name in counting[0]}
        means = mean(stacks, torch.ones(len(counting)))
        sums = {name: value * len(counting) for name, value in means.items()}
        return self.serve(sums, inbox.num_clients, state)


def _of_odd_layout(parts: Mapping[int, Params]) -> list[int]:
    """The clients whose uploads do not have the most common layout.

    If the two most common layouts are equally common, all clients are returned.
    """
    layouts = {client: _layout(tensors) for client, tensors in parts.items()}
    counts = Counter(layouts.values()).most_common(2)
    tied = len(counts) == 2 and counts[0][1] == counts[1][1]
    return [client for client, layout in layouts.items() if tied or layout != counts[0][0]]


def _layout(tensors: Params) -> frozenset[Any]:
    return frozenset((name, value.shape, value.dtype) for name, value in tensors.items())


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

    ``theta <- sum_k n_k theta_k / sum_k n_k``, where n_k is client k's number of training examples.

    Args:
        model: a module with the architecture and the initial parameters.
        loss: ``(params, graph, context) -> scalar``; by default `supervised`, the target's loss on
            the training examples.
        train: local training; by default one step of SGD with a learning rate of 0.1.
        target: meaning of the values of ``graph.y``; by default class labels.

    Raises:
        TypeError: if `model` is not a module.
        ValueError: if the model has lazy layers that have not seen data. A ValueError is also
            raised if a loss is given together with a target other than class labels, since this
            loss would ignore the target.

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


def supervised(model: nn.Module, target: Target = CLASSES) -> Loss:
    """FedAvg's loss: the target's loss on the training examples of a client.

    Args:
        model: the model; it is called as ``model(*graph.inputs)``, and returns logits or the output
            that the target needs.
        target: meaning of the values of ``graph.y``. The default is class labels, with
            cross-entropy as the loss.

    Returns:
        ``(params, graph, context) -> scalar``. This function raises a ValueError if the graph has
        no labels, if the names or shapes of the parameters differ from the model's, or if the
        output has fewer classes than the labels. A ValueError is also raised if the examples are
        pairs and the output has a row per node. This function raises a TypeError if labels have a
        floating dtype and no target is given, or if the model does not return a tensor.

    Example:
        >>> model = fgl.nn.GCN(2, 8, 2)
        >>> graph = fgl.Graph(torch.eye(2), torch.tensor([[0], [1]]), y=torch.tensor([0, 1]))
        >>> supervised(model)(dict(model.named_parameters()), graph, {}).shape
        torch.Size([])
    """
    shapes_of: dict[nn.Module, tuple[list[str], dict[str, torch.Size]]] = {}

    def loss(params: Params, graph: Graph, context: Message) -> Tensor:
        # If a method's model was replaced, this loss may still have the old model.
        called = stand_in(model)
        if called not in shapes_of:  # a lazy layer has no shapes before its first call
            shapes = {name: t.shape for name, t in called.state_dict().items()}
            shapes_of[called] = [name for name, _ in called.named_parameters()], shapes
        _check_params(called, params, *shapes_of[called])
        checked_y(target, graph.y)
        output = predict(model, params, graph)
        _check_output(called, output, graph, target)
        return target.loss(*by_answer(graph, graph.train_mask, output))

    return loss


def _check_params(
    model: nn.Module, params: Params, names: Sequence[str], shapes: Mapping[str, torch.Size]
) -> None:
    """Raise an error unless `params` contains all tensors of the model."""
    missing = [name for name in names if name not in params]
    others = [name for name, tensor in params.items() if shapes.get(name) != tensor.shape]
    want = f"params to be all of the {type(model).__name__} that this loss is made of"
    reject_if(missing or others, want, f"{others} of another shape or name, and {missing} missing")


def _check_output(model: nn.Module, output: Any, graph: Graph, target: Target) -> None:
    """Raise an error unless the output has a row per example and enough columns for all classes.

    If the examples are pairs of nodes, the model must also read `edge_label_index`.
    """
    if not isinstance(output, Tensor):
        raise TypeError(
            f"Expected the model to return a tensor, a row an example, but got a "
            f"{type(output).__name__} of {type(model).__name__}"
        )
    pairs = graph.edge_label_index is not None
    want = "a model whose forward reads edge_label_index, since the graph's examples are pairs"
    reject_if(pairs and "edge_label_index" not in reads(model).names, want, type(model).__name__)
    name, y = type(model).__name__, graph.y
    if graph.has("window_index"):
        return  # `by_answer` compares the whole shape
    if y is not None and output.dim() and len(output) != len(y):
        pool = ": pool them, as fgl.nn.GIN, or PyG's global_add_pool(x, batch), does"
        raise ValueError(
            f"Expected the model to give {len(y)} rows, one an example, but got {len(output)} "
            f"rows of {name}{pool if graph.batch is not None else ''}"
        )
    if y is not None:
        check_no_broadcast("the target's loss", target.loss, output, y)
    if target != CLASSES:
        return
    if output.dim() != 2:
        raise ValueError(
            "Expected the model to give a row of numbers an example, one a class, but got shape "
            f"{list(output.shape)} of {name}: y as float and target=fgl.targets.ANSWERS take one "
            "number an example"
        )
    classes = graph.num_classes
    reject_if(
        classes is not None and output.shape[1] < classes,
        f"the model to give {classes} numbers an example, one a class",
        f"{output.shape[1]} of {name}: num_classes is {classes}, by default the largest label plus "
        "one",
    )


def adopt_model(model: nn.Module) -> Receive:
    """FedAvg's `receive`: return the server's model, and the message as the training's context.

    Args:
        model: the architecture; the tensors of a received model must have the names in this
            architecture.

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
        return message["model"], message

    return receive


def _check_has_model(message: Message) -> None:
    reject_if("model" not in message, "message to have 'model'", f"keys {list(message)}")


def send_model(
    params: Params, context: Message, state: State, graph: Graph
) -> tuple[Message, State]:
    """FedAvg's `send`: the trained model, and the number of training examples (`Graph.num_train`).

    Returns:
        The message ``{"model": params, "num_examples": int64 scalar}``, and the unchanged state.

    Example:
        >>> graph = fgl.Graph(torch.ones(3, 1), torch.zeros(2, 0, dtype=torch.int64))
        >>> send_model({"w": torch.zeros(1)}, {}, {}, graph)[0]["num_examples"]
        tensor(3)
    """
    return {"model": params, "num_examples": torch.tensor(graph.num_train)}, state


def send_mean(means: Means, state: State) -> tuple[Mapping[int, Message], State]:
    """Send the mean of the models to every client.

    If no client has an example, the outbox is empty, a warning is given, and every client keeps the
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
            "since no client has a training example with a known answer"
        )
        return {}, state
    message: Message = {"model": means["model"]}
    return Broadcast(message, means.inbox.num_clients), dict(message)


average = OfMeans(send_mean, averages=True)
"""FedAvg's `aggregate`: send every client the mean of the models, weighted by examples.

If no client has an example, the outbox is empty, a warning is given and every client keeps the
old model. If a loss needs no labels, clients should send the number of examples that the loss uses,
such as the number of nodes, as ``num_examples``. A negative number of examples raises a ValueError.

Example:
    >>> message = {"model": {"w": torch.tensor(2.0)}, "num_examples": torch.tensor(5)}
    >>> average(fgl.federation.Inbox({0: message}, num_clients=1), {})[0][0]
    {'model': {'w': tensor(2.)}}
"""


def deploy_received(message: Message, state: State, graph: Graph) -> Params:
    """FedAvg's `deploy`: a client uses the model that it receives in the message.

    Raises:
        ValueError: if the message contains no model.

    Example:
        >>> deploy_received({"model": {"w": torch.zeros(1)}}, {}, None)
        {'w': tensor([0.])}
    """
    _check_has_model(message)
    params: Params = message["model"]
    return params


def accept_all(message: Message, client: int, state: State) -> None:
    """FedAvg's `accept`: accept every message that passes the general checks.

    Example:
        >>> accept_all({}, 0, {})
    """


def accept_equally(message: Message, client: int, state: State) -> None:
    """The server's `accept` for methods in which all clients have the same weight.

    With equal weights, ``"num_examples"`` is at most 1, and this function checks this bound.
    `Rules.max_examples` is a different bound, which limits a client's true number of examples. A
    client can send its true number of examples under a key other than ``"num_examples"``.

    Example:
        >>> accept_equally({"num_examples": torch.tensor(2)}, 0, {})
        Traceback (most recent call last):
        ValueError: Expected num_examples to be at most 1, but got 2
    """
    count = message.get("num_examples", torch.tensor(1))
    if (count > 1).any():
        raise ValueError(f"Expected num_examples to be at most 1, but got {count.max()}")
