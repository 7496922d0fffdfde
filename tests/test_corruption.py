"""The script that damages checkpoints: what it counts, and that it can fail."""

from collections.abc import Iterator

import pytest
import torch
from federations import script

from fgl.federation.saved import checkpoint

corruption = script("benchmarks/reliability/corruption.py")


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    """The script takes one thread."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_every_damage_is_noticed(capsys: pytest.CaptureFixture[str]) -> None:
    assert corruption.main(["--damages", "24"]) == 0
    said = capsys.readouterr().out
    assert "round-000003.ckpt {'the previous one used': 12}" in said
    assert "'refused'" in said


def test_a_reader_that_trusts_its_files_is_found_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(checkpoint, "_version", lambda data: checkpoint.FORMAT)
    monkeypatch.setattr(corruption, "damages", lambda content, count: [content[:-1] + b"x"])
    assert corruption.main(["--damages", "2"]) == 1
    assert "not noticed" in capsys.readouterr().out
