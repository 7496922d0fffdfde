"""A round and what surrounds it: executors, phases, exchanges, scores, and what is kept."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from federations import (
    METHODS,
    SGD,
    Elsewhere,
    close,
    end,
    fedavg,
    graph,
    graphs,
    local,
    model,
    ruled,
    same,
)

import fgl
from fgl import Result
from fgl.federation import Answer, Broadcast, Executor, Limits, checked, num_bytes
from fgl.federation.evaluate import score_round
from fgl.federation.round import Plan, play

# The door for other executors.


class Fake:
    """Clients that are anywhere: each answers its number, some not at all."""

    num_clients = 4
    padding = 0.0
    one_by_one = ""
    untraced = ""
    elsewhere = True
    limits = Limits()

    def __init__(self, method: fgl.Method, order: Sequence[int]) -> None:
        self.method, self.order = method, order
        self.states: dict[int, Any] = {}
        self.kept: list[Any] = []

    def train(
        self, index: int, outbox: Mapping[int, Any], who: Sequence[int]
    ) -> Iterable[tuple[int, Answer]]:
        for client in (client for client in self.order if client in who):
            if client == 1:
                yield client, Answer(None, problem="timed out")
                continue
            params = {name: p + client for name, p in outbox[client]["model"].items()}
            if client == 3 and index == 1:
                params = {name: p / 0 for name, p in params.items()}
            message: Any = {"model": params, "num_examples": torch.tensor(1)}
            yield client, Answer(message, [float(client)], num_examples=client)

    def keep(self, index: int, accepted: Sequence[int]) -> None:
        self.kept.append((index, sorted(accepted)))

    def score(self, index: int, outbox: Mapping[int, Any]) -> dict[int, dict[str, float]]:
        return {0: {"auc": 0.5, "own": 1.0}, 2: {"auc": 1.0}}


def start(method: fgl.Method, num_clients: int) -> Result:
    message: Any = {"model": method.initial()}
    return Result(Broadcast(message, num_clients), dict(message), {}, [])


@pytest.mark.parametrize("order", [[0, 1, 2, 3], [3, 2, 1, 0], [1, 3, 0, 2]])
def test_any_executor_plays_a_round(order: list[int]) -> None:
    method = checked(fedavg(model()))
    fake = Fake(method, order)
    executor: Executor = fake
    plan = Plan(0, 1.0, 0.0, evaluate=lambda outbox, states: {"all": len(outbox)})
    result = start(method, 4)
    record = play(method, executor, result, plan)
    assert not record.metrics  # nobody was shown anything yet
    score_round(executor, result, record, plan)
    assert record.dropped == {1: "timed out"}
    assert record.zero_weight == [0]
    assert record.loss == (2.0 + 3.0) / 2  # client 0 has no example
    assert record.metrics == {"auc": 0.75, "own": 1.0, "all": 4.0}
    assert record.bytes_down == 4 * num_bytes(result.outbox[0])
    assert record.bytes_up == 3 * (num_bytes(result.outbox[0]) + 8)
    want = {name: value + 5 / 3 for name, value in method.initial().items()}
    close(dict(result.outbox[0]["model"]), want)
    result.history.append(record)
    with pytest.warns(UserWarning, match="Round 1, client 3: model/.* is not finite"):
        record = play(method, executor, result, plan)
    assert sorted(record.dropped) == [1, 3]
    close(dict(result.outbox[0]["model"]), {name: value + 1 for name, value in want.items()})
    assert fake.kept == [(0, [0, 2, 3]), (1, [0, 2])]


# A network that is its client's own is another round's business.


# Phases.


@pytest.mark.few
@pytest.mark.parametrize("clients_at_once", [1, "all"])
@pytest.mark.parametrize("name", ["fedavg", "local", "fedopt-adam"])
def test_a_run_goes_on_from_another_ones_end(name: str, clients_at_once: Any) -> None:
    """Two phases, each counting from 0; in the loop they are also done by hand."""
    how = replace(SGD, keep_optimizer=True)
    first, second = METHODS[name](model(), how), METHODS[name](model(), replace(how, num_steps=1))
    options: Any = {"num_rounds": 2, "seed": 1, "clients_at_once": clients_at_once}
    phase = fgl.run(first, graphs(), **options)
    before = copy.deepcopy(end(phase))
    result = fgl.run(second, graphs(), start=phase, **options)
    assert same(end(phase), before)  # what a run starts from is left alone
    assert [record.round for record in result.history] == [0, 1]
    assert not same(end(result)["outbox"], before["outbox"])
    longer = fgl.run(first, graphs(), start=phase, **{**options, "num_rounds": 0})
    assert same(end(longer)["outbox"], before["outbox"])
    assert same(end(longer)["clients"], before["clients"])
    assert longer.history == []


@pytest.mark.filterwarnings("ignore:Expected the checkpoint to know all settings")
def test_a_phase_resumes_and_knows_where_it_began(tmp_path: Path) -> None:
    phases = [fgl.run(local(model()), graphs(), num_rounds=n, seed=1) for n in (1, 2)]
    options: Any = {"seed": 3, "participation": 0.5}
    want = fgl.run(local(model()), graphs(), num_rounds=3, start=phases[0], **options)
    options["checkpoint"] = tmp_path
    fgl.run(local(model()), graphs(), num_rounds=1, start=phases[0], **options)
    got = fgl.run(local(model()), graphs(), num_rounds=3, start=phases[0], **options)
    assert same(end(got), end(want))
    for other in (phases[1], None):
        with pytest.raises(ValueError, match="to be of this run with start="):
            fgl.run(local(model()), graphs(), num_rounds=4, start=other, **options)


def test_a_start_of_other_clients_is_refused() -> None:
    phase = fgl.run(fedavg(model()), graphs()[:3], num_rounds=1)
    with pytest.raises(ValueError, match="start to be a run of 4 clients, but got 3"):
        fgl.run(fedavg(model()), graphs(), num_rounds=1, start=phase)


# Exchanges.


# Scores.


def accuracy(params: Any, data: fgl.Graph) -> dict[str, float]:
    net = model(dropout=0.0)
    logits = torch.func.functional_call(net, params, data.inputs)
    found = {"accuracy": fgl.metrics.accuracy(logits, data.y, data.val_mask)}
    return found if data.num_nodes > 12 else {}


@pytest.mark.parametrize("clients_at_once", [1, "all"])
def test_clients_score_what_they_deploy(clients_at_once: Any) -> None:
    """The mean over those who have the metric; `deploy` decides which model that is."""
    plain = local(model(dropout=0.0))
    calls = []

    def deploy(message: Any, state: Any, data: fgl.Graph) -> Any:
        calls.append(data.num_nodes)
        return plain.deploy(message, state, data)

    method = replace(plain, deploy=deploy)
    options: Any = {"num_rounds": 2, "clients_at_once": clients_at_once, "score": accuracy}
    extra = lambda outbox, states: {"states": len(states)}  # noqa: E731
    result = fgl.run(method, graphs(), evaluate=extra, **options)
    each = [
        accuracy(result.outbox[client]["model"], data)["accuracy"]
        for client, data in enumerate(graphs())
        if client
    ]
    metrics = result.history[-1].metrics
    assert metrics == {"accuracy": pytest.approx(sum(each) / 3), "states": 4.0}
    assert calls == [12, 20, 31, 17] * 2


def test_a_score_that_fails_names_its_client() -> None:
    def score(params: Any, data: fgl.Graph) -> Any:
        raise ValueError("no validation nodes")

    with pytest.raises(ValueError, match="Round 0, client 0, deploy: no validation nodes"):
        fgl.run(fedavg(model()), graphs(), num_rounds=1, score=score)


@dataclass
class Task:
    clients: Sequence[fgl.Graph]
    evaluate: Any


def test_a_task_scores_unless_told_otherwise() -> None:
    task = Task(graphs(), lambda method: lambda outbox, states: {"task": len(outbox)})
    result = fgl.run(fedavg(model()), task, num_rounds=1)
    assert result.history[0].metrics == {"task": 4}
    other = fgl.run(fedavg(model()), task, num_rounds=1, evaluate=lambda *_: {"own": 1.0})
    assert other.history[0].metrics == {"own": 1}
    assert same(end(other)["outbox"], end(result)["outbox"])


def half(message: Any) -> Any:
    kept = {name: value for name, value in message["model"].items() if "convs.0" in name}
    return {"model": kept}


def test_half_a_model_is_no_model_to_score() -> None:
    method, clients = fedavg(model()), graphs()
    outbox = Broadcast(half({"model": method.initial()}), 4)
    for scored in (clients, graph()):
        evaluate = fgl.evaluate_on(method, scored, clients)
        with pytest.raises(ValueError, match=r"client 0's model to have .*missing \['convs.1"):
            evaluate(outbox, {})
        with pytest.raises(ValueError, match=r"message to have 'model', but got keys \[\]"):
            evaluate(Broadcast({}, 4), {})
    none = torch.zeros(2, 0, dtype=torch.int64)
    one = fgl.Graph(torch.ones(3, 4), none, y=torch.tensor([0, 0, 1]), batch=torch.arange(3))
    gin = fgl.fedavg(fgl.nn.GIN(4, 8, 2))
    part: Any = {"model": dict(list(gin.initial().items())[:-1])}
    with pytest.raises(ValueError, match=r"client 0's model to have keys .* missing"):
        fgl.tasks.evaluate_graphs(gin, [one], [one])(Broadcast(part, 1), {})


# What is kept.


@pytest.mark.parametrize("clients_at_once", [1, "all"])
def test_a_stack_may_be_changed_in_place_and_the_messages_not(clients_at_once: Any) -> None:
    def run(entry: str) -> Any:
        def aggregate(inbox: Any, state: Any) -> Any:
            found = getattr(inbox, entry)("model")["convs.0.bias"]
            (found if isinstance(found, torch.Tensor) else found[0]).mul_(2)
            return fgl.federation.average(inbox, state)

        method = replace(fedavg(model()), aggregate=aggregate)
        return fgl.run(method, graphs(), num_rounds=1, clients_at_once=clients_at_once)

    plain = fgl.run(fedavg(model()), graphs(), num_rounds=1, clients_at_once=clients_at_once)
    assert same(dict(run("stack").outbox[0]["model"]), dict(plain.outbox[0]["model"]))
    text = r"Round 0, server, aggregate: .* was changed in place"
    with pytest.raises(ValueError, match=text):
        run("each")


# What users get wrong.

MISTAKES: dict[str, tuple[Any, type[Exception], str]] = {
    "one dict of two keys": (
        lambda message, state: message,
        TypeError,
        r"send to return \(message, state\), but got a dict",
    ),
    "one in a tuple": (
        lambda message, state: (message,),
        TypeError,
        r"send to return \(message, state\), but got 1 values",
    ),
    "three": (
        lambda message, state: (message, state, 1),
        TypeError,
        r"send to return \(message, state\), but got 3 values",
    ),
    "nothing": (
        lambda message, state: None,
        TypeError,
        r"send to return \(message, state\), but got a NoneType",
    ),
}


@pytest.mark.parametrize("what", MISTAKES)
def test_what_send_returns_is_named(what: str) -> None:
    change, kind, text = MISTAKES[what]
    plain = fedavg(model())
    method = replace(plain, send=lambda *given: change(*plain.send(*given)))
    with pytest.raises(kind, match=rf"^Round 0, client 0, send: Expected {text}"):
        fgl.run(method, graphs(), num_rounds=1)


@pytest.mark.parametrize(
    ("stage", "where", "wanted"),
    [("receive", "client 0", "params, context"), ("aggregate", "server", "outbox, state")],
)
def test_a_forgotten_second_value_is_named(stage: str, where: str, wanted: str) -> None:
    plain = fedavg(model())
    function = getattr(plain, stage)
    changes: Any = {stage: lambda *given: function(*given)[0]}
    text = rf"^Round 0, {where}, {stage}: Expected {stage} to return \({wanted}\), but got a "
    with pytest.raises(TypeError, match=text):
        fgl.run(replace(plain, **changes), graphs(), num_rounds=1)


def test_uploads_agree_on_their_keys_and_the_models() -> None:
    """What another dict is keyed by, e.g. the clients that it is for, is the method's own."""
    plain = fedavg(model())

    def sending(**more: Any) -> Any:
        def send(params: Any, context: Any, state: Any, data: fgl.Graph) -> Any:
            message, state = plain.send(params, context, state, data)
            odd = data.num_nodes % 2
            return {**message, **{key: make(odd, params) for key, make in more.items()}}, state

        return replace(plain, send=send)

    keyed = sending(extra=lambda odd, params: {f"of {odd}": torch.ones(1)})
    keyed = ruled(keyed, ragged={"extra"})
    assert not fgl.run(keyed, graphs(), num_rounds=1).history[0].dropped
    half = sending(model=lambda odd, params: dict(list(params.items())[odd:]))
    clients = graphs((12, 20, 31, 18))
    with pytest.warns(UserWarning, match="Round 0, client 2: .* but got missing"):
        got = fgl.run(half, Elsewhere(clients, 1), num_rounds=1)
    assert list(got.history[0].dropped) == [2]
    with pytest.raises(ValueError, match=r"Round 0, client 0, send: .* but got no majority"):
        fgl.run(half, graphs(), num_rounds=1)  # as many of one kind as of the other


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (lambda value: value[None], r"the loss to be a scalar, but got shape \[1\]"),
        (lambda value: float(value.detach()), "the loss to be a scalar tensor, but got"),
        (lambda value: value.detach(), "the loss to depend on params"),
    ],
)
def test_a_loss_is_a_scalar_with_a_gradient(wrong: Any, text: str) -> None:
    plain = fedavg(model())

    def loss(params: Any, data: Any, context: Any) -> Any:
        return wrong(plain.loss(params, data, context))

    with pytest.raises((TypeError, ValueError), match=f"Round 0, client 0, loss: Expected {text}"):
        fgl.run(replace(plain, loss=loss), graphs(), num_rounds=1)


def test_a_graph_is_no_federation() -> None:
    with pytest.raises(TypeError, match="clients to be a sequence of graphs, a task"):
        fgl.run(fedavg(model()), graphs()[0], num_rounds=1)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "build", [fgl.methods.local, partial(fgl.methods.fedper, shared=["convs.0"])]
)
def test_a_score_of_another_method_says_the_cause_and_what_to_do(build: Any) -> None:
    plain, clients = fedavg(model()), graphs()
    score = fgl.evaluate_on(plain, graph(), clients)
    with pytest.raises(ValueError) as caught:
        fgl.run(build(plain), clients, num_rounds=1, evaluate=score)
    text = str(caught.value)
    assert f"This score asks {plain!r} for the clients' models. If another method runs" in text
    assert "fgl.evaluate_on(method, graph, clients), or task.evaluate(method)" in text
    fgl.run(
        build(plain),
        clients,
        num_rounds=1,
        evaluate=fgl.evaluate_on(build(plain), graph(), clients),
    )


def test_a_score_of_a_method_that_deploys_otherwise_warns_once() -> None:
    plain, clients = fedavg(model()), graphs()
    score = fgl.evaluate_on(plain, graph(), clients)
    other = fgl.methods.ditto(plain)
    with pytest.warns(UserWarning, match="deploy other models than those that are scored") as seen:
        fgl.run(other, clients, num_rounds=2, evaluate=score)
    assert len(seen) == 1 and repr(other) in str(seen[0].message)
    again = fgl.methods.ditto(plain)  # built twice, and with another server: no warning
    fgl.run(again, clients, num_rounds=1, evaluate=fgl.evaluate_on(other, graph(), clients))
    fgl.run(fgl.methods.fedprox(plain, mu=0.1), clients, num_rounds=1, evaluate=score)
    coded = fgl.transforms.quantised(plain)  # deploys by a function of its own, the same models
    fgl.run(coded, clients, num_rounds=2, evaluate=score)
    hidden = fgl.transforms.quantised(fgl.methods.own_models(plain))
    with pytest.warns(UserWarning, match="deploy other models than those that are scored"):
        fgl.run(hidden, clients, num_rounds=2, evaluate=fgl.evaluate_on(coded, graph(), clients))


def test_every_client_drops_out_with_the_probability_that_is_said() -> None:
    from types import SimpleNamespace

    from fgl.federation.round import drops

    for share in (0.0, 0.3, 1.0):
        plan: Any = SimpleNamespace(dropouts=share, seed=4)
        count = sum(drops(plan, index, client) for index in range(20) for client in range(50))
        assert abs(count - 1000 * share) <= 45 * (0 < share < 1)
