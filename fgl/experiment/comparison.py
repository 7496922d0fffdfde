"""Comparisons: several methods on the same data over several seeds, as a table."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from ..checks import Count, check_number, reject_if
from ..federation import Callback, Method, Result, Round, run
from ..kinds import check_options, typed
from ..progress import shown
from ..tasks import Task
from .callbacks import early_stop
from .single import chosen_metric, load, method_of, report_of
from .tables import Line, lines, to_latex, to_markdown, to_text

Build = Callable[[Any], "Method | Task"]
Callbacks = Callable[[str, int], Sequence[Callback]]
Reports = Mapping[str, Mapping[int, Mapping[str, Any]]]


class Setting(Protocol):
    """A setting that loads a task for each seed, such as `fgl.tasks.Nodes`."""

    def load(self, seed: int = 0) -> Task: ...


@dataclass(frozen=True, repr=False)
class Comparison:
    """The results of several methods over several seeds, shown as a table.

    Args:
        reports: the report of the run of each method with each seed; see `fgl.experiment.report`.
            Each report also contains ``"seconds"`` and ``"bytes"``, two lists with one number per
            round.
        metric: the metric that is compared.
        at: the compared round. ``"best_val"`` means each run's round with the best validation
            score. Without validation, the value is ``"last"`` or ``"mean_last5"``.

    Example:
        >>> runs = {0: {"a": 0.5, "b": 0.7}, 1: {"a": 0.6, "b": 0.7}}
        >>> reports = {
        ...     name: {
        ...         seed: {"metrics": {"auc": {"last": found[name]}}, "bytes": [8], "seconds": 1.0}
        ...         for seed, found in runs.items()
        ...     }
        ...     for name in "ab"
        ... }
        >>> Comparison(reports, "auc", "last")
        method  auc (last)       against a         MB      s  seeds
        a       0.5500 ± 0.0707                    0.000  1.0      2
        b       0.7000 ± 0.0000  +0.1500 ± 0.0500  0.000  1.0      2
    """

    reports: Reports
    metric: str
    at: str

    @property
    def lines(self) -> list[Line]:
        """A line per method: the mean, the deviation, and the difference from the first method."""
        return lines(self.reports, self.metric, self.at)

    def __repr__(self) -> str:
        return self.to_text()

    def _repr_markdown_(self) -> str:
        """The table, as a notebook displays it."""
        return self.to_markdown()

    def to_text(self) -> str:
        """The table as plain text."""
        return to_text(self.lines, self.metric, self.at)

    def to_markdown(self) -> str:
        """The table in Markdown."""
        return to_markdown(self.lines, self.metric, self.at)

    def to_latex(self) -> str:
        """The table in LaTeX, with booktabs' rules."""
        return to_latex(self.lines, self.metric, self.at)

    def to_dict(self) -> dict[str, Any]:
        """The table and all reports as a dict of JSON types; a number in the dict may be NaN.

        Returns:
            ``{"metric", "at", "lines", "reports"}``. Each line in the dict has the fields of one
            row of the table.
        """
        reports = {name: dict(runs) for name, runs in self.reports.items()}
        each = [vars(line).copy() for line in self.lines]
        return {"metric": self.metric, "at": self.at, "lines": each, "reports": reports}


@typed
def compare(
    methods: Mapping[str, Build],
    setting: Setting | Callable[[int], Task],
    *,
    num_rounds: Count,
    seeds: Iterable[int] = range(5),
    metric: str | None = None,
    at: str | None = None,
    patience: Count | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    callbacks: Callbacks | None = None,
    **how: Any,
) -> Comparison:
    """Run each method with each seed.

    Each seed determines the data, the partition, the initial model and the training of a run.

    Args:
        methods: dict from names to functions that build methods. A function gets the task's FedAvg
            (``fgl.methods.scaffold``). If its parameter is called `task`, the function gets the
            whole task (``lambda task: fgl.methods.fedprox(task.fedavg, mu=0.1)``). The function may
            also return a second task; then the FedAvg of the second task is run
            (``fgl.tasks.centralized``). All methods are compared with the first method.
        setting: a setting that loads a task for each seed, such as
            ``fgl.tasks.Nodes(dataset="cora")``, or a function ``seed -> task``.
        num_rounds: number of rounds of each run.
        seeds: seeds of the runs; each seed is used for the data, the partition, the initial model
            and the training.
        metric: the metric to compare; default the test metric for the task's `select`, such as
            ``test_accuracy`` for ``val_accuracy``.
        at: the round to compare: ``"best_val"`` is the round with the best validation score;
            ``"last"`` and ``"mean_last5"`` are for a task without validation. The default is the
            first of these three choices that is possible.
        patience: a run stops after this number of rounds without a better validation score.
        checkpoint: a folder with one subfolder per run. If the comparison is repeated, it resumes
            from this folder.
        callbacks: function ``(name, seed) -> callbacks`` that returns the callbacks of one run,
            such as a logger.
        how: further arguments of `fgl.run`, such as `participation`.

    Returns:
        The `Comparison`.

    Raises:
        ValueError: if there is no method or no seed, or if a seed occurs twice. The error is also
            raised if the metric is unknown, if two methods have the same folder name, or if
            `fgl.run` raises a ValueError.
        TypeError: if a task is given instead of a setting, or if a function does not return a
            method.

    Example:
        >>> methods = {"FedAvg": lambda fedavg: fedavg, "SCAFFOLD": fgl.methods.scaffold}
        >>> setting = fgl.tasks.Nodes(clients=3, hidden=8)
        >>> comparison = compare(methods, setting, num_rounds=2, seeds=range(2))
        >>> [line.method for line in comparison.lines]
        ['FedAvg', 'SCAFFOLD']
    """
    check_options(compare, how, run, taken=("seed",))
    seeds = _checked(methods, setting, seeds)
    folders = _folders(methods, checkpoint)
    reports: dict[str, dict[int, dict[str, Any]]] = {name: {} for name in methods}
    total = len(seeds) * len(methods) * num_rounds
    with shown("comparison", total, unit="rounds", bar_after=0.0) as advance:
        for seed in seeds:
            task = load(setting, seed, {})
            reject_if(
                patience is not None and not task.select,
                "patience to be None for a task that has no validation score",
                patience,
            )
            methods_of = {}
            for name, build in methods.items():
                local = getattr(build, "local", {})  # chosen by `fgl.tune`
                methods_of[name] = method_of(
                    name, build, load(setting, seed, local) if local else task
                )
            for name, (method, its) in methods_of.items():
                counted = Counting(advance)
                own = [] if callbacks is None else [*callbacks(name, seed)]
                stop = [] if patience is None else [early_stop(patience, task.select)]
                result = run(
                    method,
                    its,
                    num_rounds=num_rounds,
                    seed=seed,
                    callbacks=[counted, *own, *stop],
                    checkpoint=None if folders is None else folders[name] / f"seed-{seed}",
                    **how,
                )
                advance(num_rounds - counted.rounds)
                report = report_of(name, seed, result, its, num_rounds)
                # An unknown metric raises an error after the first run, not after all runs.
                metric, at = chosen_metric(report, task.select, metric, at)
                reports[name][seed] = report
    assert metric is not None and at is not None  # there is a run
    return Comparison(reports, metric, at)


class Counting:
    """A callback that counts the rounds of a run."""

    def __init__(self, advance: Callable[[int], object]) -> None:
        self.advance, self.rounds = advance, 0

    def __call__(self, record: Round, result: Result) -> None:
        self.rounds += 1
        self.advance(1)


def _checked(methods: Any, setting: Any, seeds: Iterable[int]) -> list[int]:
    """Check the methods, the setting and the seeds, and return the seeds."""
    reject_if(
        not isinstance(methods, Mapping) or not methods,
        'methods to be functions by name, {"SCAFFOLD": fgl.methods.scaffold}',
        f"{methods!r}",
    )
    if isinstance(setting, Task) or not (callable(setting) or hasattr(setting, "load")):
        got = type(setting).__name__
        raise TypeError(
            "Expected setting to load a task for each seed, such as fgl.tasks.Nodes(clients=5), or "
            f"to be a function of a seed, but got a {got}" + SAME * isinstance(setting, Task)
        )
    for name, build in methods.items():
        if not callable(build):
            kind = type(build).__name__
            raise TypeError(
                f"Expected {name} to be a function that makes a method of a task's FedAvg, since "
                f"each seed has a task of its own, but got a {kind}"
            )
    return check_seeds(seeds)


def check_seeds(seeds: Any, argument: str = "seeds") -> list[int]:
    """The seeds as a list.

    Raise an error unless there is at least one seed and all seeds are distinct integers.
    """
    if not isinstance(seeds, Iterable):
        raise TypeError(
            f"Expected {argument} to be several numbers, but got {seeds!r}: range({seeds})"
        )
    numbers = list(seeds)
    if not numbers or len(set(numbers)) < len(numbers):
        raise ValueError(
            f"Expected {argument} to be different numbers, at least one, but got {numbers}"
        )
    for seed in numbers:
        check_number("seed", seed, at_least=0, below=2**63, integer=True)
    return [int(seed) for seed in numbers]


SAME = ", whose data are the same for every seed: lambda seed: task says that this is meant"


def _folders(methods: Iterable[str], checkpoint: Any) -> dict[str, Path] | None:
    """A folder per method; the name of each folder has only safe characters."""
    if checkpoint is None:
        return None
    folders = {name: Path(checkpoint) / re.sub(r"[^\w.=,+-]+", "_", name) for name in methods}
    reject_if(
        len({str(folder).lower() for folder in folders.values()}) < len(folders),
        "names of methods to differ in letters or digits where there is a checkpoint",
        ", ".join(folders),
    )
    return folders
