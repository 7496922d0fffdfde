"""The best round of a history, and the metric that decides it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

from ..kinds import explained
from ..targets import less_is_better, selected


class HasMetrics(Protocol):
    """Anything with a round's metrics."""

    metrics: dict[str, float]


Scored = TypeVar("Scored", bound=HasMetrics)


def names_of(history: Sequence[HasMetrics]) -> list[str]:
    """The names of all metrics in a history.

    Example:
        >>> names_of([fgl.federation.Round(0, [0], metrics={"auc": 0.5})])
        ['auc']
    """
    return list(dict.fromkeys(name for record in history for name in record.metrics))


def usual_select(history: Sequence[HasMetrics], select: str = "") -> str:
    """The metric that decides which round is best; "" if there is no validation.

    Args:
        history: the rounds of a run.
        select: the task's metric; default the first validation metric.

    Example:
        >>> usual_select([fgl.federation.Round(0, [0], metrics={"val_loss": 1.0, "val_rmse": 0.5})])
        '-val_rmse'
    """
    names = names_of(history)
    if select.removeprefix("-") in names:
        return select
    validation = [name for name in names if name.startswith("val_") and "/" not in name]
    # A loss is chosen only if there is nothing else.
    validation.sort(key=lambda name: name.endswith("_loss"))
    return f"{'-' * less_is_better(validation[0])}{validation[0]}" if validation else ""


def checked_select(history: Sequence[Any], metric: str, select: str) -> str:
    """The name of the metric that decides which round is best, checked.

    Args:
        history: the rounds of a run.
        metric: a name, with a minus before it if smaller is better.
        select: the task's metric.

    Raises:
        ValueError: for a metric that no round has, or one without a minus although less is better.
    """
    names = names_of(history)
    if not names:
        raise ValueError(
            f"Expected rounds with {metric or select or 'a metric'}, but got none that has metrics:"
            " no client had examples to score, or the run had neither a task nor evaluate="
        )
    if metric.removeprefix("-") not in names:
        lacks = f", and no round has {select}" if select and not metric else ""
        raise ValueError(
            f"Expected metric to be one of {', '.join(names)}, perhaps with a minus before it, "
            f"but got {metric or 'none'}{lacks}"
        )
    if f"-{metric}" == select or less_is_better(metric):
        raise ValueError(
            f'Expected metric to be "-{metric}", since less is better, but got "{metric}"'
        )
    return metric


@explained
def best_round(history: Sequence[Scored], select: str = "val_accuracy") -> Scored:
    """The round with the largest `select`; among equals the smaller ``val_loss``, then the earlier.

    With a minus before the name, ``"-val_rmse"``, it is the round with the smallest. Only rounds
    with the most ``scored_clients`` are compared, since a mean over fewer clients says less.

    Args:
        history: the rounds of a run, at least one.
        select: the metric's name, with a minus before it if smaller is better.

    Returns:
        One of the rounds.

    Example:
        >>> scores = [0.7, 0.8, 0.8]
        >>> rounds = [
        ...     fgl.federation.Round(index, [0], metrics={"val_accuracy": score})
        ...     for index, score in enumerate(scores)
        ... ]
        >>> best_round(rounds).round
        1
    """

    def key(record: Scored) -> tuple[bool, float, float, float]:
        metrics = record.metrics
        value = selected(metrics, select)  # NaN if no client could be scored
        clients, loss = metrics.get("scored_clients", 0.0), metrics.get("val_loss", 0.0)
        return not math.isnan(value), clients, value, -loss

    return max(history, key=key)
