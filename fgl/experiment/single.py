"""Single runs of a comparison or a study: the method, the report and the compared metric."""

import inspect
from collections.abc import Mapping
from typing import Any

from ..checks import check_choice
from ..federation import Method, Result
from ..tasks import Task
from .fields import changed
from .report import report as written


def load(setting: Any, seed: int, local: Mapping[str, Any]) -> Task:
    """Load a setting's task for a seed, after changing some fields of the setting.

    Example:
        >>> setting = fgl.tasks.Nodes(clients=3, hidden=8)
        >>> load(setting, 0, {"steps": 2}).fedavg.train.num_steps
        2
    """
    if callable(setting):
        task: Task = setting(seed, **local)
        return task
    loaded: Task = (changed(setting, local) if local else setting).load(seed)
    return loaded


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


def report_of(name: str, seed: int, result: Result, task: Task, num_rounds: int) -> dict[str, Any]:
    """The report of a run, without tensors."""
    where = {"dataset": "", "clients": len(task.clients), "rounds": num_rounds, "seed": seed}
    config = {**result.config, "method": repr(result.method)}
    report = written(result, recipe=name, **where, config=config, select=task.select)  # type: ignore[arg-type]
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
    check_choice("metric", metric, names)
    ways = report["metrics"][metric]
    at = at or next(way for way in ("best_val", "mean_last5", "last") if way in ways)
    check_choice("at", at, tuple(ways))
    return metric, at
