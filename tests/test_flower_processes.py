"""Flower's real processes and its simulation: the recipes over four clients, bit for bit."""

from pathlib import Path

import pytest

pytest.importorskip("flwr")

from federations import script
from flower_grid import RECIPES

pytestmark = pytest.mark.slow


def test_real_processes_have_the_bits_of_one(tmp_path: Path) -> None:
    faults = script("benchmarks/reliability/flower_faults.py")
    with faults.Federation(tmp_path, tmp_path / "graphs") as federation:
        for method, task in RECIPES:
            folder = tmp_path / task / method
            folder.mkdir(parents=True)
            config = {"method": method, "task": task, "rounds": 2, "timeout": 300.0}
            result = faults.run(federation, folder, **config)
            assert [record.dropped for record in result.history] == [{}, {}], method
            states = tmp_path / "states"
            assert faults.compare(result, states, method=method, task=task) == [], method


def test_the_example_app_has_the_bits_of_one_process_in_simulation(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    federation = script("benchmarks/reliability/federation.py")
    here, there = federation.both(tmp_path, rounds=3, simulated=True)
    assert [record.dropped for record in there.history] == [{}] * 3
    assert federation.differences(here, there) == []
