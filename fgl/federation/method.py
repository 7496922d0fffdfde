"""A federated method as four small functions; what it does not say, FedAvg says for it."""

from __future__ import annotations

import hashlib
import operator
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from .. import aggregate as server
from ..graph import Graph
from ..losses import cross_entropy
from .message import Broadcast, Inbox, Message, Params, check_model

State = Message
Loss = Callable[[Params, Graph, Message], Tensor]
Receive = Callable[[Message, State, Graph], tuple[Params, Message]]
Send = Callable[[Params, Message, State, Graph], tuple[Message, State]]
Aggregate = Callable[[Inbox, State], tuple[Mapping[int, Message], State]]
Accept = Callable[[Message], None]
OptimizerFactory = Callable[[Iterable[Tensor]], torch.optim.Optimizer]
Batches = Callable[[Graph, Message], Iterable[tuple[Graph, Message]]]


@dataclass(frozen=True)
class Training:
    """How a client trains.

    Args:
        optimizer: makes a `torch.optim` optimiser of a list of tensors.
        num_steps: local steps per round, each on all training nodes; with `batch_size`, passes over
            the training nodes, a step for each minibatch.
        batch_size: training nodes per step: the loss sees the whole graph, its `train_mask` holds
            the minibatch. Default all.
        max_grad_norm: clip the gradient's norm to this; default no clipping.
        keep_optimizer: keep the optimiser's state from a client's round to its next, in its state's
            ``"optimizer"``; default a fresh optimiser each round.
        batches: ``(graph, context) -> pairs (graph, context)``, what the loss sees in each local
            step of a round: sampled neighbours, a minibatch of graphs. Drawn before the first step,
            from torch's global generator; `num_steps` is then not looked at.

    Raises:
        ValueError: if `num_steps` is negative, `batch_size` or `max_grad_norm` not positive, or
            both `batch_size` and `batches` are given.

    Example:
        >>> Training(partial(torch.optim.Adam, lr=0.01), num_steps=3).num_steps
        3
    """

    optimizer: OptimizerFactory = partial(torch.optim.SGD, lr=0.1)
    num_steps: int = 1
    max_grad_norm: float | None = None
    batch_size: int | None = None
    keep_optimizer: bool = False
    batches: Batches | None = None

    def __post_init__(self) -> None:
        if self.num_steps < 0:
            raise ValueError(f"Expected num_steps to be at least 0, but got {self.num_steps}")
        if self.max_grad_norm is not None and not self.max_grad_norm > 0:
            raise ValueError(f"Expected max_grad_norm to be > 0, but got {self.max_grad_norm}")
        if self.batch_size is not None and self.batch_size < 1:
            raise ValueError(f"Expected batch_size to be at least 1, but got {self.batch_size}")
        if self.batch_size is not None and self.batches is not None:
            raise ValueError(
                f"Expected batch_size to be None beside batches, but got {self.batch_size}"
            )


@dataclass(frozen=True)
class Method:
    """A federated method: what a client minimises, receives and sends, what the server makes of it.

    Messages and states are dicts of named tensors, at most one dict deep. A method is a value:
    vary one with ``dataclasses.replace``.

    Args:
        model: the architecture; its parameters travel as plain dicts of tensors and its own are
            only the initial ones.
        loss: ``(params, graph, context) -> scalar``; default cross-entropy on the training nodes.
        receive: ``(message, state, graph) -> params, context``; default adopts the model, and the
            context is the message. (The defaults are those of `model`, also after ``replace``.)
        send: ``(params, context, state, graph) -> message, state``; default sends the model and the
            number of training nodes.
        aggregate: ``(inbox, state) -> outbox, state``; default the weighted mean for everybody. A
            client that the outbox does not name keeps the last message it was sent.
        train: optimiser, local steps.
        accept: ``(message) -> None``, the server's check of an upload; a ValueError or TypeError
            refuses it: it is dropped, recorded and warned of, and the round goes on without it.
            Default accepts all.

    Example:
        >>> method = Method(fgl.nn.GCN(4, 8, 2), train=Training(num_steps=3))
        >>> method.aggregate.__name__
        'average'
    """

    model: nn.Module
    loss: Loss = None  # type: ignore[assignment]  # filled below: it needs the model
    receive: Receive = None  # type: ignore[assignment]
    send: Send = field(default_factory=lambda: send_model)
    aggregate: Aggregate = field(default_factory=lambda: average)
    train: Training = field(default_factory=Training)
    accept: Accept = field(default_factory=lambda: accept_all)

    def __post_init__(self) -> None:
        for name, make in (("loss", supervised), ("receive", adopt_model)):
            given = getattr(self, name)
            # A default that `dataclasses.replace` brings along is of the model before. It names
            # itself as well, since `functools.wraps` copies what a function is marked with.
            known, model = getattr(given, "default", None) or (None, None)
            if given is None or (known is given and model is not self.model):
                made: Any = make(self.model)
                made.default = (made, self.model)
                object.__setattr__(self, name, made)

    def initial(self) -> Params:
        """A copy of the model's own tensors, with which a federation starts."""
        return {name: t.detach().clone() for name, t in self.model.state_dict().items()}


def supervised(model: nn.Module) -> Loss:
    """The loss of FedAvg: cross-entropy on a client's training nodes.

    Args:
        model: called as ``model(graph.x, graph.adj)``, returns logits.

    Returns:
        ``(params, graph, context) -> scalar``; it raises a ValueError for a graph without labels,
        and for parameters that are not, by name and shape, the model's.

    Raises:
        ValueError: if parameters of the model are tied.

    Example:
        >>> model = fgl.nn.GCN(2, 8, 2)
        >>> graph = fgl.Graph(torch.eye(2), torch.tensor([[0], [1]]), y=torch.tensor([0, 1]))
        >>> supervised(model)(dict(model.named_parameters()), graph, {}).shape
        torch.Size([])
    """

    names = [name for name, _ in model.named_parameters(remove_duplicate=False)]
    once = [name for name, _ in model.named_parameters()]
    if len(names) != len(once):
        tied = [name for name in names if name not in once]
        raise ValueError(f"Expected the model's parameters to be untied, but got {tied} tied")

    shapes: dict[str, torch.Size] = {}

    def loss(params: Params, graph: Graph, context: Message) -> Tensor:
        # A loss made of this one goes on with this model where `replace` gives the method another.
        if not shapes:  # a lazy layer has none before
            shapes.update((name, t.shape) for name, t in model.state_dict().items())
        missing = [name for name in names if name not in params]
        others = [name for name, tensor in params.items() if shapes.get(name) != tensor.shape]
        if missing or others:
            raise ValueError(
                f"Expected params to be all of the {type(model).__name__} that this loss is made "
                f"of, but got {others} of another shape or name, and {missing} missing"
            )
        if graph.y is None:
            raise ValueError("Expected graph.y to be a tensor of labels, but got None")
        logits = functional_call(model, params, graph.inputs, tie_weights=False)
        return cross_entropy(logits, graph.y, graph.train_mask)

    return loss


def adopt_model(model: nn.Module) -> Receive:
    """FedAvg's receive: train from the server's model; the context is the whole message.

    Args:
        model: the architecture that the received model must match, name by name.

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
        check_model(message.get("model"), template)
        params: Any = message["model"]
        return params, message

    return receive


def send_model(
    params: Params, context: Message, state: State, graph: Graph
) -> tuple[Message, State]:
    """FedAvg's send: the trained model and the number of training nodes.

    Returns:
        ``{"model": params, "num_examples": int64 scalar}``, and the state as it was.

    Example:
        >>> graph = fgl.Graph(torch.ones(3, 1), torch.zeros(2, 0, dtype=torch.int64))
        >>> send_model({"w": torch.zeros(1)}, {}, {}, graph)[0]["num_examples"]
        tensor(3)
    """
    return {"model": params, "num_examples": torch.tensor(graph.num_train)}, state


def average(inbox: Inbox, state: State) -> tuple[Mapping[int, Message], State]:
    """FedAvg's aggregate: the mean of the models weighted by examples, for everybody.

    Where no client has an example the outbox is empty and a warning given: everybody keeps the old
    model. (So weigh a loss without labels by what it uses: send nodes as ``num_examples``.)

    Returns:
        The outbox, and the state ``{"model": mean}``.

    Raises:
        ValueError: if a number of examples is negative.

    Example:
        >>> message = {"model": {"w": torch.tensor(2.0)}, "num_examples": torch.tensor(5)}
        >>> average(Inbox({0: message}, num_clients=1), {})[0][0]
        {'model': {'w': tensor(2.)}}
    """
    weight = inbox.stack("num_examples")
    if not weight.any():
        warnings.warn(
            "Expected num_examples to be positive, but got 0 from all: they keep the old model",
            stacklevel=2,
        )
        return {}, state
    message: Message = {"model": server.mean(inbox.each("model"), weight)}
    return Broadcast(message, inbox.num_clients), dict(message)


def accept_all(message: Message) -> None:
    """FedAvg's accept: the general checks of a message are enough."""


def keep_own(inbox: Inbox, state: State) -> tuple[Mapping[int, Message], State]:
    """No federation: every client gets its own model back.

    Example:
        >>> inbox = Inbox({1: {"model": {"w": torch.tensor(2.0)}}}, num_clients=2)
        >>> keep_own(inbox, {})[0]
        {1: {'model': {'w': tensor(2.)}}}
    """
    return {client: {"model": message["model"]} for client, message in inbox.items()}, state


def fold_in(seed: int, *path: int | str) -> int:
    """A seed of its own for every party and purpose, e.g. ``fold_in(seed, round, client)``.

    A hash, so nothing depends on the order in which parties are served, on restarts or processes.

    Returns:
        An integer in ``[0, 2^63)``.

    Example:
        >>> fold_in(0, 3, 1) == fold_in(0, 3, 1), fold_in(0, 3, 1) == fold_in(0, 1, 3)
        (True, False)
    """
    parts = tuple(p if isinstance(p, str) else operator.index(p) for p in (seed, *path))
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def set_seed(seed: int) -> None:
    """Seed torch's generators.

    Without a GPU `torch.manual_seed` notes every seed, and the stack of its caller, for later.

    Example:
        >>> set_seed(1)
        >>> torch.initial_seed()
        1
    """
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(seed)
