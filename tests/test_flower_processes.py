"""Flower's real processes and its simulation: three recipes over four clients, bit for bit."""

from pathlib import Path

import pytest

pytest.importorskip("flwr")

from conformance import case
from federations import script

pytestmark = pytest.mark.slow

# A process is 10 s a round: the kinds of states. test_flower.py has all recipes, without processes.
RECIPES = [("gpfl", "graphs"), ("secure sum", "nodes"), ("DP-SGD drawn", "rows")]


def test_real_processes_have_the_bits_of_one(tmp_path: Path) -> None:
    faults = script("benchmarks/reliability/flower_faults.py")
    with faults.Federation(tmp_path, tmp_path / "graphs") as federation:
        for method, task in RECIPES:
            folder = tmp_path / task / method
            folder.mkdir(parents=True)
            rounds = max(2, case(method, task)[0].rules.exchange)  # letters have no seed
            config = {"method": method, "task": task, "rounds": rounds, "timeout": 300.0}
            result = faults.run(federation, folder, **config)
            assert [record.dropped for record in result.history] == [{}] * rounds, method
            states = tmp_path / "states"
            assert faults.compare(result, states, method=method, task=task) == [], method


def test_the_example_app_has_the_bits_of_one_process_in_simulation(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    federation = script("benchmarks/reliability/federation.py")
    here, there = federation.both(tmp_path, rounds=3, simulated=True)
    assert [record.dropped for record in there.history] == [{}] * 3
    assert federation.differences(here, there) == []
