"""The loop executor: clients run in this process and train one after another."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...checks import reject_if
from ...graph import Graph
from ...progress import shown
from ...seeds import fold_in, stage
from ..gate.guard import check_own, unchanged
from ..gate.uploads import Limits
from ..method.message import Message, Params, State, as_number, check_names, compact
from ..method.method import Method
from ..training.optimizer import Layout
from ..training.train import Differentiate, Trained, train
from ..training.unseen import warn_of_seen_labels
from . import Answer, Value
from .batch.steps import Alone, View
from .batch.traced import Step, Tracer

Score = Callable[[Params, Graph], Mapping[str, Value]]


class Loop:
    """Executor of clients in this process.

    The loop trains one client at a time and supports any module.

    Args:
        method: the method.
        clients: a list with the graphs of all clients; or, for only some clients, a dict from
            client to graph.
        seed: seed of the run.
        states: the clients' states from earlier rounds; by default there are none.
        score: ``(params, graph) -> metrics``, a client's own score of a model; each metric is a
            number, or a pair of a sum and its divisor. Default none.

    Example:
        >>> graph = fgl.Graph(torch.eye(2), torch.tensor([[0], [1]]), y=torch.tensor([0, 1]))
        >>> method = fgl.fedavg(fgl.nn.GCN(2, 8, 2))
        >>> loop = Loop(method, [graph], seed=0)
        >>> answers = dict(loop.train(0, {0: {"model": method.initial()}}, [0]))
        >>> list(answers[0].message)
        ['model', 'num_examples']
    """

    padding = 0.0
    one_by_one = ""
    elsewhere = False
    limits = Limits()

    def __init__(
        self,
        method: Method,
        clients: Sequence[Graph] | Mapping[int, Graph],
        *,
        seed: int,
        states: Mapping[int, State] | None = None,
        score: Score | None = None,
    ) -> None:
        self.method, self.seed = method, seed
        self.clients = dict(clients if isinstance(clients, Mapping) else enumerate(clients))
        self.num_clients = len(clients)
        self.states: dict[int, State] = dict(states or {})
        self._score = score
        self._new: dict[int, State] = {}
        self._tracer = Tracer()
        self._compared = False

    @property
    def untraced(self) -> str:
        """The reason why steps are not traced.

        The text is empty as long as steps are traced.
        """
        return self._tracer.why

    def join(self) -> list[tuple[int, Answer]]:
        assert self.method.rules.joining is not None
        answers = []
        for client, graph in self.clients.items():
            with stage(self.seed, 0, client, "join"):
                answers.append((client, Answer(self.method.rules.joining.say(graph))))
        return answers

    def train(
        self, index: int, outbox: Mapping[int, Message], who: Sequence[int]
    ) -> list[tuple[int, Answer]]:
        owners: dict[int, Any] = {}
        answers: list[tuple[int, Answer]] = []
        with shown(f"round {index}", len(who), unit="clients") as advance:
            for group in self.groups(who):
                answers += self._answers(index, outbox, group, owners)
                advance(len(group))
        return answers

    def keep(self, index: int, accepted: Sequence[int]) -> None:
        for client in accepted:
            self.states[client] = compact(self._new[client])
        self._new.clear()

    def score(self, index: int, outbox: Mapping[int, Message]) -> dict[int, dict[str, Value]]:
        if self._score is None:
            return {}
        scores = {}
        for client, graph in self.clients.items():
            with stage(self.seed, index, client, "deploy"):
                params = self.method.deploy(outbox[client], self.states.get(client, {}), graph)
                with self.method.at(graph), unchanged(getattr(graph, "all_tensors", {})):
                    metrics: Any = self._score(params, graph)
                check_names("score", metrics)
                for name, value in metrics.items():
                    for each in value if isinstance(value, tuple) else (value,):
                        as_number(f"score's {name!r}", each)
                scores[client] = dict(metrics)
        return scores

    def groups(self, who: Sequence[int]) -> list[tuple[int, ...]]:
        """Groups of clients; the clients of a group train together.

        In this executor each group has one client.
        """
        return [(client,) for client in who]

    def _answers(
        self,
        index: int,
        outbox: Mapping[int, Message],
        group: tuple[int, ...],
        owners: dict[int, Any],
    ) -> list[tuple[int, Answer]]:
        """Train the clients of a group.

        Return the clients' answers, and store the new states for `keep`.
        """
        ready = with_start([self._received(index, outbox[client], client) for client in group])
        trained = self._trained(index, ready)
        answers = []
        for one, done, record in zip(ready, trained, records(trained), strict=True):
            with stage(self.seed, index, one.client, "send"):
                context = _with(one.context, trained=record)
                message, new = self.method.send(done.params, context, one.state, one.graph)
                check_own(one.client, [message, new], owners)
            new = {**new, "optimizer": done.optimizer} if self.method.train.keep_optimizer else new
            self._new[one.client] = new
            full_answer = Answer(message, done.losses, one.graph.num_train)
            answers.append(
                (one.client, Answer(message) if self.method.rules.silent else full_answer)
            )
        return answers

    def _received(self, index: int, message: Message, client: int) -> Ready:
        graph, state = self.clients[client], self.states.get(client, {})
        with stage(self.seed, index, client, "receive"):
            params, context = self.method.receive(message, state, graph)
            entries = context if isinstance(context, Mapping) else {}
            taken = [key for key in ("start", "trained") if key in entries]
            want = "the context of `receive` to have other keys than 'start' and 'trained'"
            reject_if(taken, want, " and ".join(map(repr, taken)))
        return Ready(client, graph, message, state, params, context)

    def _trained(self, index: int, ready: Sequence[Ready]) -> list[Trained]:
        """Train a group's clients locally; the arguments stay unchanged."""
        inputs = [
            each
            for one in ready
            for each in (one.message, one.state, getattr(one.graph, "all_tensors", {}))
        ]
        clients = [one.client for one in ready]
        with stage(self.seed, index, clients, "loss"), unchanged(*inputs):
            for one in ready if index == 0 else ():
                self._compared = self._compared or warn_of_seen_labels(
                    self.method, one.params, one.graph, one.context, client=one.client
                )
            return self._minimised(index, ready)

    def _minimised(self, index: int, ready: Sequence[Ready]) -> list[Trained]:
        """Train one client; the group has only this client."""
        (one,) = ready
        seed = fold_in(self.seed, index, one.client)
        optimizer = kept_optimizer(self.method, one.state)
        how = {"seed": seed, "optimizer": optimizer, "differentiate": self._differentiate()}
        trained = train(self.method, one.params, one.graph, one.context, **how)
        self._tracer.rest(one.graph)
        return [trained]

    def _differentiate(self) -> Differentiate | None:
        """Build the function by which `train` computes gradients: from a trace, or by autograd.

        The result is None if the method trains on minibatches.
        """
        if self.method.train.batches is not None:
            return None
        view: View | None = None  # shared by all steps

        def differentiate(
            layout: Layout, params: Params, leaves: Params, graph: Graph, context: Any
        ) -> Tensor:
            nonlocal view
            view = view or Alone.of(self.method, layout, graph, context)
            return self._tracer.differentiate(Step(view, params, leaves))

        return differentiate


class Ready(NamedTuple):
    """A client after `receive`: its graph, message, state, initial parameters and context."""

    client: int
    graph: Graph
    message: Message
    state: State
    params: Params
    context: Any


def kept_optimizer(method: Method, state: State) -> Any:
    """The state of the client's optimiser after the client's last round."""
    return state.get("optimizer", {}) if method.train.keep_optimizer else {}


def with_start(ready: Sequence[Ready]) -> list[Ready]:
    """The given clients, with initial parameters added to their contexts.

    Each client's initial parameters are stored under the key ``"start"``.

    Two clients that share one context and one set of parameters also share one new context.
    Batches require this.
    """
    shared: dict[tuple[int, int], Any] = {}
    out = []
    for one in ready:
        key = id(one.context), id(one.params)
        if key not in shared:
            shared[key] = _with(one.context, start=one.params)
        out.append(one._replace(context=shared[key]))
    return out


def _with(context: Any, **entries: Any) -> Any:
    """A copy of a context with additional entries.

    A context that is not a dict is returned unchanged.
    """
    if not isinstance(context, Mapping):
        return context
    new: Any = copy.copy(context) if isinstance(context, dict) else dict(context)
    new.update(entries)
    return new


def records(trained: Sequence[Trained]) -> list[State]:
    """Records of the clients' training; `send` reads a record as ``context["trained"]``."""
    counts = [len(done.losses) for done in trained]
    losses = torch.tensor([loss for done in trained for loss in done.losses], dtype=torch.float64)
    pairs = zip(torch.tensor(counts).unbind(), losses.split(counts), strict=True)
    return [{"num_steps": steps, "losses": own} for steps, own in pairs]
