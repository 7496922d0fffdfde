"""Checkpoints that are whole or not there, and know when they are not."""

from __future__ import annotations

import functools
import hashlib
import io
import json
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import torch

from ..graph import Graph
from ..sparse import SparseMatrix
from .history import Result, Round
from .inbox import Broadcast
from .message import leaves
from .method import Method

MAGIC = b"fgl-ckpt"
HEAD = len(MAGIC) + hashlib.sha256().digest_size
KEEP = 2
STAGES = ("loss", "receive", "send", "aggregate", "deploy", "accept")  # of a method


def save(folder: str | os.PathLike[str], identity: Mapping[str, Any], result: Result) -> Path:
    """Write ``round-N.ckpt`` atomically, with its checksum; the two newest are kept.

    `identity` is what a run must agree with to go on from this file, JSON-able.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    rounds = len(result.history)
    path = folder / _name(rounds)
    write_whole(path, _pack(identity, result))
    kept = {_name(number) for number in range(rounds - KEEP + 1, rounds + 1)}
    for other in folder.glob("round-*.ckpt*"):
        if other.name not in kept:  # older, half written, or of later rounds that were damaged
            other.unlink(missing_ok=True)
    return path


def write_whole(path: Path, payload: bytes) -> None:
    """Write a file with its checksum; whoever looks sees the old one or all of the new one."""
    partial = path.with_name(f"{path.name}.partial")
    with partial.open("wb") as file:
        file.write(MAGIC + hashlib.sha256(payload).digest() + payload)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)


def read_whole(path: Path) -> bytes | None:
    """What `write_whole` wrote; None where the file is damaged."""
    data = path.read_bytes()
    if hashlib.sha256(data[HEAD:]).digest() != data[len(MAGIC) : HEAD] or data[:8] != MAGIC:
        return None
    return data[HEAD:]


def stop(folder: str | os.PathLike[str], rounds: int) -> None:
    """Note that a callback ended the run after so many rounds."""
    partial = Path(folder) / "stopped.partial"
    partial.write_text(str(rounds))
    os.replace(partial, Path(folder) / "stopped")


def stopped_at(folder: str | os.PathLike[str]) -> int | None:
    """After how many rounds a callback ended the run, if one did."""
    note = Path(folder) / "stopped"
    return int(note.read_text()) if note.exists() else None


def load(
    folder: str | os.PathLike[str], identity: Mapping[str, Any], device: torch.device
) -> Result | None:
    """The newest whole checkpoint; a damaged one is named in a warning and passed over.

    Raises:
        ValueError: if the checkpoint is of another run.
    """
    for path in _newest_first(Path(folder)):
        content = _read(path)
        if content is not None:
            _check_identity(path, json.loads(content["identity"]), identity)
            return _unpack(content, device)
        warnings.warn(
            f"Expected {path} to be a whole checkpoint, but got a truncated or changed file; "
            "trying the previous one",
            stacklevel=3,
        )
    return None


def unpacked(payload: bytes) -> Result:
    """The result in a checkpoint that `read_whole` has read, whatever run it is of."""
    return _unpack(_content(payload), torch.device("cpu"))


def fingerprint(graphs: Sequence[Graph]) -> str:
    """A digest of everything that the graphs hold, in their order.

    Example:
        >>> one, two = (fgl.Graph(torch.eye(n), torch.zeros(2, 0).long()) for n in (1, 2))
        >>> fingerprint([one, two]) == fingerprint([two, one])
        False
    """
    digest = hashlib.blake2b(digest_size=8)
    for graph in graphs:
        for field in fields(graph):
            value = getattr(graph, field.name)
            digest.update(f"{field.name} {getattr(value, 'shape', value)}".encode())
            parts = [value]
            if isinstance(value, SparseMatrix):
                parts = [value.pattern.row, value.pattern.col, value.value]
            for part in (part for part in parts if isinstance(part, torch.Tensor)):
                digest.update(part.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def digest(result: Result) -> str:
    """A digest of the outbox and the states of a run.

    Example:
        >>> one, two = (Result({0: {"w": torch.full((1,), v)}}, {}, {}, []) for v in (1.0, 2.0))
        >>> digest(one) == digest(two)
        False
    """
    found = hashlib.blake2b(digest_size=8)
    states = [result.client_states[client] for client in sorted(result.client_states)]
    kept = [*result.outbox.values(), result.server_state, *states]
    for message in {id(message): message for message in kept}.values():
        for path, tensor in leaves(message):
            found.update(f"{path} {tensor.dtype} {list(tensor.shape)}".encode())
            flat = tensor.detach().cpu().contiguous().flatten()
            found.update(flat.view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def _name(rounds: int) -> str:
    return f"round-{rounds:06d}.ckpt"


def _newest_first(folder: Path) -> list[Path]:
    return sorted(folder.glob("round-*.ckpt"), reverse=True)


def _pack(identity: Mapping[str, Any], result: Result) -> bytes:
    shared = isinstance(result.outbox, Broadcast)
    content = {
        "identity": json.dumps(identity),
        "history": json.dumps([asdict(record) for record in result.history]),
        "num_clients": len(result.outbox),
        "shared": shared,
        "outbox": result.outbox[0] if shared else dict(result.outbox),
        "server_state": dict(result.server_state),
        "client_states": result.client_states,
    }
    buffer = io.BytesIO()
    torch.save(content, buffer)
    return buffer.getvalue()


def _read(path: Path) -> dict[str, Any] | None:
    payload = read_whole(path)
    return None if payload is None else _content(payload)


def _content(payload: bytes) -> dict[str, Any]:
    content: dict[str, Any] = torch.load(io.BytesIO(payload), map_location="cpu", weights_only=True)
    return content


def _check_identity(path: Path, theirs: dict[str, Any], ours: Mapping[str, Any]) -> None:
    for key, value in json.loads(json.dumps(ours)).items():
        other = theirs.get(key)
        if isinstance(value, dict) and isinstance(other, dict):  # name the one that differs
            keys = [k for k in value | other if value.get(k) != other.get(k)]
            value, other = ({k: each.get(k) for k in keys} for each in (value, other))
        if other != value:
            raise ValueError(
                f"Expected checkpoint {path} to be of this run with {key}={value}, but got {other}"
            )


def _unpack(content: dict[str, Any], device: torch.device) -> Result:
    outbox = _to(content["outbox"], device)
    if content["shared"]:
        outbox = Broadcast(outbox, content["num_clients"])
    history = []
    for record in json.loads(content["history"]):
        record["dropped"] = {int(client): why for client, why in record["dropped"].items()}
        history.append(Round(**record))
    states = {client: _to(state, device) for client, state in content["client_states"].items()}
    return Result(outbox, _to(content["server_state"], device), states, history)


def _to(value: Any, device: torch.device) -> Any:
    if isinstance(value, Mapping):
        return {key: _to(item, device) for key, item in value.items()}
    return value.to(device)


def identity(
    method: Method,
    clients: Sequence[Graph],
    seed: int,
    participation: float,
    dropouts: float | Callable[[int, int], bool],
    config: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """What a checkpoint must agree with before a run goes on from it."""
    return {
        "seed": seed,
        "participation": participation,
        "dropouts": "function" if callable(dropouts) else dropouts,
        "clients": [[graph.num_nodes, graph.num_edges, graph.num_train] for graph in clients],
        "model": {name: list(t.shape) for name, t in method.model.state_dict().items()},
        "num_steps": method.train.num_steps,
        "exchange": method.exchange,
        "adjust": method.train.adjust and _full_name(method.train.adjust),
        "settle": method.train.settle and _full_name(method.train.settle),
        "batches": method.train.batches and _full_name(method.train.batches),
        "max_grad_norm": method.train.max_grad_norm,
        "keep_optimizer": method.train.keep_optimizer,
        "optimizer": _full_name(method.train.optimizer),
        "config": dict(config or {}),
        "functions": {stage: _short_name(getattr(method, stage)) for stage in STAGES},
    }


def _full_name(function: Any) -> str:
    """A function by its name, with what `functools.partial` fixed."""
    if isinstance(function, functools.partial):
        return f"{_full_name(function.func)}{function.args}{sorted(function.keywords.items())}"
    named = function if hasattr(function, "__qualname__") else type(function)
    return f"{named.__module__}.{named.__qualname__}"  # never an address: those change


def _short_name(function: Any) -> str:
    """A function by its name alone: a script's module is another one where it is imported."""
    function = getattr(function, "func", function)  # of a `functools.partial`
    return str(getattr(function, "__qualname__", type(function).__qualname__))
