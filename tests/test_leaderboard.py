"""The studies of the leaderboard and the matrix, and their pages."""

import json
from pathlib import Path
from typing import Any

import leaderboard
import matrix
import numpy as np
from harness import study_page
from test_study import made_up

from fgl.study.arguments import check_settings, tuned
from fgl.study.plan import Plan


def plan_of(page: Any, settings: Any) -> Plan:
    return Plan(tuned(page.ENTRANTS), settings, page.LOCAL, [12], [1000], list(range(10)), 2, 2)


def test_the_studies_tune_fields_that_their_settings_have() -> None:
    for page in (leaderboard, matrix):
        points = plan_of(page, page.SETTINGS)
        check_settings(points)
        assert all(points.tunes(name) for name in page.ENTRANTS)
    assert plan_of(leaderboard, leaderboard.SETTINGS).count() == 11 * 6 * 22


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
