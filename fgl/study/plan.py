"""A study's plan: cells, and the next runs, which are derived from the finished runs."""

import functools
import hashlib
import itertools
import math
import re
import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from .fingerprint import fingerprint
from .space import NEAR, WIDE, Tuned, Values, edges, is_free, near_values, sobol_point, wide_values

HOPELESS = {"TypeError", "NameError", "AttributeError", "ImportError", "ModuleNotFoundError"}


class Records(Protocol):
    """Finished runs by id."""

    def __contains__(self, name: str) -> bool: ...
    def __getitem__(self, name: str) -> Mapping[str, Any]: ...


@dataclass(frozen=True)
class Point:
    """The values of a trial: some are for local training, and some for the method itself."""

    local: Values
    own: Values
    which: int = 0  # index of the alternative space of local training

    @functools.cached_property
    def key(self) -> str:
        """A text that identifies a point: points with equal values have the same text."""
        return fingerprint((sorted(self.local.items()), sorted(self.own.items())))

    @property
    def values(self) -> dict[str, Any]:
        """All values by name.

        If local training and the method both have a value named ``lr``, the method's value is
        renamed to ``"own lr"``.
        """
        own = {f"own {n}" if n in self.local else n: value for n, value in self.own.items()}
        return {**self.local, **own}


@dataclass(frozen=True)
class Job:
    """A run: a method on a setting, with a point and a seed."""

    setting: str
    method: str
    point: Point
    seed: int
    rounds: int

    @functools.cached_property
    def id(self) -> str:
        """Name of the run's record, derived from all values that affect the run's result."""
        cell = f"{self.setting}-{self.method}"
        text = repr((self.setting, self.method, self.point.key, self.seed, self.rounds))
        digest = hashlib.sha256(text.encode()).hexdigest()[:12]
        return f"{re.sub(r'^[.]|[^A-Za-z0-9.+=]+', '_', cell)[:60]}-{self.seed}-{digest}"


@dataclass(frozen=True)
class Trial:
    """A point and the jobs by which this point is evaluated."""

    point: Point
    jobs: tuple[Job, ...]


@dataclass
class Cell:
    """The trials, chosen points and test runs known so far, for one method on one setting.

    Args:
        trials: lists of the trials known so far; each list is for one group of tuning seeds.
        chosen: dict from a test seed to the point chosen for this seed. A test seed is added when
            all trials for this seed are finished.
        tests: dict from a test seed to the test run with this seed. A test seed is added when a
            point has been chosen for this seed.
        lost: text of an error after which no more runs of the cell are planned. The text is ``""``
            if there was no such error.
        whole: whether the cell is complete, which means that no further jobs will be added.
    """

    trials: list[list[Trial]] = field(default_factory=list)
    chosen: dict[int, Point] = field(default_factory=dict)
    tests: dict[int, Job] = field(default_factory=dict)
    lost: str = ""
    whole: bool = False

    @functools.cached_property
    def jobs(self) -> list[Job]:
        """All jobs, without repeats."""
        trials = (job for group in self.trials for trial in group for job in trial.jobs)
        return list({job.id: job for job in [*trials, *self.tests.values()]}.values())


@dataclass
class Plan:
    """The plan of a study: its methods, settings, spaces and seeds.

    Args:
        methods, settings: dict from name to method, and dict from name to setting.
        local: alternative search spaces of local training; each trial uses one of them.
        stages: the total number of trials after the first call of `fgl.study`, after the second
            call, and so on.
        tuning_seeds: seeds of the trials. With ``"each"``, tuning is repeated for every test seed,
            and all runs of this repetition use this test seed.
        seeds: seeds of the test runs.
        rounds, tuning_rounds: number of rounds of a test run, and number of rounds of a trial.
        patience: a run stops after this number of rounds without a better validation score.
        metric: the metric to compare; by default the metric that the task determines.
        checkpoint: whether runs save every round, so that an interrupted run can be resumed.
        how: further arguments of `fgl.run`.
        path: the folders from which modules are imported.
    """

    methods: dict[str, Tuned]
    settings: dict[str, Any]
    local: list[dict[str, Any]]
    stages: list[int]
    tuning_seeds: list[int] | Literal["each"]
    seeds: list[int]
    rounds: int
    tuning_rounds: int
    patience: int | None = None
    metric: str | None = None
    checkpoint: bool = False
    how: dict[str, Any] = field(default_factory=dict)
    path: list[str] = field(default_factory=list)
    _whole: dict[tuple[str, str], Cell] = field(default_factory=dict)
    _trials: dict[Any, Trial] = field(default_factory=dict)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_whole": {}, "_trials": {}}

    @property
    def trials(self) -> int:
        """The number of trials per cell; if seeds are tuned separately, per cell and seed."""
        return self.stages[-1]

    def fingerprints(self) -> dict[str, str]:
        """Fingerprints by name. If a value changes, its name must change too."""
        local = [sorted(space.items()) for space in self.local]
        texts = {f"method {n}": fingerprint((m.build, m.space)) for n, m in self.methods.items()}
        texts |= {f"setting {name}": fingerprint(each) for name, each in self.settings.items()}
        texts |= {"local": fingerprint(local), "patience": repr(self.patience)}
        return texts | {"further arguments": fingerprint(sorted(self.how.items()))}

    def cells(self) -> Iterator[tuple[str, str]]:
        """The cells as pairs of a setting and a method."""
        return itertools.product(self.settings, self.methods)

    def jobs(self, records: Records) -> Iterator[Job]:
        """All runs known so far: setting by setting, trials before tests, and seed by seed."""
        place = {seed: index for index, seed in enumerate(self.seeds)}
        for setting in self.settings:
            jobs = [job for m in self.methods for job in self.cell(setting, m, records).jobs]
            yield from sorted(jobs, key=lambda job: place.get(job.seed, -1))

    def local_of(self, method: str) -> Values:
        """The values that `fgl.tune` chose for a method's local training; {} if it chose none."""
        values: Values = getattr(self.methods[method].build, "local", {})
        return values

    def count(self) -> int:
        """The total number of runs. If an error ends a cell early, there are fewer runs."""
        return sum(self._count(method) for _, method in self.cells())

    def _count(self, method: str) -> int:
        if not self.tunes(method):
            return len(self.seeds)
        if self.tuning_seeds != "each":
            return len(self.seeds) + len(self.tuning_seeds) * self.trials
        again = self.rounds != self.tuning_rounds  # otherwise the chosen trial is the test run
        return len(self.seeds) * (self.trials + again)

    def tunes(self, method: str) -> bool:
        """Return whether a method has anything to tune."""
        spaces = [*self.local, self.methods[method].space]
        return len(self.local) > 1 or any(map(is_free, spaces))

    def cell(self, setting: str, method: str, records: Records) -> Cell:
        """The trials, chosen points and test runs known so far, for one method on one setting."""
        if (setting, method) in self._whole:
            return self._whole[setting, method]
        cell, open_groups = Cell(), 0
        tunes = self.tuning_seeds
        groups = [([s], [s]) for s in self.seeds] if tunes == "each" else [(tunes, self.seeds)]
        for tuning, seeds in groups:
            trials, point, lost = self._search(setting, method, list(tuning), records)
            cell.trials.append(trials)
            cell.lost = cell.lost or lost
            open_groups += point is None and not lost
            if point is not None:
                cell.chosen |= dict.fromkeys(seeds or tuning, point)
                cell.tests |= {s: Job(setting, method, point, s, self.rounds) for s in seeds}
        if not any(cell.trials) and cell.tests:  # the first test run reveals errors of the cell
            first = next(iter(cell.tests))
            cell.lost = hopeless(cell.tests[first], records)
            open_groups += cell.tests[first].id not in records
            cell.tests = {first: cell.tests[first]} if cell.lost else cell.tests
        if not open_groups:
            cell.whole = True
            self._whole[setting, method] = cell
        return cell

    def _search(
        self, setting: str, method: str, seeds: list[int], records: Records
    ) -> tuple[list[Trial], Point | None, str]:
        """The trials so far, the chosen point or None, and an error text.

        The error text says why there will be no more runs. If there is no error, the text is "".
        """
        if not self.tunes(method):
            return [], self._wide(method, 0), ""
        trials: list[Trial] = []
        wide: list[Trial] = []
        refined = 0

        def trial(index: int, best: Point | None = None) -> Trial:
            key = (setting, method, seeds[0], index, best and best.key)
            if key not in self._trials:
                point = self._near(method, best, wide, index) if best else self._wide(method, index)
                jobs = [Job(setting, method, point, seed, self.tuning_rounds) for seed in seeds]
                self._trials[key] = Trial(point, tuple(jobs))
            return self._trials[key]

        for done, count in itertools.pairwise((0, *self.stages)):
            more = math.ceil((count - done) * 2 / 3)
            new = [trial(k) for k in range(len(wide), len(wide) + more)]
            trials, wide = trials + new, wide + new
            if lost := hopeless(trials[0].jobs[0], records):
                return [Trial(trials[0].point, trials[0].jobs[:1])], None, lost
            if not _all_there(trials, records):
                return trials, None, ""
            best = _best(trials, records)
            if best is None:
                return trials, None, "no trial has a validation score"
            numbers = range(refined, refined + count - done - more)
            trials = trials + [trial(k, best) for k in numbers]
            refined += len(numbers)
            if not _all_there(trials, records):
                return trials, None, ""
        return trials, _best(trials, records), ""

    def _wide(self, method: str, index: int) -> Point:
        place = index // len(self.local) if self.tunes(method) else None
        local, own = sobol_point(WIDE, place)
        space = self.local[index % len(self.local)]
        values = wide_values(self.methods[method].space, own)
        new_local = {**wide_values(space, local), **self.local_of(method)}
        return Point(new_local, values, index % len(self.local))

    def _near(self, method: str, best: Point, wide: list[Trial], index: int) -> Point:
        local, own = sobol_point(NEAR, index)
        space, tried = self.local[best.which], alike(best, wide)
        new_local = near_values(space, best.local, [p.local for p in tried], local)
        new_local |= self.local_of(method)
        own_space = self.methods[method].space
        new_own = near_values(own_space, best.own, [p.own for p in tried], own)
        return Point(new_local, new_own, best.which)

    def edges(self, setting: str, method: str, records: Records) -> list[str]:
        """Describe each chosen number that is the smallest or the largest tried value.

        See the function `edges` for details.
        """
        cell = self.cell(setting, method, records)
        notes: list[str] = []
        each = self.tuning_seeds == "each"
        seeds = self.seeds if each else list(cell.chosen)[:1]
        for trials, seed in zip(cell.trials, seeds, strict=False):
            point = cell.chosen.get(seed)
            if trials and point is not None:
                space = Point(self.local[point.which], self.methods[method].space).values
                tried = [each.values for each in alike(point, trials)]
                notes += edges(space, point.values, tried)
        return list(dict.fromkeys(notes))


def alike(point: Point, trials: list[Trial]) -> list[Point]:
    """Points of the trials that have the same search space of local training as a given point."""
    return [trial.point for trial in trials if trial.point.which == point.which]


def hopeless(job: Job, records: Records) -> str:
    """Return the text of a run's error if the error's type is in `HOPELESS`; otherwise "".

    An error of such a type indicates a mistake in the method or setting, so other runs would fail
    too.
    """
    if job.id not in records or records[job.id].get("kind") not in HOPELESS:
        return ""
    return str(records[job.id]["error"])


def _all_there(trials: list[Trial], records: Records) -> bool:
    return all(job.id in records for trial in trials for job in trial.jobs)


def _best(trials: list[Trial], records: Records) -> Point | None:
    """The point with the best mean validation score; failed runs rank last."""

    def worth(trial: Trial) -> float:
        values = [records[job.id].get("validation") for job in trial.jobs]
        return -math.inf if None in values else statistics.fmean(v for v in values if v is not None)

    best = max(trials, key=worth)
    return best.point if worth(best) > -math.inf else None
