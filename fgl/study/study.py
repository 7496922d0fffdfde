"""The functions `study` and `tune`, which run methods' trials and tests in parallel."""

import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

from ..checks import Count, check_choice, check_number, reject_if
from ..federation import Method, run
from ..kinds import check_options, typed
from ..tasks import Task
from .arguments import Methods, Spaces, check_seeds, check_settings, spaces_of, tuned
from .crew import default_workers, finish
from .folder import Store, described, save_plan
from .plan import Plan
from .play import method_of
from .results import Study
from .space import Values

Workers = int | Literal["ray", "later"] | None
Place = str | os.PathLike[str]
TAKEN = ("num_rounds", "seed", "callbacks", "checkpoint", "config")  # arguments of `fgl.run`


@typed
def study(
    methods: Methods,
    settings: Mapping[str, Any],
    *,
    num_rounds: Count,
    local: Spaces = None,
    trials: Count = 12,
    tuning_seeds: Iterable[int] | Literal["each"] = (1000,),
    seeds: Iterable[int] = range(5),
    tuning_rounds: Count | None = None,
    patience: Count | None = None,
    workers: Workers = None,
    folder: Place = "study",
    metric: str | None = None,
    checkpoint: bool = False,
    **how: Any,
) -> Study:
    """Tune every method on every setting, always with equally many trials, then test on new seeds.

    The folder contains the plan, and one file for every finished run. The next runs are derived
    from the plan and these files. An interrupted study therefore continues when `study` is called
    again, and other processes can join with ``python -m fgl.study FOLDER``. Later calls can add
    methods, settings, trials and seeds. If a later call has a different `num_rounds`, new runs
    start, and the old runs are not reused. The first two thirds of the trials use points of a Sobol
    sequence that all methods share. The last third of the trials uses points near the best trial so
    far. The configuration with the best mean validation score is chosen.

    Args:
        methods: dict from name to method. A method is a function (see `fgl.compare`), or a `Tuned`
            with a search space for the method's hyper-parameters. All methods are compared with the
            first method.
        settings: dict from name to setting. A setting is an object with ``load(seed)``, such as
            ``fgl.tasks.Nodes(...)``, or a function ``(seed, **local) -> task``.
        num_rounds: number of rounds of a test run.
        local: the search space of local training, which all methods share: dict from fields of the
            settings to ranges or choices, such as ``{"lr": LogUniform(0.01, 1), "steps": [1, 5]}``.
            `local` can also be a list of alternative spaces; trials alternate between them.
        trials: number of trials for each method on each setting.
        tuning_seeds: seeds of the trials, distinct from `seeds`. With ``"each"``, all trials are
            repeated for every test seed, and the trials for a test seed use only this seed. Tuning
            for one seed then uses no data of another seed, and intervals include the randomness of
            tuning.
        seeds: seeds of the test runs.
        tuning_rounds: number of rounds of a trial; by default `num_rounds`.
        patience: a run stops after this number of rounds without a better validation score, but
            only in the second half of the run.
        workers: number of worker processes; by default one worker per core. With 0 workers, the
            calling process executes all runs itself. ``"ray"`` uses a Ray cluster. ``"later"``
            starts no runs; other processes execute the study.
        folder: the study's folder.
        metric: the metric to compare; by default the test metric for the task's `select`, such as
            ``test_accuracy`` for ``val_accuracy``.
        checkpoint: whether runs save every round, so that an interrupted run can be resumed.
        how: further arguments of `fgl.run`, such as `participation`.

    Returns:
        The results, a `Study` (``from fgl.study import Study``); print it to see a table.

    Raises:
        ValueError: if a method or setting in the folder has the same name but other contents, if
            `local`, `patience` or `how` has changed, if a seed is used both for tuning and for
            testing, if `local` has an unknown field, or if there is nothing to run.
        TypeError: for a method that is not a function.
        RuntimeError: if workers cannot start.

    A run that raises an error is also recorded; see `Study.raw` and the column "bad" of the table.
    If the first trial of a method on a setting raises a TypeError, NameError or similar error, the
    method is not run on this setting again. If the process of a run has died three times, the run
    is not started again. To repeat a run, delete the file with the run's record.

    Example:
        >>> methods = {
        ...     "FedAvg": lambda task: task.fedavg,
        ...     "FedProx": fgl.Tuned(fgl.methods.fedprox, mu=fgl.LogUniform(1e-3, 1)),
        ... }
        >>> settings = {"made up": fgl.tasks.Nodes(clients=3, hidden=8)}
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     found = study(
        ...         methods,
        ...         settings,
        ...         num_rounds=1,
        ...         local={"lr": fgl.LogUniform(0.1, 1)},
        ...         trials=2,
        ...         seeds=range(2),
        ...         workers=0,
        ...         folder=folder,
        ...     )
        ...     sorted(found.scores("made up", "FedProx"))
        [0, 1]
    """
    check_options(study, how, run, taken=TAKEN)
    own = None if tuning_seeds == "each" else check_seeds(tuning_seeds, "tuning_seeds")
    tests = check_seeds(seeds, "seeds")
    both = sorted(set(tests) & set(own or ()))
    reject_if(both, "tuning_seeds to be others than seeds", f"{both} in both")
    counts = num_rounds, num_rounds if tuning_rounds is None else tuning_rounds
    others: Any = {"patience": patience, "metric": metric, "checkpoint": checkpoint, "how": how}
    chosen = tuned(methods), dict(settings), spaces_of(local), [trials]
    plan = Plan(*chosen, own or "each", tests, *counts, **others)
    try:
        return _carried_out(plan, trials, workers, folder)
    except KeyboardInterrupt as error:
        error.add_note(f"{folder} keeps all finished runs: the same call goes on with the rest")
        raise


@dataclass(frozen=True)
class Chosen:
    """A method with the values that `fgl.tune` chose.

    `fgl.compare` and `fgl.study` call an object of this class with a task.

    Args:
        method: name of the method.
        build: the function that builds the method.
        local: chosen values of local training, such as ``lr``. The method's tasks are loaded with
            these values.
        own: chosen values of the method's own hyper-parameters.
        edges: descriptions of chosen numbers for which no smaller or no larger value was tried.
            For example, ``"lr 0.1 of 0.02 to 0.1"`` means that 0.1 is the largest tried value.

    Example:
        >>> task = fgl.tasks.Nodes(clients=3, hidden=8).load(seed=0)
        >>> Chosen("FedProx", fgl.methods.fedprox, {"lr": 0.1}, {"mu": 0.5})(task).layers[-1].name
        'fedprox'
    """

    method: str
    build: Callable[..., Method | Task]
    local: Values = field(default_factory=dict)
    own: Values = field(default_factory=dict)
    edges: Sequence[str] = ()

    def __call__(self, task: Task) -> Method | Task:
        method, own = method_of(self.method, partial(self.build, **self.own), task)
        return method if own is task else own

    def __str__(self) -> str:
        values = {**self.local, **self.own}
        shown = ", ".join(f"{name} {described(value)}" for name, value in values.items())
        edges = f"; at an edge: {', '.join(self.edges)}" if self.edges else ""
        return f"{self.method}: {shown}{edges}"


@typed
def tune(
    methods: Methods,
    setting: Any,
    *,
    num_rounds: Count,
    local: Spaces = None,
    trials: Count = 12,
    tuning_seeds: Iterable[int] = (1000,),
    patience: Count | None = None,
    workers: Workers = None,
    folder: Place | None = None,
    **how: Any,
) -> dict[str, Chosen]:
    """Tune methods on one setting with equal numbers of trials; unlike `fgl.study`, run no tests.

    Args:
        methods, num_rounds, local, trials, tuning_seeds, patience, workers, how: as for
            `fgl.study`.
        setting: the setting.
        folder: a folder for the trials, so that a later call can resume them; by default a
            temporary folder.

    Returns:
        Dict from a method's name to a `Chosen`. Pass the dict to `fgl.compare` or `fgl.study`.

    Raises:
        RuntimeError: if a method has no trial with a validation score.

    Example:
        >>> setting = fgl.tasks.Nodes(clients=3, hidden=8)
        >>> methods = {"FedAvg": lambda task: task.fedavg}
        >>> space = {"lr": [0.1, 1.0]}
        >>> best = tune(methods, setting, num_rounds=2, local=space, trials=4, workers=0)
        >>> best["FedAvg"].local["lr"] in space["lr"]
        True
        >>> compared = fgl.compare(best, setting, num_rounds=2, seeds=range(2))
    """
    check_options(tune, how, run, taken=TAKEN)
    own = check_seeds(tuning_seeds, "tuning_seeds")
    spaces, settings = spaces_of(local), {"the setting": setting}
    rounds = num_rounds, num_rounds
    plan = Plan(tuned(methods), settings, spaces, [trials], own, [], *rounds, patience, how=how)
    with tempfile.TemporaryDirectory(prefix="fgl-tune-") as empty:
        results = _carried_out(plan, trials, workers, empty if folder is None else folder)
        store, best = Store(results.folder), {}
        for name, method in plan.methods.items():
            cell = plan.cell("the setting", name, store)
            if not cell.chosen:
                raise RuntimeError(f"No trial of {name} has a validation score: {cell.lost}")
            point, edges = next(iter(cell.chosen.values())), results.edges("the setting", name)
            best[name] = Chosen(name, method.build, point.local, point.own, edges)
    return best


def _carried_out(plan: Plan, trials: int, workers: Workers, folder: Place) -> Study:
    """Check a plan, write the plan to the folder, execute it, and open the results."""
    count = default_workers() if workers is None else workers
    if isinstance(count, str):
        check_choice("workers", count, ("ray", "later"))
    else:
        check_number("workers", count, at_least=0, integer=True)
    reject_if(not plan.settings, "settings to be tasks by name", "none")
    for kind, names in (("methods", plan.methods), ("settings", plan.settings)):
        wrong = [n for n in names if not isinstance(n, str) or not n.strip() or not n.isprintable()]
        reject_if(wrong, f"names of {kind} to be lines of text", wrong[:1])
    check_settings(plan)
    plan.path = [str(Path(place).absolute()) for place in sys.path if not place.endswith(".zip")]
    place = Store(folder).folder
    plan = save_plan(place, plan, tries=trials)
    if count != "later":
        finish(place, plan, count)
    return Study(place, plan)
