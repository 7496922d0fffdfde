"""Loggers: callbacks that write each round's numbers to TensorBoard, W&B, MLflow or a file."""

import json
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..checks import imported
from ..federation import Result, Round
from ..kinds import typed


class TensorBoard:
    """A callback that writes TensorBoard event files by `torch.utils.tensorboard`.

    Args:
        folder: folder of the files; ``tensorboard --logdir`` shows all folders inside a folder.

    Raises:
        ImportError: if tensorboard is not installed.

    Example:
        >>> log = TensorBoard("runs/fedprox")  # fgl.run(..., callbacks=[log])  # doctest: +SKIP
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        tensorboard = _imported("torch.utils.tensorboard", "tensorboard")
        self.folder, self._make = os.fspath(folder), tensorboard.SummaryWriter

    def begin(self, result: Result) -> None:
        """Open a file; if a resumed run repeats a round, the round's old line is replaced."""
        self._writer = self._make(self.folder, purge_step=len(result.history) or None)
        self._writer.add_text("method", f"`{result.method}`")

    def __call__(self, record: Round, result: Result) -> None:
        for name, value in numbers(record).items():
            self._writer.add_scalar(name, value, record.round)

    def end(self, result: Result) -> None:
        """Close the file."""
        self._writer.close()


class WandB:
    """A callback that logs to Weights & Biases.

    Args:
        how: arguments of `wandb.init`, such as ``project="fgl"`` or ``mode="offline"``. To continue
            a run, use ``id=...`` and ``resume="allow"``.

    Raises:
        ImportError: if wandb is not installed.

    Example:
        >>> log = WandB(project="fgl", name="fedprox")  # doctest: +SKIP
    """

    def __init__(self, **how: Any) -> None:
        self.how, self._wandb = how, _imported("wandb", "wandb")

    def begin(self, result: Result) -> None:
        """Open a run with the result's config."""
        config = {**described(result), **self.how.get("config", {})}
        self._run = self._wandb.init(**{**self.how, "config": config})

    def __call__(self, record: Round, result: Result) -> None:
        self._run.log(numbers(record), step=record.round, commit=True)

    def end(self, result: Result) -> None:
        """Close the run."""
        self._run.finish()


class MLflow:
    """A callback that logs to MLflow's tracking URI.

    Args:
        how: arguments of `mlflow.start_run`, such as ``run_name="fedprox"``. To continue a run, use
            ``run_id=...``.

    Raises:
        ImportError: if mlflow is not installed.

    Example:
        >>> log = MLflow(run_name="fedprox")  # doctest: +SKIP
    """

    def __init__(self, **how: Any) -> None:
        self.how, self._mlflow = how, _imported("mlflow", "mlflow")

    def begin(self, result: Result) -> None:
        """Open a run with the result's config as its parameters."""
        self._mlflow.start_run(**self.how)
        self._mlflow.log_params({name: _short(v) for name, v in described(result).items()})

    def __call__(self, record: Round, result: Result) -> None:
        self._mlflow.log_metrics(numbers(record), step=record.round)

    def end(self, result: Result) -> None:
        """Close the run."""
        self._mlflow.end_run()


@typed
@dataclass
class CSV:
    """A callback that writes a CSV file with a line per round, in the format of `Result.to_csv`.

    The file is written after each round. The file includes the rounds before a resume.

    Args:
        path: the file.

    Example:
        >>> path = getfixture("tmp_path") / "run.csv"
        >>> task = fgl.tasks.Nodes(clients=3, hidden=8).load(seed=0)
        >>> result = fgl.run(task.fedavg, task, num_rounds=2, callbacks=[CSV(path)])
        >>> len(path.read_text().splitlines())
        3
    """

    path: str | Path

    def __call__(self, record: Round, result: Result) -> None:
        result.to_csv(self.path)


def numbers(record: Round) -> dict[str, float]:
    """The numbers of a round to log: all numbers except the round's index and NaN.

    Example:
        >>> sorted(numbers(Round(0, [0], metrics={"auc": 0.5})))
        ['auc', 'bytes_down', 'bytes_up', 'dropped', 'participants', 'seconds']
    """
    values = record.numbers()
    return {n: v for n, v in values.items() if n != "round" and not math.isnan(v)}


def described(result: Result) -> dict[str, Any]:
    """The description of a run for a log: the method's name and the run's config.

    Example:
        >>> described(Result({}, {}, {}, [], config={"dataset": "cora", "layers": []}))
        {'method': '', 'dataset': 'cora'}
    """
    method = "" if result.method is None else repr(result.method)
    settings = {name: value for name, value in result.config.items() if name != "layers"}
    return {"method": method, **settings}


def _short(value: Any) -> str:
    """Convert a parameter to text that is short enough for MLflow."""
    return (value if isinstance(value, str) else json.dumps(value))[:500]


def _imported(module: str, package: str) -> Any:
    return imported(module, "for its logger", f"pip install {package}", package)
