"""kill -9 and Ctrl-C on a real process: what is left behind goes on, bit for bit."""

from __future__ import annotations

import json
import random
import signal
import statistics
from pathlib import Path
from typing import Any

import pytest
import torch
from federations import printed, script

import fgl

pytestmark = pytest.mark.slow

crash = script("benchmarks/reliability/crash.py")


@pytest.fixture(scope="module")
def undisturbed() -> tuple[Any, float]:
    """The same run in this process, on one thread as the workers do: its end, seconds per round."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    method, clients = crash.federation()
    result = fgl.run(method, clients, num_rounds=crash.ROUNDS)
    torch.set_num_threads(threads)
    return crash.ending(result), statistics.median(record.seconds for record in result.history)


@pytest.mark.slow
def test_killed_at_random_moments(tmp_path: Path, undisturbed: tuple[Any, float]) -> None:
    """Twice the same run, which goes on each time and ends as if nothing had been."""
    want, seconds = undisturbed
    got, saved = crash.trial(tmp_path, [2] * 2, random.Random(0), seconds)
    assert crash.equal(got, want)
    assert len(saved) == 2
    assert saved == sorted(saved)
    assert 0 < saved[-1] < crash.ROUNDS
    assert len(list(tmp_path.glob("round-*.ckpt"))) == 2


def test_ctrl_c(tmp_path: Path, undisturbed: tuple[Any, float]) -> None:
    want, seconds = undisturbed
    assert crash.stop(tmp_path, 3, seconds / 2, signal.SIGINT)
    assert max(path.name for path in tmp_path.glob("*.ckpt")) >= "round-000003.ckpt"
    got = crash.end(tmp_path)
    assert crash.equal(got, want)


def test_a_difference_of_one_bit_would_be_seen(undisturbed: tuple[Any, float]) -> None:
    message, state, history = undisturbed[0]
    name = "convs.0.lin.weight"
    other = {"model": {**message["model"], name: message["model"][name].clone()}}
    assert crash.equal((other, state, history), undisturbed[0])
    other["model"][name][3, 5] = other["model"][name][3, 5].nextafter(torch.tensor(1.0))
    assert not crash.equal((other, state, history), undisturbed[0])
    assert not crash.equal((message, {}, history), undisturbed[0])
    assert not crash.equal((message, state, history[:-1]), undisturbed[0])


@pytest.mark.slow
def test_a_kill_of_a_recipe(tmp_path: Path) -> None:
    """Three of FedGL, in a process of its own: it forks, which this one, with threads, may not."""
    path = tmp_path / "kills.json"
    flags = ["--recipes", "fedgl", "--kills", "3", "--json", str(path)]
    printed("benchmarks/reliability/kills.py", *flags)
    found = json.loads(path.read_text())["recipes"]["fedgl"]
    assert (found["kills"], found["bit_equal"]) == (3, 3)
    assert sum(found["kills_by_rounds_saved"].values()) == 3


@pytest.mark.slow
def test_twenty_of_twenty(tmp_path: Path) -> None:
    path = tmp_path / "results" / "crash.json"
    out = printed("benchmarks/reliability/crash.py", "--kills", "20", "--json", str(path))
    assert out.splitlines()[-1] == "20 of 20"
    report = json.loads(path.read_text())
    assert (report["kills"], report["bit_equal"]) == (20, 20)
    assert len(set(report["rounds_saved_at_kill"])) > 5
