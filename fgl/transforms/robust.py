"""A robust mean in the place of FedAvg's, in any method whose server averages models."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

import torch
from torch import Tensor

from ..aggregate.robust import TooManyBad, bucket_means
from ..checks import check_count
from ..federation import Inbox, Message, Method, Params, State, layer, one_for_all, refuse

Rule = Callable[[Mapping[str, Tensor]], Params]


@layer
def robust(
    method: Method, rule: Rule, *, bucket: int = 1, untouched: Collection[str] = ()
) -> Method:
    """The method with a robust mean of its clients' updates: hostile clients cannot move it far.

    Before the server aggregates, every client's model is replaced by the model that was sent plus
    ``rule(updates)``; the mean of these is that model, bit for bit. What a client says of its
    number of examples decides only whether it counts, so a lie about it weighs nothing. What a
    rule costs without an attack stands with the rule; all of them lose the clients' weights.

    Args:
        method: its server sends everybody one mean of the models, as FedAvg's does, and may do
            more with it (FedOpt).
        rule: ``updates -> update``, name to ``[K, ...]`` of those who have an example to name to
            ``[...]``, e.g. ``partial(fgl.aggregate.robust.trimmed_mean, bad=1)``.
        bucket: clients in a bucket; the rule then gets means of random buckets, whose honest ones
            differ less, and withstands as many bad ones among fewer.
        untouched: keys of a message that reach the server as they came, so that no rule protects
            them; ``"num_examples"`` may be among them.

    Returns:
        The method. In a round in which too few clients are left for the rule everybody keeps the
        old model, and a warning says so.

    Raises:
        ValueError: if `bucket` is not positive, or `method` is a `gcfl`; when called, if messages
            have other keys than ``"model"``, ``"num_examples"`` and those `untouched`, if the
            server sends no common model, or if the rule would refuse all clients together.

    Example:
        >>> method = robust(fgl.fedavg(torch.nn.Linear(1, 1)), fgl.aggregate.robust.median)
        >>> sent = dict.fromkeys(range(3), {"model": {"w": torch.tensor(1.0)}})
        >>> came = {
        ...     k: {"model": {"w": torch.tensor(w)}, "num_examples": torch.tensor(5)}
        ...     for k, w in enumerate((2.0, 3.0, 1e9))
        ... }
        >>> method.aggregate(fgl.federation.Inbox(came, 3, sent), {})[0][0]
        {'model': {'w': tensor(3.)}}
    """
    check_count(bucket=bucket)
    if not callable(rule):
        raise TypeError(f"Expected rule to be a function of updates, but got {rule!r}")
    untouched = frozenset(untouched)
    why = "its server compares the clients' updates, of which a robust mean leaves one for all"
    refuse(method, ("gcfl", "gcfl_plus"), "robust", why)

    @torch.no_grad()
    def aggregate(inbox: Inbox, state: State) -> tuple[Mapping[int, Message], State]:
        _check_covered(inbox, untouched)
        counted = {k: message for k, message in inbox.items() if _counts(message)}
        if not counted:
            return method.aggregate(inbox, state)
        heard = Inbox(counted, inbox.num_clients, inbox.sent)
        updates = heard.changes("model")
        common = one_for_all([inbox.sent[client]["model"] for client in heard], "model")
        try:
            update = rule(bucket_means(updates, size=bucket))
        except TooManyBad as error:
            if len(heard) == inbox.num_clients:
                raise
            warnings.warn(f"{error}: everybody keeps the old model", stacklevel=2)
            return {}, state
        model = {name: common[name] + update[name] for name in updates}
        outbox, new = method.aggregate(_replaced(inbox, model, heard.clients[0], untouched), state)
        _check_common(outbox)
        return outbox, new

    return replace(method, aggregate=aggregate)


def _counts(message: Message) -> bool:
    return "num_examples" not in message or bool(message["num_examples"] > 0)


def _check_covered(inbox: Inbox, untouched: Collection[str]) -> None:
    """Nothing may reach the server unprotected that the user has not named."""
    for client, message in inbox.items():
        if not isinstance(message.get("model"), Mapping):
            raise ValueError(
                f"Expected client {client} to send a model for a robust mean, "
                f"but got keys {list(message)}"
            )
        others = [key for key in message if key not in ("model", "num_examples", *untouched)]
        if others:
            raise ValueError(
                "Expected messages to have 'model' and 'num_examples' alone, which a robust mean "
                f"covers, but got {others} too: name in untouched what shall pass as it is"
            )


def _replaced(inbox: Inbox, model: Params, first: int, untouched: Collection[str]) -> Inbox:
    """The inbox with one model for all; the first who counts has all the weight."""
    messages: dict[int, Message] = {}
    for client, message in inbox.items():
        messages[client] = {**message, "model": model}
        if "num_examples" in message and "num_examples" not in untouched:
            given = message["num_examples"]
            messages[client]["num_examples"] = torch.full_like(given, int(client == first))
    return Inbox(messages, inbox.num_clients, inbox.sent)


def _check_common(outbox: Mapping[int, Message]) -> None:
    models = [message.get("model") for message in outbox.values()]
    if not models or any(model is None or model is not models[0] for model in models):
        raise ValueError(
            "Expected the server to send everybody one mean of the models, as FedAvg's does, "
            "but got none or one for each: a robust mean has no place in this method"
        )
