"""The driver of a GPU's first minutes: what has ended is not repeated, what was stopped is."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from federations import script

pytestmark = pytest.mark.slow

MODULE: Any = script("benchmarks/speed/first_minutes.py")


@pytest.fixture(autouse=True)
def _two_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = {
        "one": MODULE.Step(("-c", "print('said')"), json=False),
        "two": MODULE.Step(("-c", "raise SystemExit(3)"), json=False),
    }
    monkeypatch.setattr(MODULE, "STEPS", steps)


def test_a_step_that_has_ended_is_not_repeated(tmp_path: Path, capsys: Any) -> None:
    where = ["--out", str(tmp_path)]
    assert MODULE.main([*where, "--only", "one"]) == 0
    assert (tmp_path / "one.txt").read_text() == "said\n"
    assert json.loads((tmp_path / "one.done").read_text())["code"] == 0
    (tmp_path / "one.txt").write_text("as it was")
    assert MODULE.main(where) == 0
    assert (tmp_path / "one.txt").read_text() == "as it was"
    assert json.loads((tmp_path / "two.done").read_text())["code"] == 3  # an end, and told
    assert MODULE.main([*where, "--again", "one"]) == 0
    assert (tmp_path / "one.txt").read_text() == "said\n"
    assert "all have ended" in capsys.readouterr().out


def test_a_step_that_was_stopped_begins_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    where = ["--out", str(tmp_path), "--only", "one"]

    def stopped(words: Any, *, timeout: float, **_: Any) -> None:
        raise subprocess.TimeoutExpired(words, timeout)

    with monkeypatch.context() as patched:
        patched.setattr(subprocess, "run", stopped)
        assert MODULE.main(where) == 1
    assert "left: ['one']" in capsys.readouterr().out
    assert MODULE.main([*where, "--minutes", "0"]) == 1
    assert "no time is left" in capsys.readouterr().out
    assert MODULE.main(where) == 0


def test_only_numbers_of_a_gpu_are_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MODULE, "ROOT", tmp_path)
    (tmp_path / "benchmarks" / "results").mkdir(parents=True)
    for name, gpu in (("rounds", "some GPU"), ("rounds-100", "some GPU"), ("kernels", "pretended")):
        (tmp_path / f"{name}.json").write_text(json.dumps({"machine": {"gpu": gpu}, name: 1}))
    with pytest.raises(ValueError, match="Expected kernels-gpu.json to be of a GPU"):
        MODULE.main(["--publish", "--out", str(tmp_path)])
    published = tmp_path / "benchmarks" / "results"
    assert [path.name for path in published.iterdir()] == ["speed-gpu.json"]
    made = json.loads((published / "speed-gpu.json").read_text())
    assert made == {"machine": {"gpu": "some GPU"}, "rounds": 1, "rounds-100": 1}
