"""The Byzantine grid: its cells, a run of it, its tables."""

from functools import cache
from pathlib import Path

import pytest
from harness.record import load
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


@pytest.mark.few
@pytest.mark.parametrize("rule", byzantine.RULES)
def test_every_rule_makes_a_round(small: None, rule: str, tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    for attack, bad in (("none", 1), ("label flip", 2)):
        byzantine.run(byzantine.key("synthetic", rule, attack, bad, 0, 1), "", path)
    assert all(0 <= run["metrics"]["test_accuracy"]["last"] <= 1 for run in load(path).values())
