"""A Flower grid in one process: it calls the client apps itself, and loses what it is told to."""

from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace
from typing import Any

import flwr.supercore.task_identity as identity
from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.serde import recorddict_from_proto, recorddict_to_proto

import fgl
from fgl.federation import client_app
from fgl.federation.executors.remote.shelf import StateFolder
from fgl.federation.executors.remote.wire import pack, unpack

# Methods of the conformance table that are run over Flower, each on a task.
RECIPES = [
    ("fgssl", "nodes"), ("fedgl", "overlapping"), ("fedego", "ego"), ("gpfl", "graphs"),
    ("fedvgae", "own"), ("fedper", "nodes"), ("feddep", "deep"), ("fedamp", "graphs"),
    ("fedopt adam", "links"), ("fedprox", "float targets"), ("fedavg", "half-known answers"),
    ("moon", "a PyG model"), ("fedavg", "molecules"), ("fedavg", "windows"),
    ("fedprox", "positions"), ("fedper", "triples"), ("fedavg", "next edges"), ("fedavg", "types"),
    ("opfgl drawn", "nodes"), ("secure sum", "nodes"), ("summed gaussian drawn", "nodes"),
    ("DP-SGD drawn", "rows"),
]  # fmt: skip

# What becomes of a reply: it may change it, or give Flower's error, or None for no reply at all.
Fault = Callable[[str, int, int, Message], Message | Error | None]


def as_sent(content: RecordDict) -> RecordDict:
    """What is left of records after they crossed the wire."""
    return recorddict_from_proto(recorddict_to_proto(content))


class Grid:
    """Nodes 100, 101, ... with an app each; `fault` sees the kind, the node and how often asked.

    What nodes say of who they are goes through `met`, if there is one.
    """

    def __init__(
        self,
        apps: Sequence[ClientApp],
        fault: Fault | None = None,
        met: Fault | None = None,
        **node: Any,
    ) -> None:
        identity.TaskIdentity.run_id = identity.TaskIdentity.task_id = 1
        identity.TaskIdentity.node_id = 1
        self.apps = {100 + k: app for k, app in enumerate(apps)}
        self.contexts = {
            100 + k: Context(1, 100 + k, {**node, "client": k}, RecordDict(), {})
            for k in range(len(apps))
        }
        self.fault, self.met, self.asked, self.gone = fault, met, [], set()
        self.replies: dict[str, Message | None] = {}

    def add(self, node: int, *, like: int) -> None:
        """Another node that says it is the same client."""
        self.apps[node] = self.apps[like]
        config = self.contexts[like].node_config
        self.contexts[node] = Context(1, node, config, RecordDict(), {})

    def get_nodes(self) -> list[Any]:
        here = [node for node in self.apps if node not in self.gone]
        return [
            SimpleNamespace(node_id=n, name=f"clinic {n}", public_key=str(n).encode()) for n in here
        ]

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        numbers = []
        for message in messages:
            number = f"m{len(self.replies)}"
            message.metadata.__dict__["_message_id"] = number
            message.content = as_sent(message.content)
            self.replies[number] = self._reply(message)
            numbers.append(number)
        return numbers

    def _reply(self, message: Message) -> Message | None:
        node, kind = message.metadata.dst_node_id, message.metadata.message_type
        self.asked.append((kind, node))
        try:
            reply = self.apps[node](message, self.contexts[node])
            reply.content = as_sent(reply.content)
        except Exception as error:  # as Flower tells it
            return Message(Error(2, f"{type(error).__name__}:<'{error}'>"), reply_to=message)
        fault = self.met if kind == "query" else self.fault
        if fault is None:
            return reply
        made = fault(kind, node, self.asked.count((kind, node)), reply)
        return Message(made, reply_to=message) if isinstance(made, Error) else made

    def pull_messages(self, numbers: Iterable[str]) -> list[Message]:
        found = [(number, self.replies.get(number)) for number in numbers]
        for number, reply in found:
            if reply is not None:
                reply.metadata.__dict__["_reply_to_message_id"] = number
                self.replies[number] = None
        return [reply for _, reply in found if reply is not None]


def spoiled(reply: Message, change: Callable[[Any], None]) -> Message:
    """A reply whose message was changed on its way."""
    array = reply.content.array_records["message"]["packed"]
    message = unpack(array.data)
    change(message)
    array.data = pack(message)
    return reply


def apps(method: fgl.Method, clients: Sequence[fgl.Graph], **options: Any) -> list[ClientApp]:
    """One app for each client, which knows its own graph alone."""

    def app(client: int) -> ClientApp:
        return client_app(lambda context: (method, clients[client], client), **options)

    return [app(client) for client in range(len(clients))]


def kept(root: Any, states: Any) -> dict[int, Any]:
    """What clients keep in a folder, for those that the server knows to keep something."""
    found = {}
    for client, state in sorted(states.items()):
        if state["round"] < 0:
            continue
        payload = StateFolder(root, int(state["run"]), client).read(int(state["round"]))
        assert payload is not None
        found[client] = unpack(payload)
    return found
