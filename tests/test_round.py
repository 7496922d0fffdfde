"""A round and what surrounds it: executors, phases, exchanges, scores, and what is kept."""

import warnings
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from federations import fedavg, graph, graphs, model, refuses

import fgl
from fgl.federation.round import _note_training, drops

# Phases.


def test_a_start_of_other_clients_is_refused() -> None:
    phase = fgl.run(fedavg(model()), graphs()[:3], num_rounds=1)
    with pytest.raises(ValueError, match="start to be a run of 4 clients, but got 3"):
        fgl.run(fedavg(model()), graphs(), num_rounds=1, start=phase)


def test_a_start_with_states_of_another_optimizer_is_refused() -> None:
    def kept(rule: Any) -> fgl.Method:
        method = fedavg(model())
        return replace(method, train=replace(method.train, optimizer=rule, keep_optimizer=True))

    sgd, adam = partial(torch.optim.SGD, lr=0.1, momentum=0.9), partial(torch.optim.Adam, lr=0.1)
    phase = fgl.run(kept(sgd), graphs(), num_rounds=1)
    fgl.run(kept(sgd), graphs(), num_rounds=1, start=phase)
    with pytest.raises(ValueError, match=r"optimizer of start, SGD.* got Adam"):
        fgl.run(kept(adam), graphs(), num_rounds=1, start=phase)


# Absent clients.


def test_a_server_that_forgets_absent_clients_warns_once() -> None:
    """One model for the participants; not if all get it, or each participant its own tensors."""

    def run(copies: bool, everybody: bool, share: float) -> int:
        def aggregate(inbox: Any, state: Any) -> Any:
            mean = {name: rows.mean(0) for name, rows in inbox.stack("model").items()}
            clients = range(inbox.num_clients) if everybody else inbox
            own = {k: {name: t.clone() for name, t in mean.items()} for k in clients}
            return {k: {"model": own[k] if copies else mean} for k in clients}, {"model": mean}

        with warnings.catch_warnings(record=True, action="always") as seen:
            method = replace(fedavg(model()), aggregate=aggregate)
            fgl.run(method, graphs(), num_rounds=3, participation=share)
        return sum("Broadcast(message, inbox.num_clients)" in str(each.message) for each in seen)

    assert run(False, False, 0.5) == run(False, False, 0.25) == 1
    assert run(True, False, 0.5) == run(False, True, 0.5) == run(False, False, 1.0) == 0


# Scores.


def test_a_score_that_fails_names_its_client() -> None:
    def score(params: Any, data: fgl.Graph) -> Any:
        raise ValueError("no validation nodes")

    with pytest.raises(ValueError, match="Round 0, client 0, deploy: no validation nodes"):
        fgl.run(fedavg(model()), graphs(), num_rounds=1, score=score)


# What users get wrong.


@pytest.mark.parametrize(
    ("stage", "where", "wanted"),
    [("receive", "client 0", "params, context"), ("aggregate", "server", "outbox, state")],
)
def test_a_forgotten_second_value_is_named(stage: str, where: str, wanted: str) -> None:
    plain = fedavg(model())
    function = getattr(plain, stage)
    changes: Any = {stage: lambda *given: function(*given)[0]}
    text = rf"^Round 0, {where}, {stage}: Expected {stage} to return \({wanted}\), but got a "
    refuses(text, lambda: fgl.run(replace(plain, **changes), graphs(), num_rounds=1), TypeError)


LOSSES: list[tuple[Any, str]] = [
    (lambda value: value[None], r"the loss to be a scalar, but got shape \[1\]"),
    (lambda value: float(value.detach()), "the loss to be a scalar tensor, but got"),
    (lambda value: value.detach(), "the loss to depend on params"),
]


@pytest.mark.parametrize(("wrong", "text"), LOSSES)
def test_a_loss_is_a_scalar_with_a_gradient(wrong: Any, text: str) -> None:
    plain = fedavg(model())

    def loss(params: Any, data: Any, context: Any) -> Any:
        return wrong(plain.loss(params, data, context))

    with pytest.raises((TypeError, ValueError), match=f"Round 0, client 0, loss: Expected {text}"):
        fgl.run(replace(plain, loss=loss), graphs(), num_rounds=1)


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
    score = fgl.evaluate_on(build(plain), graph(), clients)
    fgl.run(build(plain), clients, num_rounds=1, evaluate=score)


def test_a_part_of_a_model_without_a_deploy_of_its_own_names_the_cause() -> None:
    plain = fedavg(model())

    def send(*given: Any) -> Any:
        message, state = plain.send(*given)
        return {**message, "model": fgl.personalize.part(message["model"], "convs.0")}, state

    score = fgl.evaluate_on(plain, graph(), graphs())
    for method, own in ((replace(plain, send=send), True), (fgl.methods.local(plain), False)):
        with pytest.raises(ValueError, match="This score asks") as caught:
            fgl.run(method, graphs(), num_rounds=1, evaluate=score)
        assert ("a part of the model needs its own receive and deploy" in str(caught.value)) is own


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
    for share in (0.0, 0.3, 1.0):
        plan: Any = SimpleNamespace(dropouts=share, seed=4)
        count = sum(drops(plan, index, client) for index in range(20) for client in range(50))
        assert abs(count - 1000 * share) <= 45 * (0 < share < 1)


def test_what_could_not_be_traced_is_noted_once() -> None:
    executor: Any = SimpleNamespace(padding=0.0, one_by_one="", untraced="it draws")
    history = [fgl.federation.Round(k, [0]) for k in range(3)]
    for k, record in enumerate(history):
        _note_training(record, executor, history[:k])
    assert [record.untraced for record in history] == ["it draws", "", ""]
