"""Attacks for tests and benchmarks, in which hostile clients send forged uploads."""

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from .. import federation as fed
from ..checks import Weight, check_number
from ..federation import Inbox, Message, Method, Outbox, Params, State
from ..graph import Graph
from ..kinds import typed

Attack = Callable[[Inbox, list[int]], Outbox]


@fed.layer(sealed=("aggregate",))
def attacked(method: Method, attackers: Collection[int], attack: Attack) -> Method:
    """Change a method so that some clients are hostile.

    The function `attack` forges the uploads of the hostile clients.

    This function sees all uploads of a round before the server receives them. No other wrapper may
    be around this transform, or a run raises an error. For example, write
    ``attacked(robust(method, rule), ...)``: then the robust server gets the forged uploads. A
    forged upload is left out if it is not finite, or if `accept` refuses it.

    Args:
        method: the method of all clients, including the attackers.
        attackers: the numbers of the hostile clients.
        attack: a function ``(inbox, attackers) -> messages`` that returns a forged upload for each
            attacker in the inbox.

    Raises:
        ValueError: if an attacker's number is not the number of a client, if `method` is a
            `secure_sum`, or if the uploads of `method` are coded.

    Example:
        >>> method = attacked(fgl.fedavg(torch.nn.Linear(1, 1)), [1], negated_models)
        >>> came = {
        ...     k: {"model": {"w": torch.tensor(w)}, "num_examples": torch.tensor(1)}
        ...     for k, w in enumerate((2.0, 4.0))
        ... }
        >>> method.aggregate(fgl.federation.Inbox(came, 2), {})[0][0]
        {'model': {'w': tensor(-1.)}}
    """
    for client in attackers:
        check_number("attackers", client, at_least=0, integer=True)
    fed.refuse(method, "secure_sum", "attacked", "masked uploads cannot be forged one by one")
    reason = "attacks forge models, not codes: put the code around attacked"
    fed.refuse(method, ("quantised", "sparsified"), "attacked", reason)

    @torch.no_grad()
    def aggregate(inbox: Inbox, state: State) -> tuple[Outbox, State]:
        for client in attackers:
            check_number("attackers", client, at_least=0, below=inbox.num_clients)
        here = [client for client in inbox if client in attackers]
        if not here:
            return method.aggregate(inbox, state)
        messages = dict(inbox)
        for client, forged in attack(inbox, here).items():
            messages[client] = forged
            if _refused(method, forged, client, state):
                del messages[client]
        if not messages:
            return {}, state
        return method.aggregate(inbox.with_messages(messages), state)

    return replace(method, aggregate=aggregate)


def _refused(method: Method, forged: Message, client: int, state: State) -> bool:
    """Whether a round rejects a message: `accept` raises an error, or a value is not finite."""
    try:
        method.accept(forged, client, state)
    except Exception:
        return True
    return fed.first_not_finite(forged) is not None


def each_model(forge: Callable[[Params, Params], Params]) -> Attack:
    """An attack in which each attacker changes the model in its own upload.

    Args:
        forge: a function ``(model, sent) -> model``. The first argument is the trained model, and
            the second is the received model.

    Example:
        >>> attack = each_model(lambda model, sent: sent)
        >>> inbox = fgl.federation.Inbox({0: {"model": {}}}, 1, {0: {"model": {}}})
        >>> attack(inbox, [0])
        {0: {'model': {}}}
    """

    def attack(inbox: Inbox, attackers: list[int]) -> dict[int, Message]:
        forged: dict[int, Message] = {}
        for client in attackers:
            if "model" not in inbox[client]:
                got = sorted(inbox[client]) or "an empty upload"
                raise ValueError(f"Expected the attack to find a model to forge, but got {got}")
            model: Any = inbox[client]["model"]
            sent: Any = inbox.sent.get(client, {}).get("model", model)
            forged[client] = {**inbox[client], "model": forge(model, sent)}
        return forged

    return attack


def _each_tensor(forge: Callable[[Tensor, Tensor], Tensor]) -> Attack:
    """An attack that changes a model tensor by tensor; integer tensors are not changed."""

    def model(new: Params, sent: Params) -> Params:
        return {k: _floats(value, forge, sent.get(k, value)) for k, value in new.items()}

    return each_model(model)


def scaled_updates(factor: float = -10.0) -> Attack:
    """Multiply attackers' updates by a factor. For example, the factor -1 reverses all updates.

    Args:
        factor: number by which an update is multiplied.

    Example:
        >>> sent, came = {"model": {"w": torch.tensor(1.0)}}, {"model": {"w": torch.tensor(3.0)}}
        >>> scaled_updates(-1.0)(fgl.federation.Inbox({0: came}, 1, {0: sent}), [0])
        {0: {'model': {'w': tensor(-1.)}}}
    """

    return _each_tensor(lambda new, old: old + factor * (new - old))


@typed
def negated_models(inbox: Inbox, attackers: list[int]) -> dict[int, Message]:
    """Replace each attacker's model by its negative.

    Example:
        >>> came = {"model": {"w": torch.tensor(3.0)}}
        >>> negated_models(fgl.federation.Inbox({0: came}, 1), [0])
        {0: {'model': {'w': tensor(-3.)}}}
    """

    return dict(_each_tensor(lambda new, old: -new)(inbox, attackers))


@typed
def noise(scale: Weight = 1.0) -> Attack:
    """Add Gaussian noise, drawn by torch's global generator, to each attacker's model.

    Args:
        scale: standard deviation of the noise, at least 0.

    Raises:
        ValueError: if `scale` is negative.

    Example:
        >>> came = {"model": {"w": torch.zeros(3)}}
        >>> noise()(fgl.federation.Inbox({0: came}, 1), [0])[0]["model"]["w"].count_nonzero()
        tensor(3)
    """

    return _each_tensor(lambda new, old: new + scale * torch.randn_like(new))


@typed
def little_is_enough(z: float = 1.5) -> Attack:
    """Each attacker sends ``mean - z std``, computed from the honest models entry by entry (ALIE).

    A forged model looks like an honest model with a small error. But all forged models have the
    same error.

    Args:
        z: number of standard deviations between the forged entries and the honest mean.

    Example:
        >>> came = {k: {"model": {"w": torch.tensor(w)}} for k, w in enumerate((1.0, 3.0, 9.0))}
        >>> little_is_enough(1.0)(fgl.federation.Inbox(came, 3), [2])
        {2: {'model': {'w': tensor(1.)}}}

    Source: Baruch et al. 2019, https://arxiv.org/abs/1902.06156
    """

    def attack(inbox: Inbox, attackers: list[int]) -> dict[int, Message]:
        honest = fed.drop(inbox, attackers)
        if not honest:
            return {k: inbox[k] for k in attackers}
        models = Inbox(honest, inbox.num_clients).stack("model")
        forged = {
            name: _floats(value[0], lambda _, each: each.mean(0) - z * each.std(0, False), value)
            for name, value in models.items()
        }
        return {k: {**inbox[k], "model": forged} for k in attackers}

    return attack


@typed
def heavy(num_examples: Weight = 1e9) -> Attack:
    """Each attacker claims to have `num_examples` examples.

    Args:
        num_examples: the false number, at least 0.

    Raises:
        ValueError: if `num_examples` is negative.

    Example:
        >>> heavy()(fgl.federation.Inbox({0: {"num_examples": torch.tensor(5)}}, 1), [0])
        {0: {'num_examples': tensor(1000000000)}}
    """

    def attack(inbox: Inbox, attackers: list[int]) -> dict[int, Message]:
        forged: dict[int, Message] = {}
        for client in attackers:
            like = inbox[client]["num_examples"]
            forged[client] = {**inbox[client], "num_examples": torch.full_like(like, num_examples)}
        return forged

    return attack


@typed
def flipped_labels(graph: Graph) -> Graph:
    """A client's data with all labels flipped: ``num_classes - 1 - y``.

    Raises:
        ValueError: if the graph has no labels.
        TypeError: if the labels `y` are numbers and not classes.

    Example:
        >>> edges = torch.zeros(2, 0, dtype=torch.int64)
        >>> graph = fgl.Graph(torch.ones(3, 1), edges, y=torch.tensor([0, 1, 2]), num_classes=3)
        >>> flipped_labels(graph).y
        tensor([2, 1, 0])
    """
    return graph.replace(y=int(graph.num_classes or 0) - 1 - graph.labels)


def _floats(value: Tensor, forge: Callable[[Tensor, Any], Tensor], other: Any = None) -> Tensor:
    """Forge a floating-point tensor; return any other tensor unchanged.

    For example, an integer counter is not changed.
    """
    return forge(value, other) if value.is_floating_point() else value
