"""The tables of `benchmarks/papers`: every row can be made, and every recorded run can be found."""

from typing import Any

import pytest
import reproduce
from harness.machine import RESULTS
from harness.record import load
from harness.report import scores
from harness.rows import Row, Table, changed, spelled
from papers import TABLES

import fgl

pytestmark = pytest.mark.slow


def jobs(table: str, *flags: str) -> list[reproduce.Job]:
    return reproduce.jobs(table, reproduce.parsed([table, *flags]))


@pytest.mark.parametrize("table", sorted(TABLES))
def test_every_row_has_runs(table: str) -> None:
    every = jobs(table, "--seeds", "1")
    assert {job.row.name for job in every} == {row.name for row in TABLES[table].rows}
    for job in every:
        setting = job.experiment.setting
        assert (setting.dataset, job.experiment.clients) == (job.dataset, job.clients)
        if isinstance(setting, fgl.tasks.OverlappingNodes):
            assert len(setting.shares) == job.clients


@pytest.mark.parametrize("table", sorted(TABLES))
def test_two_rows_of_a_table_are_not_the_same_run(table: str) -> None:
    keys = [job.key for job in jobs(table, "--seeds", "1")]
    assert len(keys) == len(set(keys))


def test_a_further_column_is_a_metric_in_percent_or_a_field() -> None:
    metrics = {name: {"best_val": 0.5, "last": 0.25} for name in ("test_accuracy", "local")}
    entry = {"metrics": metrics, "bytes_down": 3_000_000, "seconds_per_round": 2.0}
    also = {"own": "local", "MB down": "bytes_down", "s": "seconds_per_round", "no": "unknown"}
    table = Table([], "FedAvg", "runs.jsonl", validation="", also=also)
    want = {"best_val": 50.0, "last": 25.0, "own": 50.0, "MB down": 3.0, "s": 2.0}
    assert scores(table, entry) == pytest.approx(want)


@pytest.mark.parametrize("method", ["FedAvg", "FGSSL"])
@pytest.mark.parametrize("dataset", ["cora", "citeseer"])
def test_fgssls_values_are_those_of_the_best_validation(dataset: str, method: str) -> None:
    """Eight trials each, on the seeds of the search; among equals the first."""
    args = reproduce.parsed(["fgssl-tuning", "--seeds", "2", "--datasets", dataset])
    found = reproduce.scored("fgssl-tuning", load(RESULTS / "fgssl.jsonl"), args)
    trials = [row for row in TABLES["fgssl-tuning"].rows if row.name.startswith(f"{method},")]
    assert len(trials) == 8
    means = [sum(run["val"] for run in found[row.name, dataset, 5].values()) / 2 for row in trials]
    best = trials[max(range(8), key=lambda i: round(means[i], 9))]
    used = TABLES["fgssl-table1"].row(method).at(dataset, 5)
    assert spelled(used.key) == spelled(best.at(dataset, 5).key)


def test_a_row_is_before_what_was_tuned_and_a_call_before_both() -> None:
    table = TABLES["fgssl-capped-table2"]
    only = table.row("FNSC only").at("pubmed", 5)
    assert (only.options["lambda_c"], only.options["lambda_d"]) == (5.0, 0.0)
    assert only.setting.local.optimizer == "adam"
    assert table.row("FGSSL").at("pubmed", 5, hidden=8).setting.hidden == 8
    longer = TABLES["fedego-table2"]
    assert longer.at(longer.row("FedEgo"), "dblp", 10, 0).run.rounds == 300
    assert longer.at(longer.row("FedEgo"), "dblp", 10, 0, rounds=2).run.rounds == 2


def test_a_run_is_recorded_once(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """The smallest run of a table, twice: the second finds the first."""
    path = tmp_path / "runs.jsonl"
    row = TABLES["fgssl-table1"].row("FedAvg")
    small = Row("FedAvg", {("synthetic", 2): 0.0}, changed(row.setting, {"hidden": 8}), row.method)
    table = Table([small], "FedAvg", "runs.jsonl", datasets=("synthetic",), clients=(2,))
    TABLES["small"] = table
    try:
        for _ in range(2):
            flags = ["--seeds", "1", "--rounds", "1", "--results", str(path)]
            reproduce.main(["small", *flags])
    finally:
        del TABLES["small"]
    assert len(path.read_text(encoding="utf-8").splitlines()) == len(load(path)) == 1
    assert "| synthetic | 2 | FedAvg |" in capsys.readouterr().out
