"""A round: who takes part, what is exchanged, what is refused, recorded and scored."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from .checks import check_message, first_not_finite
from .executors import Executor, Value
from .history import Result, Round
from .inbox import Inbox
from .message import Message, compact, num_bytes
from .method import Method, State
from .seeds import fold_in, stage

Dropouts = float | Callable[[int, int], bool]
Evaluate = Callable[[Mapping[int, Message], Mapping[int, State]], dict[str, float]]
Watch = Callable[[State], Mapping[str, float]]


@dataclass(frozen=True)
class Plan:
    """What stays the same from round to round: see `fgl.run`."""

    seed: int
    participation: float
    dropouts: Dropouts
    evaluate: Evaluate | None
    watch: Watch | None = None


def play(method: Method, executor: Executor, result: Result, plan: Plan) -> Round:
    """Play the next round: `result` gets its outbox and server state, the executor its states.

    Args:
        method: checked.
        executor: reaches the clients.
        result: the run so far.
        plan: who takes part, what is scored.

    Returns:
        What happened.
    """
    start, index = time.perf_counter(), len(result.history)
    who = participants(
        executor.num_clients,
        plan.participation,
        fold_in(plan.seed, index // method.exchange, "who"),
    )
    record = Round(index, who)
    for client in who:
        record.bytes_down += num_bytes(result.outbox[client])
        if drops(plan, index, client):
            record.dropped[client] = "dropped out"
    ready = [client for client in who if client not in record.dropped]
    uploads, losses = _uploads(method, executor, result, record, plan, ready)
    executor.keep(index, list(uploads))
    record.padding, record.one_by_one = executor.padding, executor.one_by_one
    if uploads:
        with stage(plan.seed, index, None, "aggregate"):
            inbox = Inbox(uploads, executor.num_clients, result.outbox, index)
            outbox, result.server_state = method.aggregate(inbox, result.server_state)
            result.outbox = _merged(result.outbox, outbox)
        counted = [loss for client in sorted(losses) for loss in losses[client]]
        record.loss = sum(counted) / len(counted) if counted else math.nan
    record.metrics = _scores(executor, result, index, plan)
    record.seconds = time.perf_counter() - start
    return record


def _uploads(
    method: Method,
    executor: Executor,
    result: Result,
    record: Round,
    plan: Plan,
    ready: list[int],
) -> tuple[dict[int, Message], dict[int, list[float]]]:
    """The messages that count, and the losses of the clients who have a training example."""
    template = method.model.state_dict()
    uploads: dict[int, Message] = {}
    losses: dict[int, list[float]] = {}
    for client, answer in executor.train(record.round, result.outbox, ready):
        if answer.message is None:
            record.dropped[client] = answer.problem
            continue
        if not answer.num_examples:
            record.zero_weight.append(client)
        with stage(plan.seed, record.round, client, "send"):
            first = next(iter(uploads), client)
            peer = uploads.get(first)
            check_message(answer.message, like=peer, model=template, whose=f"client {first}'s")
        record.bytes_up += num_bytes(answer.message)
        refused = _refused(method, answer.message, client, result.server_state)
        if refused is not None:
            record.dropped[client] = refused
            warnings.warn(f"Round {record.round}, client {client}: {refused}", stacklevel=4)
            continue
        uploads[client] = answer.message
        if answer.num_examples:
            losses[client] = answer.losses
    record.zero_weight.sort()
    return uploads, losses


def _refused(method: Method, upload: Message, client: int, state: State) -> str | None:
    """Why an upload does not count, if so."""
    bad = first_not_finite(upload)
    if bad is not None:
        return f"{bad} is not finite"
    try:
        method.accept(upload, client, state)
    except Exception as error:  # whatever it is that the server cannot make out
        return f"{type(error).__name__}: {error}" if isinstance(error, KeyError) else str(error)
    return None


def _merged(old: Mapping[int, Message], new: Mapping[int, Message]) -> Mapping[int, Message]:
    """A client that the new outbox does not name keeps its old message.

    What is kept for long is a copy: the part of a batch would keep all of the batch.
    """
    if len(new) == len(old):
        return new
    own = {id(message): compact(message) for message in new.values()}
    return {client: own[id(new[client])] if client in new else old[client] for client in old}


def _scores(executor: Executor, result: Result, index: int, plan: Plan) -> dict[str, float]:
    """What clients score, as means over those who have it, and what `evaluate` and `watch` say."""
    found = means(executor.score(index, result.outbox).values())
    if plan.evaluate is not None:
        with stage(plan.seed, index, None, "evaluate"):
            found |= _numbers("evaluate", plan.evaluate(result.outbox, executor.states))
    if plan.watch is not None:
        with stage(plan.seed, index, None, "watch"):
            found |= _numbers("watch", plan.watch(result.server_state))
    return found


def _numbers(name: str, metrics: Any) -> dict[str, float]:
    if not isinstance(metrics, Mapping):
        got = type(metrics).__name__
        raise TypeError(f"Expected {name} to return a dict of metrics, but got {got}")
    return {key: float(value) for key, value in metrics.items()}


def means(scores: Iterable[Mapping[str, Value]]) -> dict[str, float]:
    """The mean of each metric over those who have it; a rate is a sum over a sum.

    A value is a number, or a pair of a sum and what divides it: right answers and all answers.

    Example:
        >>> means([{"auc": 0.5}, {}, {"auc": 1.0}])
        {'auc': 0.75}
        >>> means([{"accuracy": (1, 2)}, {"accuracy": (8, 8)}])
        {'accuracy': 0.9}
    """
    each = list(scores)
    names = dict.fromkeys(name for found in each for name in found)
    out = {}
    for name in names:
        values = [found[name] for found in each if name in found]
        pairs = [value if isinstance(value, tuple) else (value, 1) for value in values]
        total, count = (sum(map(float, part)) for part in zip(*pairs, strict=True))
        out[name] = total / count if count else math.nan
    return out


def participants(num_clients: int, participation: float, seed: int) -> list[int]:
    """Who takes part in a round: a share of the clients, at least one, in order."""
    count = max(1, round(participation * num_clients))
    if count == num_clients:
        return list(range(num_clients))
    generator = torch.Generator().manual_seed(seed)
    return sorted(torch.randperm(num_clients, generator=generator)[:count].tolist())


def drops(plan: Plan, index: int, client: int) -> bool:
    """Whether a participant fails in a round after it has received."""
    if callable(plan.dropouts):
        return plan.dropouts(index, client)
    return fold_in(plan.seed, index, client, "dropout") < plan.dropouts * 2**63
