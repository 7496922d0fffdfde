"""A recipe is killed (SIGKILL) in the midst of a round: another process goes on, bit for bit."""

import json
from pathlib import Path

import pytest
from federations import printed
from reliability.small_federation import ending, equal, federation

import fgl

pytestmark = pytest.mark.slow


def test_a_difference_of_one_bit_would_be_seen() -> None:
    method, clients = federation()
    message, *rest = end = ending(fgl.run(method, clients, num_rounds=2))
    name = "convs.0.lin.weight"
    other = {"model": {**message["model"], name: message["model"][name].clone()}}
    assert equal((other, *rest), end)
    other["model"][name][3, 2].add_(other["model"][name][3, 2].abs() * 2e-7)
    assert not equal((other, *rest), end)
    assert not equal((message, {}, *rest[1:]), end)
    assert not equal((message, *rest[:-1], rest[-1][:-1]), end)


def test_a_kill_of_a_recipe(tmp_path: Path) -> None:
    """Three of FedGL, in a process of its own: it forks, which this one, with threads, may not."""
    path = tmp_path / "kills.json"
    flags = ["--recipes", "fedgl", "--kills", "3", "--json", str(path)]
    printed("benchmarks/reliability/kills.py", *flags)
    found = json.loads(path.read_text())["recipes"]["fedgl"]
    assert (found["kills"], found["bit_equal"]) == (3, 3)
    assert sum(found["kills_by_rounds_saved"].values()) == 3
