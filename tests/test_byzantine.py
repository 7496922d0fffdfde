"""The Byzantine grid: its cells, a run of it, its tables."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
from harness.record import load
from harness.rows import spelled
from reliability import byzantine

from fgl import tasks


class Small:
    """A setting that is loaded once."""

    @staticmethod
    @cache
    def load(seed: int) -> tasks.Task:
        return tasks.Nodes(clients=10, hidden=8, model="gcn").load(seed)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(byzantine, "DATASETS", {"synthetic": ("louvain-nodes", Small)})


def keys(*flags: str) -> list[dict[str, Any]]:
    return byzantine.grid(byzantine.parsed(list(flags)))


def test_every_cell_is_one_run() -> None:
    """Seven attacks, one to four hostile clients; the honest price once where no number matters."""
    every = keys("--datasets", "cora")
    assert len({spelled(each) for each in every}) == len(every)
    attacks = [each["settings"] for each in every if each["settings"]["attack"] != "none"]
    assert len(attacks) == 7 * (11 * 4 + 2 * 2)  # of 5 buckets at most 2 are spoiled
    calm = [each["settings"] for each in every if each["settings"]["attack"] == "none"]
    assert sum(each["bad"] == 0 for each in calm) == 8 and len(calm) == 8 + 5 * 4


def test_runs_are_appended_once_and_read_back(small: None, tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    flags = ["--datasets", "synthetic", "--rules", "FedAvg", "multi-krum", "--bad", "2"]
    flags += ["--attacks", "none", "scale -10", "--rounds", "1", "--results", str(path)]
    byzantine.DATASETS["cora"] = byzantine.DATASETS["PROTEINS"] = ("", None)  # choices' default
    for _ in range(2):
        byzantine.main(flags)
        found = load(path)
        assert len(found) == len(path.read_text(encoding="utf-8").splitlines()) == 4
    assert all(len(run["hostile"]) in (0, 2) for run in found.values())
    assert {run["now"].split(" --")[1] for run in found.values()} == {
        "rules FedAvg",
        "rules multi-krum",
    }
    table = byzantine.text(found, byzantine.parsed(flags))
    assert "synthetic, 2 hostile of 10" in table and "| multi-krum |" in table


@pytest.mark.few
@pytest.mark.parametrize("rule", byzantine.RULES)
def test_every_rule_makes_a_round(small: None, rule: str, tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    for attack, bad in (("none", 1), ("label flip", 2)):
        byzantine.run(byzantine.key("synthetic", rule, attack, bad, 0, 1), "", path)
    assert all(0 <= run["metrics"]["test_accuracy"]["last"] <= 1 for run in load(path).values())
