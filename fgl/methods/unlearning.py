"""Unlearning of clients: train again without these clients, or increase their losses."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from .. import federation as fed
from ..checks import Count, Positive, Weight, check_number, reject_if
from ..federation import Broadcast, Inbox, Message, Method, Outbox, Params, State
from ..graph import Graph
from ..warn import warn


@fed.layer
def retrained(fedavg: Method, *, client: int | Sequence[int]) -> Method:
    """Train without some clients; the result is a reference for methods that unlearn these clients.

    The random numbers of a client depend only on the seed, the round and the client's number. With
    ``clients_at_once=1`` the result is therefore bit-identical to the result of a run without these
    clients. If several clients train as a batch, the two results differ: dropout is sampled for the
    whole batch, and rounding depends on the batch. The server still sends all messages to the
    ignored clients too.

    Args:
        fedavg: any method.
        client: number of one client whose uploads are ignored, or numbers of several such clients.
            Numbers are counted from 0.

    Raises:
        ValueError: if a number is negative, or if no number is given. A round raises a ValueError
            if the federation lacks such a client.

    Example:
        >>> method = retrained(fgl.fedavg(torch.nn.Linear(1, 1)), client=0)
        >>> one = {"model": method.initial(), "num_examples": torch.tensor(3)}
        >>> method.aggregate(fgl.federation.Inbox({0: one}, 2), {})
        ({}, {})

    Source: the baseline of Halimi et al. 2022, https://arxiv.org/abs/2207.05521
    """

    leaving = numbers_of(client)

    def aggregate(inbox: Inbox, state: State) -> tuple[Outbox, State]:
        _check_there(leaving, inbox)
        others = without(inbox, leaving)
        return fedavg.aggregate(others, state) if others else ({}, state)

    def welcome(inbox: Inbox, state: State) -> tuple[Outbox, State]:
        assert fedavg.rules.joining is not None
        others = without(inbox, leaving)
        return fedavg.rules.joining.welcome(others, state) if others else (inbox.sent, state)

    joining = fedavg.rules.joining and replace(fedavg.rules.joining, welcome=welcome)
    return replace(fedavg, aggregate=aggregate, rules=replace(fedavg.rules, joining=joining))


@fed.layer(checks=[fed.check_averages, fed.check_model_alone, fed.check_one_architecture])
def unlearned(
    fedavg: Method,
    *,
    client: int | Sequence[int],
    at: Count,
    radius: Positive | None = None,
    far: Weight = 2.2,
    max_norm: Positive = 5.0,
) -> Method:
    """FedAvg that unlearns clients by gradient ascent on the clients' losses (PGA, Alg. 1).

    After `at` rounds the server computes ``w_ref``, the mean of all models except the model of the
    client to be forgotten. In the next round the client to be forgotten starts from ``w_ref`` and
    maximises its loss by local steps, with a new optimiser. After each step, the model ``w`` is
    projected to the ball ``||w - w_ref|| <= radius``. The client stops as soon as
    ``||w - w_k||^2 > far``. Here w_k is the model that the client trained last, before the ascent.
    The result becomes the model of all clients. After the ascent, only the other clients' uploads
    are used. If the client to be forgotten is absent, the server repeats the request in the next
    round. If several clients are to be forgotten, all of them must take part in the same round. The
    new model is then the mean of these clients' results, with the weights of `fedavg`. This mean is
    in the ball too. In the paper, only one client is forgotten.

    As in the authors' notebook, the optimiser is reset in every round; otherwise, moments from the
    earlier descent would influence the ascent. This method follows the notebook, with four
    exceptions. The ascent has as many steps as the local training of a round, since the task sets
    one number of steps for all clients. The authors use up to five times as many steps. Here
    clients have the weights of `fedavg`. The authors give all clients equal weights. A method
    cannot choose participants. So all clients train in the round of the ascent, but the server uses
    only the uploads of the clients that it must forget. The authors initialise a few models w at
    random. The square of the authors' radius is the mean of ``||w_ref - w||^2 / 3`` over these
    models. The default radius here uses an estimate of this mean. The estimate assumes that a
    randomly initialised tensor has mean 0, and that its norm equals the norm of this tensor in the
    initial model. A tensor with equal entries, such as a norm layer's weights, is not random: the
    estimate assumes that this tensor has the same initial values in every model.

    Args:
        fedavg: FedAvg built for a task; the server must send the mean of the models.
        client: number of one client to forget, or numbers of several such clients. Numbers are
            counted from 0.
        at: number of rounds before the ascent, at least 1.
        radius: radius of the ball, above 0; by default `usual_radius`.
        far: bound for the squared distance between w and w_k, at least 0. The client stops if the
            distance is above this bound. The authors use 2.2 for a small network on MNIST.
        max_norm: largest gradient norm of the ascent, above 0; larger gradients are clipped.

    Raises:
        ValueError: if a number is out of range, if the server of `fedavg` does not send the mean of
            the models, or if clients train tensors outside the model. A run raises a ValueError if
            the federation lacks a client to be forgotten. A run without a checkpoint also raises a
            ValueError if it has at most `at` rounds, because the ascent would never start.

    Example:
        >>> method = unlearned(fgl.fedavg(torch.nn.Linear(1, 1)), client=1, at=5)
        >>> method.receive({"model": method.initial()}, {}, None)[1]["forget"]
        tensor(False)

    Source: Halimi et al. 2022, https://arxiv.org/abs/2207.05521;
    https://github.com/IBM/federated-unlearning
    """
    names, training, leaving = fed.trainable(fedavg), fedavg.train, numbers_of(client)
    first = fed.pick(fedavg.initial(), names)

    def receive(message: Message, state: State, graph: Graph) -> tuple[Params, Any]:
        params, context = fedavg.receive(message, state, graph)
        last = state.get("last", fed.pick(params, names))
        like = params[next(iter(last))]
        forget = message.get("forget", torch.zeros((), dtype=torch.bool, device=like.device))
        bound = usual_radius(first, params) if radius is None else like.new_tensor(radius)
        return params, {**context, "last": last, "forget": forget, "radius": bound}

    def loss(params: Params, graph: Graph, context: Any) -> Tensor:
        value = fedavg.loss(params, graph, context)
        return torch.where(context["forget"], -value, value)

    def adjust(grads: Params, params: Params, context: Any) -> Params:
        grads = training.adjusted(grads, params, context)
        scale = (max_norm / (square(grads).sqrt() + 1e-6)).clamp(max=1)
        scale = torch.where(context["forget"], scale, 1)
        return fed.combine(lambda grad: grad * scale, grads)

    def settle(new: Params, old: Params, context: Any) -> Params:
        new, forget = training.settled(new, old, context), context["forget"]
        ascended = projected(new, context["start"], context["radius"])
        stopped = has_left(old, context["start"], context["last"], far)
        ascended = fed.combine(partial(torch.where, stopped), old, ascended)
        return fed.combine(partial(torch.where, forget), ascended, new)

    def send(params: Params, context: Any, state: State, graph: Graph) -> tuple[Message, State]:
        message, new_state = fedavg.send(params, context, state, graph)
        return message, {**new_state, "last": fed.pick(params, context["last"])}

    @torch.no_grad()
    def aggregate(inbox: Inbox, state: State) -> tuple[Outbox, State]:
        _check_there(leaving, inbox)
        rounds = int(state.get("rounds", torch.tensor(0)))
        model, new = new_model(inbox, state, rounds)
        if not model:
            return {}, state
        outbox = ask(model, inbox.num_clients, leaving if rounds == at - 1 else ())
        return outbox, {**new, "rounds": torch.tensor(rounds + 1)}

    def new_model(inbox: Inbox, state: State, rounds: int) -> tuple[Any, State]:
        """The model and the server's state after a round.

        The model is empty if no upload is used.
        """
        if rounds == at:  # start of the ascent
            absent = [k for k in leaving if k not in inbox]
            if absent:
                warn(f"Clients {absent} sent nothing to forget them by: the next round asks again")
            model = {} if absent else forgotten(inbox)
            return model, {**state, "model": model}
        counted = inbox if rounds < at - 1 else without(inbox, leaving)
        outbox, new = fedavg.aggregate(counted, state) if counted else ({}, state)
        return next(iter(outbox.values()), {}).get("model"), new

    def forgotten(inbox: Inbox) -> Params:
        """The model of the client to be forgotten, or the mean of several such clients' models."""
        if len(leaving) == 1:
            own: Params = inbox[leaving[0]]["model"]
            return own
        others = [k for k in inbox.clients if k not in leaving]
        model: Params = next(iter(fedavg.aggregate(without(inbox, others), {})[0].values()))[
            "model"
        ]
        return model

    train = replace(training, adjust=adjust, settle=settle, keep_optimizer=False)
    method = replace(fedavg, receive=receive, loss=loss, send=send, train=train)
    return replace(method, aggregate=aggregate, rules=replace(fedavg.rules, rounds=at + 1))


def numbers_of(client: int | Sequence[int]) -> list[int]:
    """The number of one client, or the numbers of several clients in order.

    Example:
        >>> numbers_of(2), numbers_of([3, 1])
        ([2], [1, 3])
    """
    numbers = list(client) if isinstance(client, Sequence) else [client]
    reject_if(not numbers, "client to be a number or several", "none")
    for number in numbers:
        check_number("client", number, at_least=0, integer=True)
    return sorted(set(numbers))


def without(inbox: Inbox, clients: Sequence[int]) -> Inbox:
    """Remove the messages of some clients from a round's inbox.

    Example:
        >>> without(Inbox({0: {}, 2: {}}, num_clients=3), [2]).clients
        [0]
    """
    return inbox.with_messages(fed.drop(inbox, clients))


def _check_there(clients: Sequence[int], inbox: Inbox) -> None:
    """Raise an error if a client to be forgotten does not exist, or if no client would remain."""
    most, count = max(clients), inbox.num_clients
    reject_if(most >= count, f"client to be one of {count}", most)
    reject_if(len(clients) == count, f"client to leave one of {count} clients", list(clients))


def ask(model: Any, num_clients: int, clients: Sequence[int]) -> Outbox:
    """Messages to all clients: the model, and a flag that tells a client to take ascent steps.

    The flag is True for the given `clients`, which are to be forgotten, and False for all others.
    """
    device = next(iter(model.values())).device
    forget = torch.zeros((), dtype=torch.bool, device=device)
    if not clients:
        return Broadcast({"model": model, "forget": forget}, num_clients)
    says = [torch.full((), k in clients, device=device) for k in range(num_clients)]
    return {k: {"model": model, "forget": each} for k, each in enumerate(says)}


def projected(new: Params, start: Params, radius: Tensor) -> Params:
    """Return the nearest model in the ball ``||w - w_ref|| <= radius``.

    Example:
        >>> projected({"w": torch.tensor([3.0])}, {"w": torch.ones(1)}, torch.tensor(0.5))
        {'w': tensor([1.5000])}
    """
    change = fed.combine(torch.sub, new, start)
    length = square(change).sqrt()
    inside = torch.where(length > radius, radius / length, 1)
    return fed.combine(lambda step, first: first + inside * step, change, start)


def has_left(old: Params, start: Params, last: Params, far: float) -> Tensor:
    """A bool scalar: True if the ascent has begun and ``||w - w_k||^2`` is above `far`."""
    begun = square(fed.combine(torch.sub, old, start)) > 0
    return begun & (square(fed.combine(torch.sub, old, last)) > far)


def square(tensors: Mapping[str, Tensor]) -> Tensor:
    """Sum of the squares of all entries of all tensors.

    Example:
        >>> square({"w": torch.tensor([3.0]), "b": torch.tensor([4.0])})
        tensor(25.)
    """
    return torch.stack([each.square().sum() for each in tensors.values()]).sum()


def usual_radius(initial: Params, model: Params) -> Tensor:
    """Compute ``sqrt(mean ||w - theta||^2 / 3)`` over newly initialised models theta.

    In theta_0, the given initial model, some tensors have equal entries, such as the weights of a
    norm layer. These tensors are assumed to have the same values in every theta. Any other tensor
    of theta has mean 0, and its norm is approximately the norm of the same tensor in theta_0. So
    such a tensor adds ``||w||^2 + ||theta_0||^2`` to ``mean ||w - theta||^2``.

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
