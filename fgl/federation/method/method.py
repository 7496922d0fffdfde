"""Methods: four small functions, the settings of local training, and the rules of a round."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ...checks import Natural, Positive, reject_if
from ...graph import Graph
from ...kinds import check_kind, check_takes, typed
from ...predict import standing_in
from .describe import FUNCTIONS, HOOKS, Layer, hides, short, written
from .message import Aggregate, Message, Params, State
from .old_names import GROUPS, takes_old_names
from .rules import Own, Privacy, Rules, is_under, without

Loss = Callable[[Params, Graph, Any], Tensor]
Receive = Callable[[Message, State, Graph], tuple[Params, Any]]
Send = Callable[[Params, Any, State, Graph], tuple[Message, State]]
Deploy = Callable[[Message, State, Graph], Params]
Accept = Callable[[Message, int, State], None]
OptimizerFactory = Callable[[Iterable[Tensor]], torch.optim.Optimizer]
Batches = Callable[[Graph, Any], Iterable[tuple[Graph, Any]]]
Adjust = Callable[[Params, Params, Any], Params]
Settle = Callable[[Params, Params, Any], Params]
Evaluate = Callable[[Mapping[int, Message], Mapping[int, State]], dict[str, float]]
Watch = Callable[[State], Mapping[str, float]]


@typed
@dataclass(frozen=True)
class Training:
    """Settings of a client's local training.

    Args:
        optimizer: function that returns a `torch.optim` optimiser for a list of tensors.
        num_steps: number of local steps per round, each on all training examples; by default 1.
        batches: ``(graph, context) -> pairs (graph, context)``; replaces `num_steps`. Each local
            step computes the loss on one pair. Use `batches` for minibatches (`node_minibatches`,
            `graph_minibatches`), sampled neighbours and negative edges. All pairs are sampled
            before the first step, with torch's global generator. With `Steps` each pair is sampled
            just before its step.
        epochs: number of passes over the client's examples that `batches` makes in one round; by
            default 1. All passes must have the same number of steps. `fgl.methods.fedselect` reads
            this number. The function `batches` must itself return the pairs of all passes. To pass
            over the minibatches 3 times, use ``partial(node_minibatches, num_epochs=3)``. Without
            minibatches, use `num_steps`.
        max_grad_norm: the gradient is clipped to this norm; by default it is not clipped.
        keep_optimizer: whether a client keeps the optimiser's state until the client's next round.
            The client's state then contains the optimiser's state under ``"optimizer"``. By default
            each round starts with a new optimiser.
        adjust: ``(grads, params, context) -> grads``, called after clipping and before the
            optimiser's step. `grads` contains a gradient for each trained tensor. This gradient is
            zero if the loss does not depend on the tensor.
        settle: ``(new, old, context) -> params``, called after each optimiser step with the tensors
            after and before the step. Training continues from the returned tensors.
        settle_moments: whether `settle` is also called with each of the optimiser's moments. For
            example, `settle` may keep some entries of a parameter fixed. If `settle_moments` is
            True, the moments of these entries are then fixed too.

    Raises:
        ValueError: if `num_steps` or `epochs` is negative, if both `num_steps` and `batches` are
            given, if `epochs` is given without `batches`, or if `max_grad_norm` is not positive.

    Example:
        >>> Training(partial(torch.optim.Adam, lr=0.01), num_steps=3).num_steps
        3
    """

    optimizer: OptimizerFactory = partial(torch.optim.SGD, lr=0.1)
    num_steps: Natural | None = None
    batches: Batches | None = None
    epochs: Natural | None = None
    max_grad_norm: Positive | None = None
    keep_optimizer: bool = False
    adjust: Adjust | None = None
    settle: Settle | None = None
    settle_moments: bool = False

    def __post_init__(self) -> None:
        both = self.num_steps is not None and self.batches is not None
        reject_if(both, "num_steps to be left out beside batches", self.num_steps)
        unused = self.epochs is not None and self.batches is None
        hint = f"num_steps={self.epochs} makes as many steps, each on all training examples"
        reject_if(unused, "epochs to be left out without batches", f"{self.epochs}: {hint}")
        for name, arguments in TRAINING.items():
            if (function := getattr(self, name)) is not None:
                check_takes(name, function, arguments)

    def adjusted(self, grads: Params, params: Params, context: Any) -> Params:
        """The gradients: changed by `adjust`, or unchanged if there is no `adjust`."""
        return grads if self.adjust is None else self.adjust(grads, params, context)

    def settled(self, new: Params, old: Params, context: Any) -> Params:
        """The new tensors: changed by `settle`, or unchanged if there is no `settle`."""
        return new if self.settle is None else self.settle(new, old, context)


@short.register
def _training(training: Training) -> str:
    """Text with the optimiser, its options, the steps, and all fields that are not defaults."""
    if training.num_steps is None and training.batches is None:
        training = replace(training, num_steps=1)
    changed = [f for f in fields(Training)[1:] if getattr(training, f.name) != f.default]
    words = [f"{each.name}={short(getattr(training, each.name))}" for each in changed]
    return f"Training({', '.join([short(training.optimizer), *words])})"


# The arguments of the functions of a `Training`.
TRAINING = {
    "optimizer": ["params"],
    "batches": ["graph", "context"],
    "adjust": ["grads", "params", "context"],
    "settle": ["new", "old", "context"],
}


@takes_old_names
@dataclass(frozen=True, repr=False)
class Method:
    """A federated method: the functions of clients and server, and the settings of a round.

    Messages and states are dicts of named tensors. A message or state may contain dicts of tensors,
    but no deeper nesting. A method is immutable: `fedavg` returns a method, and
    ``dataclasses.replace`` returns a copy with some fields replaced. The package cloudpickle, which
    loky and Ray use, can pickle a method. Python's pickle cannot pickle a method, since methods
    contain local functions.

    Args:
        model: the architecture. The module holds the initial parameters; trained parameters are
            passed as plain dicts of tensors.
        loss: ``(params, graph, context) -> scalar``, the loss that a client minimises.
        receive: ``(message, state, graph) -> params, context``. Training starts from `params`, and
            the loss gets `context`. If `context` is a dict, `params` is added to this dict under
            the key ``"start"``.
        send: ``(params, context, state, graph) -> message, state``, the client's upload and the
            client's new state. If `context` is a dict, local training has added
            ``context["trained"]``, a dict of two tensors. ``"num_steps"`` is the number of steps
            taken, int64. ``"losses"`` has the loss before each step, float64 ``[num_steps]``.
        aggregate: ``(inbox, state) -> outbox, state``, called at the server. This function computes
            the next message for each client from the uploads. The first state is
            ``{"model": initial}``. A client that is not in the outbox keeps its last message. A
            message may contain only some of the model's tensors.
        deploy: ``(message, state, graph) -> params``, the complete model that a client uses after
            the round. `message` is the server's next message. Scores are computed with this model.
        train: optimiser and local steps, see `Training`.
        accept: ``(message, client, state) -> None``, a check of an upload at the server; `state` is
            the server's state. If `accept` raises, the upload is refused: the server does not use
            it, the history records the reason, a warning is given, and the round continues.
        layers: the builders of this method with their arguments, from the innermost to the
            outermost builder; see `fgl.layer`.
        rules: rules for the participants of a round, the content of uploads, and the server's
            checks; see `fgl.federation.Rules`.
        privacy: the privacy cost of an answer, and the function that counts it; see
            `fgl.federation.Privacy`.
        own: what each client keeps for itself: parts of the model, and tensors outside the model;
            see `fgl.federation.Own`.

    By default `rules`, `privacy` and `own` have the values of FedAvg. To change one rule and keep
    the other rules, write ``replace(method, rules=replace(method.rules, exchange=2))``.

    Raises:
        TypeError: if `rules`, `privacy` or `own` has an invalid type.
        ValueError: if `own` names a module that the model lacks, or if a personal tensor has the
            name of a tensor of the model.

    Example:
        >>> method = fgl.fedavg(fgl.nn.GCN(4, 8, 2), train=Training(num_steps=3))
        >>> fgl.methods.fedprox(method, mu=0.1)
        fedprox(fedavg(GCN(...), train=Training(SGD(lr=0.1), num_steps=3)), mu=0.1)
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
    layers: tuple[Layer, ...] = field(default=(), compare=False)
    rules: Rules = field(default_factory=Rules)
    privacy: Privacy = field(default_factory=Privacy)
    own: Own = field(default_factory=Own)

    def __post_init__(self) -> None:
        for name, group in GROUPS.items():
            check_kind(name, getattr(self, name), group)
        names = list(self.model.state_dict())
        unknown = [m for m in self.own.modules if not any(is_under(name, [m]) for name in names)]
        reject_if(unknown, f"own to name modules of {names}", " and ".join(map(repr, unknown)))
        taken = [name for name in self.own.personal if name in names]
        reject_if(taken, "personal to have names that the model has not", taken)

    def __repr__(self) -> str:
        return written(self.made_of)

    @property
    def made_of(self) -> tuple[Layer, ...]:
        """The layers that made this method.

        After the last builder, a user can give the method new functions with
        ``dataclasses.replace``. The last layer of such a method is named ``"replace"``.

        The layer ``"replace"`` lists the new functions that may have settings, such as values in a
        closure. These settings are unknown, since no builder recorded them.
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
        """Names of the functions whose settings may be unknown, since no builder recorded them."""
        listed = [layer.settings["unknown"] for layer in self.made_of if layer.name == "replace"]
        return list(dict.fromkeys(name for names in listed for name in names))

    def initial(self) -> Params:
        """Copies of the model's initial tensors."""
        return {name: t.detach().clone() for name, t in self.model.state_dict().items()}

    def common(self) -> Params:
        """The tensors of `model` that clients send: all except those of the modules in `own`."""
        tensors = self.model.state_dict()
        return without(tensors, self.own.modules) if self.own.modules else dict(tensors)

    def model_of(self, graph: Graph) -> nn.Module:
        """The client's own model if clients have their own models, otherwise `model`."""
        models = self.own.models
        return self.model if models is None else models(graph)

    def at(self, graph: Graph) -> AbstractContextManager[None]:
        """A context in which `self.model` calls the client's own model, if there is one."""
        models = self.own.models
        return nullcontext() if models is None else standing_in(self.model, models(graph))


def _functions(method: Method) -> dict[str, Any]:
    return {name: getattr(method, name) for name in FUNCTIONS}


def _hooks(train: Training | None) -> dict[str, Any]:
    return {name: getattr(train, name, None) for name in HOOKS}
