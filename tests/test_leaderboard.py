"""The studies of the leaderboard and the matrix, and their pages."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import leaderboard
import matrix
import numpy as np
import pytest
from harness import study_page
from harness.record import append, load
from papers.matrix import GraphsWithValidation, quartered
from test_study import made_up

import fgl
from fgl.study.execute import check_local, execute
from fgl.study.plan import Plan, Point
from fgl.study.space import Tuned


def plan_of(page: Any, settings: Any) -> Plan:
    methods = {n: m if isinstance(m, Tuned) else Tuned(m) for n, m in page.ENTRANTS.items()}
    return Plan(methods, settings, page.LOCAL, [12], [1000], list(range(10)), 2, 2)


def test_the_studies_tune_fields_that_their_settings_have() -> None:
    for page in (leaderboard, matrix):
        for name, setting in page.SETTINGS.items():
            for space in page.LOCAL:
                check_local(name, setting, space)
        points = plan_of(page, page.SETTINGS)
        assert all(points.tunes(name) for name in page.ENTRANTS)
    assert plan_of(leaderboard, leaderboard.SETTINGS).count() == 11 * 6 * 22


@pytest.mark.slow
def test_every_entrant_runs_and_its_trials_are_made() -> None:
    small = {"partition": "random", "hidden": 8, "clients": 3, "dataset": "synthetic"}
    setting = replace(leaderboard.SETTINGS["Cora"], **small)
    plan = plan_of(leaderboard, {"a": setting})
    for name in plan.methods:
        for trial in plan.cell("a", name, {}).trials[0][:2]:
            local = {**trial.point.local, "lr": 0.01, "steps": 1}
            job = replace(trial.jobs[0], point=Point(local, trial.point.own))
            record = execute(plan, job)
            assert record["status"] == "finished", (name, record.get("traceback"))
    graphs = replace(matrix.SETTINGS["PROTEINS"], dataset="synthetic", clients=2, hidden=4)
    plan = plan_of(matrix, {"a": graphs})
    job = plan.cell("a", "GCFL+", {}).trials[0][1].jobs[0]
    assert execute(plan, job)["status"] == "finished"


def test_a_page_says_what_survives_and_names_its_test(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    base = {s: rng.uniform(0.6, 0.7, 10) for s in ("A", "B")}
    gain = rng.normal(0.04, 0.005, 10)
    scores = {
        s: {"FedAvg": list(v), "good": list(v + gain), "same": list(rng.permutation(v))}
        for s, v in base.items()
    }
    study = made_up(tmp_path / "one", scores)
    said = study_page.findings(study)
    assert len(said) == 3 and all("paired t test over 10 seeds" in line for line in said)
    mean = f"{100 * gain.mean():.1f}"
    assert said[0].startswith(f"**On the mean of 2 settings, good is {mean} points better than Fed")
    assert "correction for 2 comparisons)" in said[0] and "for 4 comparisons)" in said[1]
    text = study_page.text(study, "leaderboard") + study_page.tables(study)
    assert "| entrant | A | B |" in text and "| A | good | +" in text and "| method |" not in text
    noise = {"A": {"FedAvg": [0.5, 0.6, 0.7], "x": [0.6, 0.5, 0.71]}}
    (line,) = study_page.findings(made_up(tmp_path / "two", noise))
    assert line.startswith("**No difference survives") and "seeds" in line
    records = list(study_page.summaries(study))
    assert len(records) == 60 and json.dumps(records)
    assert {"value", "seed", "bytes"} <= set(records[0])


@pytest.mark.slow
def test_a_line_is_written_after_one_that_was_cut(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    path.write_text('{"key": {"a"')
    for seed in (1, 2):
        append({"key": {"seed": seed}}, path)
    assert [run["key"]["seed"] for run in load(path).values()] == [1, 2]
    assert len(path.read_text(encoding="utf-8").splitlines()) == 3


@pytest.mark.slow
def test_validation_graphs_are_neither_trained_on_nor_tested() -> None:
    setting = GraphsWithValidation(clients=3, hidden=8)
    train, tests = setting.folds_of(0)
    task = setting.load(0)
    for own, kept, test in zip(train, task.clients, tests, strict=True):
        first, last = quartered(own, 0)
        assert first.num_graphs == kept.num_graphs
        assert first.num_graphs + last.num_graphs == own.num_graphs
        assert abs(last.num_graphs - own.num_graphs / 4) < 1
        assert test.num_graphs > 0
    metrics = fgl.run(task.fedavg, task, num_rounds=1).history[0].metrics
    assert {"val_accuracy", "test_accuracy"} <= set(metrics)
