"""Settings of a run, such as the number of rounds, the seed, checkpoints and the report file."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import torch

from .. import checks
from ..federation import Callback, Evaluate, Method, Result, Round, State, choose, run
from ..kinds import typed
from .callbacks import early_stop, progress, tell_memory
from .plots import plot
from .report import DESCRIBED, report, to_json

if TYPE_CHECKING:
    from ..tasks import Task

# Fields that a report has outside its config, or that only say where and how a run is executed.
NOT_CONFIG = (
    *("recipe", "dataset", "clients", "rounds", "seed"),
    *("json", "plot", "checkpoint", "device", "each"),
)
_ORIGIN: ContextVar[dict[str, Any]] = ContextVar("_ORIGIN")  # see `command`


@typed
@dataclass(frozen=True)
class Run:
    """Settings for running a method on a task and for writing a report of the run.

    Every field is a flag of a recipe's command line.

    Raises:
        TypeError: for a field with an invalid type.
        ValueError: for a number out of bounds.

    Example:
        >>> Run(rounds=50, clients_at_once="all").rounds
        50
        >>> Run(rounds=-1)
        Traceback (most recent call last):
        ValueError: Expected rounds to be an integer >= 0, but got -1
    """

    rounds: checks.Natural = 200
    """The number of rounds, including the rounds before a resume."""
    seed: Annotated[int, partial(checks.check_number, at_least=0, below=2**63, integer=True)] = 0
    """The seed of the split, the partition, the initial model and all training."""
    participation: checks.PositiveShare = 1.0
    """The fraction of the clients that take part in a round."""
    clients_at_once: int | Literal["all", "auto"] = "auto"
    """The number of clients per training batch, all, or auto (see `fgl.federation.choose`)."""
    threads: checks.Count = 1
    """The number of torch threads; small graphs are fastest with one thread."""
    patience: checks.Count | None = None
    """Stop after this number of rounds without a better validation score; by default never."""
    checkpoint: str | None = None
    """The folder where every round is saved; a run resumes from a saved round in this folder."""
    json: str | None = None
    """The file that the report is written to."""
    plot: str | None = None
    """The file that a picture of the rounds is written to; needs matplotlib."""
    each: bool = False
    """Record each client's own metrics and the worst client's metric in every round."""

    def __post_init__(self) -> None:
        if self.clients_at_once not in ("all", "auto"):
            checks.check_count(clients_at_once=self.clients_at_once)
        for name in ("json", "plot"):
            if getattr(self, name):
                try_writing(name, Path(getattr(self, name)))

    def __call__(
        self,
        method: Method,
        task: Task,
        *,
        recipe: str = "",
        dataset: str = "",
        config: Mapping[str, Any] | None = None,
        evaluate: Evaluate | None = None,
        watch: Callable[[State], Mapping[str, float]] | None = None,
    ) -> tuple[dict[str, Any], Result]:
        """Run a method on a task, print the result, and write the report.

        Args:
            method: the method to run.
            task: the task, with clients, scores and the metric that determines the best round.
            recipe: the recipe's name for the report; by default the name in the command line.
            dataset: the dataset's name for the report; by default the name in the command line.
            config: further settings for the report. A run that resumes a checkpoint must have the
                same settings as the first run. In the report, these settings come before the flags
                of the command.
            evaluate: the evaluation function; by default the task's function.
            watch: metrics of the server's state, as for `fgl.run`.

        Returns:
            The report (see `fgl.experiment.report`) and the `Result`. The report also contains
            ``bytes_before`` if a message was sent before the first round, and ``new_nodes`` if
            nodes were generated.

        Raises:
            ValueError: if `patience` is set for a task without validation, or if `fgl.run` raises a
                ValueError.
        """
        expected = "patience to be None for a task that has no validation score"
        checks.reject_if(self.patience is not None and not task.select, expected, self.patience)
        torch.set_num_threads(self.threads)
        origin = _ORIGIN.get({})
        origin["began"] = False
        recipe = recipe or origin.get("recipe", "")
        dataset = dataset or origin.get("dataset", "")
        config = {**(config or {}), **origin.get("config", {})}
        name = f"{recipe} {dataset}".strip() or "run"
        at_once = self.clients_at_once
        if at_once == "auto":
            choice = choose(method, task.clients)
            at_once = choice.clients_at_once
            print(f"{name}: {choice}")
        agreed = {"recipe": recipe, "dataset": dataset, **config}
        if "clients_at_once" in config:  # a checkpoint compares the actual number
            agreed["clients_at_once"] = at_once
        memory = tell_memory(name, task.clients[0].device)
        callbacks: list[Callback] = [memory, progress(self.rounds, name), _Beginning(origin)]
        if self.patience is not None:
            callbacks.append(early_stop(self.patience))
        result = run(
            method,
            task,
            num_rounds=self.rounds,
            seed=self.seed,
            participation=self.participation,
            clients_at_once=self.clients_at_once,
            evaluate=evaluate,
            each=self.each,
            watch=watch,
            callbacks=callbacks,
            checkpoint=self.checkpoint,
            config=agreed,
        )
        summary = report(
            result,
            recipe=recipe,
            dataset=dataset,
            clients=len(task.clients),
            rounds=self.rounds,
            seed=self.seed,
            config=config,
            select=task.select,
        )
        summary["layers"] = result.config["layers"]
        summary |= {"bytes_before": task.bytes_before} if task.bytes_before else {}
        summary |= {} if task.new_nodes is None else {"new_nodes": task.new_nodes}
        _tell(name, summary, result)
        if self.json:
            write(Path(self.json), to_json(summary))
        if self.plot:
            plot({name: result}, path=self.plot)
        return summary, result


class _Beginning:
    """A callback that notes that the rounds of a run have begun."""

    def __init__(self, origin: dict[str, Any]) -> None:
        self.origin = origin

    def begin(self, result: Result) -> None:
        self.origin["began"] = True

    def __call__(self, record: Round, result: Result) -> None:
        return None


@contextmanager
def command(origin: dict[str, Any]) -> Iterator[None]:
    """A context in which each `Run` gets ``recipe``, ``dataset`` and ``config`` from the command.

    The run sets ``began`` before the first round. If an error is raised later, the cause is the run
    itself and not an invalid flag.
    """
    token = _ORIGIN.set(origin)
    try:
        yield
    except KeyboardInterrupt:
        print("\nInterrupted; with --checkpoint FOLDER the same command goes on", file=sys.stderr)
        raise SystemExit(130) from None
    finally:
        _ORIGIN.reset(token)


def try_writing(name: str, path: Path) -> None:
    """Raise an error if a file cannot be written; an existing file stays unchanged."""
    try:
        new = not path.exists()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.open("a").close()
        if new:
            path.unlink()
    except OSError as error:
        text = f"Expected {name} to name a file that can be written, but got {error}"
        raise checks.about(name, ValueError(text)) from error


def write(path: Path, text: str) -> None:
    with checks.check_disk(f"json to be written to {path}"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def _tell(name: str, summary: Mapping[str, Any], result: Result) -> None:
    """Print a line per metric, and further lines if messages were dropped or if a batch failed."""
    for metric, values in summary["metrics"].items():
        if "/" in metric:  # a metric of a single client
            continue
        scores = ", ".join(f"{DESCRIBED[key]} {value:.4f}" for key, value in values.items())
        print(f"{name}: {metric} {scores}")
    dropped = [(r.round, k, reason) for r in result.history for k, reason in r.dropped.items()]
    if dropped:
        print(f"{name}: {len(dropped)} messages dropped, the first (round, client): {dropped[0]}")
    refused = [(r.round, r.one_by_one) for r in result.history if r.one_by_one]
    if refused:
        print(f"{name}: one client after the other since round {refused[0][0]}: {refused[0][1]}")
