"""A client on its own computer: it compares settings with the server, trains, and scores."""

import hashlib
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch

from ....checks import check_number, reject_if
from ....graph import Graph
from ....predict import OtherWidth, predict
from ....seeds import stage
from ...gate.guard import checked
from ...method.message import Message, State, check_message, drop, to
from ...method.method import Method
from ...method.rules import without_noise
from ...saved.identity import identity
from ...training.train import in_mode
from .. import Answer, Value
from ..loop import Loop, Score
from .ledger import Ledger
from .replies import Refusal
from .shelf import Shelf
from .wire import pack, unpack

LAST = 2**62  # number of a run or a round


class Note(NamedTuple):
    """Data that accompany a message from the server to a client.

    Args:
        run: number of the run; each new run has a different number.
        seed: seed of the run.
        round: number of the round, from 0.
        client: number of this client.
        base: the last round in which the server accepted this client's message. The client's state
            after that round is the valid state. The value -1 means the empty state.

    Example:
        >>> Note(run=7, seed=0, round=3, client=1, base=2).base
        2
    """

    run: int
    seed: int
    round: int
    client: int
    base: int

    def check(self) -> None:
        """Raise a ValueError if a number used in file names is invalid.

        Example:
            >>> Note(run=-7, seed=0, round=3, client=1, base=2).check()
            Traceback (most recent call last):
            ValueError: Expected run to be an integer >= 0 and <= 4611686018427387904, but got -7
        """
        for name, least in (("run", 0), ("round", 0), ("base", -1)):
            check_number(name, getattr(self, name), at_least=least, at_most=LAST, integer=True)


def agreement(method: Method, config: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Values that server and clients must have in common.

    With different values at server and clients, the results would not equal the results of a run in
    one process.

    Args:
        method: the method. The result includes the initial model, the settings of local training,
            and the names of the method's functions.
        config: further settings as JSON values, such as settings inside the method's functions.

    Returns:
        JSON values by name, including the number of torch threads and the versions.

    Example:
        >>> sorted(agreement(fgl.fedavg(torch.nn.Linear(1, 1))))[-3:]
        ['silent', 'threads', 'torch']
    """
    values = identity(method, 0, 1.0, 0.0, config)
    for name in ("seed", "participation", "dropouts", "max_examples", "max_change"):
        del values[name]
    values["torch"], values["fgl"] = str(torch.__version__), sys.modules["fgl"].__version__
    text = re.sub(r" #[0-9a-f]{16}", "", json.dumps(values))  # tensors may differ by client
    return dict(json.loads(text))


@torch.no_grad()
def check_width(method: Method, graph: Graph, client: int) -> None:
    """Raise an error if the model does not accept the client's number of features.

    Raises:
        Refusal: if the client's number of features differs from the model's; the error states the
            client's number.

    Example:
        >>> graph = fgl.Graph(torch.eye(3), torch.tensor([[0], [1]]))
        >>> check_width(fgl.fedavg(fgl.nn.GCN(2, 8, 2)), graph, 4)
        Traceback (most recent call last):
        fgl.federation.executors.remote.replies.Refusal: Expected client 4 to have as many ...
    """
    model = method.model_of(graph)
    try:
        with torch.random.fork_rng([]), in_mode(model, False):
            predict(model, model.state_dict(), graph)
    except OtherWidth as error:
        raise Refusal(
            f"Expected client {client} to have as many features as {type(model).__name__} takes, "
            f"but got {graph.num_features}"
        ) from error
    except Exception:  # a model with another call: training raises its error
        return


def check_agreement(client: int, got: Mapping[str, Any], want: Mapping[str, Any]) -> None:
    """Raise a ValueError if client and server differ in a value; the error names the value.

    Example:
        >>> check_agreement(2, {"threads": 2}, {"threads": 1})
        Traceback (most recent call last):
        ValueError: Expected client 2 to have the server's threads, 1, but got 2
    """
    for name in {**want, **got}:
        own, server = got.get(name), want.get(name)
        reject_if(own != server, f"client {client} to have the server's {name}, {server}", own)


def plan(agreed: Mapping[str, Any]) -> str:
    """A digest of everything that a run does with a client's data.

    A site approves runs by this digest.

    The digest does not include the number of threads or the versions of packages. So an approved
    run stays approved after the site updates a package or changes the number of threads.

    Example:
        >>> one = agreement(fgl.fedavg(torch.nn.Linear(1, 1)))
        >>> plan(one) == plan({**one, "threads": 77}), plan(one) == plan({**one, "silent": True})
        (True, False)
    """
    settings = {key: agreed[key] for key in agreed if key not in ("threads", "torch", "fgl")}
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:32]


def check_approved(path: Any, plan: str, unknown: Sequence[str], state: Any) -> None:
    """Raise a ValueError if a site has a list of approved plans and this plan is not in the list.

    The settings of a function are missing from a plan if no builder recorded these settings. So a
    site with a list rejects a run that has a function without recorded settings.

    Args:
        path: path of a text file with the approved plans; each line begins with a plan. If `path`
            is None, all plans are approved.
        plan: the run's plan, which is a hexadecimal digest of the run's settings. The site's ledger
            shows the method as readable text.
        unknown: names of the method's functions whose settings are unknown.
        state: the site's state folder, if it has one.

    Example:
        >>> check_approved(None, "3f", [], None)
    """
    if path is None:
        return
    reject_if(state is None, "a state folder beside a list of approved plans", "none", Refusal)
    want = "to know all settings of a run, since this site approves plans"
    got = f"{' and '.join(unknown)} of a builder without fgl.layer: decorate the builder with it"
    reject_if(unknown, want, got, Refusal)
    words = [line.split() for line in Path(path).read_text().splitlines()]
    want = "the plan of the run to be approved by the site"
    reject_if(plan not in [each[0] for each in words if each], want, plan, Refusal)


def answer(
    method: Method,
    graph: Graph,
    note: Note,
    message: Message,
    shelf: Shelf,
    ledger: Ledger,
) -> tuple[Answer, bool]:
    """Execute a client's round as `Loop` does, and return the client's answer.

    The second result is whether the client keeps a state. The reply is stored. If the same request
    is repeated in the same round, the client sends the stored reply again, bit for bit. Sending a
    reply again has no privacy cost. If two processes of the site answer a request simultaneously,
    both send the same reply. The field `paid` of the returned `Answer` is a number from the ledger:
    how often the ledger recorded a cost for this request. If the client has computed a new answer
    and the number is 1, `paid` is 0. The new state is stored in addition to the valid state. For
    the state's entries in `method.privacy.onward`, the new values overwrite the old values before
    the reply is sent.

    Raises:
        ValueError: if the client's valid state is not stored, or if the answer would exceed the
            ledger's budget. A client that adds noise also raises a ValueError for a new request
            that comes too late: the client has already answered another request for the same or a
            later round. Errors of the method are raised too.

    Example:
        >>> import tempfile
        >>> from fgl.federation.executors.remote.shelf import StateFolder
        >>> graph = fgl.Graph(torch.eye(2), torch.tensor([[0], [1]]), y=torch.tensor([0, 1]))
        >>> method = fgl.fedavg(fgl.nn.GCN(2, 8, 2))
        >>> note, shelf = Note(7, 0, 0, 1, -1), StateFolder(tempfile.mkdtemp(), 7, 1)
        >>> message, ledger = {"model": method.initial()}, Ledger(None, {})
        >>> made, keeps = answer(method, graph, note, message, shelf, ledger)
        >>> list(made.message), keeps
        (['model', 'num_examples'], False)
    """
    costs = method.privacy.costs(message)
    question = hashlib.sha256(json.dumps(note).encode() + pack(message)).hexdigest()
    before = _marks(shelf, note)  # first: what another process writes from here on is noticed below
    if reply := _kept(shelf, note, question):
        return _again(reply, ledger)
    if costs.get("noise_multiplier") and note.round <= max(shelf.rounds("reply"), default=-1):
        raise Refusal(
            f"Client {note.client} adds noise to each answer, so it answers one question in round "
            f"{note.round}, and this round is over"
        )
    ledger.check(costs)
    with _loop(method, graph, note, shelf) as loop:
        ((_, client_answer),) = loop.train(note.round, {note.client: message}, [note.client])
        with stage(note.seed, note.round, note.client, "send"):
            check_message(client_answer.message, name="the upload")
        loop.keep(note.round, [note.client])
    state = loop.states[note.client]
    onward = {name: state.pop(name) for name in method.privacy.onward if name in state}
    packed = pack(client_answer.message or {})
    reply = _Reply(question, bool(state), client_answer.losses, client_answer.num_examples, packed)
    with shelf.alone():
        if _marks(shelf, note) != before:  # another process of this site was quicker
            other = _kept(shelf, note, question)
            if other is None:
                raise Refusal(f"Client {note.client} was asked two questions at a time")
            return _again(other, ledger)
        ledger.charge(costs, num_bytes=len(reply.packed), question=question)
        if state:
            shelf.write(note.round, pack(state))
        if method.privacy.onward:
            shelf.write(0, pack(onward), "onward")
        shelf.write(note.round, reply.as_bytes, "reply")
        _clear(shelf, note)
    charged = ledger.paid(question)
    client_answer.paid = charged if charged > 1 else 0  # a plain first answer has no more fields
    return client_answer, bool(state)


def joined(method: Method, graph: Graph, note: Note, shelf: Shelf, ledger: Ledger) -> Answer:
    """A client's message before the first round.

    The joining message has no noise and is not stored.

    Raises:
        ValueError: if the message would exceed the ledger's budget.

    Example:
        >>> import tempfile
        >>> from fgl.federation.executors.remote.shelf import StateFolder
        >>> method = fgl.methods.feddyn(fgl.fedavg(torch.nn.Linear(1, 1)))
        >>> graph = fgl.Graph(torch.eye(1), torch.zeros(2, 0).long())
        >>> note, shelf = Note(7, 0, 0, 1, -1), StateFolder(tempfile.mkdtemp(), 7, 1)
        >>> joined(method, graph, note, shelf, Ledger(None, {})).message
        {'num_examples': tensor(1)}
    """
    want = "a method whose clients are asked when they join"
    reject_if(method.rules.joining is None, want, method, Refusal)
    ledger.check(without_noise({}))
    with _loop(method, graph, note, shelf) as loop:
        ((_, client_answer),) = loop.join()
    ledger.charge(without_noise({}), num_bytes=len(pack(client_answer.message or {})))
    return client_answer


class _Reply(NamedTuple):
    """A client's answer, and the digest of the answered request."""

    asked: str
    keeps: bool
    losses: list[float]
    num_examples: int
    packed: bytes

    @property
    def as_bytes(self) -> bytes:
        return json.dumps(self[:-1]).encode() + b"\n" + self.packed


def _again(reply: _Reply, ledger: Ledger) -> tuple[Answer, bool]:
    """Return the stored answer to a repeated request, and record that it is sent again.

    A repeated answer has no privacy cost.
    """
    ledger.note(bytes=len(reply.packed), again=True)
    answer = Answer(
        unpack(reply.packed), reply.losses, reply.num_examples, paid=ledger.paid(reply.asked)
    )
    return answer, reply.keeps


def _kept(shelf: Shelf, note: Note, digest: str) -> _Reply | None:
    """The stored reply to this request, if there is one."""
    payload = shelf.read(note.round, "reply")
    if payload is None:
        return None
    head, _, packed = payload.partition(b"\n")
    question, keeps, losses, num_examples = json.loads(head)
    return _Reply(question, keeps, losses, num_examples, packed) if question == digest else None


def _marks(shelf: Shelf, note: Note) -> tuple[Any, ...]:
    """The stored values that change whenever a request is answered.

    If two calls return equal values, the client has answered no request between these calls.
    """
    reply = shelf.read(note.round, "reply")
    question = None if reply is None else reply.partition(b"\n")[0]
    return shelf.rounds("reply"), question, shelf.read(0, "onward")


def _clear(shelf: Shelf, note: Note) -> None:
    """Delete old states and replies.

    A server may resume from its previous checkpoint. Three states are therefore kept: the new
    state, the valid state, and the state before the valid state. Two replies are kept: the new
    reply, and the last reply from an earlier round.

    The newest reply is never deleted, since it shows which round the run has reached.
    """
    states, replies = shelf.rounds(), shelf.rounds("reply")
    older = [index for index in states if index < note.base]
    for index in {*states} - {note.base, note.round, *older[-1:]}:
        shelf.drop(index)
    older = [index for index in replies if index < note.round]
    for index in {*replies} - {note.round, *older[-1:], *replies[-1:]}:
        shelf.drop(index, "reply")


def scores(
    method: Method, graph: Graph, note: Note, message: Message, shelf: Shelf, score: Score
) -> dict[str, Value]:
    """A client's own score of the model that it deploys.

    Example:
        >>> import tempfile
        >>> from fgl.federation.executors.remote.shelf import StateFolder
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
    """Yield a `Loop` that has only this client, with the client's checked state.

    Modes and random state are restored afterwards.
    """
    states = {note.client: to(_state(method, note, shelf), graph.device)}
    cuda = [graph.device] if graph.device.type == "cuda" else []
    with torch.random.fork_rng(cuda), in_mode(method.model, False):
        yield Loop(
            checked(method), {note.client: graph}, seed=note.seed, states=states, score=score
        )


def _state(method: Method, note: Note, shelf: Shelf) -> State:
    """The client's valid state; the newest values replace the entries named in `onward`."""
    payload = shelf.read(note.base) if note.base >= 0 else pack({})
    want = f"client {note.client} to have kept its state of round {note.base}"
    reject_if(payload is None, want, shelf.rounds() or "none", Refusal)
    state = drop(unpack(payload or b""), method.privacy.onward)
    return {**state, **unpack(shelf.read(0, "onward") or pack({}))}
