"""The executor of remote clients: it finds the clients' nodes, sends requests and repeats them."""

import json
import math
import secrets
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from ....checks import reject_if
from ....warn import warn
from ...gate.uploads import Limits
from ...history import of_whom, reason, shortened
from ...method.message import Message, State, to
from ...method.method import Method
from .. import Answer, Value
from . import replies
from .client import Note, agreement, check_agreement
from .replies import Post, Reply

AGAIN = (3, 4, 5, 8)  # errors that pass: a message or a node was lost, an app died
SLOWEST = 30.0  # seconds between two questions to an app that dies of each


class _Refused(NamedTuple):
    """A rejected node.

    `client` is the node's client number, or -1 if this number is unknown. `why` is the reason for
    the rejection.
    """

    client: int
    why: str
    taken: bool = False  # whether another node is this client; it may leave


@dataclass
class _Question:
    """A round's requests to clients, and the replies that have arrived."""

    kind: str
    contents: Mapping[int, Any]
    start: float
    end: float
    found: dict[int, Any | str] = field(default_factory=dict)
    pending: dict[str, tuple[int, int]] = field(default_factory=dict)  # message: client, node
    trouble: dict[int, str] = field(default_factory=dict)  # why a client is asked again
    again: dict[int, float] = field(default_factory=dict)  # not before this moment
    times: Counter[int] = field(default_factory=Counter)  # how often a client was asked

    def open(self) -> list[int]:
        """Clients that have not replied and that have no pending request from the server."""
        waiting = {client for client, _ in self.pending.values()}
        return [c for c in self.contents if c not in self.found and c not in waiting]


class RemoteClients:
    """Executor of clients at remote nodes; the network gives each node an id.

    The `states` of this executor do not contain the clients' own states. `states` maps each client
    to a dict of two numbers: the run, and the last round in which the server accepted the client's
    message. The client continues from its own state after that round. The second number is -1 if
    the client keeps no state.

    Args:
        post: sends messages to nodes.
        method: the method that server and clients run.
        seed: seed of the run.
        states: the states of the run so far.
        config: JSON values; the server's values and each client's values must be equal.
    """

    padding = 0.0
    one_by_one = ""
    elsewhere = True
    limits = Limits()

    def __init__(
        self,
        post: Post,
        method: Method,
        *,
        seed: int,
        states: Mapping[int, State],
        config: Mapping[str, Any],
    ) -> None:
        self.post, self.method, self.seed = post, method, seed
        self.num_clients = post.num_clients
        self.states: dict[int, State] = dict(states)
        runs: list[Any] = [state["run"] for state in states.values()]
        self.run = int(runs[0]) if runs else secrets.randbits(62)
        self.agreement = agreement(method, config)
        self.nodes: dict[int, int] = {}  # client to node
        self._strangers: dict[int, _Refused] = {}  # node: why
        self._there: dict[int, tuple[str, ...]] = {}  # node: its names
        self._queries: dict[str, tuple[int, float]] = {}  # nodes asked for their client, and when
        self._next_look = 0.0
        self._begun = False
        self._scoring: set[int] = set()
        self._keeps: dict[int, bool] = {}
        self._times: Mapping[int, int] = {}  # how often each client was asked the last question

    def join(self) -> Iterator[tuple[int, Answer]]:
        everybody: dict[int, Message] = {client: {} for client in range(self.num_clients)}
        for client, content in self._ask("query.join", 0, everybody).items():
            yield client, self._answer(0, client, content)

    def train(
        self, index: int, outbox: Mapping[int, Message], who: Sequence[int]
    ) -> Iterator[tuple[int, Answer]]:
        self._ask_again()
        first = not self._begun
        answers = self._ask("train", index, {client: outbox[client] for client in who})
        if first and who and not self.nodes:
            raise RuntimeError(
                f"Round {index}: no client can be asked: "
                f"{of_whom({client: str(answers[client]) for client in who})}"
            )
        for client in who:
            yield client, self._answer(index, client, answers[client])

    def keep(self, index: int, accepted: Sequence[int]) -> None:
        for client in accepted:
            base = index if self._keeps[client] else -1
            self.states[client] = {"run": torch.tensor(self.run), "round": torch.tensor(base)}
        self._keeps.clear()

    def score(self, index: int, outbox: Mapping[int, Message]) -> dict[int, dict[str, Value]]:
        if not self._begun:  # a run goes on with a round that it had not scored
            self._meet_all()
        sent = {client: outbox[client] for client in sorted(self._scoring)}
        by_client: dict[int, dict[str, Value]] = {}
        for client, content in self._ask("evaluate", index, sent).items():
            try:
                by_client[client] = replies.score(self._said(index, client, content), self.limits)
            except Exception as error:  # a client with a malformed score has none
                self._warn(index, client, reason(error))
        many = self.limits.too_many(by_client)
        for client, score in by_client.items() if many else ():
            by_client[client] = {name: value for name, value in score.items() if name not in many}
            if len(by_client[client]) < len(score):
                most = self.limits.metrics
                self._warn(index, client, f"Expected {most} metrics of all clients, but got more")
        return by_client

    def _warn(self, index: int, client: int, text: str) -> None:
        warn(f"Round {index}, client {client}, score: {text}")

    def _answer(self, index: int, client: int, content: Any | str) -> Answer:
        """Read a client's answer from its reply; an answer without a message states the problem."""
        tensors = self.method.model.state_dict().values()
        device = next((tensor.device for tensor in tensors), torch.device("cpu"))
        try:
            note = replies.trained(self._said(index, client, content))
            message = to(self.post.message(content), device)
            self._keeps[client] = note.keeps
            paid = self._paid(client, note.paid)
            return Answer(message, note.losses, note.num_examples, paid=paid)
        except Exception as error:  # a client may send anything
            return Answer(None, problem=reason(error), paid=self._paid(client, 0))

    def _paid(self, client: int, charged: int) -> int:
        """An upper bound on how many answers of a client had a privacy cost.

        The client's reply may state this number. The bound is then the stated number, but at most
        the number of requests to the client.

        If the reply does not state the number, the bound is the number of requests. The client may
        have computed a new answer with a new privacy cost for each request.
        """
        times = max(self._times.get(client, 1), 1)
        return min(charged, times) if charged > 0 else times

    def _said(self, index: int, client: int, content: Any | str) -> Any:
        """The note that a client added to an answer.

        If the client answered a different request, an error is raised.
        """
        if isinstance(content, str):
            raise ValueError(content)
        note = self.post.note(content)
        if problem := replies.said(note, self._site(self.nodes[client])):
            raise ValueError(problem)
        for name, value in self._note(index, client)._asdict().items():
            if note.get(name) != str(value):
                got = note.get(name)
                raise ValueError(f"Expected the answer to be of {name} {value}, but got {got}")
        return note

    def _note(self, index: int, client: int) -> Note:
        base = self.states.get(client, {}).get("round", -1)
        return Note(self.run, self.seed, index, client, int(base))

    def _ask(self, kind: str, index: int, messages: Mapping[int, Message]) -> dict[int, Any | str]:
        """Send requests and wait.

        Return each client's content, or the reason why the content is missing.
        """
        agreed = json.dumps(self.agreement)
        notes = {k: {**self._note(index, k)._asdict(), "agreement": agreed} for k in messages}
        contents = self.post.letters(notes, messages)
        start = time.monotonic()
        question = _Question(kind, contents, start, start + self.post.timeout)
        self._next_look = start  # the nodes that are connected now count
        while len(question.found) < len(contents):
            self._look()
            self._push(question)
            self._pull(question)
            self._give_up(question)
            if len(question.found) < len(contents):
                time.sleep(self.post.poll)
        self._begun, self._times = True, question.times
        return question.found

    def _meet_all(self) -> None:
        """Wait before the first request until all clients are known or the time is up."""
        end = time.monotonic() + self.post.timeout
        nobody = _Question("query", {}, end, end)
        while len(self.nodes) < self.num_clients and time.monotonic() < end:
            self._look()
            self._pull(nobody)
            if len(self.nodes) < self.num_clients:
                time.sleep(self.post.poll)

    def _look(self) -> None:
        """List the connected nodes, and ask new nodes for their client numbers."""
        now = time.monotonic()
        if now < self._next_look:
            return
        self._next_look = now + 10 * self.post.poll
        self._there = self.post.nodes()
        for node, refused in list(self._strangers.items()):
            free = refused.taken and self.nodes[refused.client] not in self._there
            if free or node not in self._there:
                del self._strangers[node]
        queries = {n: each for n, each in self._queries.items() if each[0] in self._there}
        self._queries = queries
        nodes = {*self.nodes.values(), *self._strangers, *(node for node, _ in queries.values())}
        new = {node: None for node in self._there if node not in nodes}
        for node, number in self.post.push("query", new, self.post.timeout).items():
            self._queries[number] = node, now

    def _push(self, question: _Question) -> None:
        """Send the request to connected clients that have no pending request."""
        now = time.monotonic()
        clients: dict[int, int] = {}
        for client in question.open():
            node = self.nodes.get(client)
            if node in self._there and question.again.get(client, now) <= now < question.end:
                clients[self.nodes[client]] = client
        contents = {node: question.contents[client] for node, client in clients.items()}
        taken = self.post.push(question.kind, contents, question.end - now)
        for node, client in clients.items():
            wait = 10 * self.post.poll * 2 ** question.times[client]
            question.again[client] = now + min(wait, SLOWEST)
            question.times[client] += 1
            if node in taken:
                question.pending[taken[node]] = client, node
            else:
                question.trouble[client] = "the message could not be sent"

    def _pull(self, question: _Question) -> None:
        """Read the replies.

        A reply is valid only if it comes from the node that received the request.
        """
        numbers = [*question.pending, *self._queries]
        for reply in self.post.pull(numbers) if numbers else ():
            if reply.number in self._queries:
                self._meet(self._queries.pop(reply.number)[0], reply)
            elif reply.number in question.pending:
                client, node = question.pending.pop(reply.number)
                if reply.error is not None:
                    question.trouble[client] = shortened(reply.error[1])
                    if reply.error[0] not in AGAIN:
                        question.found[client] = question.trouble[client]
                elif reply.node != node:
                    question.found[client] = f"answered by another node, {reply.node}"
                else:
                    question.found[client] = self._too_large(reply.content) or reply.content

    def _give_up(self, question: _Question) -> None:
        """Stop waiting for clients that are absent or late."""
        hopeless = len(self._strangers) >= self.num_clients and not (self.nodes or self._queries)
        if time.monotonic() >= question.end or hopeless:
            for client in question.contents:
                late = self._absent(client) or f"no answer in {self.post.timeout:g} s"
                whys = [late, *filter(None, [question.trouble.get(client)])]
                question.found.setdefault(client, shortened("; ".join(whys)))
        elif self._begun and all(begin < question.start for _, begin in self._queries.values()):
            for client in question.open():
                if client not in question.again and self._absent(client):
                    question.found[client] = self._absent(client)

    def _too_large(self, content: Any) -> str:
        """The reason why a reply is too large to be read, or "" if it is not too large."""
        try:
            self.limits.check_bytes(self.method, *self.post.size(content))
        except Exception as error:  # a client may send anything
            return reason(error)
        return ""

    def _absent(self, client: int) -> str:
        """The reason why no node belongs to a client, or "" if there is a node."""
        if self.nodes.get(client) in self._there:
            return ""
        own = [each.why for each in self._strangers.values() if each.client == client]
        unknown = [each.why for each in self._strangers.values() if each.client < 0]
        if own:
            return shortened("its node is refused: " + "; ".join(own))
        if unknown:
            reasons = "; ".join(dict.fromkeys(unknown))
            return shortened(f"no node says that it is this client; refused are {reasons}")
        return "its node is not there"

    def _site(self, node: int) -> str:
        """A node's name in messages: its registered name, or the last digits of its number."""
        name = next(iter(self._there.get(node, ())), "")
        return shortened(name) or f"node ...{str(node)[-6:]}"

    def _ask_again(self) -> None:
        """Contact rejected nodes again, without waiting for answers."""
        waiting = {node for node, _ in self._queries.values()}
        again = {
            node: None
            for node, refused in self._strangers.items()
            if self._begun and not refused.taken and node not in waiting
        }
        for node, number in self.post.push("query", again, self.post.timeout).items():
            self._queries[number] = node, -math.inf

    def _meet(self, node: int, reply: Reply) -> None:
        """Record permanently which client runs on a node."""
        if reply.error is not None and reply.error[0] in AGAIN:
            return
        site = self._site(node)
        names = self._there.get(node, ())
        client = next((k for k, name in enumerate(self.post.names) if name in names), -1)
        taken = False
        try:
            answer = self._greeting(node, reply, site)
            client = answer.client
            self._check_name(client, node)
            check_agreement(client, answer.agreement, self.agreement)
            other = self.nodes.get(client)
            taken = other in self._there
            if taken:
                raise ValueError(f"Nodes {other} and {node} both say that they are client {client}")
        except Exception as problem:  # a client may send anything
            before, refused = self._strangers.get(node), _Refused(client, reason(problem), taken)
            self._strangers[node] = refused
            if refused != before:  # a node that is asked again may answer the same
                subject = f"Client {client}: " if client >= 0 else ""
                warn(f"{subject}{site} is refused: {refused.why}")
            return
        self._strangers.pop(node, None)
        self.nodes[client] = node
        (self._scoring.add if answer.scores else self._scoring.discard)(client)

    def _greeting(self, node: int, reply: Reply, site: str) -> replies.Handshake:
        """Read a node's handshake, which contains the number of the node's client.

        Raise an error if the handshake is not valid.
        """
        if reply.error is not None:
            raise ValueError(f"{site}: {reply.error[1]}")
        if reply.node != node:
            raise ValueError(f"{site}: answered by another node")
        if cause := self._too_large(reply.content):
            raise ValueError(f"{site}: {cause}")
        note = self.post.note(reply.content)
        if cause := replies.said(note, site):
            raise ValueError(cause)
        return replies.handshake(note)

    def _check_name(self, client: int, node: int) -> None:
        last = self.num_clients - 1
        reject_if(not 0 <= client <= last, f"client to be from 0 to {last}", client)
        if self.post.names and self.post.names[client] not in self._there.get(node, ()):
            want, got = self.post.names[client], self._there.get(node)
            raise ValueError(f"Expected client {client} to be the node {want}, but got {got}")
