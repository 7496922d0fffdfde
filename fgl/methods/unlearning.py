"""Unlearning of a client: training again without it, and ascent on its loss in its place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ..checks import check_count, check_number
from ..federation import (
    Broadcast,
    Inbox,
    Message,
    Method,
    Params,
    State,
    check_averages,
    check_model_alone,
    check_one_architecture,
    layer,
    trainable,
)
from ..graph import Graph


@layer
def retrained(fedavg: Method, *, client: int) -> Method:
    """Any method whose server never counts one client: the result of its exact unlearning.

    A client's randomness depends on the seed, the round and its number alone. So this is bit for
    bit the run in which that client was never reached, and what approximate unlearning is measured
    by. The client still gets the same messages as all others.

    Args:
        fedavg: any method.
        client: whose uploads do not count, its number from 0.

    Raises:
        ValueError: if `client` is negative.

    Example:
        >>> method = retrained(fgl.fedavg(torch.nn.Linear(1, 1)), client=0)
        >>> one = {"model": method.initial(), "num_examples": torch.tensor(3)}
        >>> method.aggregate(fgl.federation.Inbox({0: one}, 2), {})
        ({}, {})

    Source: the baseline of Halimi et al. 2022, https://arxiv.org/abs/2207.05521
    """
    check_number("client", client, at_least=0, integer=True)

    def aggregate(inbox: Inbox, state: State) -> tuple[Mapping[int, Message], State]:
        others = without(inbox, client)
        return fedavg.aggregate(others, state) if others else ({}, state)

    def welcome(inbox: Inbox, state: State) -> tuple[Mapping[int, Message], State]:
        assert fedavg.joining is not None
        others = without(inbox, client)
        return fedavg.joining.welcome(others, state) if others else (inbox.sent, state)

    joining = fedavg.joining and replace(fedavg.joining, welcome=welcome)
    return replace(fedavg, aggregate=aggregate, joining=joining)


@layer
def unlearned(
    fedavg: Method,
    *,
    client: int,
    at: int,
    radius: float | None = None,
    far: float = 2.2,
    max_norm: float = 5.0,
) -> Method:
    """FedAvg that forgets a client after some rounds, by ascent on the client's loss (PGA, Alg. 1).

    After `at` rounds the server makes ``w_ref``, the mean of the others' models. In the next round
    the client that is to be forgotten maximises its loss from there, with its own steps and a new
    optimiser, and after each step ``w`` is projected to ``||w - w_ref|| <= radius``. It stops after
    the first step that leaves ``||w - w_k||^2 > far``, w_k being the model that it last trained.
    Its result is everybody's model, and from then on only the others count. If it is absent, the
    server repeats the request.

    The optimiser starts anew in every round, as in the authors' notebook: moments of the descent
    would lead the ascent. As there, except for four things. The ascent has as many steps as a
    round, there up to five times as many: the task decides on steps, for all clients alike. Clients
    weigh as in `fedavg`; there all weigh the same. All clients train in the round of the ascent,
    and the uploads of the others do not count: a method does not say who takes part. The usual
    radius is what the authors' comes to on average, ``mean ||w_ref - w||^2 / 3`` over models w that
    are drawn anew: their tensors have mean 0 and about the length of the initial model's, or are
    constant, as a norm's weights.

    Args:
        fedavg: what clients train; its server averages.
        client: the number, from 0, of the client to forget.
        at: rounds before, at least 1.
        radius: of the ball, above 0; default `usual_radius`.
        far: squared distance from w_k at which the client stops, at least 0; the authors' 2.2 is
            for a small network on MNIST.
        max_norm: the ascent's gradients are clipped to this, above 0.

    Raises:
        ValueError: if a number is out of range, the server of `fedavg` does more than average, or
            clients train more than the model; in a round, if there is no such client.

    Example:
        >>> method = unlearned(fgl.fedavg(torch.nn.Linear(1, 1)), client=1, at=5)
        >>> method.receive({"model": method.initial()}, {}, None)[1]["forget"]
        tensor(False)

    Source: Halimi et al. 2022, https://arxiv.org/abs/2207.05521;
    https://github.com/IBM/federated-unlearning
    """
    check_number("client", client, at_least=0, integer=True)
    check_count(at=at)
    check_number("far", far, at_least=0)
    check_number("max_norm", max_norm, above=0)
    if radius is not None:
        check_number("radius", radius, above=0)
    check_averages(fedavg, "unlearned")
    check_model_alone(fedavg, "unlearned")
    check_one_architecture(fedavg, "unlearned")
    names, adjusted, settled = trainable(fedavg), fedavg.train.adjust, fedavg.train.settle
    first = {name: value for name, value in fedavg.initial().items() if name in names}

    def receive(message: Message, state: State, graph: Graph) -> tuple[Params, Any]:
        params, context = fedavg.receive(message, state, graph)
        last = state.get("last", {name: params[name] for name in params if name in names})
        like = params[next(iter(last))]
        forget = message.get("forget", torch.zeros((), dtype=torch.bool, device=like.device))
        bound = usual_radius(first, params) if radius is None else like.new_tensor(radius)
        return params, {**context, "last": last, "forget": forget, "radius": bound}

    def loss(params: Params, graph: Graph, context: Any) -> Tensor:
        value = fedavg.loss(params, graph, context)
        return torch.where(context["forget"], -value, value)

    def adjust(grads: Params, params: Params, context: Any) -> Params:
        grads = grads if adjusted is None else adjusted(grads, params, context)
        scale = (max_norm / (square(grads).sqrt() + 1e-6)).clamp(max=1)
        scale = torch.where(context["forget"], scale, 1)
        return {name: grad * scale for name, grad in grads.items()}

    def settle(new: Params, old: Params, context: Any) -> Params:
        new = new if settled is None else settled(new, old, context)
        start, last, forget = context["start"], context["last"], context["forget"]
        change = {name: new[name] - start[name] for name in new}
        length = square(change).sqrt()
        inside = torch.where(length > context["radius"], context["radius"] / length, 1)
        begun = square({name: old[name] - start[name] for name in old}) > 0
        stopped = begun & (square({name: old[name] - last[name] for name in old}) > far)
        bounded = {name: start[name] + inside * change[name] for name in new}
        bounded = {name: torch.where(stopped, old[name], bounded[name]) for name in new}
        return {name: torch.where(forget, bounded[name], new[name]) for name in new}

    def send(params: Params, context: Any, state: State, graph: Graph) -> tuple[Message, State]:
        message, new_state = fedavg.send(params, context, state, graph)
        return message, {**new_state, "last": {name: params[name] for name in context["last"]}}

    @torch.no_grad()
    def aggregate(inbox: Inbox, state: State) -> tuple[Mapping[int, Message], State]:
        if client >= inbox.num_clients:
            raise ValueError(f"Expected client to be one of {inbox.num_clients}, but got {client}")
        rounds = int(state.get("rounds", torch.tensor(0)))
        if rounds == at:  # of the ascent
            if client not in inbox:
                return {}, state
            model = inbox[client]["model"]
            outbox, new = messages_for(model, inbox.num_clients), {**state, "model": model}
        else:
            counted = inbox if rounds < at - 1 else without(inbox, client)
            outbox, new = fedavg.aggregate(counted, state) if counted else ({}, state)
            if not outbox:
                return outbox, state
            outbox = messages_for(outbox[next(iter(outbox))]["model"], inbox.num_clients)
        if rounds == at - 1:
            outbox = forget_messages(outbox[client]["model"], inbox.num_clients)
        return outbox, {**new, "rounds": torch.tensor(rounds + 1)}

    def messages_for(model: Any, num_clients: int) -> Mapping[int, Message]:
        like = next(iter(model.values()))
        forget = torch.zeros((), dtype=torch.bool, device=like.device)
        return Broadcast({"model": model, "forget": forget}, num_clients)

    def forget_messages(model: Any, num_clients: int) -> Mapping[int, Message]:
        """Ask one client to forget itself; the others get the same message otherwise."""
        like = next(iter(model.values()))
        says = [torch.full((), k == client, device=like.device) for k in range(num_clients)]
        return {k: {"model": model, "forget": each} for k, each in enumerate(says)}

    train = replace(fedavg.train, adjust=adjust, settle=settle, keep_optimizer=False)
    method = replace(fedavg, receive=receive, loss=loss, send=send, train=train)
    return replace(method, aggregate=aggregate)


def without(inbox: Inbox, client: int) -> Inbox:
    """The inbox of a round without one client.

    Example:
        >>> without(Inbox({0: {}, 2: {}}, num_clients=3), 2).clients
        [0]
    """
    rest = {k: message for k, message in inbox.items() if k != client}
    return Inbox(rest, inbox.num_clients, inbox.sent, inbox.round, inbox.asked)


def square(tensors: Mapping[str, Tensor]) -> Tensor:
    """Squared length of all tensors together.

    Example:
        >>> square({"w": torch.tensor([3.0]), "b": torch.tensor([4.0])})
        tensor(25.)
    """
    return torch.stack([each.square().sum() for each in tensors.values()]).sum()


def usual_radius(initial: Params, model: Params) -> Tensor:
    """``sqrt(mean ||w - theta||^2 / 3)`` over models theta that are drawn as the initial one was.

    A tensor of one value, such as a norm's weights, is drawn the same again. The others have mean
    0 and about the length of the initial ones, so that ``||w||^2 + ||theta_0||^2`` is theirs.

    Example:
        >>> usual_radius({"w": torch.tensor([1.0, -1.0])}, {"w": torch.tensor([3.0, 1.0])})
        tensor(2.)
        >>> usual_radius({"w": torch.ones(3)}, {"w": torch.full((3,), 3.0)})
        tensor(2.)
    """
    parts = []
    for name in [name for name in initial if name in model]:
        first = initial[name].to(model[name])
        same = (first == first.flatten()[:1]).all() & (first.numel() > 1)
        drawn = model[name].square().sum() + first.square().sum()
        parts.append(torch.where(same, (model[name] - first).square().sum(), drawn))
    return (torch.stack(parts).sum() / 3).sqrt()
