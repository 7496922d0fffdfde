"""FedDyn and FedDC: each against the authors' rounds in loops, and the terms of their losses."""

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from by_loops import LR, STEPS, apart, clients, mean, plain, sgd, supervised, train_nodes
from torch import Tensor

import fgl
from fgl.federation import gradient
from fgl.methods import feddc, feddyn

ALPHA = 0.3
ABSENT = {(0, 1), (1, 0), (2, 2)}  # round and client


def absent(index: int, client: int) -> bool:
    return (index, client) in ABSENT


def zeros(like: Any) -> Any:
    return {name: torch.zeros_like(value) for name, value in like.items()}


def dot(one: Any, other: Any) -> Tensor:
    return sum(((one[n] * other[n]).sum() for n in one), torch.zeros((), dtype=torch.float64))


def minus(one: Any, other: Any) -> Any:
    return {name: one[name] - other[name] for name in one}


def far(one: Any, other: Any) -> Tensor:
    difference = minus(one, other)
    return dot(difference, difference) / 2


def tilted(p: Any, own: fgl.Graph, theta: Any, h: Any, alpha: float) -> Tensor:
    """FedDyn: linear in ``h - theta``, and weight decay on all of it."""
    return supervised(p, own) + alpha * dot(minus(h, theta), p) + alpha / 2 * dot(p, p)


def corrected(p: Any, own: fgl.Graph, theta: Any, h: Any, tilt: Any, alpha: float) -> Tensor:
    """FedDC: near ``theta - h``, and linear in what the others know of the gradient."""
    return supervised(p, own) + alpha * far(p, minus(theta, h)) + dot(tilt, p)


def by_hand(own: list[fgl.Graph], rounds: int, *, controls: bool) -> Any:
    """The authors' rounds: a client's weight is its examples over the mean of all clients.

    FedDyn's ``weight_list * n_clnt / sum``, FedDC's ``weight_list = weight_list / sum * n_clnt``.
    """
    theta = plain().initial()
    clients_of = range(len(own))
    h, s = [zeros(theta) for _ in own], [zeros(theta) for _ in own]
    examples = [len(train_nodes(g)) for g in own]
    common, share = zeros(theta), [each * len(own) / sum(examples) for each in examples]
    for index in range(rounds):
        models, here, change = {}, [k for k in clients_of if not absent(index, k)], zeros(theta)
        for k in here:
            alpha, at = ALPHA / share[k], {n: common[n] / share[k] for n in common}
            if controls:
                tilt = minus(at, s[k])
                models[k] = sgd(
                    lambda p, k=k, t=theta, tilt=tilt, a=alpha: corrected(
                        p, own[k], t, h[k], tilt, a
                    ),  # type: ignore[misc]
                    theta,
                )
                moved = minus(theta, models[k])
                new = {n: s[k][n] - at[n] + moved[n] / (STEPS * LR) for n in theta}
                change = {n: change[n] + share[k] * (new[n] - s[k][n]) for n in theta}
                s[k] = new
            else:
                models[k] = sgd(
                    lambda p, k=k, t=theta, a=alpha: tilted(p, own[k], t, h[k], a),  # type: ignore[misc]
                    theta,
                )
            h[k] = {n: h[k][n] + models[k][n] - theta[n] for n in theta}
        common = {n: common[n] + change[n] / len(own) for n in theta}
        middle, drift = mean(list(models.values())), mean(h)
        theta = {n: middle[n] + drift[n] for n in theta}
    return theta, h


@pytest.mark.parametrize(("build", "controls"), [(feddyn, False), (feddc, True)])
def test_rounds_are_the_authors(build: Any, controls: bool) -> None:
    own = clients()
    result = fgl.run(
        build(plain(), penalty=ALPHA), own, num_rounds=4, clients_at_once=1, dropouts=absent
    )
    theta, drift = by_hand(own, 4, controls=controls)
    assert apart(result.outbox[0]["model"], theta) < 1e-12
    for k in range(len(own)):
        assert apart(result.client_states[k]["drift"], drift[k]) < 1e-12


@pytest.mark.parametrize("build", [feddyn, feddc])
def test_weight_decay_at_a_client_without_examples_is_no_drift(build: Any) -> None:
    own, base = clients(), plain()
    own[1] = own[1].replace(train_mask=torch.zeros_like(own[1].train_mask))
    decay = replace(base.train, optimizer=partial(torch.optim.SGD, lr=0.1, weight_decay=0.1))
    result = fgl.run(build(replace(base, train=decay)), own, num_rounds=3, clients_at_once=1)
    drift = mean([state["drift"] for state in result.client_states.values()])
    assert apart(result.server_state["drift"], drift) < 1e-12


def test_with_adam_what_a_client_knows_of_its_gradient_is_one() -> None:
    """A step of Adam is as large as its rate, whatever the gradient is."""
    own, base = clients()[:1], plain()
    adam = replace(base.train, optimizer=partial(torch.optim.Adam, lr=0.01))
    method = feddc(replace(base, train=adam))
    result = fgl.run(method, own, num_rounds=1, clients_at_once=1)
    want = gradient(base, base.initial(), own[0], {})
    assert apart(result.client_states[0]["own"], want) < 1e-12


def test_sizes_of_those_who_joined_are_counted() -> None:
    from fgl.methods.feddyn import SIZES, add_sizes

    for counts, want in (((5,), (5, 1)), ((5, 0, 2), (7, 2)), ((0, 0), (1, 1))):
        uploads = {k: {"num_examples": torch.tensor(n)} for k, n in enumerate(counts)}
        sent: Any = {k: {"model": {}} for k in uploads}
        outbox, state = add_sizes(fgl.federation.Inbox(uploads, len(counts), sent), {})
        assert tuple(int(state[name]) for name in SIZES) == want
        assert tuple(int(outbox[0][name]) for name in SIZES) == want
