"""The Flower executor: clients on machines of their own, reached through Flower's SuperLink."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid

from ....checks import check_count, check_number
from ....graph import Graph
from ...method.message import Message as Sent
from ...method.message import leaves, to
from ...method.method import Method, State
from ..loop import Score
from .client import Note, Shelf, StateFolder, agreement, answer, check_agreement, scores
from .executor import RemoteClients
from .post import Reply
from .problems import Refusal, during, logged, refusing, told
from .wire import names, pack, unpack

Build = Callable[[Context], tuple[Any, ...]]


def client_app(
    build: Build,
    *,
    score: Callable[[Method], Score] | None = None,
    mods: Sequence[Any] = (),
    full_errors: bool = False,
) -> ClientApp:
    """The app of a client: it trains on its own graph, as the loop would, and sends.

    The folder that the node config names ``state`` keeps what the client keeps. Without one it
    lasts as long as the SuperNode.

    Args:
        build: ``context -> method, graph, client``: made of what this machine has, and of the sizes
            that the context's run config tells. A fourth value, if there is one, must be equal to
            the `config` of the server's `fgl.run`.
        score: ``method -> (params, graph) -> metrics``, the client's own score of the model that it
            deploys, after each round; a rate is a pair of a sum and what divides it. Default none.
        mods: Flower's mods around training; those that read tensors want `Flower`'s `per_tensor`.
        full_errors: whether the server is told the words of an error. Default its stage and type
            alone, since its words may quote the data; the SuperNode's log has all of it.

    Returns:
        The app that a Flower app's ``pyproject.toml`` names.
    """

    def query(message: Message, context: Context) -> Message:
        method, _, client, config = _built(build, context)
        said = {"client": client, "agreement": json.dumps(agreement(method, config))}
        return Message(_records({**said, "scores": score is not None}), reply_to=message)

    def train(message: Message, context: Context) -> Message:
        method, graph, note, sent, shelf = _asked(build, message, context)
        made, keeps = answer(method, graph, note, sent, shelf)
        said = {"keeps": keeps, "num_examples": made.num_examples, "losses": made.losses}
        one = "packed" in message.content.array_records["message"]
        sent = made.message or {}
        said |= {**note._asdict(), "names": json.dumps(names(sent))}
        return Message(_records(said, _arrays(sent, per_tensor=not one)), reply_to=message)

    def evaluate(message: Message, context: Context) -> Message:
        if score is None:
            raise Refusal("Expected the client app to have a score, but got none")
        method, graph, note, sent, shelf = _asked(build, message, context)
        found = scores(method, graph, note, sent, shelf, score(method))
        said = {**note._asdict(), "metrics": json.dumps(found)}
        return Message(_records(said), reply_to=message)

    def telling(message: Message, context: Context, call_next: Any) -> Message:
        """The outermost mod: an error of whatever is within becomes an answer."""
        kind = message.metadata.message_type
        try:
            reply: Message = call_next(message, context)
        except Exception as error:
            logged(error, kind)
            return Message(_records(told(error, kind, full=full_errors)), reply_to=message)
        return reply

    app = ClientApp(mods=[telling])
    app.query()(query)
    app.train(mods=list(mods))(train)
    app.evaluate()(evaluate)
    return app


def _built(build: Build, context: Context) -> tuple[Method, Graph, int, Mapping[str, Any]]:
    with during("build"):
        method, graph, client, *config = build(context)
        with refusing():
            check_number("client", client, at_least=0, integer=True)
    return method, graph, client, config[0] if config else {}


def _asked(
    build: Build, message: Message, context: Context
) -> tuple[Method, Graph, Note, Sent, Shelf]:
    """What a client has, and what it is asked."""
    method, graph, client, config = _built(build, context)
    said: Any = message.content.config_records["note"]
    note = Note(*(int(said[name]) for name in Note._fields))
    if note.client != client:
        raise Refusal(f"Expected a message for client {client}, but got one for {note.client}")
    with refusing():
        check_agreement(client, agreement(method, config), json.loads(said["agreement"]))
    root = context.node_config.get("state")
    shelf = _Memory(context, note) if root is None else StateFolder(str(root), note.run, client)
    return method, graph, note, to(_read(message.content), graph.device), shelf


class _Memory:
    """A shelf in the memory of a SuperNode."""

    def __init__(self, context: Context, note: Note) -> None:
        self.state, self.prefix = context.state, f"fgl-{note.run}-{note.client}-"

    def read(self, index: int) -> bytes | None:
        record: Any = self.state.get(f"{self.prefix}{index}", {})
        found: bytes | None = record.get("state")
        return found

    def write(self, index: int, payload: bytes) -> None:
        self.state[f"{self.prefix}{index}"] = ConfigRecord({"state": payload})

    def rounds(self) -> list[int]:
        mine = [key for key in self.state if key.startswith(self.prefix)]
        return sorted(int(key.removeprefix(self.prefix)) for key in mine)

    def drop(self, index: int) -> None:
        del self.state[f"{self.prefix}{index}"]


def _records(said: Mapping[str, Any], arrays: ArrayRecord | None = None) -> RecordDict:
    note = {key: str(value) if type(value) is int else value for key, value in said.items()}
    records: dict[str, Any] = {"note": ConfigRecord(note)}  # an integer may have any size
    return RecordDict(records if arrays is None else {**records, "message": arrays})


def _arrays(sent: Sent, *, per_tensor: bool) -> ArrayRecord:
    """A message as one of Flower's arrays, or one for each tensor."""
    if per_tensor:
        return ArrayRecord({path: Array(t.detach().cpu().numpy()) for path, t in leaves(sent)})
    data = pack(sent)
    return ArrayRecord({"packed": Array("uint8", (len(data),), "safetensors", data)})


def _read(content: RecordDict) -> Sent:
    """The message within Flower's records."""
    arrays = content.array_records["message"]
    if "packed" in arrays:
        return unpack(arrays["packed"].data)

    def tensor(path: str) -> torch.Tensor:
        return torch.from_numpy(left.pop(path).numpy().copy())  # each once

    left, said = dict(arrays), content.config_records["note"]
    return {
        name: tensor(name) if inner is None else {key: tensor(f"{name}/{key}") for key in inner}
        for name, inner in json.loads(str(said["names"]))
    }


@dataclass(frozen=True)
class Flower:
    """Where a run's clients are: ``fgl.run(method, on=Flower(grid, num_clients=4), ...)``.

    Args:
        grid: what Flower gives to a ServerApp's main function.
        num_clients: clients in the federation, present or not.
        timeout: seconds that a round waits for answers, and the first one for all to be there.
        names: who client 0, 1, ... is: the name, or the public key in hexadecimal digits, that its
            SuperNode is registered with. Default: the node that says so first.
        per_tensor: one array for each tensor, which Flower's own mods can read; it is slower, and
            knows no bfloat16.
        poll: seconds between two looks for answers; ten times that between two looks for nodes.
    """

    grid: Grid
    num_clients: int
    timeout: float = 600.0
    names: Sequence[str] = ()
    per_tensor: bool = False
    poll: float = 0.1

    def __post_init__(self) -> None:
        check_count(num_clients=self.num_clients)
        check_number("timeout", self.timeout, above=0)
        check_number("poll", self.poll, at_least=0)
        if self.names and len(self.names) != self.num_clients:
            raise ValueError(
                f"Expected names to be {self.num_clients}, one per client, "
                f"but got {len(self.names)}"
            )

    @property
    def devices(self) -> Sequence[torch.device]:
        return []

    def check(self, method: Method) -> None:
        """Each client says whether it can run the method."""

    def evaluate(self, method: Method) -> None:
        """Nothing but what the clients score."""

    def identity(self, method: Method) -> Mapping[str, Any]:
        return {"clients": self.num_clients, "clients_at_once": 1}

    def __call__(
        self, method: Method, *, seed: int, states: Mapping[int, State], config: Mapping[str, Any]
    ) -> RemoteClients:
        """The executor of a run."""
        return RemoteClients(self, method, seed=seed, states=states, config=config)

    # What follows is how `RemoteClients` reaches them: a `Post`.

    def nodes(self) -> dict[int, tuple[str, ...]]:
        there = self.grid.get_nodes()
        return {node.node_id: (node.name, node.public_key.hex()) for node in there}

    def letters(
        self, notes: Mapping[int, Mapping[str, Any]], messages: Mapping[int, Sent]
    ) -> dict[int, RecordDict]:
        arrays: dict[int, ArrayRecord] = {}  # one for all who are sent the same
        contents = {}
        for client, sent in messages.items():
            if id(sent) not in arrays:
                arrays[id(sent)] = _arrays(sent, per_tensor=self.per_tensor)
            told = {**notes[client], "names": json.dumps(names(sent))}
            contents[client] = _records(told, arrays[id(sent)])
        return contents

    def push(
        self, kind: str, contents: Mapping[int, RecordDict | None], ttl: float
    ) -> dict[int, str]:
        made = {
            node: Message(content or RecordDict(), node, kind, ttl=max(ttl, 1.0))
            for node, content in contents.items()
        }
        taken = set(self.grid.push_messages(list(made.values()))) if made else set()
        numbers = {node: message.metadata.message_id for node, message in made.items()}
        return {node: number for node, number in numbers.items() if number in taken}

    def pull(self, numbers: Sequence[str]) -> Iterator[Reply]:
        for message in self.grid.pull_messages(list(numbers)):
            told, error = message.metadata, None
            if message.has_error():
                lines = (message.error.reason or "").strip().splitlines() or [""]
                code = message.error.code
                error = code, f"Flower's error {code}: {lines[-1].strip()}"
            content = None if error else message.content
            yield Reply(told.reply_to_message_id, told.src_node_id, error, content)

    def note(self, content: RecordDict) -> Mapping[str, Any]:
        if "note" not in content.config_records:
            raise ValueError(f"Expected a reply with a note, but got {sorted(content)}")
        said: Mapping[str, Any] = content.config_records["note"]
        return said

    def size(self, content: RecordDict) -> tuple[int, int]:
        arrays: list[Any] = list(content.array_records.values())
        beside: list[Any] = [*content.config_records.values(), *content.metric_records.values()]
        names = sum(len(key) for record in (content, *arrays, *beside) for key in record)
        upload = sum(len(array.data) for record in arrays for array in record.values())
        return upload, names + sum(_length(v) for record in beside for v in record.values())

    def message(self, content: RecordDict) -> Sent:
        return _read(content)


def _length(value: Any) -> int:
    """Bytes of an entry of a record, about."""
    if isinstance(value, list):
        return sum(map(_length, value))
    return len(value) if isinstance(value, str | bytes) else 8
