"""A round: choose participants, exchange messages, refuse bad uploads, aggregate and record."""

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import torch

from ..kinds import check_kind
from ..seeds import fold_in, stage
from ..warn import warn
from .executors import Answer, Executor
from .gate.guard import ChangedInPlace
from .gate.uploads import NO_MORE, Absent, Diverged, Limits, farthest, sift
from .history import Result, Round, of_whom, reason
from .method.fedavg import accept_all
from .method.message import Aggregate, Broadcast, Inbox, Message, State, compact, drop, num_bytes
from .method.method import Evaluate, Method, Watch

Dropouts = float | Callable[[int, int], bool]
FARTHEST_LOSS = 300.0  # times the median client's loss
BAD_LOSS = 10.0  # times the smallest loss of earlier rounds
DROPPED = "dropped out"  # a dropout simulated by the run: this client does not train
Made = tuple[Mapping[int, Message], State]  # an outbox and the server's state


class BadModel(Diverged):
    """Error for an upload of a client whose training diverged because it started from a bad model.

    Example:
        >>> issubclass(BadModel, ValueError)
        True
    """


@dataclass(frozen=True)
class Plan:
    """Settings that are the same in all rounds (see `fgl.run`)."""

    seed: int
    participation: float
    dropouts: Dropouts
    evaluate: Evaluate | None
    watch: Watch | None = None
    strict: bool = False
    limits: Limits = NO_MORE
    go_back: int = 0
    each: bool = False


def play(method: Method, executor: Executor, result: Result, plan: Plan) -> Round:
    """Play the next round.

    Update the outbox and the states in `result` and in the executor.

    The returned record contains no metrics; `score_round` adds the metrics.

    Args:
        method: the method, wrapped by `checked`.
        executor: the executor that reaches the clients.
        result: the run so far.
        plan: settings of the run.

    Returns:
        The round's record.
    """
    start, index = time.perf_counter(), len(result.history)
    record = _invited(method, executor, result, plan)
    ready = [client for client in record.participants if client not in record.dropped]
    answers = dict(executor.train(record.round, result.outbox, ready))
    uploads, refused = _uploads(method, answers, result, record, plan, executor.elsewhere)
    payers = [client for client in ready for _ in range(answers[client].paid)]
    inbox = Inbox(uploads, executor.num_clients, result.outbox, index, payers)
    bad_model = any(isinstance(error, BadModel) for error in refused.values())
    new, left_out = (
        _went_back(inbox, result)
        if bad_model and result.older
        else _served(method.aggregate, "aggregate", inbox, result, plan, executor.elsewhere)
    )
    for client, error in sorted({**refused, **left_out}.items()):
        record.dropped[client] = reason(error)
        warn(f"Round {index}, client {client}: {reason(error)}; the upload is not used")
    counted = [client for client in uploads if client not in left_out]
    executor.keep(index, counted)
    if not counted:
        history, most = [*result.history, record], plan.limits.empty_rounds
        check_goes_on(history, most, _cause(left_out))
        check_exchanges(history, most, method.rules.exchange)
    _note_training(record, executor, result.history)
    if new is None:
        new = _of_nobody(method, inbox.with_messages({}), result.server_state, plan)
    if new is not None:
        if plan.go_back and counted:
            result.older = [*result.older, (result.outbox, result.server_state)][-plan.go_back :]
        outbox, result.server_state = new
        if len(outbox) < inbox.num_clients:
            _warn_of_absent(inbox, outbox, result)
        result.outbox = _merged(result.outbox, outbox)
        record.loss = _mean_loss([answers[k].losses for k in counted if answers[k].num_examples])
    record.seconds = time.perf_counter() - start
    return record


def _cause(left_out: Mapping[int, Exception]) -> BaseException | None:
    """The server's error that caused the removal of uploads; None if no upload was removed."""
    return next((error.__cause__ for error in left_out.values()), None)


def _invited(method: Method, executor: Executor, result: Result, plan: Plan) -> Round:
    """The record of the next round: its participants, and the clients that drop out."""
    index = len(result.history)
    seed = fold_in(plan.seed, index // method.rules.exchange, "who")
    invited = participants(executor.num_clients, plan.participation, seed)
    record = Round(index, invited)
    if method.rules.joining is not None and not result.history:
        record.bytes_up = join(method, executor, result, plan)
    messages = {client: result.outbox[client] for client in invited}
    sizes = {id(each): num_bytes(each) for each in {id(m): m for m in messages.values()}.values()}
    for client, message in messages.items():
        record.bytes_down += sizes[id(message)]
        if drops(plan, index, client):
            record.dropped[client] = DROPPED
    return record


def _note_training(record: Round, executor: Executor, history: Sequence[Round]) -> None:
    """Record how the clients were trained.

    Warn once if the clients could not train as a batch.
    """
    record.padding, record.one_by_one = executor.padding, executor.one_by_one
    if not any(each.untraced for each in history):
        record.untraced = getattr(executor, "untraced", "")  # if clients are in this process
    if record.one_by_one and not any(each.one_by_one for each in history):
        warn(
            f"Training one client after the other from round {record.round} on, since a batch "
            f"refused these: {record.one_by_one}"
        )


def join(method: Method, executor: Executor, result: Result, plan: Plan) -> int:
    """Request the joining message of every client.

    Update the outbox and the state of `result`.

    Returns:
        Bytes of the clients' messages.
    """
    assert method.rules.joining is not None
    everybody = list(range(executor.num_clients))
    start = Result(Broadcast({}, len(everybody)), result.server_state, {}, [])
    record, answers = Round(0, everybody), dict(executor.join())
    rules = replace(method.rules, ragged=(), max_examples=method.rules.joining.max_examples)
    plain = replace(method, accept=accept_all, rules=rules)
    messages, refused = _uploads(plain, answers, start, record, plan, executor.elsewhere)
    record.dropped |= {client: reason(error) for client, error in refused.items()}
    inbox = Inbox(messages, len(everybody), result.outbox, asked=everybody)
    welcome = method.rules.joining.welcome
    new, left_out = _served(welcome, "welcome", inbox, result, plan, executor.elsewhere)
    record.dropped |= {client: reason(error) for client, error in left_out.items()}
    for client, text in sorted(record.dropped.items()):
        warn(f"Round 0, client {client}, when it joins: {text}")
    if new is None:
        raise _nobody(record, " when clients join") from _cause(left_out)
    outbox, result.server_state = new
    result.outbox = _merged(result.outbox, outbox)
    return record.bytes_up


def _uploads(
    method: Method,
    answers: Mapping[int, Answer],
    result: Result,
    record: Round,
    plan: Plan,
    elsewhere: bool,
) -> tuple[dict[int, Message], dict[int, Exception]]:
    """The messages accepted so far, and the errors of the refused messages.

    If clients are in this process, a malformed upload raises an error, since the method caused it.
    """
    uploads: dict[int, Any] = {}
    for client, answer in sorted(answers.items()):
        if answer.message is None and answer.problem:
            record.dropped[client] = answer.problem
            continue
        uploads[client] = answer.message
        if not answer.num_examples:
            record.zero_weight.append(client)
    sifted = sift(method, uploads, result.outbox, result.server_state, result.form, plan.limits)
    result.form, refused = sifted.form, sifted.refused
    record.bytes_up += sum(num_bytes(uploads[k]) for k in uploads if k not in sifted.malformed)
    fatal = refused if plan.strict else [] if elsewhere else sifted.malformed
    for client, error in refused.items():
        if client in fatal and not isinstance(error, Absent):
            with stage(plan.seed, record.round, client, "send"):
                raise error
    if refused:
        refused = _without_blame(refused, answers, result.history)
    return sifted.taken, refused


def _without_blame(
    refused: dict[int, Exception], answers: Mapping[int, Answer], history: Sequence[Round]
) -> dict[int, Exception]:
    """The errors by client; if the server's bad model caused an error, the error says so.

    If the clients' answers show that the server sent a bad model, each `Diverged` in `refused` is
    replaced by a `BadModel`.
    """
    cause = _bad_model(refused, answers, history)
    if not cause:
        return refused
    blame = f"{cause}, so it is not this client's fault"
    diverged = {k: error for k, error in refused.items() if isinstance(error, Diverged)}
    return refused | {k: BadModel(f"{blame}: {reason(each)}") for k, each in diverged.items()}


def _bad_model(
    refused: Mapping[int, Exception], answers: Mapping[int, Answer], history: Sequence[Round]
) -> str:
    """Text with evidence that the server had sent a bad model; empty without evidence.

    The server's model counts as bad if most clients diverged when they trained this model. The
    model also counts as bad if at least one client diverged and the median of the clients' first
    losses is large. The median of the first losses is large if it exceeds both 10 and ten times the
    smallest loss of all earlier rounds.
    """
    diverged = sum(isinstance(error, Diverged) for error in refused.values())
    arrived = [answer for answer in answers.values() if answer.message is not None]
    if diverged > 1 and 2 * diverged > len(arrived):
        return f"{diverged} of {len(arrived)} clients diverged from the model that they received"
    before = [record.loss for record in history if math.isfinite(record.loss)]
    first = [answer.losses[0] for answer in arrived if answer.losses and answer.num_examples]
    if not diverged or not before or not first:
        return ""
    loss = statistics.median_low(each if math.isfinite(each) else math.inf for each in first)
    if loss <= BAD_LOSS * max(min(before), 1.0):
        return ""
    return f"the model that it received has a loss of {loss:.3g}, after {min(before):.3g} before"


def _went_back(inbox: Inbox, result: Result) -> tuple[Made, dict[int, Exception]]:
    """Return the oldest stored outbox and server state, and a `BadModel` for each upload.

    The server uses no upload of this round, since the uploads were trained from a bad model.
    """
    (outbox, state), back = result.older[0], len(result.older)
    result.older = []
    event = f"the server goes back to its model of {back} rounds ago"
    return (outbox, state), {client: BadModel(event) for client in inbox}


def _served(
    serve: Aggregate, name: str, inbox: Inbox, result: Result, plan: Plan, elsewhere: bool
) -> tuple[Made | None, dict[int, Exception]]:
    """The server's new outbox and state, and errors of the clients that were left out.

    `serve` is the method's function `aggregate` or `joining.welcome`. If the outbox or state from
    `serve` is far too large, the server calls `serve` again without some of the uploads. If clients
    are in other processes, the server also repeats the call after an error of `serve`. If clients
    are in this process, such an error ends the run. The server first leaves out the upload that
    changed most, then the 2 uploads that changed most, then 4, 8 and so on, up to half of the
    uploads. If all attempts fail, there is no result, and the server keeps the old model.
    """

    def attempt(some: Inbox) -> Made:
        with stage(plan.seed, len(result.history), None, name):
            return serve(some, result.server_state)

    if not inbox:
        return None, {}
    try:
        return attempt(inbox), {}
    except Exception as error:
        hostile = isinstance(error, Diverged) or elsewhere
        if plan.strict or not hostile or isinstance(error, ChangedInPlace):
            raise
        cause = error.__cause__ if isinstance(error.__cause__, type(error)) else error
    order, count = farthest(inbox, inbox.sent), 1
    while 2 * count <= len(order):
        left_out = order[:count]
        with suppress(Exception):
            new = attempt(inbox.with_messages(drop(inbox, left_out)))
            return new, dict.fromkeys(left_out, _because("the server left this upload out", cause))
        count *= 2
    return None, dict.fromkeys(inbox, _because("the server keeps the old model", cause))


def _because(event: str, cause: Exception) -> Exception:
    error = RuntimeError(f"{event}: {reason(cause)}")
    error.__cause__ = cause
    return error


def _mean_loss(losses: Sequence[Sequence[float]]) -> float:
    """The mean of the clients' mean losses.

    A client's mean loss is left out if it is not finite, or if its absolute value exceeds
    ``300 max(m, 1)``. Here m is the upper median of the absolute values of the clients' mean
    losses. So with three or more clients, a single client cannot make this mean arbitrarily large.
    """
    means = [sum(value / len(each) for value in each) for each in losses if each]
    finite = [mean for mean in means if math.isfinite(mean)]
    most = FARTHEST_LOSS * max(1.0, statistics.median_high(map(abs, finite))) if finite else 0.0
    usual = [mean for mean in finite if abs(mean) <= most]
    return sum(usual) / len(usual) if usual else math.nan


def _of_nobody(method: Method, nobody: Inbox, state: State, plan: Plan) -> Made | None:
    """The server's outbox and state after a round without uploads; None if both stay unchanged.

    If the method's exchanges have several rounds, `aggregate` is called with an empty inbox and may
    abandon the current exchange.
    """
    if method.rules.exchange > 1:
        with suppress(Exception), stage(plan.seed, nobody.round or 0, None, "aggregate"):
            return method.aggregate(nobody, state)
    if method.privacy.account is None:
        return None
    with stage(plan.seed, nobody.round or 0, None, "account"):
        return {}, method.privacy.account(nobody, state)


def check_goes_on(
    history: Sequence[Round], most: int | None, cause: BaseException | None = None
) -> None:
    """Raise an error if none of the latest rounds used an upload; a run must not fail silently.

    Args:
        history: all rounds, including the last one.
        most: number of latest rounds to check; None for no limit.
        cause: the error of the server's function, if this error is the reason that no upload was
            used.

    Raises:
        RuntimeError: if none of the checked rounds used an upload. The error's text gives the
            reason for each client whose upload was not used in the last round.

    Example:
        >>> check_goes_on([Round(4, [0, 1], {0: "late", 1: "late"})], 1)
        Traceback (most recent call last):
        RuntimeError: Round 4: no upload counted: clients 0-1: late
    """
    last = history[-most:] if most is not None else []
    if len(last) == most and all(record.is_empty for record in last):
        rounds = f" in {most} rounds in a row" if len(last) > 1 else ""
        raise _nobody(last[-1], rounds) from cause


def check_exchanges(history: Sequence[Round], most: int | None, exchange: int) -> None:
    """Raise an error if too many consecutive exchanges each had an empty round.

    The error is raised if each of the last `most` exchanges had an empty round. If `most` is None,
    there is no error.

    A round is empty if it used no upload. An exchange with an empty round has no result, even if
    its other rounds used uploads.

    Example:
        >>> check_exchanges([Round(0, [0], {}), Round(1, [0], {0: "late"})], 1, 2)
        Traceback (most recent call last):
        RuntimeError: Round 1: no upload counted in a round of the exchange: client 0: late
    """
    starts = range(0, len(history), exchange)
    empty = [[each for each in history[k : k + exchange] if each.is_empty] for k in starts]
    if exchange > 1 and most is not None and len(empty) >= most and all(empty[-most:]):
        raise _nobody(empty[-1][-1], " in a round of the exchange")


def _nobody(record: Round, where: str) -> RuntimeError:
    return RuntimeError(
        f"Round {record.round}: no upload counted{where}: {of_whom(record.dropped)}"
    )


def _merged(old: Mapping[int, Message], new: Mapping[int, Message]) -> Mapping[int, Message]:
    """The new outbox.

    Clients that are missing from the new outbox keep their old messages.

    Old messages are copied: a message that is a view of a batch would keep the whole batch in
    memory.
    """
    if not new or len(new) == len(old):
        return new or old
    own = {id(message): compact(message) for message in new.values()}
    return {client: own[id(new[client])] if client in new else old[client] for client in old}


def _warn_of_absent(inbox: Inbox, outbox: Mapping[int, Message], result: Result) -> None:
    """Warn once if all participants get one model, but absent clients keep an older model.

    The warning is given only if all participants get the same tensor objects. The server of a
    personal method creates new tensors for each participant. So a personal method never causes this
    warning, even if the models of all participants have equal values.
    """
    everybody = inbox.num_clients
    used = [len(own.participants) - len(own.dropped) for own in result.history]
    if outbox.keys() != inbox.keys():
        return
    models = [message.get("model") for message in (*outbox.values(), result.server_state)]
    ids = [[*map(id, model.values())] if isinstance(model, Mapping) else [] for model in models]
    same = [own == ids[0] != [] for own in ids[1:]]  # the last one is the server's
    if any(same) and all(same[:-1]) and not any(0 < count < everybody for count in used):
        warn(
            f"aggregate sends one model to the {len(inbox)} participants alone, so the other "
            f"{everybody - len(inbox)} clients keep their old models: return "
            "fgl.federation.Broadcast(message, inbox.num_clients) to send it to all clients"
        )


def kept(result: Result) -> list[Mapping[str, Any]]:
    """The next round's messages and states; scores and callbacks must not change them."""
    return [*result.outbox.values(), result.server_state, *result.client_states.values()]


def drops(plan: Plan, index: int, client: int) -> bool:
    """Whether a participant drops out of a round after it received the server's message."""
    if callable(plan.dropouts):
        lost: Any = plan.dropouts(index, client)
        check_kind("the value of dropouts", lost, bool)
        return bool(lost)
    chance = plan.dropouts * 2**63
    return chance > 0 and fold_in(plan.seed, index, client, "dropout") < chance


def participants(num_clients: int, participation: float, seed: int) -> list[int]:
    """The participants of a round in order: a fraction of the clients, but at least one client."""
    count = num_participants(num_clients, participation)
    if count == num_clients:
        return list(range(num_clients))
    generator = torch.Generator().manual_seed(seed)
    return sorted(torch.randperm(num_clients, generator=generator)[:count].tolist())


def num_participants(num_clients: int, participation: float) -> int:
    """The number of participants: a fraction of the clients, rounded, but at least 1.

    Example:
        >>> num_participants(10, 0.25), num_participants(10, 0.01)
        (2, 1)
    """
    return max(1, round(participation * num_clients))
