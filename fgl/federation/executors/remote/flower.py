"""The Flower executor: clients on their own computers, reached through Flower's SuperLink."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid

from ....checks import check_count, check_number, reject_if
from ....graph import Graph
from ...method.message import Message as Sent
from ...method.message import State, leaves, to
from ...method.method import Method
from ...method.rules import without_noise
from .. import Answer
from ..loop import Score
from .client import (
    Note,
    agreement,
    answer,
    check_agreement,
    check_approved,
    check_width,
    joined,
    plan,
    scores,
)
from .executor import RemoteClients
from .ledger import Ledger
from .replies import LOG, Refusal, Reply, during, logged, refusing, told
from .shelf import Shelf, StateFolder, make_room
from .wire import names, pack, unpack

Build = Callable[[Context], tuple[Any, ...]]
RUNS = 20  # that a client's folder keeps
NO_FOLDER = (
    "Expected a state folder (state='...' in the node config), since the method has noise or "
    "secrets, but got none: two questions at the same moment get two answers"
)


def client_app(
    build: Build,
    *,
    score: Callable[[Method], Score] | None = None,
    mods: Sequence[Any] = (),
    full_errors: bool = False,
) -> ClientApp:
    """A client's Flower app; it trains on the client's graph as a run in one process would.

    The node config of the site defines what the site allows. ``state`` is a folder for the client's
    states, the client's replies and the site's ledger. Without a folder, states and replies are
    lost when the SuperNode ends, and there is no ledger. ``epsilon`` and ``delta`` (default 1e-5)
    are the privacy budget for all answers of the site together. ``approved`` is a file with the
    plans of approved runs, one per line. By default all runs are approved. If ``approved`` is set,
    ``state`` is required, and all settings of a run must be known. ``runs`` is the number of runs
    that the folder keeps (default 20).

    Args:
        build: ``context -> method, graph, client``. The function uses this computer's data and the
            sizes in the context's run config. An optional fourth value is the client's config. The
            config must be equal to the `config` of the server's `fgl.run`.
        score: ``method -> (params, graph) -> metrics``. After each round, the returned function
            scores the model that the client deploys. A rate is a pair of a sum and its divisor.
            Default none.
        mods: Flower mods that wrap the app's answers to training requests. If a mod reads tensors,
            the server must use `Flower` with ``per_tensor=True``.
        full_errors: whether the server gets the text of an error at the client. By default the
            server gets only the error's stage and type, since the text may quote the data. The
            SuperNode's log contains the whole error.

    Returns:
        The client app. The ``pyproject.toml`` of a Flower app must name this app.
    """

    def query(message: Message, context: Context) -> Message:
        method, graph, client, config = _built(build, context)
        check_width(method, graph, client)
        values = {"client": client, "agreement": json.dumps(agreement(method, config))}
        scores = score is not None and "epsilon" not in context.node_config  # they have no noise
        return Message(_records({**values, "scores": scores}), reply_to=message)

    def train(message: Message, context: Context) -> Message:
        with _asked(build, message, context) as (method, graph, note, sent, shelf, ledger):
            return _answered(message, note, *answer(method, graph, note, sent, shelf, ledger))

    def join(message: Message, context: Context) -> Message:
        with _asked(build, message, context) as (method, graph, note, _, shelf, ledger):
            return _answered(message, note, joined(method, graph, note, shelf, ledger), False)

    def evaluate(message: Message, context: Context) -> Message:
        if score is None:
            raise Refusal("Expected the client app to have a score, but got none")
        with _asked(build, message, context) as (method, graph, note, sent, shelf, ledger):
            ledger.check(without_noise(sent))
            scores_text = json.dumps(scores(method, graph, note, sent, shelf, score(method)))
            ledger.charge(without_noise(sent), num_bytes=len(scores_text))
        values = {**note._asdict(), "metrics": scores_text}
        return Message(_records(values), reply_to=message)

    def telling(message: Message, context: Context, call_next: Any) -> Message:
        """The outermost Flower mod: it replies with an error record if the app raises an error."""
        kind = message.metadata.message_type
        try:
            reply: Message = call_next(message, context)
        except Exception as error:
            logged(error, kind)
            return Message(_records(told(error, kind, full=full_errors)), reply_to=message)
        return reply

    app = ClientApp(mods=[telling])
    app.query()(query)
    app.query("join")(join)
    app.train(mods=list(mods))(train)
    app.evaluate()(evaluate)
    return app


def _answered(question: Message, note: Note, reply: Answer, keeps: bool) -> Message:
    """Build Flower's reply from a client's answer.

    The reply is a single array if the request was a single array.
    """
    one, sent = "packed" in question.content.array_records["message"], reply.message or {}
    values = {"keeps": keeps, "num_examples": reply.num_examples, "losses": reply.losses}
    values |= {"paid": reply.paid} if reply.paid else {}
    values |= {**note._asdict(), "names": json.dumps(names(sent))}
    return Message(_records(values, _arrays(sent, per_tensor=not one)), reply_to=question)


def _built(build: Build, context: Context) -> tuple[Method, Graph, int, Mapping[str, Any]]:
    with during("build"):
        method, graph, client, *config = build(context)
        with refusing():
            check_number("client", client, at_least=0, integer=True)
    return method, graph, client, config[0] if config else {}


@contextmanager
def _asked(
    build: Build, message: Message, context: Context
) -> Iterator[tuple[Method, Graph, Note, Sent, Shelf, Ledger]]:
    """A context that yields a client's data and the content of a request.

    If there is no answer, the ledger records the reason.
    """
    method, graph, client, config = _built(build, context)
    values: Any = message.content.config_records["note"]
    note = Note(*(int(values[name]) for name in Note._fields))
    own, site = agreement(method, config), context.node_config
    about: dict[str, Any] = {"kind": message.metadata.message_type, "flower run": context.run_id}
    about |= {"run": f"{note.run:016x}", "round": note.round, "client": client}
    about |= {"method": repr(method), "plan": plan(own)}
    root = str(site["state"]) if "state" in site else None
    budget: Any = {name: site[name] for name in ("epsilon", "delta") if name in site}
    with refusing():
        ledger = Ledger(root, about, **budget)
    with ledger.refusals():
        with refusing():
            note.check()
        if note.client != client:
            got = note.client
            raise Refusal(f"Expected a message for client {client}, but got one for {got}")
        with refusing():
            check_agreement(client, own, json.loads(values["agreement"]))
        check_approved(site.get("approved"), about["plan"], method.unknown, root)
        if root is None and not context.state and (method.privacy.onward or method.privacy.account):
            LOG.warning(NO_FOLDER)
        shelf = _shelf(context, note, root, ledger)
        yield method, graph, note, to(_read(message.content), graph.device), shelf, ledger


def _shelf(context: Context, note: Note, root: str | None, ledger: Ledger) -> Shelf:
    """Open the storage for a client's states and replies.

    If the site stores too many runs, the oldest runs are removed.
    """
    most: Any = context.node_config.get("runs", RUNS)
    check_number("runs", most, at_least=1, integer=True)
    if root is None:
        return _Memory(context, note, most)
    for name in make_room(root, note.run, most):
        ledger.note(removed=name)
    return StateFolder(root, note.run, note.client)


class _Memory:
    """A shelf in a SuperNode's memory: one record for each round."""

    def __init__(self, context: Context, note: Note, most: int) -> None:
        self.state, self.prefix = context.state, f"fgl-{note.run}-{note.client}-"
        runs = dict.fromkeys(key.rpartition("-")[0] + "-" for key in self.state)
        others = [run for run in runs if run.startswith("fgl-") and run != self.prefix]
        for run in others[: max(len(others) - most + 1, 0)]:
            for key in [key for key in self.state if key.startswith(run)]:
                del self.state[key]

    def _record(self, index: int, kind: str) -> tuple[str, dict[str, Any]]:
        key = f"{self.prefix}{kind if kind == 'onward' else index}"
        record: Any = self.state.get(key, {})
        return key, dict(record)

    def read(self, index: int, kind: str = "state") -> bytes | None:
        content: bytes | None = self._record(index, kind)[1].get(kind)
        return content

    def write(self, index: int, payload: bytes, kind: str = "state") -> None:
        key, record = self._record(index, kind)
        self.state[key] = ConfigRecord({**record, kind: payload})

    def rounds(self, kind: str = "state") -> list[int]:
        mine = [key.removeprefix(self.prefix) for key in self.state if key.startswith(self.prefix)]
        return sorted(int(each) for each in mine if each.isdigit() and self.read(int(each), kind))

    def drop(self, index: int, kind: str = "state") -> None:
        key, record = self._record(index, kind)
        del self.state[key], record[kind]
        if record:
            self.state[key] = ConfigRecord(record)

    def alone(self) -> AbstractContextManager[Any]:
        return nullcontext()  # apps that run at once have copies: only a folder locks


def _records(values: Mapping[str, Any], arrays: ArrayRecord | None = None) -> RecordDict:
    note = {key: str(value) if type(value) is int else value for key, value in values.items()}
    records: dict[str, Any] = {"note": ConfigRecord(note)}  # an integer may have any size
    return RecordDict(records if arrays is None else {**records, "message": arrays})


def _arrays(sent: Sent, *, per_tensor: bool) -> ArrayRecord:
    """A message's arrays: one Flower array for the whole message, or one per tensor."""
    if per_tensor:
        return ArrayRecord({path: Array(t.detach().cpu().numpy()) for path, t in leaves(sent)})
    data = pack(sent)
    return ArrayRecord({"packed": Array("uint8", (len(data),), "safetensors", data)})


def _read(content: RecordDict) -> Sent:
    """The message in Flower's records."""
    arrays = content.array_records["message"]
    if "packed" in arrays:
        return unpack(arrays["packed"].data)

    def tensor(path: str) -> torch.Tensor:
        return torch.from_numpy(left.pop(path).numpy().copy())  # each once

    left, note = dict(arrays), content.config_records["note"]
    return {
        name: tensor(name) if inner is None else {key: tensor(f"{name}/{key}") for key in inner}
        for name, inner in json.loads(str(note["names"]))
    }


@dataclass(frozen=True)
class Flower:
    """Clients reached through Flower: ``fgl.run(method, Flower(grid, num_clients=4), ...)``.

    Args:
        grid: the grid that Flower passes to a ServerApp's main function.
        num_clients: number of clients in the federation, including absent clients.
        timeout: seconds that each round waits for answers. Before the first round, the server waits
            up to this time for all clients to register.
        names: one text per client, in the clients' order. The text identifies the client's
            SuperNode: it is the registered name, or the public key in hexadecimal digits. By
            default, client k is the first node that claims the number k.
        per_tensor: whether to send one array for each tensor, so that Flower's own mods can read
            the tensors. One array per tensor is slower than one array per message, and does not
            support bfloat16.
        poll: seconds between two checks for answers. Every ``10 * poll`` seconds, the server checks
            for new nodes.
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
        want = f"names to be {self.num_clients}, one per client"
        reject_if(self.names and len(self.names) != self.num_clients, want, len(self.names))

    @property
    def devices(self) -> Sequence[torch.device]:
        return []

    def check(self, method: Method) -> None:
        """Do nothing, since each client's computer checks whether the method can run there."""

    def evaluate(self, method: Method, *, each: bool = False) -> None:
        """Return None: clients score their own models, and the server scores nothing."""

    def identity(self, method: Method) -> Mapping[str, Any]:
        return {"clients": self.num_clients, "clients_at_once": 1}

    def __call__(
        self, method: Method, *, seed: int, states: Mapping[int, State], config: Mapping[str, Any]
    ) -> RemoteClients:
        """The executor of a run."""
        return RemoteClients(self, method, seed=seed, states=states, config=config)

    # The methods below make a `Post`, by which `RemoteClients` reaches the clients.

    def nodes(self) -> dict[int, tuple[str, ...]]:
        return {node.node_id: (node.name, node.public_key.hex()) for node in self.grid.get_nodes()}

    def letters(
        self, notes: Mapping[int, Mapping[str, Any]], messages: Mapping[int, Sent]
    ) -> dict[int, RecordDict]:
        arrays: dict[int, ArrayRecord] = {}  # one for all clients with the same message
        contents = {}
        for client, sent in messages.items():
            if id(sent) not in arrays:
                arrays[id(sent)] = _arrays(sent, per_tensor=self.per_tensor)
            note = {**notes[client], "names": json.dumps(names(sent))}
            contents[client] = _records(note, arrays[id(sent)])
        return contents

    def push(
        self, kind: str, contents: Mapping[int, RecordDict | None], ttl: float
    ) -> dict[int, str]:
        messages = {
            node: Message(content or RecordDict(), node, kind, ttl=max(ttl, 1.0))
            for node, content in contents.items()
        }
        taken = set(self.grid.push_messages(list(messages.values()))) if messages else set()
        numbers = {node: message.metadata.message_id for node, message in messages.items()}
        return {node: number for node, number in numbers.items() if number in taken}

    def pull(self, numbers: Sequence[str]) -> Iterator[Reply]:
        for message in self.grid.pull_messages(list(numbers)):
            metadata, error = message.metadata, None
            if message.has_error():
                lines = (message.error.reason or "").strip().splitlines() or [""]
                code = message.error.code
                error = code, f"Flower's error {code}: {lines[-1].strip()}"
            content = None if error else message.content
            yield Reply(metadata.reply_to_message_id, metadata.src_node_id, error, content)

    def note(self, content: RecordDict) -> Mapping[str, Any]:
        if "note" not in content.config_records:
            raise ValueError(f"The reply has no note, but {sorted(content)}")
        note: Mapping[str, Any] = content.config_records["note"]
        return note

    def size(self, content: RecordDict) -> tuple[int, int]:
        arrays: list[Any] = list(content.array_records.values())
        beside: list[Any] = [*content.config_records.values(), *content.metric_records.values()]
        names = sum(len(key) for record in (content, *arrays, *beside) for key in record)
        upload = sum(len(array.data) for record in arrays for array in record.values())
        return upload, names + sum(_length(v) for record in beside for v in record.values())

    def message(self, content: RecordDict) -> Sent:
        return _read(content)


def _length(value: Any) -> int:
    """Approximate size of a record's entry in bytes."""
    if isinstance(value, list):
        return sum(map(_length, value))
    return len(value) if isinstance(value, str | bytes) else 8
