"""Groups of a method's fields: rules, privacy and clients' own models. Also ragged tensors."""

import hashlib
import json
import math
from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from ...checks import Count, reject_if
from ...graph import Graph
from ...kinds import check_kind, typed
from ...seeds import drawing_from
from ...sparse import SparseMatrix
from .describe import architecture, bytes_of
from .message import Aggregate, Inbox, Message, Params, State, check_model, same


class _Own(NamedTuple):
    """A client's own model: its kind, the module to call, and the initial tensors."""

    kind: Hashable
    module: nn.Module
    first: Params


class Models:
    """The clients' own models; each client's model is built from the client's graph.

    Equal models share one module.

    In each client's model, the modules in `own` start from random tensors. The seed of these
    random tensors is computed from the common part, and is the same for all clients. So a resumed
    run, and a run on another computer, get the same random tensors.

    Args:
        make: ``graph -> module``, builds a client's own model.
        model: a model that contains the part that all clients share.
        own: names of modules of `model`; each client has its own copy of these modules.

    Example:
        >>> model = torch.nn.Sequential(torch.nn.Linear(1, 2), torch.nn.Linear(2, 2))
        >>> def make(graph):
        ...     return torch.nn.Sequential(torch.nn.Linear(graph.num_features, 2), model[1])
        >>> models = Models(make, model, ["0"])
        >>> models(fgl.Graph(torch.eye(3), torch.zeros(2, 0).long()))[0].weight.shape
        torch.Size([2, 3])
    """

    def __init__(
        self, make: Callable[[Graph], nn.Module], model: nn.Module, own: Collection[str]
    ) -> None:
        state = model.state_dict()
        self.make, self.common = make, without(state, own)
        self._seed = int(_digest(self.common), 16) >> 1
        self._known: WeakKeyDictionary[Graph, _Own] = WeakKeyDictionary()
        self._kinds: dict[Hashable, list[_Own]] = {}

    def __getstate__(self) -> dict[str, Any]:
        """The fields to pickle.

        Models are left out, since they are built again after unpickling.
        """
        return {**vars(self), "_known": None, "_kinds": {}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _known=WeakKeyDictionary())

    def __call__(self, graph: Graph, name: str = "the client's model") -> nn.Module:
        """A client's model.

        Args:
            graph: the client's graph.
            name: the model's name in errors.

        Raises:
            TypeError: if `make` does not return a module, or if a common tensor's dtype differs
                from the dtype in `model`.
            ValueError: if a common tensor is missing, if its shape differs from the shape in
                `model`, or if two parameters are tied.
        """
        return self._of(graph, name).module

    def kind(self, graph: Graph) -> Hashable:
        """A hashable key for a client's model; models with equal keys can train as one batch."""
        return self._of(graph).kind

    def first(self, graph: Graph) -> Params:
        """A client's initial tensors."""
        return dict(self._of(graph).first)

    def _of(self, graph: Graph, name: str = "the client's model") -> _Own:
        if graph not in self._known:
            self._known[graph] = self._once(self._made(graph, name))
        return self._known[graph]

    def _made(self, graph: Graph, name: str) -> nn.Module:
        with drawing_from(self._seed, graph.device):
            module = self.make(graph)
        got = type(module).__name__
        reject_if(not isinstance(module, nn.Module), f"{name} to be a module", got, TypeError)
        check_has_shapes(module, name)
        module.to(graph.device).eval()  # as the method's model in a run, outside local training
        state = module.state_dict()
        check_model({key: state[key] for key in state if key in self.common}, self.common, name)
        check_untied(module, name)
        return module

    def _once(self, module: nn.Module) -> _Own:
        """Return the stored model that equals `module`; if there is none, store `module`."""
        first = {name: t.detach().clone() for name, t in module.state_dict().items()}
        shapes = tuple((name, t.dtype, t.shape, t.device) for name, t in first.items())
        kind = json.dumps(architecture(module)), shapes
        models = self._kinds.setdefault(kind, [])
        for other in models:
            if same(first, other.first):
                return other
        models.append(_Own(kind, module, first))
        return models[-1]

    def described(self, graph: Graph) -> dict[str, Any]:
        """The shapes of a client's own part, and a digest of the part's architecture, as JSON."""
        own = self._of(graph)
        shapes = {n: list(t.shape) for n, t in own.first.items() if n not in self.common}
        text = json.dumps(architecture(own.module)).encode()
        digest = hashlib.blake2b(text, digest_size=4).hexdigest()
        return {**shapes, "architecture": f"{type(own.module).__name__} #{digest}"}


def without(tensors: Mapping[str, Tensor], own: Collection[str]) -> dict[str, Tensor]:
    """The detached tensors, except the tensors of the named modules.

    Example:
        >>> list(without(torch.nn.Linear(1, 1).state_dict(), ["bias"]))
        ['weight']
    """
    return {name: t.detach() for name, t in tensors.items() if not is_under(name, own)}


def is_under(name: str, modules: Collection[str]) -> bool:
    """Whether a tensor belongs to one of the named modules.

    Example:
        >>> is_under("conv.weight", ["conv"]), is_under("conv2.weight", ["conv"])
        (True, False)
    """
    return any(name == module or name.startswith(f"{module}.") for module in modules)


def check_has_shapes(model: nn.Module, name: str = "model") -> None:
    """Raise a ValueError if a lazy layer has no shapes because it was never called with data.

    Example:
        >>> check_has_shapes(torch.nn.LazyLinear(1))
        Traceback (most recent call last):
        ValueError: Expected model to have parameters of known shapes, but got lazy ones in
            LazyLinear: call it once on a client's data before, model(graph.x, graph.edge_index)
    """
    lazy = any(map(nn.parameter.is_lazy, [*model.parameters(), *model.buffers()]))
    way = "call it once on a client's data before, model(graph.x, graph.edge_index)"
    got = f"lazy ones in {type(model).__name__}: {way}"
    reject_if(lazy, f"{name} to have parameters of known shapes", got)


def check_untied(model: nn.Module, name: str = "the model") -> None:
    """Raise a ValueError if two parameters share a tensor, because training would separate them.

    Example:
        >>> check_untied(torch.nn.Linear(1, 1))
    """
    names = dict(model.named_parameters(remove_duplicate=False))
    tied = [*names.keys() - dict(model.named_parameters()).keys()]
    reject_if(tied, f"{name}'s parameters to be untied", f"{sorted(tied)} tied")


def _digest(tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.blake2b(digest_size=8)
    for name, tensor in tensors.items():
        digest.update(name.encode())
        digest.update(bytes_of(tensor))
    return digest.hexdigest()


class Ragged:
    """A tensor whose number of rows differs between clients, and a mask that excludes padding.

    A batch of clients pads such a tensor with zeros, so a loss must ignore the padding. In
    `receive`, put the tensor into the context as ``Ragged(tensor)``. In the loss, read the tensor
    as ``context[key].values`` and leave out the rows that ``context[key].mask`` excludes. Outside a
    batch, all entries of the mask are True.

    Args:
        values: a tensor ``[n, ...]``, or a `SparseMatrix` with n rows.
        mask: bool tensor ``[n]``, True for the client's rows and False for padding; default True
            for all rows.

    Raises:
        TypeError: if `values` is neither a tensor nor a `SparseMatrix`.
        ValueError: if `values` has no dimension, or if the length of `mask` is not the number of
            rows.

    Example:
        >>> pairs = Ragged(torch.tensor([[0, 1], [1, 2], [2, 0]]))
        >>> pairs.values.shape, pairs.mask
        (torch.Size([3, 2]), tensor([True, True, True]))
    """

    def __init__(self, values: Any, mask: Tensor | None = None) -> None:
        check_kind("values", values, Tensor | SparseMatrix)
        shape = tuple(values.shape)
        reject_if(not shape, "values to have a first dimension", "a scalar")
        self.values: Any = values
        if mask is None:
            mask = torch.ones(shape[0], dtype=torch.bool, device=values.device)
        got = list(mask.shape)
        reject_if(got != [shape[0]], f"mask to have shape [{shape[0]}]", got)
        self.mask = mask

    def __len__(self) -> int:
        return int(self.values.shape[0])

    def __repr__(self) -> str:
        return f"Ragged({list(self.values.shape)})"


Costs = Callable[[Message], Mapping[str, float]]
Account = Callable[[Inbox, State], State]


@dataclass(frozen=True)
class Joining:
    """The clients' messages before the first round, and the server's function that reads them.

    All clients send this message, including clients that do not participate in the first round. So
    a server can compute a statistic over all clients before training starts, such as the mean
    number of examples per client. A remote client that sends no such message still takes part in
    the rounds.

    Args:
        say: ``(graph) -> message``, a client's message. The first round's record includes the bytes
            of this message.
        welcome: ``(inbox, state) -> outbox, state``, a function of the server that receives the
            arguments of `Method.aggregate`. ``inbox.sent`` contains the messages that the first
            round would send; the returned outbox replaces these messages.
        max_examples: largest allowed ``"num_examples"`` in a client's message before the first
            round. The server refuses a message with a larger number. By default there is no bound.

    Example:
        >>> joining = fgl.methods.feddyn(fgl.fedavg(torch.nn.Linear(1, 1))).rules.joining
        >>> joining.say(fgl.Graph(torch.ones(3, 1), torch.zeros(2, 0).long()))
        {'num_examples': tensor(3)}
    """

    say: Callable[[Graph], Message]
    welcome: Aggregate
    max_examples: float = math.inf


@typed
@dataclass(frozen=True)
class Rules:
    """Rules of a method's rounds: who takes part, what uploads contain, what the server checks.

    Args:
        exchange: number of consecutive rounds that have the same participants. If `exchange` is
            above 1 and no upload of a round is accepted, `aggregate` is called with an empty inbox
            and may abandon the exchange. If `aggregate` raises an error for an empty inbox, the run
            continues.
        participants: smallest allowed number of participants of a round. If a round has fewer
            participants, the run raises an error.
        rounds: R, the smallest allowed number of rounds of a run. A run without a checkpoint raises
            an error if it has fewer than R rounds. A run with a checkpoint can be continued until
            it has R rounds. For example, ``fgl.methods.unlearned(..., at=5)`` needs at least 6
            rounds.
        silent: if False, clients send their local losses and numbers of examples in addition to
            their messages, and the history records both. If True, clients send nothing except their
            messages.
        ragged: keys of an upload that may be missing, or may have other shapes or inner keys, in
            some clients or rounds. `accept` must check these keys. Every upload must have all other
            keys, with the inner keys, shapes and dtypes that most uploads have.
        max_examples: largest ``"num_examples"`` that a client can have; an upload with a larger
            number is refused. Tasks set this bound; by default there is no bound.
        max_change: a bound c on the change of an entry of an upload. Let d be the size of the
            change, m the median of all nonzero d of a round, and s the size of the entry that the
            server sent. Sizes are root mean squares. The server refuses an upload if
            ``d > max(c m, s)`` or ``d > c max(s, 1)``. If the server did not send the entry, s is 1
            in the first bound, and there is no second bound. The server's outbox and state may grow
            at most by the factor c. ``math.inf`` means no bound.
        joining: messages of all clients before the first round; by default there are none.

    Raises:
        ValueError: if `exchange`, `participants` or `rounds` is not positive.

    Example:
        >>> method = fgl.fedavg(torch.nn.Linear(1, 1))
        >>> from dataclasses import replace
        >>> replace(method, rules=replace(method.rules, max_change=10.0)).rules.max_change
        10.0
    """

    exchange: Count = 1
    participants: Count = 1
    rounds: Count = 1
    silent: bool = False
    ragged: Collection[str] = frozenset()
    max_examples: float = math.inf
    max_change: float = 300.0
    joining: Joining | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        for name in ("max_examples", "max_change"):
            value = getattr(self, name)
            reject_if(not value > 0, f"{name} to be a number > 0", value)  # NaN is not


def without_noise(message: Message) -> Mapping[str, float]:
    """The default of `Privacy.costs`: an answer has no noise, so its noise multiplier is 0.

    Example:
        >>> without_noise({})
        {'noise_multiplier': 0.0}
    """
    return {"noise_multiplier": 0.0}


@typed
@dataclass(frozen=True)
class Privacy:
    """The privacy costs of a method's messages, and the function by which the server counts them.

    Args:
        costs: ``(message) -> numbers``, the privacy cost of a client's answer to a message. The
            result is a dict. ``"noise_multiplier"`` describes the noise that the client adds.
            ``"steps"`` and ``"sample_rate"`` are present only if they differ from 1. The result is
            empty if the answer does not depend on the client's data. By default, every answer
            counts as an answer without noise. A site with a privacy budget refuses to send an
            answer without noise.
        onward: entries of a client's state that never return to earlier values. A remote client
            keeps the newest values, even if its server resumes from an earlier round.
        account: ``(inbox, state) -> state``, called after a round in which no upload was used. The
            inbox contains no messages, but its field `asked` is set. A method needs `account` if
            the server's results contain noise. With `account`, a checkpoint is written before each
            round is scored. If scoring is interrupted, the resumed run reads the round's result
            from the checkpoint, so noise is not added a second time.

    Example:
        >>> fgl.fedavg(torch.nn.Linear(1, 1)).privacy.costs({})
        {'noise_multiplier': 0.0}
    """

    costs: Costs = field(default=without_noise, compare=False)
    onward: Collection[str] = field(default=(), compare=False)
    account: Account | None = field(default=None, compare=False)


@typed
@dataclass(frozen=True)
class Own:
    """Everything that a client keeps for itself: parts of the model, and tensors outside the model.

    Args:
        modules: names of modules of the model, such as an input layer or a head, that each client
            keeps for itself. The shapes of these modules may differ between clients, and a client
            may lack some of the modules. These modules are never sent: the server's first message
            lacks them, and the server refuses an upload that contains them. If each client keeps
            its own input layer and head, clients may have different features and classes.
        models: the clients' own models; each is built from the client's graph. See
            `fgl.methods.own_models`.
        personal: dict from names to initial tensors. Every client trains these tensors, such as
            masks or mixing weights, in addition to the model. `receive` returns the personal
            tensors among the params, so the loss and `send` can read these tensors. These tensors
            are absent from a message's ``"model"`` and from the params of `deploy`.

    Raises:
        TypeError: if `modules` is a string.
        ValueError: if `models` are given without `modules`.

    Example:
        >>> method = fgl.fedavg(torch.nn.Sequential(torch.nn.Linear(1, 2), torch.nn.Linear(2, 2)))
        >>> from dataclasses import replace
        >>> list(replace(method, own=replace(method.own, modules=["0"])).common())
        ['1.weight', '1.bias']
    """

    modules: Collection[str] = ()
    models: Models | None = field(default=None, compare=False)
    personal: Mapping[str, Tensor] = field(default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        want = "modules to name a module beside models"
        reject_if(self.models is not None and not self.modules, want, "none")
