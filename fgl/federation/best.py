"""The best round of a history, and what says which one it is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

from ..targets import less_is_better, selected


class HasMetrics(Protocol):
    """What is asked of a round."""

    metrics: dict[str, float]


Scored = TypeVar("Scored", bound=HasMetrics)


def names_of(history: Sequence[HasMetrics]) -> list[str]:
    """The names of all metrics that a round has.

    Example:
        >>> names_of([fgl.federation.Round(0, [0], metrics={"auc": 0.5})])
        ['auc']
    """
    return list(dict.fromkeys(name for record in history for name in record.metrics))


def usual_select(history: Sequence[HasMetrics], select: str = "") -> str:
    """The metric that says which round is best; "" where there is no validation.

    Args:
        history: the rounds of a run.
        select: what the task says; by default the first validation metric is taken.

    Example:
        >>> usual_select([fgl.federation.Round(0, [0], metrics={"val_loss": 1.0, "val_rmse": 0.5})])
        '-val_rmse'
    """
    names = names_of(history)
    if select.removeprefix("-") in names:
        return select
    found = [name for name in names if name.startswith("val_") and "/" not in name]
    found.sort(key=lambda name: name.endswith("_loss"))  # a loss only where there is nothing else
    return f"{'-' * less_is_better(found[0])}{found[0]}" if found else ""


def checked_select(history: Sequence[Any], metric: str, select: str) -> str:
    """A metric that says which round is best, or an error that says what is wrong with it.

    Args:
        history: the rounds of a run.
        metric: a name, with a minus before it where less is better.
        select: what the task says.

    Raises:
        ValueError: for a metric that no round has, or one of which less is better without a minus.
    """
    names = names_of(history)
    if metric.removeprefix("-") not in names:
        raise ValueError(
            f"Expected metric to be one of {', '.join(names) or 'none'}, perhaps with a minus "
            f"before it, but got {metric or 'none'}"
        )
    if f"-{metric}" == select or less_is_better(metric):
        raise ValueError(
            f'Expected metric to be "-{metric}", since less is better, but got "{metric}"'
        )
    return metric


def best_round(history: Sequence[Scored], select: str = "val_accuracy") -> Scored:
    """The round of the largest metric `select`; among equals smaller ``val_loss``, then earlier.

    With a minus before the name, ``"-val_rmse"``, it is the round of the smallest one.
    A mean over fewer clients says less: rounds of the most ``scored_clients`` come first.

    Args:
        history: the rounds of a run, at least one.
        select: the metric's name, with a minus before it where less is better.

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
        found = record.metrics
        value = selected(found, select)  # NaN where nobody could be scored
        clients, loss = found.get("scored_clients", 0.0), found.get("val_loss", 0.0)
        return not math.isnan(value), clients, value, -loss

    return max(history, key=key)
