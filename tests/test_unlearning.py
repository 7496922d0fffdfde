"""Unlearning: the exact reference, and the authors' ascent written in loops."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from by_loops import LR, STEPS, apart, clients, gradient, mean, plain, sgd, supervised, train_nodes
from federations import receive_as_a_run, same
from torch import Tensor

import fgl
from fgl.methods import retrained, unlearned

GONE, AT = 1, 2


def square(one: Any, other: Any) -> float:
    return sum(float((one[n] - other[n]).square().sum()) for n in one)


def ascent(own: fgl.Graph, start: Any, last: Any, radius: float, far: float, norm: float) -> Any:
    w = start
    for _ in range(STEPS):
        grads = gradient(lambda p: -supervised(p, own), w)
        length = sum(float(g.square().sum()) for g in grads.values()) ** 0.5
        scale = min(1.0, norm / (length + 1e-6))
        w = {n: w[n] - LR * scale * grads[n] for n in w}
        if square(w, start) > radius**2:
            share = radius / square(w, start) ** 0.5
            w = {n: start[n] + share * (w[n] - start[n]) for n in w}
        if square(w, last) > far:
            break
    return w


CASES = [
    *((200.0, 1e9, 1e9), (0.05, 1e9, 5.0), (200.0, 1e9, 0.2), (200.0, 0.0, 5.0)),
    (200.0, 0.05, 5.0),  # it stops after two steps
]


@pytest.mark.parametrize(("radius", "far", "norm"), CASES)
def test_rounds_are_the_authors(radius: float, far: float, norm: float) -> None:
    own, theta = clients(), plain().initial()
    counts = [float(len(train_nodes(g))) for g in own]
    others = [k for k in range(3) if k != GONE]
    models: Any = []
    for _ in range(AT):
        models = [sgd(lambda p, g=g: supervised(p, g), theta) for g in own]  # type: ignore[misc]
        theta = mean(models, counts)
    theta = mean([models[k] for k in others], [counts[k] for k in others])
    theta = ascent(own[GONE], theta, models[GONE], radius, far, norm)
    how: Any = {"client": GONE, "at": AT, "radius": radius, "far": far, "max_norm": norm}
    method = unlearned(plain(), **how)
    then = fgl.run(method, own, num_rounds=AT + 1, clients_at_once=1)
    assert apart(then.outbox[0]["model"], theta) < 1e-12
    models = [sgd(lambda p, g=g: supervised(p, g), theta) for g in own]  # type: ignore[misc]
    theta = mean([models[k] for k in others], [counts[k] for k in others])
    result = fgl.run(method, own, num_rounds=AT + 2, clients_at_once="all")
    assert apart(result.outbox[0]["model"], theta) < 1e-10


def test_several_clients_are_forgotten_together() -> None:
    """From the mean of the others each one ascends; everybody gets the mean of their models."""
    own = [*clients(), clients()[0]]
    counts, theta = [float(len(train_nodes(g))) for g in own], plain().initial()
    gone, others = [1, 3], [0, 2]

    def trained(theta: Any) -> Any:
        return [sgd(lambda p, g=g: supervised(p, g), theta) for g in own]  # type: ignore[misc]

    def mean_of(models: Any, some: list[int]) -> Any:
        return mean([models[k] for k in some], [counts[k] for k in some])

    last = trained(theta)
    theta = mean_of(last, others)
    ascended = {k: ascent(own[k], theta, last[k], 0.5, 1e9, 5.0) for k in gone}
    theta = mean_of(ascended, gone)
    how: Any = {"client": gone, "at": 1, "radius": 0.5, "far": 1e9}
    for at_once in (1, "all"):
        result = fgl.run(unlearned(plain(), **how), own, num_rounds=2, clients_at_once=at_once)  # type: ignore[arg-type]
        assert apart(result.outbox[0]["model"], theta) < 1e-10
    then = fgl.run(unlearned(plain(), **how), own, num_rounds=3, clients_at_once=1)
    assert apart(then.outbox[0]["model"], mean_of(trained(theta), others)) < 1e-10
    absent: Any = {"dropouts": lambda *where: where == (1, 3)}  # the request is repeated
    with pytest.warns(UserWarning, match=r"Clients \[3\] sent nothing"):
        late = fgl.run(unlearned(plain(), **how), own, num_rounds=3, clients_at_once=1, **absent)
    assert apart(late.outbox[0]["model"], theta) < 1e-12
    got = fgl.run(retrained(plain(), client=gone), own, num_rounds=3, clients_at_once=1)
    want = fgl.run(plain(), own, num_rounds=3, clients_at_once=1, dropouts=lambda _, k: k in gone)
    assert same(got.outbox[0], want.outbox[0])
    for wrong in ([], [0, -1], [0.5], range(4)):
        with pytest.raises((ValueError, TypeError), match="client"):
            fgl.run(retrained(plain(), client=wrong), own, num_rounds=1)  # type: ignore[arg-type]


def test_who_is_absent_is_asked_again() -> None:
    absent: Any = {"dropouts": lambda *where: where == (AT, GONE)}
    method = unlearned(plain(), client=GONE, at=AT, radius=0.5)
    own = clients()
    one = fgl.run(method, own, num_rounds=AT + 1, clients_at_once=1)
    with pytest.warns(UserWarning, match="sent nothing"):
        two = fgl.run(method, own, num_rounds=AT + 2, clients_at_once=1, **absent)
    assert apart(one.outbox[0]["model"], two.outbox[0]["model"]) < 1e-12
    assert int(two.server_state["rounds"]) == AT + 1


def test_the_usual_radius_is_a_third_of_the_way_to_random_models() -> None:
    method = unlearned(plain(), client=GONE, at=1)
    with pytest.raises(ValueError, match="num_rounds to be at least 2 .*at=1.* got 1"):
        fgl.run(method, clients(), num_rounds=1)
    with pytest.raises(ValueError, match="num_rounds to be at least 2"):
        fgl.run(method, clients(), num_rounds=1, start=fgl.run(plain(), clients(), num_rounds=1))
    method = replace(method, rules=plain().rules)
    result = fgl.run(method, clients(), num_rounds=1, clients_at_once=1)
    radius: Tensor = receive_as_a_run(method, result.outbox[0], {}, clients()[0])[1]["radius"]
    centre, initial = result.outbox[0]["model"], plain().initial()
    drawn = []
    for seed in range(200):
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            drawn.append(square(centre, fgl.nn.GCN(6, 8, 3).double().state_dict()))
    assert float(radius) == pytest.approx((sum(drawn) / 200 / 3) ** 0.5, rel=0.05)
    zero = {name: torch.zeros_like(value) for name, value in initial.items()}
    want = (square(centre, zero) + square(initial, zero)) / 3
    assert float(radius) == pytest.approx(want**0.5, rel=1e-6)


def test_a_client_that_is_not_there_cannot_be_forgotten() -> None:
    for method in (retrained(plain(), client=9), unlearned(plain(), client=9, at=1)):
        with pytest.raises(ValueError, match="client to be one of"):
            fgl.run(method, clients(), num_rounds=2)
