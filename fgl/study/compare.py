"""The function `compare`: a study without trials, made in this process and kept in memory."""

import itertools
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from ..checks import Count, reject_if
from ..experiment.callbacks import early_stop
from ..experiment.comparison import Comparison
from ..federation import Callback, Method, Result, Round, run
from ..kinds import check_options, typed
from ..progress import shown
from ..tasks import Task
from ..warn import warn
from .arguments import check_seeds, check_settings, tuned
from .execute import seeded
from .fingerprint import fingerprint
from .plan import Job, Plan
from .play import built, chosen_metric, loaded, play

Build = Callable[[Any], "Method | Task"]
Callbacks = Callable[[str, int], Sequence[Callback]]


class Setting(Protocol):
    """A setting that loads a task for each seed, such as `fgl.tasks.Nodes`."""

    def load(self, seed: int = 0) -> Task: ...


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
        methods: dict from a method's name to a function that builds the method from the task's
            FedAvg, such as ``fgl.methods.scaffold``. If the function's parameter is called `task`,
            the argument is the whole task, as in ``lambda task: fgl.methods.fedprox(task.fedavg,
            mu=0.1)``. If the function returns a new task, as ``fgl.tasks.centralized`` does, the
            FedAvg of the new task is run. All methods are compared with the first method.
        setting: a setting that loads a task for each seed, such as
            ``fgl.tasks.Nodes(dataset="cora")``, or a function ``seed -> task``.
        num_rounds: number of rounds of each run.
        seeds: seeds of the runs; each seed is used for the data, the partition, the initial model,
            the training and the global generators of Python, numpy and torch.
        metric: the metric to compare; by default the test metric for the task's `select`, such as
            ``test_accuracy`` for ``val_accuracy``.
        at: choice of the rounds whose scores are compared. ``"best_val"`` means the scores of the
            round with the best validation score. For a task without validation, ``"mean_last5"``
            means the means over the last five rounds, and ``"last"`` means the scores of the last
            round. The default is the first of these three choices that the task allows.
        patience: a run stops after this number of rounds without a better validation score.
        checkpoint: a folder with one subfolder per run. If the comparison is repeated, it resumes
            from this folder.
        callbacks: function ``(name, seed) -> callbacks`` that returns the callbacks of one run,
            such as a logger.
        how: further arguments of `fgl.run`, such as `participation`.

    Returns:
        The `Comparison`.

    Raises:
        ValueError: if there is no method or no seed, if a seed occurs twice, if the metric is
            unknown, if two methods have the same folder name, or if `fgl.run` raises a ValueError.
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
    counts = num_rounds, num_rounds
    plan = Plan(tuned(methods), {"": setting}, [{}], [1], [], check_seeds(seeds), *counts, how=how)
    check_settings(plan)
    free = [name for name in methods if plan.tunes(name)]
    got = "ranges: fgl.tune(...) chooses values"
    reject_if(free, f"{', '.join(free)} to be without anything to tune", got, TypeError)
    folders = _folders(methods, checkpoint)
    reports: dict[str, dict[int, dict[str, Any]]] = {name: {} for name in methods}
    total = plan.count() * num_rounds
    with shown("comparison", total, unit="rounds", bar_after=0.0) as advance:
        played: list[object] = []  # rounds of one run, without the rounds of a checkpoint

        def count(record: Round, result: Result) -> None:
            played.append(advance(1))

        for job, method, task in _ready(plan):
            want = "patience to be None for a task that has no validation score"
            reject_if(patience is not None and not task.select, want, patience)
            played.clear()
            calls: list[Callback] = [count]
            calls += [] if callbacks is None else callbacks(job.method, job.seed)
            calls += [] if patience is None else [early_stop(patience, task.select)]
            place = None if folders is None else folders[job.method] / f"seed-{job.seed}"
            with seeded(job.seed):
                report = play(plan, job, method, task, callbacks=calls, checkpoint=place)
            advance(num_rounds - len(played))
            # An unknown metric raises an error after the first run, not after all runs.
            metric, at = chosen_metric(report, task.select, metric, at)
            reports[job.method][job.seed] = report
    assert metric is not None and at is not None  # there is a run
    _warn_of_equal_seeds([[*own.values()] for own in reports.values()])
    return Comparison(reports, metric, at)


def _warn_of_equal_seeds(reports: list[list[dict[str, Any]]]) -> None:
    """Warn if no method's scores differ between seeds."""
    if len(reports[0]) > 1 and all(r["curves"] == own[0]["curves"] for own in reports for r in own):
        warn("All seeds have the same scores: does setting use its seed? Deviations are 0 then")


def _ready(plan: Plan) -> Iterator[tuple[Job, Method, Task]]:
    """Yield all runs; all methods of a seed are built before the seed's first run."""
    for seed, jobs in itertools.groupby(plan.jobs({}), key=lambda job: job.seed):
        tasks: dict[str, Task] = {}
        runs = []
        for job in jobs:
            key = fingerprint(sorted(job.point.local.items()))
            if key not in tasks:  # `fgl.tune` has chosen other local training
                with seeded(seed):  # each time, so that all methods have the same data
                    tasks[key] = loaded(plan, job)
            with seeded(seed):
                runs.append((job, *built(plan, job, tasks[key])))
        yield from runs


def _folders(methods: Iterable[str], checkpoint: Any) -> dict[str, Path] | None:
    """A folder per method; the name of each folder has only safe characters."""
    if checkpoint is None:
        return None
    folders = {name: Path(checkpoint) / re.sub(r"[^\w.=,+-]+", "_", name) for name in methods}
    wrong = len({str(folder).lower() for folder in folders.values()}) < len(folders)
    want = "names of methods to differ in letters or digits where there is a checkpoint"
    reject_if(wrong, want, ", ".join(folders))
    return folders
