"""The matrix of methods and tasks: equal trials, and the choice by validation alone."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from harness.record import append, load
from harness.rows import flat, spelled
from papers.matrix import (
    COLUMNS,
    ENTRIES,
    SEEDS,
    TUNING_SEED,
    GraphsWithValidation,
    best,
    quartered,
)

import fgl

pytestmark = pytest.mark.slow

CELLS = [(name, task) for name, entry in ENTRIES.items() for task in entry.tasks]


def test_every_cell_has_four_different_trials() -> None:
    for name, task in CELLS:
        trials = ENTRIES[name].trials(task)
        keys = {spelled(ENTRIES[name].at(task, values, TUNING_SEED).key) for values in trials}
        assert len(keys) == len(trials) == 4, (name, task)
        assert {values["lr"] for values in trials} <= set(COLUMNS[task].lrs), (name, task)
    assert TUNING_SEED not in SEEDS


def test_a_cell_is_compared_with_the_same_network() -> None:
    """Only FedSage, which is the FedAvg of its network, and FedGCN's sums differ in their task."""
    usual = {"FedSage": {"model"}, "FedGCN": {"hops"}}
    usual |= {"FedAvg, star": {"model"}, "FedAvg, gcn": {"model"}}
    for name, task in CELLS:
        base = ENTRIES[ENTRIES[name].base]
        assert task in base.tasks
        mine, other = (
            flat(entry.at(task, entry.trials(task)[1], 0).setting)
            for entry in (ENTRIES[name], base)
        )
        differ = {key for key in mine if mine[key] != other[key]} - {"lr"}
        assert differ <= usual.get(name, set()), (name, task)


def test_a_line_is_written_after_one_that_was_cut(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    path.write_text('{"key": {"a"')
    for seed in (1, 2):
        append({"key": {"seed": seed}}, path)
    assert [run["key"]["seed"] for run in load(path).values()] == [1, 2]
    assert len(path.read_text(encoding="utf-8").splitlines()) == 3


def recorded(name: str, task: str, index: int, seed: int, val: float, test: float) -> Any:
    values = ENTRIES[name].trials(task)[index]
    column = COLUMNS[task]
    scores = {column.validation: {"best_val": val}, column.metric: {"best_val": test}}
    scores["local_accuracy"] = {"best_val": test}
    costs = {"bytes_up": 3e6, "bytes_down": 6e6, "rounds": 3, "clients": 2}
    key = ENTRIES[name].at(task, values, seed).key
    costs |= {"seconds_per_round": 0.5, "processor_seconds": 0.6}  # type: ignore[dict-item]
    return {"key": key, "metrics": scores, **costs}


def test_the_trial_of_the_best_validation_is_chosen(tmp_path: Path) -> None:
    name, task = "FedProx", "louvain-nodes"
    vals, tests = (0.5, 0.9, 0.7, 0.6), (0.9, 0.1, 0.9, 0.9)  # the test may not speak
    lines = [
        recorded(name, task, i, TUNING_SEED, *each)
        for i, each in enumerate(zip(vals, tests, strict=True))
    ]
    path = tmp_path / "runs.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines[:3]))
    assert best(load(path), name, task) is None  # a trial is missing
    lines += [recorded(name, task, 1, seed, 0.5, 0.4 + seed / 10) for seed in SEEDS]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = load(path)
    assert best(found, name, task) == ENTRIES[name].trials(task)[1]


@pytest.fixture
def errors(monkeypatch: pytest.MonkeyPatch) -> str:
    """A task of the matrix whose scores are errors."""
    task = "louvain-nodes"
    monkeypatch.setitem(COLUMNS, task, replace(COLUMNS[task], validation="-val_rmse"))
    return task


def of_error(name: str, task: str, index: int, seed: int, val: float, test: float) -> Any:
    line = recorded(name, task, index, seed, val, test)
    line["metrics"]["val_rmse"] = line["metrics"].pop("-val_rmse")
    return line


def test_the_trial_of_the_least_error_is_chosen(tmp_path: Path, errors: str) -> None:
    name, path = "FedProx", tmp_path / "runs.jsonl"
    for index, error in enumerate((math.nan, 0.9, 0.7, 0.8)):
        append(of_error(name, errors, index, TUNING_SEED, error, 0.5), path)
    for seed in SEEDS:
        append(of_error(name, errors, 2, seed, 0.5, 0.5 + seed / 10), path)
    found = load(path)
    assert best(found, name, errors) == ENTRIES[name].trials(errors)[2]


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
