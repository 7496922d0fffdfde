"""The tables of `benchmarks/papers`: every row can be made, and every recorded run can be found."""

from __future__ import annotations

import functools
import json
import shlex
from typing import Any

import pytest
import reproduce
from harness.add_keys import old_run, with_key
from harness.commands import main_of
from harness.machine import RESULTS, ROOT
from harness.record import load
from harness.report import scores
from harness.rows import Experiment, Row, Table, changed, flat, spelled
from papers import TABLES

import fgl
from fgl.experiment import cli

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


def test_published_runs_are_found_by_what_their_old_command_meant() -> None:
    assert len(LINES) >= 1743
    assert len({spelled(line["key"]) for line in LINES}) == len(LINES)
    for line in LINES:
        if "command" in line:
            assert spelled(old_run(line["command"]).key) == spelled(line["key"])


def made_by(line: dict[str, Any], meant: Experiment) -> Experiment:
    """What the flags of a recipe's or a baseline's command make."""
    entry = main_of(meant)
    assert entry is not None
    start, main, presets = entry
    assert line["now"].startswith(start)
    parsed = functools.wraps(main)(lambda **arguments: arguments)
    words = shlex.split(line["now"].removeprefix(start))
    arguments = cli(parsed, presets=presets, argv=words)
    setting, run = arguments.pop("task"), arguments.pop("run")
    return Experiment(setting, meant.method, arguments, run, again=meant.again)


def test_the_command_of_now_makes_the_same_run() -> None:
    """The flags of `now`, with the recipe's defaults and presets, are the run that was meant."""
    seen = set()
    for line in LINES:
        if "examples/" not in line["now"] or "command" not in line:
            continue
        meant = old_run(line["command"])
        kind = json.dumps([line["key"][name] for name in ("method", "task", "settings", "dataset")])
        if kind in seen:
            continue
        seen.add(kind)
        made = made_by(line, meant)
        assert spelled(made.key) == spelled(meant.key), line["now"]
        ours, theirs = flat(made.run), flat(meant.run)
        differ = {name for name in ours if ours[name] != theirs[name]}
        assert differ <= NOT_COMPARED, line["now"]
    assert len(seen) > 100


def test_what_was_called_d4_is_table_2() -> None:
    """FedGL's D4 was Table 2's clients until the paper's Table 5 was read again."""
    meant = old_run("examples/fedgl.py --dataset cora --clients 6 --seed 0 --proportions D4")
    assert (meant.setting.proportions, meant.again) == (("table2",), "table2")
    assert "proportions" not in meant.key["settings"]
    table = TABLES["fedgl-table5"]
    true = table.at(table.row("FedGL, D4"), "cora", 6, 0)
    assert true.key["settings"]["proportions"] == ["D4"] and not true.again
    assert true.setting.shares == [0.2, 0.4, 0.5, 0.7, 0.7, 0.9]
    assert spelled(true.key) not in {spelled(line["key"]) for line in LINES if "command" in line}


def test_a_further_column_is_a_metric_in_percent_or_a_field() -> None:
    metrics = {name: {"best_val": 0.5, "last": 0.25} for name in ("test_accuracy", "local")}
    entry = {"metrics": metrics, "bytes_down": 3_000_000, "seconds_per_round": 2.0}
    also = {"own": "local", "MB down": "bytes_down", "s": "seconds_per_round", "no": "unknown"}
    table = Table([], "FedAvg", "runs.jsonl", validation="", also=also)
    want = {"best_val": 50.0, "last": 25.0, "own": 50.0, "MB down": 3.0, "s": 2.0}
    assert scores(table, entry) == pytest.approx(want)


@pytest.mark.parametrize("part", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2, 3))])
def test_commands_of_runs_made_since_are_those_of_their_rows(part: int) -> None:
    since = [line for line in LINES if "command" not in line][part::4]
    assert since
    assert [line["now"] for line in since] == [with_key(line)["now"] for line in since]
    assert not [line["now"] for line in since if "--dataset  " in f"{line['now']} "]


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
        for path in sorted((ROOT / "docs" / "results").glob("*.md"))
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
