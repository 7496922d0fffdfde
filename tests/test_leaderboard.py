"""The studies of the leaderboard and the matrix, their pages, and the first tables."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import leaderboard
import matrix
import numpy as np
import pytest
from harness import leaderboard_page, study_page
from harness.machine import RESULTS
from harness.record import load
from scipy import stats
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
    lines = [len(Path(page.__file__).read_text().splitlines()) for page in (leaderboard, matrix)]
    assert max(lines) <= 100


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
    assert said[0].startswith(f"**On the mean of 2 settings good is {mean} points better than FedA")
    assert "Holm's correction over 2)" in said[0] and "Holm's correction over 4)" in said[1]
    text = study_page.text(study, "leaderboard")
    assert "| entrant | A | B |" in text and "| A | good | +" in text and "| method |" not in text
    noise = {"A": {"FedAvg": [0.5, 0.6, 0.7], "x": [0.6, 0.5, 0.71]}}
    (line,) = study_page.findings(made_up(tmp_path / "two", noise))
    assert line.startswith("**No difference survives") and "seeds" in line
    records = list(study_page.summaries(study))
    assert len(records) == 60 and json.dumps(records)
    assert {"value", "seed", "bytes"} <= set(records[0])


def test_the_tables_of_the_first_leaderboard_are_those_of_its_file() -> None:
    found = load(RESULTS / "leaderboard.jsonl")
    page = (Path(fgl.__file__).parents[1] / "docs" / "leaderboard.md").read_text(encoding="utf-8")
    tables = (RESULTS / "tables" / "leaderboard.md").read_text(encoding="utf-8")
    assert leaderboard_page.text(found) in tables
    tests = leaderboard_page.adjusted(found)
    cell = ("SCAFFOLD", "cora", "disjoint")
    pair = [leaderboard_page.scores(found, (n, *cell[1:])) for n in ("SCAFFOLD", "FedAvg")]
    theirs = stats.ttest_rel(*(list(each.values()) for each in pair)).confidence_interval()
    assert tests[cell][:2] == pytest.approx(tuple(theirs))
    survive = [cell for cell, (_, _, p) in tests.items() if p < 0.05]
    assert f"Of {len(tests)} differences from FedAvg {'two' * (len(survive) == 2)} survive" in page
    for word in ("Nemenyi", "rank", "First so far"):
        assert word not in page
