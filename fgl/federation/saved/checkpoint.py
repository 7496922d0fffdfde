"""Checkpoints: each is written completely or not at all, and is checked when it is read.

The folder of a run contains the two newest checkpoints ``round-N.ckpt``, the file ``history.jsonl``
with one line per round, and the file ``lock``. If a callback ended the run, the folder also
contains the file ``stopped``. All other files in the folder are left unchanged.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import shutil
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import torch

from ...checks import check_disk, reject_if
from ...warn import warn
from ..history import Result, Round
from ..method.message import Broadcast
from . import disk

FORMAT = 3
HEAD = f"fgl-ckpt {FORMAT}\n".encode()
HISTORY_HEAD = f'{{"format": "fgl-history {FORMAT}"}}\n'.encode()
SUM = hashlib.sha256().digest_size
KEEP = 2
PARTS = ("outbox", "server_state", "client_states", "older")
OURS = re.compile(r"round-(\d{6}|[1-9]\d{6,})\.ckpt(\.partial)?", re.ASCII)
HINTS = {
    "evaluate": ": resume with the scores and their data of before, or take another folder",
    "start": ": resume with the start= of before, or take another folder for another run",
    "threads": ": torch.set_num_threads sets them, and sums of other bits come of other threads",
    "initial_model": ": call torch.manual_seed before the model is made",
}


class Damaged(Exception):
    """Error if a checkpoint, or the history of the checkpoint's rounds, cannot be read."""


@contextmanager
def opened(path: str | os.PathLike[str] | None, identity: Mapping[str, Any]) -> Iterator[Folder]:
    """A context that yields a run's `Folder`; meanwhile, no other process can use the folder.

    If no path is given, the context yields a `NoFolder`; a `NoFolder` saves nothing.

    Raises:
        OSError: if the folder cannot be written.
        ValueError: if another run uses the folder.
    """
    if path is None:
        yield NoFolder(Path(), {})
        return
    folder = Path(path)
    with ExitStack() as stack:
        with check_disk(
            f"checkpoint folder {folder} to be one to write in, before the first round"
        ):
            folder.mkdir(parents=True, exist_ok=True)
            stack.enter_context(disk.only_one(folder))
        yield Folder(folder, identity)


class Folder:
    """A folder with a run's checkpoints and history.

    Args:
        path: the folder.
        identity: JSON values of the run, which must equal the saved values when a run resumes.
    """

    def __init__(self, path: Path, identity: Mapping[str, Any]) -> None:
        self.path = path
        self.identity = identity
        self.unscored: Round | None = None  # newest round, if saved before it was scored
        self._written = 0  # rounds in the history; below their bytes and checksum
        self._size = 0
        self._sum = hashlib.sha256()

    def load(self, device: torch.device) -> Result | None:
        """The newest checkpoint that is not damaged.

        Damaged checkpoints are skipped with a warning.

        Raises:
            ValueError: if the checkpoint's identity or format is not this run's, or if a checkpoint
                is undamaged but the history is lost.
        """
        lost = None
        for path in self._newest_first():
            try:
                content = _read(path)
                _check_identity(path, json.loads(content["identity"]), self.identity)
                lost = path
                history = self._read_history(content)
            except Damaged as damage:
                warn(
                    f"Expected {path} to be a whole checkpoint, but got {damage}; "
                    "trying the previous one"
                )
                continue
            self.unscored = _round(content["unscored"]) if "unscored" in content else None
            return _unpack(content, history, device)
        want = f"checkpoint history {self._history} to be as it was saved with {lost}"
        got = "one that was cut or changed: put its copy back, or take another folder"
        reject_if(lost is not None, want, got)  # a new start would discard a good model
        return None

    def check_room(self, result: Result) -> None:
        """Raise an OSError or a ValueError if the next round could not be saved."""
        rounds = len(result.history)
        path = self.path / _name(rounds + 1)
        expected = f"checkpoint {path} to have room, as was tried before round {rounds}"
        with check_disk(expected):
            content = _pack(self.identity, result, self._size, self._sum.hexdigest())
            disk.try_writing(path, _sealed(content))
            needed = len(content) * (KEEP + 1 - len(self._newest_first()))
            free = shutil.disk_usage(self.path).free
            got = f"{free} free bytes where {needed} are needed"
            reject_if(free < needed, expected, got, OSError)
            with self._history.open("a+b") as file:
                file.seek(0)
                head = file.read(len(HISTORY_HEAD))
        want = f"checkpoint history {self._history} to be of format {FORMAT}"
        got = "a file of something else: take another folder"
        reject_if(not HISTORY_HEAD.startswith(head), want, got)

    def save(self, result: Result, unscored: Round | None = None) -> Path:
        """Append to the history, and write ``round-N.ckpt`` atomically.

        Keep the two newest checkpoints.

        If given, `unscored` is the record of a round that has no metrics yet. This record is not
        yet in the result's history. The result already has the outbox and the states after this
        round.
        """
        rounds = len(result.history) + (unscored is not None)
        path = self.path / _name(rounds)
        with check_disk(f"checkpoint {path} to be written after round {rounds - 1}"):
            self._append(result)
            content = _pack(self.identity, result, self._size, self._sum.hexdigest(), unscored)
            write_sealed(path, content)
            self.unscored = unscored
            newest = {_name(number) for number in range(rounds - KEEP + 1, rounds + 1)}
            for other in self.path.iterdir():  # old, partly written, or of later damaged rounds
                if OURS.fullmatch(other.name) and other.name not in newest and other.is_file():
                    other.unlink(missing_ok=True)
        return path

    def stop(self, rounds: int) -> None:
        """Record that a callback ended the run after this number of rounds."""
        note = self.path / "stopped"
        with check_disk(f"checkpoint note {note} to be written after round {rounds - 1}"):
            disk.write_whole(note, str(rounds).encode())

    def has_stopped(self, rounds: int) -> bool:
        """Whether a callback ended the run after this number of rounds.

        If the recorded text is not a number, a power failure has damaged the file. In that case the
        result is True.
        """
        note = self.path / "stopped"
        if not rounds or not note.is_file():
            return False
        text = note.read_bytes().strip()
        return not text.isdigit() or int(text) == rounds

    @property
    def _history(self) -> Path:
        return self.path / "history.jsonl"

    def _newest_first(self) -> list[Path]:
        """The checkpoints in descending order of rounds.

        Files with other names are ignored.
        """
        matches = [(OURS.fullmatch(path.name), path) for path in self.path.iterdir()]
        numbers = {
            int(match[1]): path
            for match, path in matches
            if match and not match[2] and path.is_file()
        }
        return [numbers[number] for number in sorted(numbers, reverse=True)]

    def _append(self, result: Result) -> None:
        """Append the rounds that are missing in the history.

        If the last line is incomplete, overwrite it.
        """
        new = result.history[self._written :]
        lines = "".join(_line(record) + "\n" for record in new).encode()
        lines = lines if self._size else HISTORY_HEAD + lines
        disk.write_at(self._history, self._size, lines)
        self._sum.update(lines)
        self._size += len(lines)
        self._written += len(new)

    def _read_history(self, content: Mapping[str, Any]) -> list[Round]:
        """The rounds in the history up to a checkpoint.

        Lines for later rounds are ignored.
        """
        size = content["history_size"]
        try:
            data = self._history.read_bytes()[:size]
        except OSError as error:
            raise Damaged(f"no history beside it ({error})") from error
        if len(data) < size:
            raise Damaged(f"{self._history.name} with a last line that is torn or missing")
        sha = hashlib.sha256(data)
        if sha.hexdigest() != content["history_sum"]:
            raise Damaged(f"{self._history.name} with a line that was changed")
        history = [_round(line) for line in data.splitlines()[1:]]
        self._written, self._size, self._sum = len(history), size, sha
        return history


class NoFolder(Folder):
    """A folder that saves nothing, for a run without checkpoints."""

    def load(self, device: torch.device) -> None:
        return None

    def save(self, result: Result, unscored: Round | None = None) -> Path:
        return self.path

    def stop(self, rounds: int) -> None:
        return None


def _name(rounds: int) -> str:
    return f"round-{rounds:06d}.ckpt"


def _round(line: str | bytes) -> Round:
    """The round in a line of the history.

    Files of older versions may have other entries.
    """
    saved = json.loads(line)
    record = {each.name: saved[each.name] for each in fields(Round) if each.name in saved}
    record["dropped"] = {int(client): reason for client, reason in saved.get("dropped", {}).items()}
    return Round(**record)


def _line(record: Round) -> str:
    return json.dumps(asdict(record))


def _pack(
    identity: Mapping[str, Any],
    result: Result,
    size: int,
    history_sum: str,
    unscored: Round | None = None,
) -> bytes:
    """The bytes that `torch.save` writes for a checkpoint."""
    shared = isinstance(result.outbox, Broadcast)
    content = {
        "identity": json.dumps(identity),
        "history_size": size,
        "history_sum": history_sum,
        "num_clients": len(result.outbox),
        "shared": shared,
        "outbox": result.outbox[0] if shared else dict(result.outbox),
        "server_state": dict(result.server_state),
        "client_states": result.client_states,
        "older": {
            number: {"outbox": _plain(outbox), "server_state": dict(state)}
            for number, (outbox, state) in enumerate(result.older)
        },
        "form": json.dumps(result.form),
        "unprotected": json.dumps(result.unprotected),
    }
    content |= {} if unscored is None else {"unscored": _line(unscored)}
    content["on_processor"] = json.dumps(_on_processor(content))
    buffer = io.BytesIO()
    torch.save(content, buffer)
    return buffer.getvalue()


def write_sealed(path: Path, payload: bytes) -> None:
    """Write a file that only its owner can read: a format number, a checksum and the payload."""
    disk.write_whole(path, _sealed(payload), private=True)


def read_sealed(path: Path) -> bytes | None:
    """The payload of a file that `write_sealed` wrote; None if the file is damaged.

    Raises:
        ValueError: if the file is undamaged but has an unknown format.
    """
    data = path.read_bytes()
    version = _version(data)
    if version is None:
        return None
    if version != FORMAT:
        age = "an older" if version < FORMAT else "a newer"
        raise ValueError(
            f"Expected checkpoint {path} to be of format {FORMAT}, but got format {version} of "
            f"{age} fgl: go on with that version, or take another folder"
        )
    return data[len(HEAD) + SUM :]


def _sealed(payload: bytes) -> bytes:
    return HEAD + hashlib.sha256(HEAD + payload).digest() + payload


def _read(path: Path) -> dict[str, Any]:
    """The content of a file of this format."""
    try:
        payload = read_sealed(path)
    except OSError as error:
        raise Damaged(str(error)) from error
    if payload is None:
        raise Damaged("a truncated or changed file")
    return dict(torch.load(io.BytesIO(payload), map_location="cpu", weights_only=True))


def _version(data: bytes) -> int | None:
    """The format number of a file; None if the file is damaged.

    A file without a number has format 1.
    """
    match = re.match(rb"fgl-ckpt (\d{1,9})\n", data)
    head, summed = (match[0], match[0]) if match else (b"fgl-ckpt", b"")
    rest = data[len(head) :]
    if not data.startswith(head) or hashlib.sha256(summed + rest[SUM:]).digest() != rest[:SUM]:
        return None
    return int(match[1]) if match else 1


def _check_identity(path: Path, theirs: dict[str, Any], ours: Mapping[str, Any]) -> None:
    expected = json.loads(json.dumps(ours))
    others = [key for key in theirs if key not in expected] if expected else []  # {} fits any run
    for key in [*expected, *others]:
        value, other = expected.get(key), theirs.get(key)
        if key == "evaluate" and None in (value, other):  # rounds without scores say so themselves
            continue
        if isinstance(value, dict) and isinstance(other, dict):  # name the entry that differs
            keys = [k for k in value | other if value.get(k) != other.get(k)]
            value, other = ({k: each.get(k) for k in keys} for each in (value, other))
        got = f"{other}{HINTS.get(key, ': take another folder for another run')}"
        reject_if(other != value, f"checkpoint {path} to be of this run with {key}={value}", got)


def _unpack(content: dict[str, Any], history: list[Round], device: torch.device) -> Result:
    stays = set(json.loads(content.get("on_processor", "[]")))  # older files: all tensors move
    parts = (_placed(content.get(part, {}), device, stays, part) for part in PARTS)
    outbox, server, states, older = parts  # older files lack some parts
    size = content["num_clients"]
    outbox = Broadcast(outbox, size) if content["shared"] else outbox
    before = [(_outbox(each["outbox"], size), each["server_state"]) for each in older.values()]
    form = json.loads(content.get("form", "{}"))
    result = Result(outbox, server, states, history, form, before)
    unprotected = json.loads(content.get("unprotected", "{}"))
    result.unprotected = {int(client): answers for client, answers in unprotected.items()}
    return result


def _plain(outbox: Mapping[int, Any]) -> dict[Any, Any]:
    """An outbox as a dict.

    If all clients get the same message, it is stored as one entry.
    """
    return {"everybody": outbox[0]} if isinstance(outbox, Broadcast) else dict(outbox)


def _outbox(plain: Mapping[Any, Any], size: int) -> Mapping[int, Any]:
    """The outbox, rebuilt from a dict that `_plain` returned."""
    return Broadcast(plain["everybody"], size) if "everybody" in plain else plain


def _on_processor(content: Mapping[str, Any]) -> list[str]:
    """Paths of the tensors that a run on a GPU holds on the CPU, such as the server's tensors.

    A resume leaves the listed tensors on the CPU. If all tensors of the run are on the CPU, the
    list is empty. A resume of such a run on a GPU then moves every tensor to the GPU.
    """
    pairs = [pair for part in PARTS for pair in _tensors(content.get(part, {}), part)]
    here = [path for path, tensor in pairs if tensor.device.type == "cpu"]
    return here if len(here) < len(pairs) else []


def _tensors(value: Any, path: str) -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from _tensors(part, f"{path}/{key}")
    else:
        yield path, value


def _placed(value: Any, device: torch.device, stays: Collection[str], path: str) -> Any:
    """Move the tensors of a saved value to a device, except tensors at the paths in `stays`."""
    if isinstance(value, Mapping):
        return {key: _placed(part, device, stays, f"{path}/{key}") for key, part in value.items()}
    return value if path in stays else value.to(device)
