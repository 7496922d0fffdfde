"""A round: choose participants, exchange messages, refuse bad uploads, aggregate, record."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from ..seeds import fold_in
from .executors import Answer, Executor
from .gate.distances import Diverged
from .gate.forms import NoMajority
from .gate.guard import ChangedInPlace
from .gate.limits import Limits
from .gate.losses import mean_loss
from .gate.uploads import NO_MORE, Absent, of_whom, reason, sift
from .history import Result, Round
from .method.fedavg import accept_all
from .method.inbox import Broadcast, Inbox
from .method.message import Message, compact, num_bytes
from .method.method import Evaluate, Method, State, Watch
from .participants import participants
from .seeds import stage

Dropouts = float | Callable[[int, int], bool]
DROPPED = "dropped out"  # by the run itself: this client was not asked
Made = tuple[Mapping[int, Message], State]  # an outbox and the server's state


@dataclass(frozen=True)
class Plan:
    """The settings that stay the same in all rounds, see `fgl.run`."""

    seed: int
    participation: float
    dropouts: Dropouts
    evaluate: Evaluate | None
    watch: Watch | None = None
    strict: bool = False
    limits: Limits = NO_MORE


def play(method: Method, executor: Executor, result: Result, plan: Plan) -> Round:
    """Play the next round; it updates the outbox and states of `result` and of the executor.

    What it made was not shown to anybody yet: `score_round` does that.

    Args:
        method: the method, after `checked`.
        executor: the executor that reaches the clients.
        result: the run so far.
        plan: settings of the run.

    Returns:
        What happened, without metrics.
    """
    start, index = time.perf_counter(), len(result.history)
    who = participants(
        executor.num_clients,
        plan.participation,
        fold_in(plan.seed, index // method.exchange, "who"),
    )
    record = Round(index, who)
    if method.joining is not None and not result.history:
        record.bytes_up = join(method, executor, result, plan)
    for client in who:
        record.bytes_down += num_bytes(result.outbox[client])
        if drops(plan, index, client):
            record.dropped[client] = DROPPED
    ready = [client for client in who if client not in record.dropped]
    answers = dict(executor.train(record.round, result.outbox, ready))
    uploads, refused = _uploads(method, answers, result, record, plan, executor.elsewhere)
    alone = len(uploads) == 1 and executor.elsewhere
    asked = [client for client in ready for _ in range(answers[client].paid)]
    inbox = Inbox(uploads, executor.num_clients, result.outbox, index, asked)
    new, blamed = _aggregated(method, inbox, result, plan, alone)
    for client, error in sorted({**refused, **blamed}.items()):
        record.dropped[client] = reason(error)
        warnings.warn(f"Round {index}, client {client}: {reason(error)}", stacklevel=3)
    counted = [client for client in uploads if client not in blamed]
    executor.keep(index, counted)
    if not counted:
        cause = next((error.__cause__ for error in blamed.values()), None)
        check_goes_on([*result.history, record], plan.limits.empty_rounds, cause)
        check_exchanges([*result.history, record], plan.limits.empty_rounds, method.exchange)
    record.padding, record.one_by_one = executor.padding, executor.one_by_one
    if record.one_by_one and not any(each.one_by_one for each in result.history):
        warnings.warn(
            f"Training one client after the other from round {index} on, since a batch refused "
            f"these: {record.one_by_one}",
            stacklevel=3,
        )
    if new is None:
        nobody = Inbox({}, executor.num_clients, result.outbox, index, asked)
        new = _of_nobody(method, nobody, result.server_state, plan)
    if new is not None:
        outbox, result.server_state = new
        result.outbox = _merged(result.outbox, outbox)
        losses = {k: answers[k].losses for k in counted if answers[k].num_examples}
        record.loss, record.odd_losses = mean_loss(losses)
    record.seconds = time.perf_counter() - start
    return record


def join(method: Method, executor: Executor, result: Result, plan: Plan) -> int:
    """Ask every client what it says before the first round; updates outbox and state of `result`.

    Returns:
        Bytes of the clients' messages.
    """
    assert method.joining is not None
    everybody = list(range(executor.num_clients))
    asked = Result(Broadcast({}, len(everybody)), result.server_state, {}, [])
    record, answers = Round(0, everybody), dict(executor.join())
    plain = replace(method, accept=accept_all, ragged=(), max_examples=method.joining.max_examples)
    messages, refused = _uploads(plain, answers, asked, record, plan, executor.elsewhere)
    record.dropped |= {client: reason(error) for client, error in refused.items()}
    for client, why in sorted(record.dropped.items()):
        warnings.warn(f"Round 0, client {client}, when it joins: {why}", stacklevel=4)
    if not messages:
        raise _nobody(record, " when clients join")
    inbox = Inbox(messages, len(everybody), result.outbox, asked=everybody)
    with stage(plan.seed, 0, None, "welcome"):
        outbox, result.server_state = method.joining.welcome(inbox, result.server_state)
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
    """The messages that count so far, and why others do not."""
    came: dict[int, Any] = {}
    for client, answer in sorted(answers.items()):
        if answer.message is None:
            record.dropped[client] = answer.problem
            continue
        came[client] = answer.message
        if not answer.num_examples:
            record.zero_weight.append(client)
    votes = _most_counted(result)
    sifted = sift(method, came, result.outbox, result.server_state, result.form, votes, plan.limits)
    result.form, record.copies = sifted.form, sifted.copied
    record.bytes_up += sum(num_bytes(came[k]) for k in came if k not in sifted.malformed)
    own = not votes and not elsewhere
    mistaken = own or len(sifted.malformed) > 1  # one alone can be hostile
    fails = not sifted.taken and all(
        k in sifted.malformed or not (votes or isinstance(error, (Diverged, NoMajority)))
        for k, error in sifted.refused.items()
    )
    faults = [error for error in sifted.refused.values() if not isinstance(error, Absent)]
    if (plan.strict and faults) or (sifted.refused and fails and mistaken):
        error = next(iter(faults or sifted.refused.values()))
        alike = [k for k, other in sifted.refused.items() if fails or other is error]
        with stage(plan.seed, record.round, alike, "send"):
            raise error
    return sifted.taken, sifted.refused


def _most_counted(result: Result) -> int:
    """How many clients counted in one round, at most; where some did, the method has worked."""
    counted = (len(each.participants) - len(each.dropped) for each in result.history)
    return max(counted, default=0)


def _aggregated(
    method: Method, uploads: Inbox, result: Result, plan: Plan, may_lie: bool
) -> tuple[Made | None, dict[int, Exception]]:
    """What the server makes of the uploads, without the one that alone spoils it.

    Where several spoil it together, nothing, once the method has worked, or for one that `may_lie`.

    Returns:
        The outbox and the state, if any, and who is refused for what.
    """

    def attempt(some: Mapping[int, Message]) -> Made:
        with stage(plan.seed, len(result.history), None, "aggregate"):
            sent, asked = uploads.sent, uploads.asked
            inbox = Inbox(some, uploads.num_clients, sent, uploads.round, asked)
            return method.aggregate(inbox, result.server_state)

    if not uploads:
        return None, {}
    try:
        return attempt(uploads), {}
    except Exception as error:
        if plan.strict or isinstance(error, ChangedInPlace):
            raise
        without: dict[int, Made] = {}
        for client in uploads if len(uploads) > 1 else ():
            with suppress(Exception):
                without[client] = attempt({k: uploads[k] for k in uploads if k != client})
        why = error.__cause__ if isinstance(error.__cause__, type(error)) else error
        if len(without) == 1:
            ((client, new),) = without.items()
            return new, {client: why}
        worked = _most_counted(result) and len(result.history) >= method.exchange
        if not isinstance(error, Diverged) and not worked and not may_lie:
            raise
        return None, dict.fromkeys(uploads, _old_model_stays(why))  # nobody alone is the cause


def _of_nobody(method: Method, nobody: Inbox, state: State, plan: Plan) -> Made | None:
    """What the server makes of a round of which no upload counts, if it makes anything.

    In an exchange it may give the rest up, so that no client is asked twice for the same.
    """
    if method.exchange > 1:
        with suppress(Exception), stage(plan.seed, nobody.round or 0, None, "aggregate"):
            return method.aggregate(nobody, state)
    if method.account is None:
        return None
    with stage(plan.seed, nobody.round or 0, None, "account"):
        return {}, method.account(nobody, state)


def _old_model_stays(why: Exception) -> Exception:
    error = RuntimeError(f"the server keeps the old model: {reason(why)}")
    error.__cause__ = why
    return error


def check_goes_on(
    history: Sequence[Round], most: int | None, cause: BaseException | None = None
) -> None:
    """Raise if no upload counted in the last `most` rounds, so that a run does not end in silence.

    Args:
        history: all rounds, including the last one.
        most: number of rounds; None for no limit.
        cause: the error that the server's function raised, if this is the reason.

    Raises:
        RuntimeError: with each client's reason in the last round.

    Example:
        >>> check_goes_on([Round(4, [0, 1], {0: "late", 1: "late"})], 1)
        Traceback (most recent call last):
        RuntimeError: Round 4: Expected an upload that counts, but got none: clients 0-1: late
    """
    last = history[-most:] if most is not None else []
    if len(last) == most and all(record.is_empty for record in last):
        rounds = f" in one of {most} rounds in a row" if len(last) > 1 else ""
        raise _nobody(last[-1], rounds) from cause


def check_exchanges(history: Sequence[Round], most: int | None, exchange: int) -> None:
    """Raise if each of the last `most` exchanges had a round in which no upload counted.

    Such an exchange has no result, although uploads of its other rounds counted.

    Example:
        >>> check_exchanges([Round(0, [0], {}), Round(1, [0], {0: "late"})], 1, 2)
        Traceback (most recent call last):
        RuntimeError: Round 1: Expected an upload that counts in each round of an exchange, but ...
    """
    starts = range(0, len(history), exchange)
    empty = [[each for each in history[k : k + exchange] if each.is_empty] for k in starts]
    if exchange > 1 and most is not None and len(empty) >= most and all(empty[-most:]):
        raise _nobody(empty[-1][-1], " in each round of an exchange")


def _nobody(record: Round, where: str) -> RuntimeError:
    return RuntimeError(
        f"Round {record.round}: Expected an upload that counts{where}, but got none: "
        f"{of_whom(record.dropped)}"
    )


def _merged(old: Mapping[int, Message], new: Mapping[int, Message]) -> Mapping[int, Message]:
    """The new outbox, with the old messages of the clients that it lacks.

    Old messages are copied: a view of a batch would keep the whole batch in memory.
    """
    if not new or len(new) == len(old):
        return new or old
    own = {id(message): compact(message) for message in new.values()}
    return {client: own[id(new[client])] if client in new else old[client] for client in old}


def kept(result: Result) -> list[Mapping[str, Any]]:
    """Everything that the next round starts from, which functions that only read may not change."""
    return [*result.outbox.values(), result.server_state, *result.client_states.values()]


def drops(plan: Plan, index: int, client: int) -> bool:
    """Whether a participant drops out in a round after it has received its message."""
    if callable(plan.dropouts):
        return plan.dropouts(index, client)
    return fold_in(plan.seed, index, client, "dropout") < plan.dropouts * 2**63
