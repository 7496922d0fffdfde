"""Flower's real processes: the recipes over one SuperLink and four SuperNodes, bit for bit."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("flwr")

from federations import script
from flower_grid import RECIPES


@pytest.mark.slow
def test_real_processes_have_the_bits_of_one(tmp_path: Path) -> None:
    faults = script("benchmarks/reliability/flower_faults.py")
    with faults.Federation(tmp_path, tmp_path / "graphs") as federation:
        for method, task in RECIPES:
            folder = tmp_path / method
            folder.mkdir()
            config = {"method": method, "task": task, "rounds": 2, "timeout": 300.0}
            result = faults.run(federation, folder, **config)
            assert [record.dropped for record in result.history] == [{}, {}], method
            assert faults.compare(result, tmp_path / "states", method=method, task=task), method
