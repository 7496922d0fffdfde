"""Callbacks of a run: a progress bar, and the end after rounds without a better validation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..federation import Result, Round, best_round


def progress(num_rounds: int, name: str) -> Callable[[Round, Result], None]:
    """A callback that shows a progress bar, where tqdm is installed; else it does nothing.

    Args:
        num_rounds: of the whole run.
        name: what stands before the bar.

    Returns:
        A callback for `fgl.run`.

    Example:
        >>> progress(10, "fedavg cora") is not None
        True
    """
    try:
        from tqdm import tqdm
    except ImportError:
        return lambda record, result: None
    bar: Any = None

    def show(record: Round, result: Result) -> None:
        nonlocal bar
        bar = bar or tqdm(desc=name, total=num_rounds, initial=record.round, unit="round")
        shown = {key: value for key, value in record.metrics.items() if "/" not in key}
        bar.set_postfix({key: f"{value:.3f}" for key, value in shown.items()})
        bar.update()
        if record.round + 1 == num_rounds:
            bar.close()

    return show


def early_stop(patience: int, select: str = "val_accuracy") -> Callable[[Round, Result], bool]:
    """A callback that ends a run after `patience` rounds without a better validation.

    Args:
        patience: how many rounds it waits.
        select: the metric that says which round is best, with a minus before it where less is
            better; see `fgl.experiment.best_round`.

    Returns:
        A callback for `fgl.run`.

    Example:
        >>> rounds = [fgl.federation.Round(k, [0], metrics={"val_f1": 0.5}) for k in range(3)]
        >>> early_stop(2, "val_f1")(rounds[-1], fgl.Result({}, {}, {}, rounds))
        True
    """

    def stop(record: Round, result: Result) -> bool:
        return record.round - best_round(result.history, select).round >= patience

    return stop
