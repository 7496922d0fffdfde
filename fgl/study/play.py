"""A run of a study or of a comparison: task, method, report and compared metric."""

import functools
import inspect
from collections.abc import Mapping
from typing import Any

from ..checks import check_choice, reject_if
from ..experiment import report as written
from ..experiment.fields import changed
from ..federation import Method, run
from ..tasks import Task
from .plan import Job, Plan


def loaded(plan: Plan, job: Job) -> Task:
    """Load the task of a run, after changing some fields of the setting."""
    setting, local = plan.settings[job.setting], job.point.local
    if callable(setting):
        task: Task = setting(job.seed, **local)
    else:
        task = (changed(setting, local) if local else setting).load(job.seed)
    return task


def built(plan: Plan, job: Job, task: Task) -> tuple[Method, Task]:
    """Build the method of a run, and the task on which the method runs."""
    build = functools.partial(plan.methods[job.method].build, **job.point.own)
    return method_of(job.method, build, task)


def method_of(name: str, build: Any, task: Task) -> tuple[Method, Task]:
    """Build a method and the task on which the method runs."""
    first = next(iter(inspect.signature(build).parameters), "")
    try:
        built = build(task if first == "task" else task.fedavg)
    except AttributeError as error:
        if error.obj is task.fedavg and hasattr(task, str(error.name)):
            raise TypeError(
                f"Expected {name} to make a method of FedAvg, or of a task if its parameter is "
                f"called task, but got one that asks FedAvg for {error.name!r}: lambda task: ..."
            ) from error
        raise
    if isinstance(built, Task):
        return built.fedavg, built
    if not isinstance(built, Method):
        raise TypeError(f"Expected {name} to make a Method, but got {type(built).__name__}")
    return built, task


def play(plan: Plan, job: Job, method: Method, task: Task, **how: Any) -> dict[str, Any]:
    """Run a method and return the run's report, without tensors.

    Further arguments, `how`, are passed to `fgl.run`.
    """
    result = run(method, task, num_rounds=job.rounds, seed=job.seed, **how, **plan.how)
    about: Any = {"dataset": "", "clients": len(task.clients), "rounds": job.rounds}
    about |= {"seed": job.seed, "config": {**result.config, "method": repr(result.method)}}
    report = written(result, recipe=job.method, **about, select=task.select)
    report["curves"]["train_loss"] = [record.loss for record in result.history]
    report["seconds"] = sum(record.seconds for record in result.history)
    report["bytes"] = result.traffic
    return report


def chosen_metric(
    report: Mapping[str, Any], select: str, metric: str | None, at: str | None
) -> tuple[str, str]:
    """The metric and the round to compare; by default the task's `select` determines both."""
    names = [name for name in report["metrics"] if "/" not in name]
    usual = select.removeprefix("-").removeprefix("val_")
    test = select.removeprefix("-").replace("val_", "test_", 1)
    tests = [name for name in names if name.startswith("test_")]
    first = [test, f"test_{usual}", f"local_{usual}", usual, "test_accuracy", *tests, *names]
    metric = metric or next((name for name in first if name in names), "none")
    _check_metric(metric, report["metrics"])
    ways = report["metrics"][metric]
    at = at or next(way for way in ("best_val", "mean_last5", "last") if way in ways)
    check_choice("at", at, tuple(ways))
    return metric, at


def compared(run: Mapping[str, Any], metric: str | None) -> str:
    """The metric by which a finished run is compared; by default the metric in the run's record."""
    metric = metric or str(run["metric"])
    _check_metric(metric, run["report"]["metrics"])
    return metric


def _check_metric(metric: str, metrics: Mapping[str, Any]) -> None:
    """Raise an error if a run lacks a metric; an error lists no metrics of single clients."""
    names = [name for name in metrics if "/" not in name]
    single = "/" in metric or metric.startswith("worst_")
    got = f"{metric!r}: each=True records metrics of each client, and of the worst client"
    reject_if(single and len(names) == len(metrics), f"metric to be one of {names}", got)
    if metric not in metrics:
        check_choice("metric", metric, names)
