"""The tables of `benchmarks/papers`: every row can be made, and every recorded run can be found."""

from __future__ import annotations

import functools
import json
from typing import Any

import pytest
import reproduce
from harness.machine import RESULTS, ROOT
from harness.record import load
from harness.report import scores
from harness.rows import Row, Table, changed, spelled
from papers import TABLES

import fgl

pytestmark = pytest.mark.slow

LINES = [
    json.loads(line)
    for p in RESULTS.glob("*.jsonl")
    if p.stem != "leaderboard"  # whose cells are no rows of a table
    for line in p.read_text(encoding="utf-8").splitlines()
]
NOT_COMPARED = {"seed", "threads", "json", "checkpoint"}


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


def test_runs_of_folds_are_splits_of_five() -> None:
    table = TABLES["gpfl-table2"]
    made = [table.at(table.rows[0], "PROTEINS", 25, number) for number in (4, 5, 11)]
    assert [(each.setting.fold, each.run.seed) for each in made] == [(4, 0), (0, 1), (1, 2)]


def test_table2_is_of_the_authors_draw_three_times() -> None:
    made = [job.experiment for job in jobs("gpfl-table2")]
    assert {each.setting.partition for each in made} == {"authors"}
    numbers = {(each.run.seed, each.setting.fold) for each in made}
    assert numbers == {(seed, fold) for seed in range(3) for fold in range(5)}
    settings = {(each.setting.dataset, each.clients, each.setting.alpha) for each in made}
    where = [("PROTEINS", 15), ("PROTEINS", 25), ("NCI1", 15), ("NCI1", 20), ("NCI1", 25)]
    assert settings == {(*place, alpha) for place in where for alpha in (0.5, 1.0, 5.0)}


def test_published_runs_of_gpfl_stand_in_tables_of_other_draws() -> None:
    names = [name for name in TABLES if name.startswith("gpfl")]
    keys = {name: {job.key for job in jobs(name)} for name in names}
    runs = [line for line in LINES if line["key"]["task"] == "graphs" and "command" in line]
    assert len(runs) == 497
    for line in runs:
        assert line["key"]["settings"]["partition"] == "dirichlet"
        inside = {name for name in names if spelled(line["key"]) in keys[name]}
        assert inside and not inside & {"gpfl-table2", "gpfl-ablation"}


def test_second_draw_is_of_seed_1() -> None:
    runs = {(j.experiment.setting.fold, j.experiment.run.seed) for j in jobs("gpfl-second-draw")}
    assert runs == {(fold, 1) for fold in range(5)}


def test_a_row_is_before_what_was_tuned_and_a_call_before_both() -> None:
    table = TABLES["fgssl-capped-table2"]
    only = table.row("FNSC only").at("pubmed", 5)
    assert (only.options["lambda_c"], only.options["lambda_d"]) == (5.0, 0.0)
    assert only.setting.local.optimizer == "adam"
    assert table.row("FGSSL").at("pubmed", 5, hidden=8).setting.hidden == 8
    longer = TABLES["fedego-table2"]
    assert longer.at(longer.row("FedEgo"), "dblp", 10, 0).run.rounds == 300
    assert longer.at(longer.row("FedEgo"), "dblp", 10, 0, rounds=2).run.rounds == 2


@functools.cache
def recorded(name: str) -> dict[str, Any]:
    return load(RESULTS / name)


@pytest.mark.parametrize("table", sorted(TABLES))
def test_a_page_shows_all_runs_that_are_there(table: str) -> None:
    args = reproduce.parsed([table, "--report"])
    shown = "".join(
        path.read_text(encoding="utf-8")
        for path in sorted((ROOT / "benchmarks/results/tables").glob("*.md"))
    )
    made = reproduce.text(args, recorded(TABLES[table].results))
    assert f"<!-- {table} -->\n{made}<!-- end -->" in shown


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
