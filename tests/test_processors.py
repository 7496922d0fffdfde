"""Processors that are not at hand: the settings, their table, and models that are nearly equal."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from reliability import processors
from reliability.processors import SETTINGS, Setting

pytestmark = pytest.mark.slow


def test_kernels_that_the_processor_lacks_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX2")
    left = [name for name, each in SETTINGS.items() if processors.missing(each)]
    assert left[0] == "AVX-512" and set(left[1:]) <= {"any order"}
    assert processors.missing(Setting("", {"ATEN_CPU_CAPABILITY": "avx512"})) == "avx512"


def test_another_processor_trains_nearly_the_same(tmp_path: Path) -> None:
    env, _ = processors.prepared(SETTINGS["no vectors"], tmp_path)
    found = processors.moved(env, tmp_path)
    assert found["float32"] < 1e-5 and found["float64"] < 1e-5
    if os.environ.get("ATEN_CPU_CAPABILITY") != "default":  # else these are the same kernels
        assert found["float32"] > 0 and found["float64"] > 0


@pytest.fixture
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    far = {"float32": 3e-7, "float64": 2e-8}
    monkeypatch.setattr(processors, "moved", lambda env, folder: far)
    for name in ("FGL_TEST_THREADS", "OMP_NUM_THREADS"):  # this may be a setting with two
        monkeypatch.setenv(name, "1")


def test_what_fails_is_named_and_what_is_known_is_not_run_again(
    quickly: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, path = tmp_path / "test_it.py", tmp_path / "found.json"
    file.write_text(
        "import os, torch\n"
        "def test_threads(): assert os.environ.get('OMP_NUM_THREADS') == '1'\n"
        "def test_kernels(): assert torch.backends.cpu.get_cpu_capability() != 'DEFAULT'\n"
    )
    flags = ["--files", str(file), "--workers", "0", "--json", str(path)]
    for _ in range(2):
        assert processors.main([*flags, "--settings", "no vectors"]) == 1
    found = json.loads(path.read_text())["settings"]
    assert list(found) == ["no vectors"] and found["no vectors"]["passed"] == 1
    (failed,) = found["no vectors"]["failed"]
    assert failed.endswith("::test_kernels")
    assert "no vectors: known" in capsys.readouterr().out
    assert "| no vectors | " in processors.table(json.loads(path.read_text()))


def test_a_run_that_does_not_come_to_an_end_has_failed(quickly: None, tmp_path: Path) -> None:
    found: Any = processors.run("plain", [str(tmp_path / "nowhere.py")], 0, tmp_path)
    assert found["passed"] == 0 and "nowhere.py" in found["failed"][0]
