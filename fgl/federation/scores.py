"""Scores of a round: the clients' scores of their deployed models, and the server's metrics."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Any

from ..kinds import explained
from ..warn import warn
from .executors import Executor, Value
from .gate.guard import unchanged
from .history import Result, Round
from .method.checks import as_number, check_names
from .round import Plan, kept
from .seeds import stage


def score_round(executor: Executor, result: Result, record: Round, plan: Plan) -> None:
    """Score a round by the clients, `evaluate` and `watch`; the record gets the metrics."""
    start = time.perf_counter()
    record.metrics = _scores(executor, result, record.round, plan)
    record.seconds += time.perf_counter() - start


def _scores(executor: Executor, result: Result, index: int, plan: Plan) -> dict[str, float]:
    """The means of the clients' scores, and the metrics of `evaluate` and `watch`."""
    scores = executor.score(index, result.outbox)
    taken = {} if executor.elsewhere else means(scores.values())
    own: dict[str, float] = {}
    if plan.evaluate is not None:
        states = MappingProxyType(executor.states)
        with stage(plan.seed, index, None, "evaluate"), unchanged(*kept(result)):
            own |= _numbers("evaluate", plan.evaluate(result.outbox, states), taken)
    if plan.watch is not None:
        with stage(plan.seed, index, None, "watch"), unchanged(result.server_state):
            own |= _numbers("watch", plan.watch(result.server_state), taken | own)
    return (means(_without(own, scores, index).values()) if executor.elsewhere else taken) | own


def _without(
    taken: Collection[str], scores: Mapping[int, Mapping[str, Value]], index: int
) -> dict[int, Mapping[str, Value]]:
    """The scores of clients that use none of the server's names; the other scores do not count."""
    out: dict[int, Mapping[str, Value]] = {}
    for client, score in scores.items():
        both = sorted(set(score) & set(taken))
        if not both:
            out[client] = score
            continue
        warn(
            f"Round {index}, client {client}, score: Expected metrics that nothing else has, but "
            f"got {both[0]!r} again",
        )
    return out


def _numbers(name: str, metrics: Any, others: Collection[str]) -> dict[str, float]:
    """The metrics as numbers; raise if a name is in use."""
    check_names(name, metrics)
    for key in metrics:
        if key in others:
            raise ValueError(
                f"Expected {name} to return metrics that nothing else has, but got {key!r} again"
            )
    return {key: as_number(f"{name}'s {key!r}", value) for key, value in metrics.items()}


@explained
def means(scores: Iterable[Mapping[str, Value]]) -> dict[str, float]:
    """The mean of each metric over the clients that have it; a rate is a sum over a sum.

    A value is a number, or a pair of a sum and its divisor, such as right answers and all answers.
    A pair with divisor 0 does not count.

    Example:
        >>> means([{"auc": 0.5}, {}, {"auc": 1.0}])
        {'auc': 0.75}
        >>> means([{"accuracy": (1, 2)}, {"accuracy": (8, 8)}])
        {'accuracy': 0.9}
        >>> means([{"accuracy": (1, 2)}, {"accuracy": (5, 0)}])
        {'accuracy': 0.5}
    """
    each = list(scores)
    names = dict.fromkeys(name for scores_of in each for name in scores_of)
    out = {}
    for name in names:
        values = [scores_of[name] for scores_of in each if name in scores_of]
        pairs = [value if isinstance(value, tuple) else (value, 1) for value in values]
        counting = [pair for pair in pairs if pair[1]] or [(0.0, 0.0)]
        total, count = (sum(map(float, part)) for part in zip(*counting, strict=True))
        out[name] = total / count if count else math.nan
    return out
