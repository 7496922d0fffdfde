"""The guard of a method: a copy of the method, in which all functions check their own results."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial, wraps
from itertools import pairwise, repeat
from operator import attrgetter, is_
from typing import Any

import torch
from torch import Tensor

from ...checks import reject_if
from ...graph import Graph
from ...kinds import check_takes
from ..method.compose import check_seals
from ..method.message import Aggregate, Inbox, Message, Params, State, check_message, check_model
from ..method.method import Method
from ..method.rules import Account, Ragged, is_under
from .uploads import check_jump

VERSION = attrgetter("_version")  # a tensor's number of changes


class ChangedInPlace(ValueError):
    """Error for a method that changed a shared tensor in place.

    The method is at fault, not a client.

    Example:
        >>> issubclass(ChangedInPlace, ValueError)
        True
    """


def checked(method: Method) -> Method:
    """Wrap a method so that the results of all its functions are checked.

    A function of the checked method raises an error if it returns an invalid value, or if it
    changes a value that must stay the same.

    - `receive` must return a context and a complete model, including the personal tensors.
      `receive` must not change the message or the state.
    - `send` must return a message and a state. A state is a dict of detached tensors. `send` must
      not change its context or its state. The message from `send` is checked by the server.
    - `aggregate` must return an outbox and a state. The outbox must have only known clients, and
      models with valid names and shapes. If the outbox or the state has a value that is not finite,
      `Diverged` is raised. `Diverged` is also raised if the new values are far larger than the old
      values. `aggregate` must not change the uploads or its old state.
    - `deploy` must return a complete model and must not change anything.
    - `account` must return a state and must not change anything.
    - `joining.say` must return a message, and `joining.welcome` must return an outbox and a state.

    `unchanged` detects changes during local training. `check_own` detects that one client's
    training has overwritten the tensors of a different client. `unchanged` and `check_own` compare
    the version counters of tensors, so changes through ``.data`` or NumPy are missed.

    Raises:
        ValueError: if a builder replaced a function that an inner transform had sealed.

    Example:
        >>> method = checked(fgl.fedavg(torch.nn.Linear(1, 1)))
        >>> method.receive({"model": {"weight": torch.ones(1, 1)}}, {}, None)
        Traceback (most recent call last):
        ValueError: Expected message['model'] to have keys ['weight', 'bias'], but got missing ...
    """
    check_seals(method)
    template = method.common()
    check_takes("accept", method.accept, ("message", "client", "state"))

    def receive(message: Message, state: State, graph: Graph) -> tuple[Params, Any]:
        with unchanged(message, state, getattr(graph, "tensors", {})), method.at(graph):
            received = method.receive(message, state, graph)
        params, context = pair(received, "receive", "params, context")
        check_whole(method, params, graph, "receive's params", template, **method.own.personal)
        return params, context

    def send(params: Params, context: Any, state: State, graph: Graph) -> tuple[Message, State]:
        with unchanged(params, context, state, getattr(graph, "tensors", {})), method.at(graph):
            received = method.send(params, context, state, graph)
        message, new = pair(received, "send", "message, state")
        check_message(new, name="state")
        return message, new

    def deploy(message: Message, state: State, graph: Graph) -> Params:
        with unchanged(message, state, getattr(graph, "tensors", {})), method.at(graph):
            params = method.deploy(message, state, graph)
        check_whole(method, params, graph, "deploy's params", template)
        return params

    serving = partial(_checked_server, template=template, max_change=method.rules.max_change)
    guarded: dict[str, Any] = {"receive": receive, "send": send}
    guarded["aggregate"] = serving(method.aggregate, "aggregate")
    if len(method.layers) > 1:
        guarded = {name: _explained(function, method) for name, function in guarded.items()}
    if method.privacy.account is not None:
        account = _checked_account(method.privacy.account)
        guarded["privacy"] = replace(method.privacy, account=account)
    if (joining := method.rules.joining) is not None:
        welcome = serving(joining.welcome, "welcome")
        joining = replace(joining, say=_checked_say(joining.say), welcome=welcome)
        guarded["rules"] = replace(method.rules, joining=joining)
    return replace(method, **guarded, deploy=deploy)


def _explained(function: Callable[..., Any], method: Method) -> Callable[..., Any]:
    """Wrap a function so that its error names the entry that a message lacks.

    The first argument of the function is a message, an inbox, or the parameters before `send`.
    """

    @wraps(function)
    def call(first: Any, *rest: Any) -> Any:
        try:
            return function(first, *rest)
        except KeyError as error:
            (key, *_) = (*error.args, None)
            messages = first.values() if isinstance(first, Inbox) else [first]
            if key not in ("model", "num_examples") or all(key in each for each in messages):
                raise  # a state or another dict lacks the entry
            raise ValueError(
                f"Expected messages with {error}, which a layer of {method} reads, but got one "
                "without: leave that layer out, or put it inside the layer that sends no such entry"
            ) from error

    return call


def _checked_account(account: Account) -> Account:
    def checked_account(inbox: Inbox, state: State) -> State:
        with unchanged(state):
            new = account(inbox, state)
        check_message(new, name="state")
        return new

    return checked_account


def _checked_say(say: Callable[[Graph], Message]) -> Callable[[Graph], Message]:
    def checked_say(graph: Graph) -> Message:
        message = say(graph)
        check_message(message)
        return message

    return checked_say


def _checked_server(
    serve: Aggregate, name: str, *, template: Mapping[str, Tensor], max_change: float
) -> Aggregate:
    def served(inbox: Inbox, state: State) -> tuple[Mapping[int, Message], State]:
        with unchanged(*inbox.values(), *inbox.sent.values(), state):
            received = serve(inbox, state)
        outbox, new = pair(received, name, "outbox, state")
        check_message(new, name="state")
        _check_outbox(outbox, inbox, template, max_change)
        check_jump(new, state, "state", max_change)
        return outbox, new

    return served


def check_whole(
    method: Method,
    params: Any,
    graph: Graph,
    name: str,
    common: Params | None = None,
    /,
    **more: Tensor,
) -> None:
    """Raise an error unless `params` contains all tensors of a client's model.

    If clients have different models, `params` is compared with the model of this client. If
    ``method.own`` names modules but has no models, these modules may have any shape.

    Args:
        method: the method, which contains the model.
        params: the client's parameters.
        graph: the client's graph.
        name: name of the parameters in errors.
        common: ``method.common()``, if the caller has computed it for several clients.
        more: tensors that `params` must have in addition to the model's tensors.

    Example:
        >>> method = fgl.fedavg(torch.nn.Linear(1, 1))
        >>> check_whole(method, method.initial(), None, "params")
    """
    if method.own.models is not None:
        check_model(params, {**method.model_of(graph).state_dict(), **more}, name)
        return
    tensors = params if isinstance(params, Mapping) else {}
    own = {
        key: t
        for key, t in (tensors.items() if method.own.modules else ())
        if isinstance(key, str) and is_under(key, method.own.modules)
    }
    common = method.common() if common is None else common
    check_model(params, {**common, **own, **more}, name)


class unchanged:  # a class costs half of what `contextmanager` does
    """Context manager that raises an error if the code inside it changes a tensor in place.

    The tensors are those of the given messages, states, graphs and training contexts.

    A change in place would change every object that shares the tensor. `unchanged` compares the
    version counters of tensors, so changes through ``.data`` or NumPy are missed.

    Raises:
        ChangedInPlace: if a tensor was changed, replaced, added or removed; the error names the
            first such tensor.

    Example:
        >>> state = {"w": torch.zeros(1)}
        >>> with unchanged(state):
        ...     state["w"].add_(1)
        Traceback (most recent call last):
        fgl.federation.gate.guard.ChangedInPlace: 'w' of params, a message, a state or a ...
    """

    def __init__(self, *messages: Any) -> None:
        self._messages = list({id(m): m for m in messages if isinstance(m, Mapping)}.values())

    def __enter__(self) -> None:
        self._before = Noted(self._messages)

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if error is not None:
            return
        before, now = self._before, Noted(self._messages)
        if now != before:
            path = min({*now.places()} ^ {*before.places()})[1]
            raise ChangedInPlace(
                f"{path!r} of params, a message, a state or a graph was changed in place, but "
                "others hold it too: make a copy"
            )


def pair(returned: Any, name: str, wanted: str) -> tuple[Any, Any]:
    """The two values that a function returned. Raise an error if the function returned no pair.

    Example:
        >>> pair((1, 2), "send", "message, state")
        (1, 2)
    """
    if not isinstance(returned, tuple) or len(returned) != 2:
        kind = type(returned).__name__
        got = f"{len(returned)} values" if kind == "tuple" else f"a {kind}"
        raise TypeError(f"Expected {name} to return ({wanted}), but got {got}")
    return returned


def _check_outbox(
    outbox: Any, inbox: Inbox, template: Mapping[str, Tensor], max_change: float
) -> None:
    got = type(outbox).__name__
    reject_if(not isinstance(outbox, Mapping), "outbox to be a dict of messages", got, TypeError)
    unknown = [client for client in outbox if client not in range(inbox.num_clients)]
    reject_if(unknown, f"outbox to name clients from 0 to {inbox.num_clients - 1}", unknown)
    for client, message in {id(m): (k, m) for k, m in outbox.items()}.values():
        check_message(message, model=template, name=f"outbox[{client}]")
        check_jump(message, inbox.sent.get(client, {}), f"outbox[{client}]", max_change)


class Noted:
    """The tensors of messages, states or contexts, each with its version counter.

    Args:
        messages: dicts with the tensors, and possibly other objects. A dict that occurs twice, such
            as a received model that is also the start of training, is read only once.
    """

    def __init__(self, messages: Iterable[Mapping[str, Any]]) -> None:
        self.keys: list[Any] = []  # for a dict, a tuple of its key and of the names inside
        self.ends: list[int] = []  # end of each message in `keys`
        self.values: list[Any] = []
        visited: set[int] = set()
        for message in messages:
            plain = {*map(type, message.values())} == {Tensor}  # as a graph's: no loop in Python
            self.keys += message if plain else ()
            self.values += message.values() if plain else ()
            for key, value in () if plain else message.items():
                if type(value) is Tensor or not isinstance(value, Mapping):
                    self.keys.append(key)
                    self.values.append(value)
                elif id(value) not in visited:
                    visited.add(id(value))
                    self.keys.append((key, *value))
                    self.values += value.values()
            self.ends.append(len(self.keys))
        self.counted = True  # whether all values are tensors with a number of changes
        try:
            self.versions: list[int] = [*map(VERSION, self.values)]
        except (AttributeError, RuntimeError):
            self.counted = False
            self.values = [
                each.values if isinstance(each, Ragged) else each for each in self.values
            ]
            self.versions = [VERSION(v) if _counts(v) else 0 for v in self.values]

    def __eq__(self, other: object) -> bool:
        """Whether both have the same names, the same tensor objects and equal version counters."""
        assert isinstance(other, Noted)
        same = (self.keys, self.ends, self.versions) == (other.keys, other.ends, other.versions)
        if same and all(map(is_, self.values, other.values)):
            return True
        return self.places() == other.places()  # other objects in a context may change

    def places(self) -> list[tuple[int, str, int, int]]:
        """For each tensor: its message, path, identity and number of changes."""
        return [(owner, path, id(tensor), n) for owner, path, tensor, n in self.tensors()]

    def tensors(self) -> Iterator[tuple[int, str, Tensor, int]]:
        """For each tensor: index of its message, path in it, the tensor, number of changes."""
        sizes = [b - a for a, b in pairwise([0, *self.ends])]
        owners = [number for number, size in enumerate(sizes) for _ in range(size)]
        nested = [key if isinstance(key, tuple) else (None, key) for key in self.keys]
        paths = [
            (owner, f"{key}/{name}" if key else name)
            for owner, (key, *names) in zip(owners, nested, strict=True)
            for name in names
        ]
        for (owner, path), value, n in zip(paths, self.values, self.versions, strict=True):
            if isinstance(value, Tensor):
                yield owner, path, value, n


def _counts(value: Any) -> bool:
    return isinstance(value, Tensor) and not value.is_inference()


def check_own(client: int, messages: Any, seen: dict[int, tuple[int, Tensor, int]]) -> None:
    """Raise an error if a client overwrote a tensor that an earlier client has sent.

    The tensors of a network's ``state_dict()`` are the network's own tensors, not copies. If all
    clients share one network and send its ``state_dict()``, the training of the next client
    overwrites the message of the client before.

    Args:
        client: the client.
        messages: the client's message and state.
        seen: tensors of the earlier clients. The dict maps a memory address to a tuple: client,
            tensor, version. This function adds the client's tensors to the dict.

    Example:
        >>> tensor, seen = torch.zeros(1), {}
        >>> check_own(0, [{"w": tensor}], seen)
        >>> check_own(1, [{"w": tensor.add_(1)}], seen)
        Traceback (most recent call last):
        ValueError: Clients 0 and 1 share the tensor 'w', which changed in between: ...
    """
    noted = Noted(message for message in messages if isinstance(message, Mapping))
    if noted.counted:
        with suppress(RuntimeError):  # a sparse tensor has no place in memory
            places = [*map(Tensor.data_ptr, noted.values)]
            if all(places) and seen.keys().isdisjoint(places):
                own = zip(repeat(client), noted.values, noted.versions)
                seen.update(zip(places, own, strict=True))
                return
    for _, path, tensor, now in noted.tensors():
        if tensor.layout != torch.strided or not tensor.numel() or tensor.is_inference():
            continue
        other, same, then = seen.setdefault(tensor.data_ptr(), (client, tensor, now))
        if other != client and same._version != then:
            raise ValueError(
                f"Clients {other} and {client} share the tensor {path!r}, which changed in "
                "between: give each client a copy"
            )
        seen[tensor.data_ptr()] = client, tensor, now
