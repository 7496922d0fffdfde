"""Joining: what all clients say before the first round, in each executor; who is not heard."""

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from by_loops import clients, plain, train_nodes
from federations import Elsewhere, ruled

import fgl
from fgl.federation import Joining
from fgl.methods import feddc, feddyn, fedprox, local, retrained
from fgl.transforms import central_gaussian, local_gaussian, secure_sum, summed_gaussian

SIZES = (12, 20, 15, 33)


@pytest.fixture
def over_flower() -> Any:
    """A function from clients' apps to a place that reaches them over a pretended grid."""
    pytest.importorskip("flwr")
    from flower_grid import Grid, apps

    def place(method: fgl.Method, own: list[fgl.Graph], *lost: Any, **how: Any) -> Any:
        site = {key: how.pop(key) for key in ("state", "epsilon") if key in how}
        grid: Any = Grid(apps(method, own), *lost, **site)
        return fgl.federation.Flower(grid, num_clients=4, poll=0.0, **how)

    return place


def gone(kind: str, node: int) -> Any:
    """A rule of a grid on which answers of a kind are lost, of one node or of all (-1)."""

    def lost(asked: str, of: int, times: int, reply: Any) -> Any:
        from flwr.app import Error

        return Error(2, "gone") if asked == kind and node in (of, -1) else reply

    return lost


def sizes(own: list[fgl.Graph]) -> list[int]:
    return [len(train_nodes(each)) for each in own]


def told(result: fgl.Result) -> tuple[int, int]:
    message: Any = result.outbox[0]
    return int(message["num_examples"]), int(message["num_clients"])


def asked(method: fgl.Method, calls: list[int]) -> fgl.Method:
    """The method, with a note of the size of each client that is asked."""
    joining: Any = method.rules.joining

    def say(graph: fgl.Graph) -> Any:
        calls.append(len(train_nodes(graph)))
        return joining.say(graph)

    return ruled(method, joining=replace(joining, say=say))


def test_all_are_asked_once_whoever_takes_part(tmp_path: Path) -> None:
    own, calls = clients(SIZES), []
    method = asked(feddyn(plain(steps=1)), calls)
    options: Any = {"participation": 0.5, "checkpoint": tmp_path, "clients_at_once": 1}
    fgl.run(method, own, num_rounds=1, **options)
    result = fgl.run(method, own, num_rounds=3, **options)  # goes on, and asks nobody again
    assert calls == sizes(own)
    assert told(result) == (sum(calls), len(own))
    upload = sum(t.numel() for t in plain().initial().values()) * 8 + 8
    assert [r.bytes_up for r in result.history] == [2 * upload + 8 * 4, 2 * upload, 2 * upload]
    other = fgl.run(method, own[1:], num_rounds=1, start=None, clients_at_once=1)
    assert told(other) == (sum(sizes(own)[1:]), 3)
    begun = replace(other, client_states={})
    again = fgl.run(method, own[:3], num_rounds=1, start=begun, clients_at_once=1)
    assert told(again) == (sum(sizes(own)[:3]), 3)  # other clients than those before


def test_who_does_not_answer_or_says_too_much_is_not_heard(over_flower: Any) -> None:
    own = clients(SIZES)
    base = ruled(plain(steps=1), max_examples=max(sizes(own)))
    method = feddyn(base)

    def say(graph: fgl.Graph) -> Any:
        count = len(train_nodes(graph))
        return {"num_examples": torch.tensor(10**9 if count == sizes(own)[0] else count)}

    lying = ruled(method, joining=replace(method.rules.joining, say=say))
    place = over_flower(lying, own, gone("query.join", 102), timeout=0.5)
    with pytest.warns(UserWarning) as seen:
        result = fgl.run(lying, place, num_rounds=1)
    texts = [str(each.message) for each in seen]
    assert sum("client 0, when it joins" in text and "1e+09" in text for text in texts) == 1
    assert sum("client 2, when it joins" in text for text in texts) == 1
    assert told(result) == (sizes(own)[1] + sizes(own)[3], 2)
    assert result.history[0].dropped == {}  # both take part in the rounds


def test_nobody_joins(over_flower: Any) -> None:
    own, method = clients(SIZES), feddyn(plain(steps=1))
    place = over_flower(method, own, gone("query.join", -1), timeout=0.2)
    with warnings.catch_warnings(), pytest.raises(RuntimeError, match="when clients join"):
        warnings.simplefilter("ignore")
        fgl.run(method, place, num_rounds=1)


def test_a_site_with_a_budget_does_not_say_its_size(tmp_path: Path, over_flower: Any) -> None:
    """It has no noise, and a budget affords no answer without noise."""
    own, method = clients(SIZES), feddyn(plain(steps=1))
    place = over_flower(method, own, state=str(tmp_path), epsilon=8.0, timeout=5.0)
    with warnings.catch_warnings(), pytest.raises(RuntimeError, match="join.*Expected epsilon"):
        warnings.simplefilter("ignore")
        fgl.run(method, place, num_rounds=1)


def test_a_client_that_is_forgotten_does_not_say_its_size() -> None:
    own = clients(SIZES)
    method = retrained(feddyn(plain(steps=1)), client=1)
    result = fgl.run(method, own, num_rounds=1, clients_at_once=1)
    assert told(result) == (sum(sizes(own)) - sizes(own)[1], 3)


def test_a_mistake_of_say_is_the_methods() -> None:
    own, method = clients(SIZES), feddyn(plain(steps=1))
    wrong: Any = Joining(lambda graph: {"num_examples": graph.num_train}, lambda inbox, state: None)
    with pytest.raises(TypeError, match="Round 0, client 0, join: .*num_examples.*int"):
        fgl.run(ruled(method, joining=wrong), own, num_rounds=1, clients_at_once=1)
    joining: Any = replace(method.rules.joining, welcome=wrong.welcome)
    with pytest.raises(TypeError, match="Round 0, server, welcome: .*outbox, state"):
        fgl.run(ruled(method, joining=joining), own, num_rounds=1, clients_at_once=1)


def test_without_the_sizes_a_client_says_so() -> None:
    method = feddyn(plain())
    with pytest.raises(ValueError, match="num_examples.*Method.rules.joining"):
        method.receive({"model": method.initial()}, {}, clients()[0])


@pytest.mark.parametrize("build", [feddyn, feddc])
def test_what_leaves_before_the_noise_is_refused(build: Any) -> None:
    method, noise = build(plain()), {"length": 1.0, "noise_multiplier": 1.0}
    for outer, call in {
        "local_gaussian": lambda: local_gaussian(method, **noise),
        "central_gaussian": lambda: central_gaussian(fedprox(method, mu=0.1), **noise),
        "secure": lambda: secure_sum(method, threshold=3),
        "local": lambda: local(method),
    }.items():
        with pytest.raises(ValueError, match=f"{outer}.*say"):
            call()


@pytest.mark.filterwarnings("ignore:.*unprotected")
def test_nobody_says_something_around_a_transform_that_protects() -> None:
    joining, how = feddyn(plain()).rules.joining, {"length": 1.0, "noise_multiplier": 1.0}
    steps: dict[str, Any] = {"sample_rate": 0.5, "expected_batch_size": 2.0, "num_steps": 1}
    for name, method in {
        "local_gaussian": local_gaussian(plain(), **how),
        "central_gaussian": central_gaussian(plain(), **how),
        "summed_gaussian": summed_gaussian(plain(), threshold=3, bound=64.0, **how),
        "per_example_gaussian": fgl.transforms.per_example_gaussian(plain(), **how, **steps),
        "secure_sum": secure_sum(plain(), threshold=3),
    }.items():
        with pytest.raises(ValueError, match=f"{name} to be the outermost .*joining is another"):
            fgl.run(ruled(method, joining=joining), clients(SIZES), num_rounds=4)


@pytest.mark.filterwarnings("ignore:Round 0")
@pytest.mark.parametrize("liars", [[0], [0, 5]])
def test_who_makes_the_server_fail_is_left_out(liars: list[int]) -> None:
    """What one of eight, or two, say when they join does not end the run, as in a round."""
    own, heard = clients((*SIZES, 14, 22, 17, 30)), []

    def say(graph: fgl.Graph) -> Any:
        lies = any(graph is own[k] for k in liars)
        return {"shares": torch.full((2,), 60.0 if lies else 0.5)}

    def welcome(inbox: Any, state: Any) -> Any:
        if bool((inbox.stack("shares") > 1).any()):
            raise ValueError("Expected shares to be at most 1")
        heard[:] = inbox.clients
        return inbox.sent, state

    method = ruled(plain(steps=1), joining=Joining(say, welcome))
    fgl.run(method, Elsewhere(own, 1), num_rounds=1)
    assert heard == [k for k in range(8) if k not in liars]
    with pytest.raises(ValueError, match="Round 0, server, welcome: Expected shares"):
        fgl.run(method, own, num_rounds=1, clients_at_once=1)
