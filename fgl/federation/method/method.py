"""Methods: four small functions and what surrounds them; FedAvg and the parts it is made of."""

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
    """What an exact answer costs: its noise is 0.

    Example:
        >>> without_noise({})
        {'noise_multiplier': 0.0}
    """
    return {"noise_multiplier": 0.0}


@dataclass(frozen=True)
class Training:
    """How a client trains.

    Args:
        optimizer: makes a `torch.optim` optimiser of a list of tensors.
        num_steps: local steps per round, each on all training examples; default 1.
        batches: ``(graph, context) -> pairs (graph, context)``, what the loss sees in each local
            step of a round instead: minibatches (`node_minibatches`, `graph_minibatches`), sampled
            neighbours, negative edges. Drawn before the first step, from torch's global generator;
            `Steps` are made one by one.
        max_grad_norm: clip the gradient's norm to this; default no clipping.
        keep_optimizer: keep the optimiser's state from a client's round to its next, in its state's
            ``"optimizer"``; default a fresh optimiser each round.
        adjust: ``(grads, params, context) -> grads``, between the gradient, clipped, and the
            optimiser's step: name to tensor of what is trained, zeros where a loss has no gradient.
        settle: ``(new, old, context) -> params``, called after each optimiser step with the new and
            the old tensors; what it returns replaces the new ones.
        settle_moments: whether `settle` is called for each of the optimiser's moments too, so that
            an entry that does not move keeps its own.

    Raises:
        ValueError: if `num_steps` is negative or given beside `batches`, or `max_grad_norm` is not
            positive.

    Example:
        >>> Training(partial(torch.optim.Adam, lr=0.01), num_steps=3).num_steps
        3
    """

    optimizer: OptimizerFactory = partial(torch.optim.SGD, lr=0.1)
    num_steps: int | None = None
    batches: Batches | None = None
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
        if self.num_steps is not None and self.batches is not None:
            raise ValueError(
                f"Expected num_steps to be left out beside batches, but got {self.num_steps}"
            )
        if self.max_grad_norm is not None and not self.max_grad_norm > 0:
            raise ValueError(f"Expected max_grad_norm to be > 0, but got {self.max_grad_norm}")


@dataclass(frozen=True, repr=False)
class Method:
    """A federated method: what a client minimises, receives and sends, what the server makes of it.

    Messages and states are dicts of named tensors, at most one dict deep. A method is a value:
    `fedavg` makes the first one, ``dataclasses.replace`` varies it.

    Args:
        model: the architecture; its parameters travel as plain dicts of tensors and its own are
            only the initial ones.
        loss: ``(params, graph, context) -> scalar``, what a client minimises.
        receive: ``(message, state, graph) -> params, context``, where it starts and what its loss
            sees besides. A context that is a dict gets these parameters too, under ``"start"``.
        send: ``(params, context, state, graph) -> message, state``, what it lets out and what it
            keeps. A context that is a dict has one entry more, ``"trained"``: ``"num_steps"``,
            int64, the steps taken, and ``"losses"``, float64 ``[num_steps]``, the loss before each.
        aggregate: ``(inbox, state) -> outbox, state``, what the server makes of the messages. Its
            state is ``{"model": initial}`` at first. A client that the outbox does not name keeps
            the last message it was sent; the model in a message may be a part of the whole one.
        deploy: ``(message, state, graph) -> params``, the whole model that a client uses now, after
            the message that it is sent next: what is scored.
        train: optimiser, local steps.
        accept: ``(message, client, state) -> None``, the server's check of an upload; `state` is
            the server's. An error refuses it: it is dropped, recorded and warned of, and the round
            goes on without it.
        exchange: number of consecutive rounds that have the same participants. Where it is above 1,
            `aggregate` is also called with an empty inbox, if no upload of a round counts: it may
            give the exchange up. An error of it then is no error of the run.
        participants: the fewest that a round needs. A run whose participation gives fewer raises.
        silent: whether clients tell nothing beside their messages: neither their losses nor their
            numbers of examples, which a history shows otherwise.
        personal: what every client trains beside the model, name to a first tensor: masks, mixing
            weights. The params that `receive` returns have them too, and the loss and `send` see
            them there; no message's model has them, nor what `deploy` returns.
        ragged: keys of what is sent whose shapes, inner names or presence differ between clients or
            rounds: `accept` checks them. All others are compared with the form that most clients'
            uploads have.
        max_examples: the most ``"num_examples"`` that a client can have; an upload that says more
            is refused. Tasks know it; default no bound.
        max_change: let c be this number, and the size of a change its root mean square. The server
            refuses an upload if an entry's change is larger than c times the round's median change
            and larger than what was sent, or larger than c times what was sent. For an entry that
            was not sent, the first bound is c squared times the median, unless its tensors have
            the model's names and shapes, as SCAFFOLD's. The server's outbox and state may grow by
            the factor c at most. ``math.inf`` for no bound.
        layers: the builders that made this method, innermost first, each with its settings; see
            `fgl.federation.layer`.
        own: names of modules of the model that are each client's own, of its own shapes, or not
            there: an input layer, a head. They never travel: the first message lacks them, and an
            upload that has them is refused. Clients may then have other features and classes.
        models: the clients' own models, made of their graphs; see `fgl.methods.own_models`.
        costs: ``(message) -> numbers``, what a client's answer to a message is worth to a privacy
            budget: the ``"noise_multiplier"`` of its own noise, and where they are not 1 its
            ``"steps"`` and ``"sample_rate"``. Empty where the answer tells nothing of its data.
            Default no noise: no budget affords that.
        onward: entries of a client's state that never go back. A client on its own machine keeps
            their newest values, whatever round its server goes back to.
        account: ``(inbox, state) -> state``, what the server notes of a round of which it makes
            nothing: its inbox is empty and says who was asked. A method has one where noise is in
            what the server makes. Then a checkpoint is written before anybody is shown a round,
            so that a killed run shows the same again and draws no other noise.

    Raises:
        TypeError: if `own` is a string.
        ValueError: if `exchange` or `participants` is not positive, `personal` has a name of the
            model, `own` names what the model has not, or `models` are given without `own`.

    Example:
        >>> method = fgl.fedavg(fgl.nn.GCN(4, 8, 2), train=Training(num_steps=3))
        >>> fgl.methods.fedprox(method, mu=0.1)
        fedprox(fedavg(GCN(...), train=Training(...)), mu=0.1)
        >>> method.aggregate.__name__
        'average'
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
        """The layers, and one named ``"replace"`` for what was replaced around them.

        That one tells which functions there are whose settings nobody knows: those that no builder
        noted, but for plain functions, which have none.
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
        """Functions that may have settings which no builder noted, at whatever depth."""
        found = [layer.settings["unknown"] for layer in self.made_of if layer.name == "replace"]
        return list(dict.fromkeys(name for names in found for name in names))

    def initial(self) -> Params:
        """A copy of the model's own tensors, with which a federation starts."""
        return {name: t.detach().clone() for name, t in self.model.state_dict().items()}

    def common(self) -> Params:
        """The model's own tensors that travel: all, but for what is each client's `own`."""
        return without(self.model.state_dict(), self.own)

    def model_of(self, graph: Graph) -> nn.Module:
        """A client's model: its own, where clients have models of their own."""
        return self.model if self.models is None else self.models(graph)

    def at(self, graph: Graph) -> AbstractContextManager[None]:
        """Meanwhile a client's own model is called in the place of the method's."""
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
