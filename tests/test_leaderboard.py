"""The leaderboard: critical differences, how a cell is chosen and resumed, what its page says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import leaderboard
import numpy as np
import pytest
from harness import leaderboard_page as page
from harness.critical import critical_difference, ranking
from harness.rows import spelled
from papers.leaderboard import BLOCKS, entrants
from papers.matrix import SEEDS, TUNING_SEED
from scipy.stats import friedmanchisquare

pytestmark = pytest.mark.slow

# Demsar 2006, table 5a: the two-tailed Nemenyi test at level .05, for 2 to 10 methods.
CRITICAL = (1.960, 2.343, 2.569, 2.728, 2.850, 2.949, 3.031, 3.102, 3.164)


def test_critical_differences_are_demsars() -> None:
    for methods, q in enumerate(CRITICAL, start=2):
        wanted = q * (methods * (methods + 1) / (6 * 14)) ** 0.5
        assert critical_difference(methods, 14) == pytest.approx(wanted, abs=2e-3)


def test_ranks_are_those_of_loops() -> None:
    table = np.random.default_rng(0).integers(0, 6, (7, 4)).astype(float)  # with ties
    scores = {f"m{i}": {block: row[i] for block, row in enumerate(table)} for i in range(4)}
    found = ranking(scores)
    assert found is not None and found.blocks == 7
    for i in range(4):
        each = [
            1
            + sum(other > row[i] for other in row)
            + (sum(other == row[i] for other in row) - 1) / 2
            for row in table
        ]
        assert found.ranks[f"m{i}"] == pytest.approx(sum(each) / 7)
    assert list(found.ranks.values()) == sorted(found.ranks.values())
    assert found.p == pytest.approx(friedmanchisquare(*table.T).pvalue)
    best = min(found.ranks.values())
    assert all(found.ranks[name] - best < found.difference for name in found.like_the_best())


def test_a_block_that_a_method_lacks_does_not_count() -> None:
    scores = {"a": {1: 1.0, 2: 2.0, 3: 9.0}, "b": {1: 2.0, 2: 1.0, 3: 0.0}, "c": {1: 3.0, 2: 3.0}}
    found = ranking(scores)
    assert found is not None and found.blocks == 2 and found.ranks["c"] == 1
    assert ranking({name: scores[name] for name in "ab"}) is None
    assert ranking({name: {1: 1.0} for name in "abc"}) is None
    tied = ranking({name: {1: 0.5, 2: 0.7} for name in "abc"})
    assert tied is not None and tied.p == 1 and set(tied.ranks.values()) == {2.0}


def run(seed: int, value: float | None, val: float | None) -> dict[str, Any]:
    last = None if value is None else value - 0.1
    made = {"test_accuracy": {"last": last, "best_val": value}}
    made["val_accuracy"] = {"last": val, "best_val": val}  # type: ignore[dict-item]
    spent = {"bytes_up": 4e8, "bytes_down": 2e8, "processor_seconds": 5.0, "processor_before": 1.0}
    return {"seed": seed, "rounds": 100, **made, **spent, "seconds": 9.0}


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any, int]]:
    """Runs that are made up: a high learning rate tests well, a low one validates well."""
    asked: list[tuple[str, Any, int]] = []

    def one(cell: Any, values: Any, seed: int, rounds: int) -> dict[str, Any]:
        asked.append((cell[0], values, seed))
        val = None if values["lr"] == 0.003 else 1 - values["lr"]
        return run(seed, values["lr"], val)

    monkeypatch.setattr(leaderboard, "one", one)
    monkeypatch.setattr(leaderboard, "refusal", lambda name, layout: "")
    return asked


def go(path: Path, *more: str) -> None:
    few = ["--datasets", "cora", "--layouts", "disjoint", "--results", str(path)]
    leaderboard.main([*few, "--methods", "FedAvg", "Local", *more])


def test_the_best_validation_chooses_and_trials_are_equally_many(made: Any, tmp_path: Path) -> None:
    go(tmp_path / "out.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [line["key"]["method"] for line in lines] == ["FedAvg", "Local"]
    for line in lines:
        assert line["chosen"] == {"lr": 0.01}  # not .003, whose validation is no number
        assert [trial["seed"] for trial in line["trials"]] == [TUNING_SEED] * 4
        assert [each["seed"] for each in line["runs"]] == list(SEEDS)
        assert line["machine"]["cpu"] and line["seconds"] == 63.0
    assert {len(entrant.trials()) for entrant in entrants().values()} == {4}


def test_a_run_that_was_stopped_goes_on(made: Any, tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    go(path)
    whole = path.read_text().splitlines()
    path.write_text(whole[0] + "\n" + whole[1][:50])  # killed while it wrote the second cell
    made.clear()
    go(path)
    assert {name for name, *_ in made} == {"Local"} and len(made) == 7
    made.clear()
    go(path)
    assert not made
    go(path, "--rounds", "2")  # another length is another cell
    assert len(made) == 14


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Three of the four methods that apply, on two blocks."""
    able = ("FedAvg", "Local", "FED-PUB", "MOON")
    monkeypatch.setattr(page, "refusal", lambda name, layout: "" if name in able else "no")
    level = {"FedAvg": 0.7, "Local": 0.8, "FED-PUB": 0.82}
    lines = {}
    for name, value in level.items():
        for dataset, layout in BLOCKS[:2]:
            key = {"method": name, "dataset": dataset, "layout": layout, "rounds": 100}
            runs = [run(seed, value + seed / 100, 0.5) for seed in SEEDS]
            lines[spelled(key)] = {"key": key, "chosen": {"lr": 0.1}, "trials": [], "runs": runs}
    return lines


def test_the_page_says_what_the_numbers_say(found: dict[str, Any]) -> None:
    text = page.text(found)
    assert "**First so far is FED-PUB**: 83.0 % on average over 2 blocks" in text
    assert "Training alone has 81.0 %" in text and "1 of 2 methods are above it: FED-PUB." in text
    row = "| FED-PUB | 83.0 ± 1.0 | 73.0 ± 1.0 | 80.9 ± 0.1 | +12.00 ± 0.00 | lr 0.1 | 0.4 | 0.2 |"
    assert f"{row} 0 | 6 | 1 |" in text
    assert "| FedAvg | 71.0 ± 1.0 | 61.0 ± 1.0 | 68.8 ± 1.4 |  |" in text
    wanted = 4 * len(BLOCKS)
    assert f"6 of {wanted} cells have been run." in text and "GPFL does not apply" in text
    assert "CiteSeer, disjoint: nothing yet." in text
    assert page.text({}).startswith("\n## What to use when\n\n- No block is full enough yet")


def put(found: dict[str, Any], name: str, block: Any, *values: float | None) -> None:
    key = {"method": name, "dataset": block[0], "layout": block[1], "rounds": 100}
    runs = [run(seed, value, 0.5) for seed, value in enumerate(values)]  # type: ignore[arg-type]
    found[spelled(key)] = {"key": key, "chosen": {"lr": 0.1}, "trials": [], "runs": runs}


def test_seeds_that_diverged_are_said_and_count_in_no_average(found: dict[str, Any]) -> None:
    put(found, "FED-PUB", BLOCKS[0], 0.99, None, None)
    put(found, "MOON", BLOCKS[0], None, None, None)
    text = page.text(found)
    assert "**First so far is Local**" in text and "since a block lacks them:** FED-PUB." in text
    assert "| FED-PUB | 99.0 (1 of its seeds, others diverged) |" in text
    assert "Without a score, since all seeds diverged: MOON." in text


def test_a_diverged_cell_stops_no_other(made: Any, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(leaderboard, "one", lambda *given: run(given[2], None, None))  # type: ignore[arg-type]
    go(tmp_path / "out.jsonl")
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 2
