"""Baselines of a paper's table: methods that `examples/baseline.py` knows, built for a row."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fgl import Method, tasks

from .machine import example

Make = Callable[..., Method]  # (loaded, **options)


@dataclass(frozen=True)
class Loaded:
    """What a row's method is made of: a setting, the task that it loaded, the run's seed."""

    setting: Any
    task: tasks.Task
    seed: int


def on_fedavg(build: Callable[..., Method]) -> Make:
    """A row's method of a builder that needs the task's FedAvg alone."""

    @functools.wraps(build)
    def make(loaded: Loaded, **options: Any) -> Method:
        return build(loaded.task.fedavg, **options)

    return make


BASELINES = example("baseline")
BUILDERS = {name: getattr(made, "func", made) for name, made in BASELINES.METHODS.items()}


def of_baseline(name: str) -> Make:
    """A method of ``examples/baseline.py``; `Experiment.load` makes it, as that file does."""
    build = BUILDERS[name]

    @functools.wraps(build)
    def make(loaded: Loaded, **options: Any) -> Method:
        method: Method = BASELINES.built(build, loaded.task, loaded.seed, options)[0]
        return method

    return make


fedavg, local, centralized, fedprox, fedopt, fedper, moon, ring = map(
    of_baseline, ("fedavg", "local", "centralized", "fedprox", "fedopt", "fedper", "moon", "ring")
)
scaffold, fedselect, graphfl, fedamp, heurfedamp, pfedgraph = map(
    of_baseline, ("scaffold", "fedselect", "graphfl", "fedamp", "heurfedamp", "pfedgraph")
)
fedpub, gcfl, gcfl_plus, fedstar, fedgcn, fedsage, fedsage_plus = map(
    of_baseline, ("fedpub", "gcfl", "gcfl-plus", "fedstar", "fedgcn", "fedsage", "fedsage-plus")
)
