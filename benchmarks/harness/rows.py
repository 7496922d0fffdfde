"""Rows of a paper's table: the paper's cells, and how a row's task, method and run are made."""

import functools
import inspect
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from fgl import Method, Result, tasks
from fgl.experiment import Run
from fgl.experiment.cli import changed, flat
from fgl.federation import Evaluate, together
from fgl.federation.method.method import Watch

from .baselines import BASELINES, BUILDERS, Loaded, Make

Cells = dict[tuple[str, int], float]  # by (dataset, clients)
Scores = Callable[[tasks.Task], Evaluate]
NOT_SETTINGS = ("dataset", "clients", "fold", "device", "sparse")  # of a key
OF_THE_RUN = ("participation", "patience")  # those that change what comes out
FOLDS = 5
PUBLISHED = Run(clients_at_once=1)  # what the tables were made with, when it was the default


@dataclass(frozen=True)
class Experiment:
    """One run: a method with its options, on a task of a setting."""

    setting: Any
    method: Make
    options: Mapping[str, Any]
    run: Run
    scores: Scores | None = None
    again: str = ""
    watch: Watch | None = None

    def load(self) -> tuple[tasks.Task, Method]:
        """The task and the method."""
        task = self.setting.load(self.run.seed)
        build = getattr(self.method, "__wrapped__", None)
        if build in BUILDERS.values():  # some change the task
            method, task = BASELINES.built(build, task, self.run.seed, self.options)
            return task, method
        return task, self.method(Loaded(self.setting, task, self.run.seed), **self.options)

    def __call__(self) -> tuple[dict[str, Any], Result]:
        """The report and the result.

        The report has ``"processor_seconds"`` too, of all rounds with their evaluation, and those
        of loading, of what is trained before the first round too, as ``"processor_before"``.
        """
        start = time.process_time()
        task, method = self.load()
        before = time.process_time() - start
        evaluate = task.evaluate(method)
        if self.scores is not None:
            evaluate = together(evaluate, self.scores(task))
        named = {name: said(value) for name, value in {**self.all_options, **self.values}.items()}
        start = time.process_time()
        report, result = self.run(
            method,
            task,
            recipe=self.method.__name__,
            dataset=self.setting.dataset,
            config={"task": self.task, **named},
            evaluate=evaluate,
            watch=self.watch,
        )
        spent = {"processor_seconds": time.process_time() - start, "processor_before": before}
        return {**report, **spent}, result

    @property
    def task(self) -> str:
        """The name of the task, as in ``examples/baseline.py``."""
        return next(
            word for word, kind in BASELINES.TASKS.items() if isinstance(self.setting, kind)
        )

    @property
    def clients(self) -> int:
        """How many clients the setting has."""
        return self.setting.clients or len(self.setting.shares)

    @property
    def defaults(self) -> dict[str, Any]:
        """The options of the method that have a default."""
        known = inspect.signature(self.method).parameters.values()
        options = [each for each in known if each.kind is each.KEYWORD_ONLY]
        return {each.name: each.default for each in options if each.default is not each.empty}

    @property
    def all_options(self) -> dict[str, Any]:
        """The method's options, the default ones too."""
        return {**self.defaults, **self.options}

    @property
    def values(self) -> dict[str, Any]:
        """The values of the setting and of the run."""
        return flat(self.setting) | {name: getattr(self.run, name) for name in OF_THE_RUN}

    @property
    def key(self) -> dict[str, Any]:
        """What a recorded run is known by.

        ``settings`` are the hyper-parameters, flat, that differ from the defaults of the task, the
        method and the run; ``again`` is the name of a repetition.
        """
        usual = flat(BASELINES.TASKS[self.task]())
        usual |= {name: getattr(Run(), name) for name in OF_THE_RUN}
        differ = {
            name: value
            for name, value in self.values.items()
            if name not in NOT_SETTINGS and (name not in usual or value != usual[name])
        }
        differ |= {
            name: value
            for name, value in self.options.items()
            if name not in self.defaults or value != self.defaults[name]
        }
        found = {
            "method": self.method.__name__,
            "task": self.task,
            "settings": {name: said(differ[name]) for name in sorted(differ)},
            "dataset": self.setting.dataset,
            "clients": self.clients,
            "seed": self.run.seed,
            "rounds": self.run.rounds,
        }
        found |= {"fold": self.setting.fold} if hasattr(self.setting, "fold") else {}
        return found | ({"again": self.again} if self.again else {})


@dataclass(frozen=True)
class Row:
    """A method of a table: its setting, the method and its options, its run, the paper's cells.

    A cell of the paper is 0 where it prints none. `tuned` are values by dataset that were chosen,
    of the setting, the run or the method, ``"*"`` for the datasets not named. `base` is the row to
    compare with, where it is not the table's; `scores` are scores beside the task's, `watch` are
    those of the server's state; `again` names runs that are another row's too, and were made once
    more; `pool` is the name under which rows of several settings are taken together.
    """

    name: str
    paper: Cells
    setting: Any
    method: Make
    options: Mapping[str, Any] = field(default_factory=dict)
    run: Run = PUBLISHED
    tuned: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    scores: Scores | None = None
    base: str | None = None
    again: str = ""
    watch: Watch | None = None
    pool: str = ""

    def at(self, dataset: str, clients: int, **values: Any) -> Experiment:
        """The row's run on a dataset, with other values of its setting, its run or its method."""
        values = {**self.tuned.get(dataset, self.tuned.get("*", {})), **values}
        setting = changed(self.setting, {**values, "dataset": dataset, "clients": clients})
        run = changed(self.run, values)
        known = (flat(self.setting), flat(self.run))
        of_method = {k: v for k, v in values.items() if not any(k in names for names in known)}
        options = {**of_method, **self.options}
        made = Experiment(setting, self.method, options, run, self.scores, self.again)
        return replace(made, watch=self.watch)


@dataclass(frozen=True)
class Table:
    """Rows, the one that others are compared with, where results lie, how long a run is.

    `metric` at `key` (the round of best validation, the last one, ...) stands beside the paper's
    cell; `validation` is the metric that chose, with a minus before it where less is better, ""
    where the protocol has no validation set; `also` are further columns by their head: metrics at
    `key`, or fields of a recorded run such as ``"bytes_down"`` (in MB). A run is counted by its
    seed, where `folds` by its fold: run 7 is fold 2 of the second repetition. `first` is the first
    run, `seeds` how many there are by default. `pooled` adds the paired test over all datasets
    together; where `folds`, over all settings.
    """

    rows: list[Row]
    base: str
    results: str
    rounds: int = 200
    datasets: tuple[str, ...] = ("cora", "citeseer", "pubmed")
    clients: tuple[int, ...] = (5, 7, 10)
    metric: str = "test_accuracy"
    key: str = "best_val"
    validation: str = "val_accuracy"
    also: Mapping[str, str] = field(default_factory=dict)
    folds: bool = False
    first: int = 0
    seeds: int = 5
    pooled: bool = False

    def row(self, name: str) -> Row:
        """The row of a name."""
        return next(row for row in self.rows if row.name == name)

    def at(self, row: Row, dataset: str, clients: int, number: int, **values: Any) -> Experiment:
        """A run of a row, `values` before what the row and the table say."""
        tuned = row.tuned.get(dataset, row.tuned.get("*", {}))
        values = {"rounds": tuned.get("rounds", self.rounds), **values}
        values |= {"seed": number}
        if self.folds:
            values |= {"seed": number // FOLDS, "fold": number % FOLDS}
        return row.at(dataset, clients, **values)


def said(value: Any) -> Any:
    """A value as it stands in a report: a function by its name."""
    if isinstance(value, functools.partial):
        options = ", ".join(f"{name}={each}" for name, each in value.keywords.items())
        return f"{said(value.func)}({options})"
    if callable(value):
        return getattr(value, "__name__", repr(value))
    if isinstance(value, Mapping):
        return {name: said(each) for name, each in value.items()}
    return list(value) if isinstance(value, tuple) else value


def spelled(key: Mapping[str, Any]) -> str:
    """A key as text: 5 and 5.0 are the same number."""

    def number(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {name: number(each) for name, each in value.items()}
        if isinstance(value, list | tuple):
            return [number(each) for each in value]
        return float(value) if isinstance(value, int) and not isinstance(value, bool) else value

    return json.dumps(number(key), sort_keys=True)
