"""Methods: four small functions, how a client trains, and the rules of a round."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ...checks import check_count, check_number
from ...graph import Graph
from ...kinds import check_takes
from ...predict import standing_in
from .describe import hides
from .inbox import Inbox
from .layers import FUNCTIONS, HOOKS, Layer, written
from .message import Message, Params
from .models import Models, is_under, without

State = Message
Loss = Callable[[Params, Graph, Any], Tensor]
Receive = Callable[[Message, State, Graph], tuple[Params, Any]]
Send = Callable[[Params, Any, State, Graph], tuple[Message, State]]
Aggregate = Callable[[Inbox, State], tuple[Mapping[int, Message], State]]
Deploy = Callable[[Message, State, Graph], Params]
Accept = Callable[[Message, int, State], None]
OptimizerFactory = Callable[[Iterable[Tensor]], torch.optim.Optimizer]
Batches = Callable[[Graph, Any], Iterable[tuple[Graph, Any]]]
Adjust = Callable[[Params, Params, Any], Params]
Settle = Callable[[Params, Params, Any], Params]
Evaluate = Callable[[Mapping[int, Message], Mapping[int, State]], dict[str, float]]
Watch = Callable[[State], Mapping[str, float]]
Costs = Callable[[Message], Mapping[str, float]]
Account = Callable[[Inbox, State], State]


def without_noise(message: Message) -> Mapping[str, float]:
    """The cost of an answer without noise: a noise multiplier of 0.

    Example:
        >>> without_noise({})
        {'noise_multiplier': 0.0}
    """
    return {"noise_multiplier": 0.0}


@dataclass(frozen=True)
class Training:
    """Settings of a client's local training.

    Args:
        optimizer: function from a list of tensors to a `torch.optim` optimiser.
        num_steps: number of local steps per round, each on all training examples; default 1.
        batches: ``(graph, context) -> pairs (graph, context)``, replaces `num_steps`: each local
            step computes the loss on one pair. Used for minibatches (`node_minibatches`,
            `graph_minibatches`), sampled neighbours and negative edges. All pairs are drawn before
            the first step, from torch's global generator; with `Steps` each is drawn when it is
            needed.
        epochs: number of passes of `batches` over a client's examples in a round, each with the
            same number of steps; default 1. With `num_steps` each step is an epoch.
        max_grad_norm: the gradient is clipped to this norm; default no clipping.
        keep_optimizer: whether a client keeps the optimiser's state until its next round, under
            ``"optimizer"`` in its own state; default a fresh optimiser in each round.
        adjust: ``(grads, params, context) -> grads``, called after clipping and before the
            optimiser's step. `grads` has a tensor for each trained tensor, zeros if the loss does
            not depend on it.
        settle: ``(new, old, context) -> params``, called after each optimiser step with the new and
            the old tensors. The tensors that it returns replace the new ones.
        settle_moments: whether `settle` is also called with each of the optimiser's moments. So an
            entry that `settle` holds still keeps its moments too.

    Raises:
        ValueError: if `num_steps` or `epochs` is negative, `num_steps` is given beside `batches`,
            or `max_grad_norm` is not positive.

    Example:
        >>> Training(partial(torch.optim.Adam, lr=0.01), num_steps=3).num_steps
        3
    """

    optimizer: OptimizerFactory = partial(torch.optim.SGD, lr=0.1)
    num_steps: int | None = None
    batches: Batches | None = None
    epochs: int | None = None
    max_grad_norm: float | None = None
    keep_optimizer: bool = False
    adjust: Adjust | None = None
    settle: Settle | None = None
    settle_moments: bool = False

    def __post_init__(self) -> None:
        if not callable(self.optimizer):
            raise TypeError(
                "Expected optimizer to make an optimiser of a list of tensors, such as "
                f"functools.partial(torch.optim.SGD, lr=0.1), but got {self.optimizer!r}"
            )
        if self.num_steps is not None:
            check_number("num_steps", self.num_steps, at_least=0, integer=True)
        if self.epochs is not None:
            check_number("epochs", self.epochs, at_least=0, integer=True)
        if self.num_steps is not None and self.batches is not None:
            raise ValueError(
                f"Expected num_steps to be left out beside batches, but got {self.num_steps}"
            )
        for name, arguments in TRAINING.items():
            if (function := getattr(self, name)) is not None:
                check_takes(name, function, arguments)
        if self.max_grad_norm is not None and not self.max_grad_norm > 0:
            raise ValueError(f"Expected max_grad_norm to be > 0, but got {self.max_grad_norm}")


# The arguments of the functions of a `Training`.
TRAINING = {
    "batches": ["graph", "context"],
    "adjust": ["grads", "params", "context"],
    "settle": ["new", "old", "context"],
}


@dataclass(frozen=True)
class Joining:
    """The clients' messages before the first round, and the server's use of them.

    All clients are asked, also clients that the first round leaves out. So a server knows a
    statistic of all clients, such as their mean number of examples, before the training starts. A
    remote client that does not answer still takes part in the rounds.

    Args:
        say: ``(graph) -> message``, a client's message; its bytes count in the first round.
        welcome: ``(inbox, state) -> outbox, state``, the server's part, as `Method.aggregate`.
            ``inbox.sent`` are the messages of the first round, which the outbox replaces.
        max_examples: largest ``"num_examples"`` of such a message; a message with a larger one is
            refused. Default no bound.

    Example:
        >>> joining = fgl.methods.feddyn(fgl.fedavg(torch.nn.Linear(1, 1))).joining
        >>> joining.say(fgl.Graph(torch.ones(3, 1), torch.zeros(2, 0).long()))
        {'num_examples': tensor(3)}
    """

    say: Callable[[Graph], Message]
    welcome: Aggregate
    max_examples: float = math.inf


@dataclass(frozen=True, repr=False)
class Method:
    """A federated method: what clients minimise, receive and send, and how the server aggregates.

    Messages and states are dicts of named tensors, at most one dict deep. A method is a value:
    `fedavg` makes one, and ``dataclasses.replace`` makes another with some fields replaced.

    Args:
        model: the architecture. Its own parameters are the initial ones; trained parameters are
            passed around as plain dicts of tensors.
        loss: ``(params, graph, context) -> scalar``, the loss that a client minimises.
        receive: ``(message, state, graph) -> params, context``. Training starts from `params`; the
            loss gets `context`. If the context is a dict, `params` are added to it as ``"start"``.
        send: ``(params, context, state, graph) -> message, state``, the client's upload and the
            state that it keeps. If the context is a dict, it has the entry ``"trained"``, a dict of
            ``"num_steps"``, int64, the number of steps taken, and ``"losses"``, float64
            ``[num_steps]``, the loss before each step.
        aggregate: ``(inbox, state) -> outbox, state``, the server's part: from the uploads to the
            next message for each client. The first state is ``{"model": initial}``. A client that
            is not in the outbox keeps the last message that it was sent. A message may have some of
            the model's tensors only.
        deploy: ``(message, state, graph) -> params``, the complete model that a client uses after
            the round. `message` is the next one from the server. Scores are computed with this
            model.
        train: optimiser and local steps, see `Training`.
        accept: ``(message, client, state) -> None``, the server's check of an upload; `state` is
            the server's. If it raises, the upload is refused: it does not count, the history
            records the reason, a warning is given, and the round goes on.
        exchange: number of consecutive rounds that have the same participants. If it is above 1 and
            no upload of a round counts, `aggregate` is called with an empty inbox: it may give up
            the exchange. An error of that call does not end the run.
        participants: smallest number of participants of a round. A run with fewer raises.
        silent: if True, clients send nothing beside their messages: no losses and no numbers of
            examples. Otherwise these appear in the history.
        personal: tensors that every client trains beside the model, such as masks or mixing
            weights: name to initial tensor. `receive` returns them among the params, where the loss
            and `send` find them. They are neither in a message's ``"model"`` nor in the params of
            `deploy`.
        ragged: keys of an upload whose shapes, inner names or presence may differ between clients
            or rounds; `accept` checks them. All other keys must have the names, shapes and dtypes
            on which most clients agree.
        max_examples: largest ``"num_examples"`` that a client can have; an upload with a larger one
            is refused. Tasks set it; default no bound.
        max_change: let c be this number, and the size of a change its root mean square. The server
            refuses an upload if an entry's change is larger than c times the round's median change
            and larger than what was sent, or than 1 if nothing was sent; or if it is larger than c
            times what was sent. The server's outbox and state may grow by the factor c at most.
            ``math.inf`` for no bound.
        layers: the builders that made this method, from inside to outside, with their arguments;
            see `fgl.federation.layer`.
        own: names of modules of the model, such as an input layer or a head, that each client has
            for itself, in its own shape, or lacks. They are never sent: the first message does not
            have them, and an upload with them is refused. So clients may have different features
            and classes.
        models: the clients' own models, made from their graphs; see `fgl.methods.own_models`.
        costs: ``(message) -> numbers``, the privacy cost of a client's answer to a message: the
            ``"noise_multiplier"`` of the client's own noise, and its ``"steps"`` and
            ``"sample_rate"`` if they are not 1. It is empty if the answer does not depend on the
            client's data. The default is an answer without noise; a site with a budget refuses it.
        onward: entries of a client's state that never go back to earlier values. A client on its
            own machine keeps their newest values, even if its server resumes from an earlier round.
        account: ``(inbox, state) -> state``, called after a round without a result; the inbox is
            empty but has `asked`. A method needs it if its server's results contain noise. A
            checkpoint is then written before a round is scored, so that a resumed run shows the
            same result and draws no new noise.
        joining: messages of all clients before the first round; default none.

    Raises:
        TypeError: if `own` is a string.
        ValueError: if `exchange` or `participants` is not positive, `personal` has a name of the
            model, `own` names a module that the model lacks, or `models` are given without `own`.

    Example:
        >>> method = fgl.fedavg(fgl.nn.GCN(4, 8, 2), train=Training(num_steps=3))
        >>> fgl.methods.fedprox(method, mu=0.1)
        fedprox(fedavg(GCN(...), train=Training(...)), mu=0.1)
        >>> method.send.__name__
        'send_model'
    """

    model: nn.Module
    loss: Loss
    receive: Receive
    send: Send
    aggregate: Aggregate
    deploy: Deploy
    train: Training
    accept: Accept
    exchange: int = 1
    participants: int = 1
    silent: bool = False
    personal: Mapping[str, Tensor] = field(default_factory=dict, compare=False)
    ragged: Collection[str] = frozenset()
    max_examples: float = math.inf
    max_change: float = 300.0
    layers: tuple[Layer, ...] = field(default=(), compare=False)
    own: Collection[str] = ()
    models: Models | None = field(default=None, compare=False)
    costs: Costs = field(default=without_noise, compare=False)
    onward: Collection[str] = field(default=(), compare=False)
    account: Account | None = field(default=None, compare=False)
    joining: Joining | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        check_count(exchange=self.exchange, participants=self.participants)
        _check_own(self.own, list(self.model.state_dict()))
        if self.models is not None and not self.own:
            raise ValueError("Expected own to name a module beside models, but got none")
        taken = [name for name in self.personal if name in self.model.state_dict()]
        if taken:
            raise ValueError(
                f"Expected personal to have names that the model has not, but got {taken}"
            )

    def __repr__(self) -> str:
        return written(self.made_of)

    @property
    def made_of(self) -> tuple[Layer, ...]:
        """The layers, and a last one named ``"replace"`` for fields that were replaced afterwards.

        That layer lists the functions with unknown settings: no builder recorded them, and they are
        not plain functions, which have no settings.
        """
        left = self.layers[-1].left if self.layers else {}
        now = {**_functions(self), **_hooks(self.train)}
        before = {**left, **_hooks(left.get("train"))}
        names = [name for name, function in now.items() if function is not before.get(name)]
        if not names:
            return self.layers
        unknown = [name for name in names if now[name] is not None and hides(now[name])]
        call = [f"{name}=..." for name in names]
        new = {**_functions(self), "train": self.train}
        return (*self.layers, Layer("replace", {"unknown": unknown}, call, left=new))

    @property
    def unknown(self) -> list[str]:
        """Functions with settings that no builder may have recorded, inner layers included."""
        listed = [layer.settings["unknown"] for layer in self.made_of if layer.name == "replace"]
        return list(dict.fromkeys(name for names in listed for name in names))

    def initial(self) -> Params:
        """A copy of the model's own tensors, the start of a federation."""
        return {name: t.detach().clone() for name, t in self.model.state_dict().items()}

    def common(self) -> Params:
        """The model's own tensors without the modules of `own`: the part that is sent."""
        tensors = self.model.state_dict()
        return without(tensors, self.own) if self.own else dict(tensors)

    def model_of(self, graph: Graph) -> nn.Module:
        """The model of a client: from `models` if there are any, otherwise `model`."""
        return self.model if self.models is None else self.models(graph)

    def at(self, graph: Graph) -> AbstractContextManager[None]:
        """A context in which calls of the method's model use the client's own model."""
        if self.models is None:
            return nullcontext()
        return standing_in(self.model, self.models(graph))


def _check_own(own: Collection[str], names: Collection[str]) -> None:
    if isinstance(own, str):
        raise TypeError(f"Expected own to be several names, but got the string {own!r}")
    for module in own:
        if not any(is_under(name, [module]) for name in names):
            raise ValueError(f"Expected own to name modules of {list(names)}, but got {module!r}")


def _functions(method: Method) -> dict[str, Any]:
    return {name: getattr(method, name) for name in FUNCTIONS}


def _hooks(train: Training | None) -> dict[str, Any]:
    return {name: getattr(train, name, None) for name in HOOKS}
