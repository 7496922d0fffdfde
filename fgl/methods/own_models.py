"""Own models: each client keeps and uses the model that it trained."""

import copy
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from .. import federation as fed
from ..checks import reject_if
from ..federation import Means, Message, Method, Models, Outbox, Params, State
from ..graph import Graph

# They call a copy of the model, or use its parameters by name.
ONE_ARCHITECTURE = ["moon", "graphfl", "fedpub", "fedselect", "fedsage_plus"]
ONE_ARCHITECTURE += ["per_example_gaussian"]


@fed.layer(checks=[fed.check_model_alone])
def own_models(
    fedavg: Method,
    *,
    draw: bool = False,
    before: bool = False,
    own: Collection[str] = (),
    models: Callable[[Graph], nn.Module] | None = None,
) -> Method:
    """Every client keeps and uses the model that it trained.

    If the server's message contains only a part of a model, the client takes the remaining parts
    from its own model.

    Args:
        fedavg: FedAvg built for a task. If the argument `models` is given, the model for which
            `fedavg` was built only defines the parts that all clients have in common. The loss of
            `fedavg` then calls the client's own model.
        draw: if true, every client initialises its own model, and starts from this model until the
            server has aggregated once. If false, all clients start from the common initial model.
        before: whether a client's state contains ``"adopted"``, the model from which the client
            started its last round.
        own: names of the modules that clients never send. These modules may differ between clients.
        models: a function ``graph -> module`` that returns a client's model. The modules outside
            `own` must have the names and shapes of the common model. The modules in `own` are
            initialised with a seed that is derived from the common initial model. Default: all
            clients have the model of `fedavg`.

    Raises:
        TypeError: if `draw` is true and the model cannot be re-initialised (see `drawn`).
        ValueError: if clients train tensors outside the model, if the model lacks a module in
            `own`, or if only one of `own` and `models` is given. A ValueError is also raised if
            `own`, `models` and `draw` are given together.

    Example:
        >>> method = own_models(fgl.fedavg(torch.nn.Linear(1, 1)))
        >>> state = {"model": {"weight": torch.ones(1, 1), "bias": torch.ones(1)}}
        >>> method.deploy({}, state, None)
        {'weight': tensor([[1.]]), 'bias': tensor([1.])}
    """
    if models is not None or own:
        _check_differ(fedavg, own, models, draw)
        fedavg = with_models(fedavg, own, Models(models, fedavg.model, own))  # type: ignore[arg-type]
    initial = fedavg.initial()
    if draw:
        check_drawable(fedavg.model)

    def first(graph: Graph) -> Params:
        return initial if fedavg.own.models is None else fedavg.own.models.first(graph)

    def kept_by(state: State, graph: Graph) -> Params:
        if "model" in state:
            return {**state["model"]}
        return drawn(fedavg.model) if draw else first(graph)

    def receive(message: Message, state: State, graph: Graph) -> tuple[Params, Any]:
        sent = message.get("model", {})
        if draw and fed.same(sent, initial):  # nothing is aggregated yet
            sent = {}
        return fedavg.receive({**message, "model": {**kept_by(state, graph), **sent}}, state, graph)

    def send(params: Params, context: Any, state: State, graph: Graph) -> tuple[Message, State]:
        message, state = fedavg.send(params, context, state, graph)
        if before:  # without the personal part
            state = {**state, "adopted": fed.pick(context["start"], first(graph))}
        return message, {**state, "model": params}

    def with_count(outbox: Outbox, new: State, means: Means, state: State) -> tuple[Outbox, State]:
        count = torch.tensor(len(means.clients))
        return fed.changed_messages(outbox, lambda message: {"num_clients": count, **message}), new

    def deploy(message: Message, state: State, graph: Graph) -> Params:
        sent = {} if draw or "model" in state else message.get("model", {})
        return fedavg.deploy({**message, "model": {**kept_by(state, graph), **sent}}, state, graph)

    method = replace(fedavg, receive=receive, send=send, deploy=deploy)
    if not draw:
        return method
    return replace(method, aggregate=fed.after(fedavg.aggregate, with_count, averages=True))


def _check_differ(fedavg: Method, own: Collection[str], models: Any, draw: bool) -> None:
    want = "own to be names of modules and models a function of a graph, both or none"
    got = f"own={own!r} and models={models!r}"
    reject_if(models is None or not own or isinstance(own, str), want, got)
    reject_if(not callable(models), "models to be a function of a graph", repr(models), TypeError)
    reject_if(draw, "draw to be left out beside models, which draw", "True")
    fed.refuse(fedavg, ONE_ARCHITECTURE, "own_models", "it knows one architecture alone")


def with_models(fedavg: Method, own: Collection[str], models: Models) -> Method:
    """The method, extended so that clients can have different models.

    Each client keeps those parts of its model that other clients' models lack.

    Example:
        >>> model = torch.nn.Sequential(torch.nn.Linear(1, 2), torch.nn.Linear(2, 2))
        >>> models = Models(lambda graph: model, model, ["0"])
        >>> method = with_models(fgl.fedavg(model), ["0"], models)
        >>> list(method.common())
        ['1.weight', '1.bias']
    """
    plain = fedavg

    def at(graph: Graph) -> AbstractContextManager[None]:
        """Replace the common model by the client's own model, unless the caller has done so."""
        stands_in = fed.stand_in(plain.model) is not plain.model
        return nullcontext() if stands_in else fed.standing_in(plain.model, models(graph))

    def loss(params: Params, graph: Graph, context: Any) -> Tensor:
        with at(graph):
            return plain.loss(params, graph, context)

    def receive(message: Message, state: State, graph: Graph) -> tuple[Params, Any]:
        with fed.standing_in(plain.model, models(graph)):
            return plain.receive(message, state, graph)

    def send(params: Params, context: Any, state: State, graph: Graph) -> tuple[Message, State]:
        with fed.standing_in(plain.model, models(graph)):
            message, state = plain.send(params, context, state, graph)
        return {**message, "model": fed.pick(message["model"], models.common)}, state

    def deploy(message: Message, state: State, graph: Graph) -> Params:
        with fed.standing_in(plain.model, models(graph)):
            return plain.deploy(message, state, graph)

    functions: dict[str, Any] = {"loss": loss, "receive": receive, "send": send, "deploy": deploy}
    parts = replace(plain.own, modules=tuple(own), models=models)
    return replace(plain, **functions, own=parts)


def check_drawable(model: nn.Module, but: Collection[str] = ()) -> None:
    """Raise a TypeError if a model cannot be re-initialised; modules in `but` are not checked.

    Example:
        >>> check_drawable(torch.nn.Linear(2, 1))
    """
    with torch.random.fork_rng([]):
        drawn(model, but=but)


def drawn(model: nn.Module, *, but: Collection[str] = ()) -> Params:
    """New initial parameters, drawn with torch's global generator.

    Args:
        model: the architecture. The model or its modules must define `reset_parameters`.
        but: names of modules that are left unchanged.

    Raises:
        TypeError: if a module has parameters but no `reset_parameters`, since these parameters
            would stay unchanged.

    Example:
        >>> model = torch.nn.Linear(2, 1)
        >>> drawn(model)["weight"].equal(model.weight)
        False
    """
    fresh = copy.deepcopy(model)
    whole = not but and hasattr(fresh, "reset_parameters")
    stay = tuple(f"{each}." for each in but)
    modules = [module for name, module in fresh.named_modules() if not f"{name}.".startswith(stay)]
    for module in [fresh] if whole else modules:
        reset: Any = getattr(module, "reset_parameters", None)
        if reset is not None:
            reset()
        elif next(module.parameters(recurse=False), None) is not None:
            raise TypeError(
                f"Expected {type(module).__name__} to have reset_parameters, to be drawn anew, "
                "but got none"
            )
    return {name: value.detach() for name, value in fresh.state_dict().items()}
