"""Own models: clients keep what they trained, complete what they receive with it, and use it."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from ..federation import (
    Inbox,
    Message,
    Method,
    Params,
    State,
    changed_messages,
    check_model_alone,
    layer,
)
from ..graph import Graph


@layer
def own_models(fedavg: Method, *, draw: bool = False, before: bool = False) -> Method:
    """Every client keeps the model that it trained, and uses that one.

    A message may hold a part of a model: the rest is the client's own.

    Args:
        fedavg: what clients train, send and aggregate.
        draw: whether every client draws an initial model of its own, and starts from it until the
            server has aggregated once; default the common initial model.
        before: whether a client's state also keeps the model that its last round started from,
            under ``"adopted"``.

    Raises:
        TypeError: if a model is to be drawn that cannot be, see `drawn`.
        ValueError: if clients train more than the model.

    Example:
        >>> method = own_models(fgl.fedavg(torch.nn.Linear(1, 1)))
        >>> state = {"model": {"weight": torch.ones(1, 1), "bias": torch.ones(1)}}
        >>> method.deploy({}, state, None)
        {'weight': tensor([[1.]]), 'bias': tensor([1.])}
    """
    check_model_alone(fedavg, "own_models")
    initial = fedavg.initial()
    if draw:
        with torch.random.fork_rng([]):
            drawn(fedavg.model)  # raises where it cannot be drawn

    def own(state: State) -> Params:
        if "model" in state:
            kept = state["model"]
            return dict(kept)
        return drawn(fedavg.model) if draw else initial

    def receive(message: Message, state: State, graph: Graph) -> tuple[Params, Any]:
        sent = message.get("model", {})
        if draw and same(sent, initial):  # nothing is aggregated yet
            sent = {}
        whole = {**message, "model": {**own(state), **sent}}
        return fedavg.receive(whole, state, graph)

    def send(params: Params, context: Any, state: State, graph: Graph) -> tuple[Message, State]:
        message, state = fedavg.send(params, context, state, graph)
        if before:  # without what is personal
            state = {**state, "adopted": {name: context["start"][name] for name in initial}}
        return message, {**state, "model": params}

    def aggregate(inbox: Inbox, state: State) -> tuple[Mapping[int, Message], State]:
        outbox, state = fedavg.aggregate(inbox, state)
        count = torch.tensor(len(inbox))
        return changed_messages(outbox, lambda message: {"num_clients": count, **message}), state

    def deploy(message: Message, state: State, graph: Graph) -> Params:
        sent = {} if draw or "model" in state else message.get("model", {})
        return fedavg.deploy({**message, "model": {**own(state), **sent}}, state, graph)

    method = replace(fedavg, receive=receive, send=send, deploy=deploy)
    return replace(method, aggregate=aggregate) if draw else method


def same(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> bool:
    """Whether two models have the same tensors.

    Example:
        >>> same({"w": torch.zeros(2)}, {"w": torch.zeros(2)}), same({}, {"w": torch.zeros(2)})
        (True, False)
    """
    return one.keys() == other.keys() and all(one[name].equal(other[name]) for name in one)


def drawn(model: nn.Module) -> Params:
    """Initial parameters drawn anew, from torch's global generator.

    Args:
        model: the architecture; its modules have `reset_parameters`, or it has that itself.

    Raises:
        TypeError: if a module has parameters and no `reset_parameters`: it would stay as it is.

    Example:
        >>> model = torch.nn.Linear(2, 1)
        >>> drawn(model)["weight"].equal(model.weight)
        False
    """
    fresh = copy.deepcopy(model)
    whole = hasattr(fresh, "reset_parameters")
    for module in [fresh] if whole else fresh.modules():
        reset: Any = getattr(module, "reset_parameters", None)
        if reset is not None:
            reset()
        elif next(module.parameters(recurse=False), None) is not None:
            raise TypeError(
                f"Expected {type(module).__name__} to have reset_parameters, to be drawn anew, "
                "but got none"
            )
    return {name: value.detach() for name, value in fresh.state_dict().items()}
