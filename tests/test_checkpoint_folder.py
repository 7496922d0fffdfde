"""The folder of a checkpoint: other people's files, other processes, full disks, torn histories."""

import os
import shutil
import stat
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from federations import SGD, end, fedavg, fedopt, graphs, identified, model, refuses, same
from test_checkpoint import ROUNDS, damage, go, names, sealed

import fgl
from fgl import Training
from fgl.federation import Own
from fgl.federation.saved import checkpoint, disk
from fgl.federation.saved.identity import optimizer_settings

SYNC = os.fsync


@pytest.fixture(scope="module")
def undisturbed() -> dict[str, Any]:
    return end(go(None))


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("three")
    go(folder, 3)
    return folder


@pytest.fixture
def folder(three: Path, tmp_path: Path) -> Path:
    """A run that was stopped after three rounds, its files of rounds 2 and 3."""
    return shutil.copytree(three, tmp_path / "run")


def test_two_runs_in_one_folder_are_refused(folder: Path, undisturbed: dict[str, Any]) -> None:
    said = []

    def again(record: Any, result: Any) -> None:
        with pytest.raises(ValueError, match="to be of one run at a time, but got another") as told:
            go(folder)
        said.append(str(told.value))

    assert same(end(go(folder, callbacks=[again])), undisturbed)
    assert len(said) == 1
    assert str(folder / "lock") in said[0]
    assert same(end(go(folder)), undisturbed)  # let go at the end


def test_the_lock_is_let_go_after_an_error(folder: Path, undisturbed: dict[str, Any]) -> None:
    def fail(*_: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as kept:
        go(folder, callbacks=[fail])
    assert kept.tb is not None  # a notebook keeps the frames of the last error
    assert same(end(go(folder)), undisturbed)


OLD = {1: b"fgl-ckpt", 2: b"fgl-ckpt 2\n", 12: b"fgl-ckpt 12\n"}


@pytest.mark.parametrize("version", OLD)
def test_another_format_is_refused_by_its_number(version: int, folder: Path) -> None:
    payload = (folder / "round-000003.ckpt").read_bytes()
    content = sealed(OLD[version], payload)
    if version == 1:  # it had no number, and its checksum was of the rest alone
        content = OLD[1] + sealed(b"", payload)
    (folder / "round-000003.ckpt").write_bytes(content)
    before = contents(folder)
    text = rf"Expected checkpoint .*round-000003.ckpt to be of format 3, but got format {version} "
    refuses(text, lambda: go(folder))
    assert contents(folder) == before
    damage(folder / "round-000003.ckpt", "end")  # no format at all
    with pytest.warns(UserWarning, match="truncated or changed"):
        assert len(go(folder).history) == ROUNDS


def test_every_changed_bit_of_the_head_is_damage(folder: Path) -> None:
    whole = (folder / "round-000003.ckpt").read_bytes()
    assert checkpoint._version(whole) == 3
    for position in range(60):
        for bit in range(8):
            content = bytearray(whole)
            content[position] ^= 1 << bit
            assert checkpoint._version(bytes(content)) is None
    assert checkpoint._version(whole.replace(b"fgl-ckpt 3", b"fgl-ckpt 2")) is None


@pytest.mark.parametrize("error", [PermissionError(13, "denied"), OSError(5, "I/O error")])
def test_an_unreadable_newest_is_named_and_the_previous_is_used(
    error: OSError, folder: Path, undisturbed: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    read = Path.read_bytes

    def refuse(path: Path) -> bytes:
        if path.name == "round-000003.ckpt":
            raise error
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.warns(UserWarning, match=rf"round-000003.ckpt .*{error.strerror}.* previous"):
        assert same(end(go(folder)), undisturbed)


def test_a_torn_last_line_is_noticed(folder: Path, undisturbed: dict[str, Any]) -> None:
    path = folder / "history.jsonl"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.warns(UserWarning, match=r"round-000003.ckpt .* history.jsonl with a last line"):
        assert same(end(go(folder)), undisturbed)
    assert same(end(go(folder)), undisturbed)


def test_what_stands_behind_the_written_bytes_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "history"
    for position, content, want in (
        (0, b"0123456789", b"0123456789"),
        (4, b"x", b"0123x"),
        (0, b"ab", b"ab"),
        (2, b"", b"ab"),
    ):
        disk.write_at(path, position, content)
        assert path.read_bytes() == want


@pytest.mark.parametrize("how", ["changed", "first line", "gone", "empty"])
def test_a_lost_history_is_refused_and_the_model_kept(how: str, folder: Path) -> None:
    path = folder / "history.jsonl"
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    lines[1] = lines[1].replace(b'"round": 0', b'"round": 8')
    changed = {"changed": b"".join(lines), "first line": b"".join(lines[:2]), "empty": b""}
    path.unlink()
    if how != "gone":
        path.write_bytes(changed[how])
    before = contents(folder)
    text = r"Expected checkpoint history .*history.jsonl to be as .*round-000002.ckpt, but got"
    with pytest.warns(UserWarning), pytest.raises(ValueError, match=text):
        go(folder)
    assert contents(folder) == before
    path.write_bytes(whole)
    assert len(go(folder).history) == ROUNDS


def test_a_history_of_something_else_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "history.jsonl").write_text('{"prices": [1, 2]}\n')
    refuses(r"history.jsonl to be of format 3, but got a file of so", lambda: go(tmp_path))
    assert (tmp_path / "history.jsonl").read_text() == '{"prices": [1, 2]}\n'
    (tmp_path / "history.jsonl").write_bytes(checkpoint.HISTORY_HEAD[:9])  # killed in round 0
    assert len(go(tmp_path).history) == ROUNDS


@pytest.mark.parametrize("note", ["", "\n", "three", "\x00\x00"])
def test_an_empty_note_of_the_end_counts_and_is_named(note: str, folder: Path) -> None:
    (folder / "stopped").write_text(note)
    with pytest.warns(UserWarning, match="after 3 of 4 rounds.*delete .*stopped") as caught:
        assert len(go(folder).history) == 3
    assert caught[0].filename == go.__code__.co_filename
    (folder / "stopped").unlink()
    assert len(go(folder).history) == ROUNDS


def test_files_and_folder_are_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that the disk does not know is gone after a power cut."""
    done: list[str] = []
    sync, move = os.fsync, os.replace

    def fsync(descriptor: int) -> None:
        done.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        sync(descriptor)

    def replaced(*paths: Any) -> None:
        done.append("move")
        move(*paths)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", replaced)
    go(tmp_path, 1)
    # The room is tried; the history; the checkpoint, which is in the folder under its name.
    assert done == ["file", "file", "file", "move", "folder"]


def no_round(method: fgl.Method) -> fgl.Method:
    """The method, which must not begin to train."""

    def loss(*_: Any) -> Any:
        pytest.fail("a round was played")

    return replace(method, loss=loss)


def nowhere(tmp_path: Path) -> list[Path]:
    (tmp_path / "file").write_text("a file")
    found = [tmp_path / "file", tmp_path / "file" / "run"]
    if sys.platform == "linux":
        found.append(Path("/proc/run"))
    if os.geteuid():
        (tmp_path / "fixed").mkdir(mode=0o500)
        found += [tmp_path / "fixed", tmp_path / "fixed" / "run"]
    return found


def test_a_folder_nobody_can_write_in_is_said_before_the_first_round(tmp_path: Path) -> None:
    for path in nowhere(tmp_path):
        text = rf"^Expected checkpoint folder {path} to be one to write in, before the first .* got"
        with pytest.raises(OSError, match=text):
            fgl.run(no_round(fedavg(model())), graphs(), num_rounds=1, checkpoint=path)


def failing(times: int) -> Callable[..., None]:
    """A sync of a disk that is full after some."""

    def fsync(descriptor: int) -> None:
        nonlocal times
        times -= 1
        if times < 0:
            raise OSError(28, "No space left on device")
        SYNC(descriptor)

    return fsync


def test_a_full_disk_is_said_with_path_and_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, undisturbed: dict[str, Any]
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", failing(0))
        text = r"round-000001.ckpt to have room, as was tried before round 0, but got .*No space"
        with pytest.raises(OSError, match=text):
            fgl.run(no_round(fedavg(model())), graphs(), num_rounds=1, checkpoint=tmp_path)
        patch.setattr(os, "fsync", failing(1 + 3 + 3 + 1))
        text = (
            r"Expected checkpoint .*round-000003.ckpt to be written after round 2, but got .*No s"
        )
        refuses(text, lambda: go(tmp_path), OSError)
        assert names(tmp_path) == ["round-000001.ckpt", "round-000002.ckpt"]
    assert same(end(go(tmp_path)), undisturbed)


def test_room_for_one_file_is_too_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=8000)  # a file here has some 4,000 bytes
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    text = r"before round 0, but got 8000 free bytes where \d+ are needed"
    with pytest.raises(OSError, match=text):
        fgl.run(no_round(fedopt(model())), graphs(), num_rounds=1, checkpoint=tmp_path)


def other_start() -> torch.nn.Module:
    net = model()
    with torch.no_grad():
        net.convs[0].bias[0] += 1e-6
    return net


def hidden(lr: float) -> Training:
    """A learning rate that no name tells."""
    return Training(lambda tensors: torch.optim.SGD(tensors, lr=lr), num_steps=2)


IDENTITIES: dict[str, tuple[Any, Any, str]] = {
    "initial model": (lambda: fedavg(model()), lambda: fedavg(other_start()), r"initial_model=\w+"),
    "rate in a lambda": (
        lambda: fedavg(model(), hidden(0.1)),
        lambda: fedavg(model(), hidden(0.2)),
        r"optimizer_settings=.*'lr': 0.2.* but got .*'lr': 0.1",
    ),
}


@pytest.mark.parametrize("what", IDENTITIES)
def test_what_no_name_tells_is_part_of_a_run(what: str, tmp_path: Path) -> None:
    one, two, text = IDENTITIES[what]
    fgl.run(one(), graphs(), num_rounds=1, checkpoint=tmp_path)
    assert len(fgl.run(one(), graphs(), num_rounds=2, checkpoint=tmp_path).history) == 2
    refuses(text, lambda: fgl.run(two(), graphs(), num_rounds=2, checkpoint=tmp_path))


def test_a_first_mask_is_part_of_a_run() -> None:
    def model_of(value: float) -> Any:
        own = Own(personal={"mask": torch.full((2,), value)})
        return identified(replace(fedavg(model()), own=own))["initial_model"]

    assert model_of(0.0) == model_of(0.0) != model_of(1.0)


def test_settings_of_an_optimizer_are_those_json_can_hold() -> None:
    def groups(tensors: Any) -> torch.optim.Optimizer:
        return torch.optim.Adam([{"params": tensors, "lr": 0.5}], lr=torch.tensor(0.25))

    (found,) = optimizer_settings(groups)
    assert found["lr"] == 0.5
    assert found["betas"] == [0.9, 0.999]
    assert "params" not in found
    assert optimizer_settings(partial(SGD.optimizer, lr=torch.tensor(0.25)))[0]["lr"] == 0.25

    def wants_two(tensors: Any) -> torch.optim.Optimizer:
        first, second = tensors
        return torch.optim.SGD([first, second], lr=0.1)

    assert optimizer_settings(wants_two) == []
