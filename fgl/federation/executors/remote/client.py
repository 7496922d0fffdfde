"""A client on its own machine: what it agrees on with its server, trains, keeps and scores."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch

from ....graph import Graph
from ...gate.guard import checked
from ...method.message import Message, to
from ...method.method import Method, State
from ...saved.checkpoint import read_sealed, write_sealed
from ...saved.identity import identity
from ...training.train import in_mode
from .. import Answer, Value
from ..loop import Loop, Score
from .problems import Refusal
from .wire import pack, unpack


class Note(NamedTuple):
    """What the server writes to a client beside its message.

    Args:
        run: number of the run, another one for every run that starts anew.
        seed: of the run.
        round: its number, from 0.
        client: who this client is.
        base: the round after which the server last took this client's message, and so the state
            that counts; -1 where that is the empty one.

    Example:
        >>> Note(run=7, seed=0, round=3, client=1, base=2).base
        2
    """

    run: int
    seed: int
    round: int
    client: int
    base: int


class Shelf(Protocol):
    """Where a client keeps its states, by round: in a folder, or in the memory of its node."""

    def read(self, index: int) -> bytes | None: ...
    def write(self, index: int, payload: bytes) -> None: ...
    def rounds(self) -> list[int]: ...
    def drop(self, index: int) -> None: ...


class StateFolder:
    """A shelf in a folder: each state is a file with a checksum, whole or not there.

    Example:
        >>> import tempfile
        >>> shelf = StateFolder(tempfile.mkdtemp(), run=7, client=1)
        >>> shelf.write(3, b"state")
        >>> shelf.rounds(), shelf.read(3), shelf.read(4)
        ([3], b'state', None)
    """

    def __init__(self, root: str | Path, run: int, client: int) -> None:
        self.folder = Path(root) / f"run-{run:016x}" / f"client-{client}"

    def _path(self, index: int) -> Path:
        return self.folder / f"round-{index:06d}.state"

    def read(self, index: int) -> bytes | None:
        path = self._path(index)
        return read_sealed(path) if path.exists() else None

    def write(self, index: int, payload: bytes) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        write_sealed(self._path(index), payload)

    def rounds(self) -> list[int]:
        names = [path.name for path in self.folder.glob("*.state")]  # others' are left alone
        found = [re.fullmatch(r"round-(\d{6,})\.state", name) for name in names]
        return sorted(int(each[1]) for each in found if each)

    def drop(self, index: int) -> None:
        self._path(index).unlink(missing_ok=True)


def agreement(method: Method, config: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """What a server and its clients must agree on before they can have the bits of one process.

    Args:
        method: its model with its first parameters, its training, the names of its functions.
        config: JSON-able values that hide in these functions.

    Returns:
        JSON-able values by name; torch's number of threads and the versions are among them.

    Example:
        >>> sorted(agreement(fgl.fedavg(torch.nn.Linear(1, 1))))[-3:]
        ['silent', 'threads', 'torch']
    """
    said = identity(method, 0, 1.0, 0.0, config)
    for name in ("seed", "participation", "dropouts", "max_examples", "max_change"):
        del said[name]
    said["torch"], said["fgl"] = str(torch.__version__), sys.modules["fgl"].__version__
    text = re.sub(r" #[0-9a-f]{16}", "", json.dumps(said))  # of tensors that may be a client's own
    agreed: dict[str, Any] = json.loads(text)
    return agreed


def check_agreement(client: int, got: Mapping[str, Any], want: Mapping[str, Any]) -> None:
    """Raise a ValueError that names the first thing in which a client differs from its server.

    Example:
        >>> check_agreement(2, {"threads": 2}, {"threads": 1})
        Traceback (most recent call last):
        ValueError: Expected client 2 to have the server's threads, 1, but got 2
    """
    for name in {**want, **got}:
        if got.get(name) != want.get(name):
            raise ValueError(
                f"Expected client {client} to have the server's {name}, {want.get(name)}, "
                f"but got {got.get(name)}"
            )


def answer(
    method: Method, graph: Graph, note: Note, message: Message, shelf: Shelf
) -> tuple[Answer, bool]:
    """A client's round, as `Loop` plays it, and whether it keeps a state of it.

    The new state lies beside the one that counts, so the same question has the same answer.

    Raises:
        ValueError: if the state that counts is not on the shelf; and all that the method raises.

    Example:
        >>> import tempfile
        >>> graph = fgl.Graph(torch.eye(2), torch.tensor([[0], [1]]), y=torch.tensor([0, 1]))
        >>> method = fgl.fedavg(fgl.nn.GCN(2, 8, 2))
        >>> note, shelf = Note(7, 0, 0, 1, -1), StateFolder(tempfile.mkdtemp(), 7, 1)
        >>> made, keeps = answer(method, graph, note, {"model": method.initial()}, shelf)
        >>> list(made.message), keeps
        (['model', 'num_examples'], False)
    """
    with _loop(method, graph, note, shelf) as loop:
        ((_, made),) = loop.train(note.round, {note.client: message}, [note.client])
        loop.keep(note.round, [note.client])
    new = loop.states[note.client]
    if new:
        shelf.write(note.round, pack(new))
    older = [index for index in shelf.rounds() if index < note.base]
    for index in {*shelf.rounds()} - {note.base, note.round, *older[-1:]}:
        shelf.drop(index)  # the one before: a server may go back to its last but one checkpoint
    return made, bool(new)


def scores(
    method: Method, graph: Graph, note: Note, message: Message, shelf: Shelf, score: Score
) -> dict[str, Value]:
    """A client's own score of the model that it deploys.

    Example:
        >>> import tempfile
        >>> method = fgl.fedavg(torch.nn.Linear(1, 1))
        >>> note, shelf = Note(7, 0, 0, 1, -1), StateFolder(tempfile.mkdtemp(), 7, 1)
        >>> message, score = {"model": method.initial()}, lambda params, graph: {"hits": (1, 2)}
        >>> scores(method, fgl.Graph(torch.eye(1), torch.zeros(2, 0).long()), note, message, shelf,
        ...        score)
        {'hits': (1, 2)}
    """
    with _loop(method, graph, note, shelf, score) as loop:
        return loop.score(note.round, {note.client: message})[note.client]


@contextmanager
def _loop(
    method: Method, graph: Graph, note: Note, shelf: Shelf, score: Score | None = None
) -> Iterator[Loop]:
    """A loop of one client, with the state that counts; modes and random state are put back."""
    states = {note.client: to(_state(note, shelf), graph.device)}
    cuda = [graph.device] if graph.device.type == "cuda" else []
    with torch.random.fork_rng(cuda), in_mode(method.model, False):
        yield Loop(
            checked(method), {note.client: graph}, seed=note.seed, states=states, score=score
        )


def _state(note: Note, shelf: Shelf) -> State:
    if note.base < 0:
        return {}
    payload = shelf.read(note.base)
    if payload is None:
        raise Refusal(
            f"Expected client {note.client} to have kept its state of round {note.base}, "
            f"but got {shelf.rounds() or 'none'}"
        )
    return unpack(payload)
