"""Callbacks of a run: a progress bar, early stopping, and the peak memory of the first round."""

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from ..federation import Result, Round
from ..kinds import typed


def progress(num_rounds: int, name: str) -> Callable[[Round, Result], None]:
    """A callback that shows a progress bar if tqdm is installed, and otherwise does nothing.

    Args:
        num_rounds: number of rounds of the whole run.
        name: text before the bar.

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
    return Bar(tqdm, num_rounds, name)


class Bar:
    """A progress bar of tqdm; it is closed when the run ends, even after an error."""

    def __init__(self, tqdm: Any, num_rounds: int, name: str) -> None:
        self._make = partial(tqdm, desc=name, total=num_rounds, unit="round")

    def begin(self, result: Result) -> None:
        self._bar = self._make(initial=len(result.history))

    def __call__(self, record: Round, result: Result) -> None:
        shown = {key: value for key, value in record.metrics.items() if "/" not in key}
        self._bar.set_postfix({key: f"{value:.3f}" for key, value in shown.items()})
        self._bar.update()

    def end(self, result: Result) -> None:
        self._bar.close()


@typed
def early_stop(patience: int, select: str = "") -> Callable[[Round, Result], bool]:
    """A callback that ends a run if `patience` rounds in a row have no better validation score.

    Args:
        patience: number of rounds to wait for a better validation score.
        select: the metric that determines the best round; see `fgl.federation.best_round`. A minus
            sign before the name means that smaller values are better. The default is the metric by
            which `Result.best` selects a round: the task's metric.

    Returns:
        A callback for `fgl.run`. If no round has the metric, the callback raises a ValueError.

    Example:
        >>> rounds = [fgl.federation.Round(k, [0], metrics={"val_f1": 0.5}) for k in range(3)]
        >>> early_stop(2, "val_f1")(rounds[-1], fgl.Result({}, {}, {}, rounds))
        True
    """

    def stop(record: Round, result: Result) -> bool:
        if record.round < patience and not any(own.metrics for own in result.history):
            return False  # nothing is scored yet
        try:
            return record.round - result.best(select).round >= patience
        except ValueError as error:
            raise ValueError(f"early_stop(select={select!r}): {error}") from None

    return stop


def tell_memory(name: str, device: torch.device | str) -> Callable[[Round, Result], None]:
    """A callback that prints the peak memory after the first round of this process.

    Args:
        name: text before the number.
        device: device of the clients. For a GPU, the callback prints the peak memory of the GPU's
            tensors. Otherwise it prints the peak memory of this process.

    Returns:
        A callback for `fgl.run`.

    Example:
        >>> tell_memory("fedavg cora", "cpu") is not None
        True
    """
    first = True

    def tell(record: Round, result: Result) -> None:
        nonlocal first
        most = peak_memory(torch.device(device)) if first else None
        first = False
        if most is not None:
            print(f"{name}: {most / 1e9:.3g} GB of memory at most in round {record.round}")

    return tell


def peak_memory(device: torch.device) -> int | None:
    """The peak memory so far, in bytes: of a GPU's tensors, or of this process. None if unknown."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    try:
        import resource
    except ImportError:  # Windows
        return None
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
