"""Gaussian noise that clients or the server add to clipped updates, and its privacy cost."""

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch

from .. import federation as fed
from ..checks import Chance, Positive, reject_if
from ..federation import Inbox, Means, Message, Method, OfMeans, Outbox, Params, State
from ..graph import Graph
from ..privacy import clip
from ..privacy.gaussian import on_grid, plus_noise
from ..privacy.record import Noise, spent_epsilon, with_answers, with_noise
from ..warn import warn
from .clipped import added, clipped
from .robust import mean_server, robust

NO_NOISE = "what they say would leave them without noise"
PROTECTS_NOTHING = (
    "Expected noise of the operating system, but got unprotected=True: noise is drawn from the "
    "run's seed, so that it can be repeated, and subtracted. This run protects nothing"
)


@fed.layer(sealed=("receive", "send", "aggregate", "rules.silent", "rules.joining"))
def local_gaussian(
    method: Method,
    *,
    length: Positive,
    noise_multiplier: Positive,
    delta: Chance = 1e-5,
    unprotected: bool = False,
) -> Method:
    """Make clients clip their updates and add noise before sending.

    ``sent + clip(model - sent) + N(0, (2 length noise_multiplier)^2)``. Clients need not trust the
    server. Epsilon bounds the effect of **replacing all data of one client**. The client's clipped
    updates for two data sets differ by at most ``2 length``, and the noise hides this difference
    (`fgl.privacy.gaussian`). Apart from the noisy model, clients report nothing: no losses and no
    numbers of examples. Losses in the history are NaN. If a client's training raises an error, the
    server notices only that the client is missing from the round. The server may apply any function
    to the noisy uploads, since the result cannot reveal more than the noisy uploads themselves. The
    noise is large, since averaging over K clients reduces the standard deviation only by the factor
    ``sqrt(K)``.

    Args:
        method: as for `clipped`.
        length: the largest norm of an update, above 0; larger updates are clipped.
        noise_multiplier: the noise's standard deviation divided by ``2 length``, above 0; see
            `fgl.privacy.noise_for`.
        delta: the delta for which `privacy_spent` computes epsilon.
        unprotected: derive the noise from the run's seed. This makes an experiment repeatable but
            protects nothing: a warning says so, and epsilon is infinite.

    Raises:
        ValueError: if a number is out of range. The method's functions also raise a ValueError
            in the same cases as the functions of `clipped`.

    Example:
        >>> method = local_gaussian(fgl.fedavg(torch.nn.Linear(1, 1)), length=1, noise_multiplier=2)
        >>> method.send.__name__
        'send'

    Source: Dwork and Roth 2014, https://doi.org/10.1561/0400000042
    """
    generator = noise_source(unprotected)
    fed.check_no_joining(method, "local_gaussian", NO_NOISE)
    base, names = clipped(method, length=length), fed.trainable(method)
    sigma = 2 * length * noise_multiplier

    @torch.no_grad()
    def send(params: Params, context: Any, state: State, graph: Graph) -> tuple[Message, State]:
        message, new_state = base.send(params, context, state, graph)
        model = message["model"]
        sent = context["was_sent"]
        # The change is clipped again, since adding and subtracting rounds.
        update = clip(fed.combine(torch.sub, fed.pick(model, names), sent), length=length)
        noisy = plus_noise(update, sigma, generator)
        return {**message, "model": added(sent, noisy, list(model))}, new_state

    multiplier = 0.0 if unprotected else noise_multiplier
    noisy_method = replace(base, send=send, rules=replace(base.rules, silent=True))
    numbers = {"noise_multiplier": multiplier, "delta": delta}
    return local_noise(noisy_method, kind="local_gaussian", **numbers)


@fed.layer(sealed=("receive", "send", "aggregate", "rules.joining"))
def central_gaussian(
    method: Method,
    *,
    length: Positive,
    noise_multiplier: Positive,
    delta: Chance = 1e-5,
    unprotected: bool = False,
) -> Method:
    """Make the server average clipped updates with equal weights and add noise to the mean.

    ``(sum_k clip(update_k) + N(0, (length noise_multiplier)^2)) / K``, where K is the number of
    clients in a round. Clients clip their updates before they send them. The server clips the
    updates again, since a client may not clip. The noise hides only updates whose norm is at most
    `length`. Epsilon bounds the effect of **replacing one client's update by zeros**. The number of
    clients is public. The noise protects clients against everybody who receives the server's
    messages. The noise does not protect clients against the server. In the method's server, this
    noisy mean replaces the mean of the models.

    Args:
        method: as for `clipped`. The method's `aggregate` must be a `fgl.federation.OfMeans`.
        length: the largest norm of an update, above 0; larger updates are clipped.
        noise_multiplier: the noise's standard deviation divided by `length`, above 0.
        delta, unprotected: the arguments of `local_gaussian`.

    Raises:
        ValueError: if a number is out of range. The method's functions also raise a ValueError
            in the same cases as the functions of `clipped` and `robust`.

    Example:
        >>> method = central_gaussian(
        ...     fgl.fedavg(torch.nn.Linear(1, 1)), length=1.0, noise_multiplier=2.0
        ... )
        >>> method.rules.max_change
        inf

    Source: McMahan et al. 2018, https://arxiv.org/abs/1710.06963
    """
    generator = noise_source(unprotected)
    fed.check_no_joining(method, "central_gaussian", NO_NOISE)
    mean_server(method, "central_gaussian")  # raises
    names, sigma = fed.trainable(method), length * noise_multiplier

    def rule(updates: Mapping[str, Any]) -> Params:
        count = len(next(iter(updates.values())))
        trained = fed.pick(updates, names)
        clipped_rows = [clip(row_of(trained, client), length=length) for client in range(count)]
        stacks = {n: torch.stack([own[n] for own in clipped_rows]) for n in trained}
        total = fed.combine(lambda stack: stack.sum(0), on_grid(stacks, sigma=sigma))
        noisy = plus_noise(total, sigma, generator)
        mean = fed.combine(lambda each, like: (each / count).to(like.dtype), noisy, updates)
        return {**fed.combine(torch.zeros_like, row_of(updates, 0)), **mean}

    multiplier = 0.0 if unprotected else noise_multiplier
    noised = robust(clipped(method, length=length), rule)
    # No client is rejected by its distance, which would reveal other clients' data.
    noised = replace(noised, rules=replace(noised.rules, max_change=math.inf))
    return counted(noised, Noise(multiplier), _counted_once, kind="central_gaussian", delta=delta)


def row_of(updates: Mapping[str, Any], client: int) -> Params:
    """Index of a client's row in the stacked updates."""
    return fed.combine(lambda stack: stack[client], updates)


def _counted_once(inbox: Inbox, state: State) -> Mapping[int, float]:
    """The clients whose updates are in the server's sum."""
    return Counter(inbox.clients)


def privacy_spent(state: State) -> dict[str, float]:
    """A run's privacy cost so far, for ``fgl.run(..., watch=privacy_spent)``.

    The result is the epsilon of the client whose privacy cost is largest. Epsilon limits the
    information that all messages of this client reveal together. With noise on updates, this is
    information about all data of the client. With `per_example_gaussian`, this is information about
    one example. Epsilon bounds the effect of one change, such as one added example. The docstring
    of each transform defines this change. The bound does not cover the scores in the history. With
    `central_gaussian`, the bound also does not cover the losses in the history.

    If a run continues an earlier run (`start`), the privacy cost covers the answers of both runs,
    even if the two runs had different noise, or if some rounds had no noise.

    Args:
        state: the server's state in a run of a method with noise, such as the methods of this
            module.

    Returns:
        ``"epsilon"`` and ``"delta"``. Epsilon is 0 before the first answer, and infinite if the
        noise protects nothing.

    Raises:
        ImportError: if the extra `private` is not installed.
        ValueError: if the state belongs to another method.

    Example:
        >>> numbers = {"noise_multiplier": torch.tensor(1.0), "delta": torch.tensor(1e-5)}
        >>> state = {"privacy": {"rounds": torch.tensor([3, 10]), **numbers}}
        >>> round(privacy_spent(state)["epsilon"], 2)
        17.86
    """
    want = "'privacy', which local_gaussian and central_gaussian write as outermost wrappers"
    reject_if("privacy" not in state, f"the server's state to have {want}", list(state))
    record: Any = state["privacy"]
    return {"epsilon": spent_epsilon(record), "delta": float(record["delta"])}


def local_noise(method: Method, *, kind: str, delta: float, **numbers: float) -> Method:
    """Make clients and server record each answer's privacy cost, computed from `numbers`.

    Lost and rejected answers are counted too, since the client has sent them.
    """

    def costs(message: Message) -> Mapping[str, float]:
        return {"delta": delta, **numbers}

    def paid(inbox: Inbox, state: State) -> Mapping[int, float]:
        return Counter(inbox.asked)

    counting = counted(method, Noise(**numbers), paid, kind=kind, delta=delta)
    return replace(counting, privacy=replace(counting.privacy, costs=costs))


def counted(
    method: Method,
    noise: Noise,
    paid: Callable[[Inbox, State], Mapping[int, float]],
    *,
    kind: str,
    delta: float,
    colluders: int = 0,
) -> Method:
    """Make the server count each client's answers; the privacy cost depends on these numbers.

    All transforms call this function, so that earlier costs (from ``start=``) are counted only
    once.

    Args:
        method: the method.
        noise: the noise of a client's answer.
        paid: a function ``(inbox, state) -> counts``, called in each round. The dict `counts` maps
            each client to the client's number of answers in this round.
        kind, delta, colluders: see `fgl.privacy.record.with_noise`.

    Raises:
        ValueError: if another transform of `method` adds noise and counts answers.
    """
    got = "another inside: their epsilons would have to be composed"
    inside = method.privacy.account is not None
    reject_if(inside, f"{kind} to be the only transform that adds noise and counts", got)

    def account(inbox: Inbox, state: State) -> State:
        before: Any = state.get("privacy", {})
        how: dict[str, Any] = {"kind": kind, "delta": delta, "colluders": colluders}
        record = with_noise(before, noise, num_clients=inbox.num_clients, **how)
        return {**state, "privacy": with_answers(record, paid(inbox, state))}

    def with_record(outbox: Outbox, new: State, means: Means, state: State) -> tuple[Outbox, State]:
        return outbox, {**new, "privacy": account(means.inbox, state)["privacy"]}

    aggregate = fed.after(_without_record(method.aggregate), with_record)

    rules = replace(method.rules, max_change=max(method.rules.max_change, noise.noise_multiplier))
    privacy = replace(method.privacy, account=account)
    return replace(method, aggregate=aggregate, rules=rules, privacy=privacy)


def _without_record(aggregate: Any) -> Any:
    """Wrap the server's function so that its state lacks the record of the rounds."""

    def hidden(serve: Callable[[Any, State], Any]) -> Callable[[Any, State], Any]:
        def unaware(uploads: Any, state: State) -> Any:
            return serve(uploads, fed.drop(state, ["privacy"]))

        return unaware

    if isinstance(aggregate, OfMeans):
        return replace(aggregate, serve=hidden(aggregate.serve))
    return hidden(aggregate)


def noise_source(unprotected: bool) -> torch.Generator | None:
    """The generator of the noise, or None if the operating system provides random numbers."""
    if not unprotected:
        return None
    warn(PROTECTS_NOTHING)
    return torch.default_generator  # seeded by the round for the client, or for the server
