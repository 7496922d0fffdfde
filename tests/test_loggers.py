"""Loggers against the packages that they write to, without a network."""

import csv
import sys
from pathlib import Path
from typing import Any
from unittest.mock import Mock, call

import pytest
from federations import fedavg, graphs, model, refuses

import fgl
from fgl import Result
from fgl.experiment import CSV, MLflow, TensorBoard, WandB
from fgl.experiment.loggers import numbers
from fgl.federation import Round
from fgl.methods import fedprox


def went(
    logger: Any, num_rounds: int = 3, also: Any = lambda record, result: None, **how: Any
) -> Result:
    method = fedprox(fedavg(model()), mu=0.1)
    score = fgl.evaluate_on(method, graphs()[2], graphs())
    how = {"config": {"dataset": "made up"}, **how}
    return fgl.run(
        method, graphs(), num_rounds=num_rounds, evaluate=score, callbacks=[logger, also], **how
    )


def test_a_csv_file_has_all_rounds_after_a_resume(tmp_path: Path) -> None:
    path = tmp_path / "runs" / "a.csv"
    went(CSV(path), 1, checkpoint=tmp_path)
    result = went(CSV(path), 3, checkpoint=tmp_path)
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["test_accuracy"]) for row in rows] == [
        record.metrics["test_accuracy"] for record in result.history
    ]


def test_what_is_handed_to_the_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    packages = {name: Mock() for name in ("torch.utils.tensorboard", "wandb", "mlflow")}
    for name, package in packages.items():
        monkeypatch.setitem(sys.modules, name, package)
    config = {"dataset": "x", "rates": [0.5], "words": "a" * 600}
    record = Round(3, [0], metrics={"auc": 0.5})
    result = Result({}, {}, {}, [record] * 4, config=config)
    for log in (TensorBoard("there"), WandB(project="p", config={"own": 1}), MLflow(run_name="r")):
        log.begin(result)
        log(record, result)
        log.end(result)
    board, wandb, mlflow = packages.values()
    writer, run = board.SummaryWriter.return_value, wandb.init.return_value
    assert board.mock_calls[0] == call.SummaryWriter("there", purge_step=4)
    assert writer.mock_calls[0] == call.add_text("method", "`None`")
    assert call.add_scalar("auc", 0.5, 3) in writer.mock_calls
    assert writer.mock_calls[-1] == call.close()
    wandb.init.assert_called_once_with(project="p", config={"method": "", **config, "own": 1})
    assert run.mock_calls == [call.log(numbers(record), step=3, commit=True), call.finish()]
    short = {"method": "", "dataset": "x", "rates": "[0.5]", "words": "a" * 500}
    logged = call.log_metrics(numbers(record), step=3)
    started = [call.start_run(run_name="r"), call.log_params(short)]
    assert mlflow.mock_calls == [*started, logged, call.end_run()]
    TensorBoard("there").begin(Result({}, {}, {}, []))
    assert board.SummaryWriter.call_args == call("there", purge_step=None)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensorboard_reads_what_its_logger_wrote(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    how: Any = {"checkpoint": tmp_path / "checkpoint"}
    went(TensorBoard(tmp_path / "logs"), 2, **how)
    result = went(TensorBoard(tmp_path / "logs"), 3, **how)
    found = EventAccumulator(str(tmp_path / "logs"))
    found.Reload()
    events = found.Scalars("test_accuracy")
    assert [event.step for event in events] == [0, 1, 2]
    assert [event.value for event in events] == pytest.approx(
        [record.metrics["test_accuracy"] for record in result.history]
    )
    assert {"train_loss", "bytes_up", "dropped"} <= set(found.Tags()["scalars"])


@pytest.mark.filterwarnings("ignore")
def test_wandb_keeps_what_its_logger_sends(tmp_path: Path, monkeypatch: Any) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_SILENT", "true")
    logger = WandB(project="fgl", mode="offline", dir=tmp_path, config={"also": 1})
    seen: list[Any] = []
    result = went(logger, also=lambda record, result: seen.append(dict(logger._run.summary)))
    config = logger._run.config
    assert config["dataset"] == "made up" and config["also"] == 1
    assert config["method"].startswith("fedprox(")
    assert [summary["test_accuracy"] for summary in seen] == [
        record.metrics["test_accuracy"] for record in result.history
    ]
    assert list((tmp_path / "wandb").glob("offline-run-*/*.wandb"))


@pytest.mark.filterwarnings("ignore")
def test_mlflow_finds_what_its_logger_wrote(tmp_path: Path) -> None:
    mlflow = pytest.importorskip("mlflow")
    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path}/mlflow.db")
    try:
        result = went(MLflow(run_name="prox"))
        run = mlflow.last_active_run()
        points = mlflow.MlflowClient().get_metric_history(run.info.run_id, "test_accuracy")
    finally:
        mlflow.set_tracking_uri(before)
    assert [point.value for point in points] == pytest.approx(
        [record.metrics["test_accuracy"] for record in result.history]
    )
    assert run.info.run_name == "prox" and run.info.status == "FINISHED"
    assert run.data.params["dataset"] == "made up"
    assert run.data.params["method"].startswith("fedprox(")


@pytest.mark.parametrize(("logger", "package", "module"), [
    (lambda: TensorBoard("runs"), "tensorboard", "torch.utils.tensorboard"),
    (WandB, "wandb", "wandb"), (MLflow, "mlflow", "mlflow"),
])  # fmt: skip
def test_a_logger_without_its_package_says_so_before_the_run(
    logger: Any, package: str, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    refuses(f"pip install {package}", logger, ImportError)
