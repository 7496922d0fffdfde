"""What a run carries over ``start=``: every answer of a client counts, whatever came between."""

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from conformance import known
from federations import ruled
from scipy.optimize import brentq
from scipy.stats import norm

import fgl
from fgl import privacy
from fgl.federation import Joining
from fgl.privacy.record import Noise, spent_epsilon, with_answers, with_noise
from fgl.transforms import central_gaussian, local_gaussian, secure_sum, summed_gaussian

DELTA = 1e-5


def task() -> Any:
    return known("nodes", 0.0, torch.float32)


def summed(made: Any, noise: float, **how: Any) -> fgl.Method:
    given = {"threshold": 4, "length": 1.0, **how}
    return summed_gaussian(made.fedavg, noise_multiplier=noise, **given)


KINDS: dict[str, Any] = {
    "local": lambda made, noise: local_gaussian(made.fedavg, length=1.0, noise_multiplier=noise),
    "central": lambda made, noise: central_gaussian(
        made.fedavg, length=1.0, noise_multiplier=noise
    ),
    "summed": summed,
    "local in a sum": lambda made, noise: secure_sum(
        local_gaussian(made.fedavg, length=1.0, noise_multiplier=noise), threshold=4
    ),
}
kinds = pytest.mark.parametrize("kind", KINDS)


def ran(method: fgl.Method, made: Any, times: int, start: Any = None, **how: Any) -> Any:
    rounds = times * method.rules.exchange
    return fgl.run(
        method, made, num_rounds=rounds, start=start, watch=fgl.transforms.privacy_spent, **how
    )


def said(result: Any) -> float:
    return float(result.history[-1].metrics["epsilon"])


def of_one_mechanism(noise: float) -> float:
    """Balle and Wang 2018, Theorem 8, solved for epsilon: of one Gaussian mechanism."""

    def too_much(eps: float) -> float:
        a, b = 1 / (2 * noise), eps * noise
        return float(norm.cdf(a - b) - math.exp(eps) * norm.cdf(-a - b)) - DELTA

    return float(brentq(too_much, 0, 100))


@kinds
def test_runs_with_other_noise_are_one_mechanism_together(kind: str) -> None:
    """Gaussian mechanisms are one with the sum of the inverse squares; .549 was said of 5.776."""
    made, build = task(), KINDS[kind]
    first = ran(build(made, 1.0), made, 2)
    both = ran(build(made, 10.0), made, 1, first)
    assert said(both) == pytest.approx(of_one_mechanism(1 / math.sqrt(2 + 1 / 100)), rel=1e-4)
    back = ran(build(made, 1.0), made, 1, both)
    assert said(back) == pytest.approx(of_one_mechanism(1 / math.sqrt(3 + 1 / 100)), rel=1e-4)
    assert said(ran(build(made, 1.0), made, 1, first)) == pytest.approx(
        of_one_mechanism(1 / math.sqrt(3)), rel=1e-4
    )


def test_sums_of_another_size_are_composed_by_what_was_in_them() -> None:
    """Four clients whose shares are for three: the sum has 4/3 of the variance that was asked."""
    made = task()
    first = ran(summed(made, 2.0), made, 1)
    both = ran(summed(made, 2.0, threshold=3), made, 1, first)
    want = of_one_mechanism(1 / math.sqrt(1 / 4 + 3 / 4 / 4))
    assert said(both) == pytest.approx(want, rel=1e-4)
    with pytest.raises(ValueError, match="Expected colluders to be 0"):
        ran(summed(made, 2.0, colluders=1), made, 1, first)
    rehearsed = {"unprotected": True}
    with pytest.warns(UserWarning, match="This run protects nothing"):
        loud = summed(made, 2.0, **rehearsed)
    assert said(ran(loud, made, 1, first)) == math.inf


@kinds
def test_a_plain_run_between_keeps_the_count_and_protects_nothing(kind: str, tmp_path: Any) -> None:
    made, build = task(), KINDS[kind]
    first = ran(build(made, 2.0), made, 1)
    none = ran(made.fedavg, made, 0, first)
    after_none = ran(build(made, 2.0), made, 1, none)
    assert said(after_none) == pytest.approx(of_one_mechanism(2 / math.sqrt(2)), rel=1e-4)
    how: Any = {"checkpoint": tmp_path}
    ran(made.fedavg, made, 1, first, **how)
    plain = ran(made.fedavg, made, 2, first, **how)  # resumed
    assert [record.metrics["epsilon"] for record in plain.history] == [math.inf] * 2
    spent: Any = plain.server_state["privacy"]
    assert spent["rounds"].tolist() == [2] * 4 and spent["earlier_rounds"].tolist() == [[1.0] * 4]
    assert said(ran(build(made, 2.0), made, 1, plain)) == math.inf
    before = ran(build(made, 2.0), made, 1, fgl.run(made.fedavg, made, num_rounds=1))
    assert said(before) == math.inf


@kinds
def test_runs_between_hide_no_plain_round(kind: str) -> None:
    """Plain rounds, then runs of no round or of other clients, then noise."""
    made, build = task(), KINDS[kind]
    plain = fgl.run(made.fedavg, made, num_rounds=1)
    for _ in range(2):
        plain = fgl.run(made.fedavg, made, num_rounds=0, start=plain)
    none = ran(build(made, 2.0), made, 0, plain)
    assert said(ran(build(made, 2.0), made, 1, plain)) == math.inf
    assert said(ran(build(made, 2.0), made, 1, none)) == math.inf
    counted: Any = none.server_state["privacy"]
    assert counted["earlier_rounds"].tolist() == [[1.0] * 4] and not none.unprotected


@kinds
def test_a_resumed_run_knows_the_plain_rounds_before_its_start(kind: str, tmp_path: Any) -> None:
    """Also where the start of the resume has the same tensors and no history."""
    made, build = task(), KINDS[kind]
    how: Any = {"num_rounds": 1, "checkpoint": tmp_path}
    first = fgl.run(made.fedavg, made, num_rounds=1)
    fgl.run(made.fedavg, made, start=first, **how)
    with pytest.raises(ValueError, match="start=None.*resume with the start= of before"):
        fgl.run(made.fedavg, made, **how)
    resumed = fgl.run(made.fedavg, made, start=replace(first, history=[]), **how)
    spent: Any = ran(build(made, 2.0), made, 1, resumed).server_state["privacy"]
    assert spent["earlier_rounds"].tolist() == [[2.0] * 4]


def test_a_start_that_ended_inside_an_exchange_is_refused_with_the_number_of_rounds() -> None:
    made = task()
    hidden = secure_sum(made.fedavg, threshold=4)
    cut = fgl.run(hidden, made, num_rounds=4, callbacks=[lambda record, _: record.round == 1])
    others = hidden, made.fedavg, secure_sum(made.fedavg, threshold=3), KINDS["summed"](made, 1.0)
    for method in others:
        with pytest.raises(ValueError, match=r"start to be a run of whole .* num_rounds=4 ends"):
            fgl.run(method, made, num_rounds=4, start=cut)
    whole = fgl.run(hidden, made, num_rounds=4)
    one = fgl.run(made.fedavg, made, num_rounds=1, start=whole)
    fgl.run(made.fedavg, made, num_rounds=1, start=replace(one, method=None))  # rounds of no method


def test_a_plain_round_costs_who_was_asked_for_data_and_nobody_else() -> None:
    made = task()
    first = ran(central_gaussian(made.fedavg, length=1.0, noise_multiplier=2.0), made, 1)

    def gone(index: int, client: int) -> bool:
        return client > 0

    plain = ran(made.fedavg, made, 1, first, dropouts=gone)
    assert plain.server_state["privacy"]["rounds"].tolist() == [1, 0, 0, 0]
    hidden = secure_sum(made.fedavg, threshold=3)
    history = ran(hidden, made, 1, first).history
    costs = [record.metrics["epsilon"] for record in history[1:3]]
    assert costs == [said(first), math.inf]  # keys and letters tell nothing of the data


PAIRS = [("local", "central"), ("central", "summed"), ("summed", "local in a sum")]


@pytest.mark.parametrize(("before", "now"), PAIRS)
def test_noise_for_other_neighbours_is_refused_before_any_round(before: str, now: str) -> None:
    made = task()
    first = ran(KINDS[before](made, 2.0), made, 1)
    asked: list[Any] = []
    plain = made.fedavg

    def looks(*given: Any) -> Any:
        asked.append(given)
        return plain.receive(*given)

    watching = replace(plain, receive=looks)
    method = KINDS[now](SimpleNamespace(fedavg=watching), 2.0)
    with pytest.raises(ValueError, match=r"model\.load_state_dict\(start\.outbox\[0\]\['model'\]"):
        ran(method, made, 1, first)
    assert not asked
    plain.model.load_state_dict(first.outbox[0]["model"])  # the remedy
    assert said(ran(KINDS[now](made, 2.0), made, 1)) == pytest.approx(of_one_mechanism(2), rel=1e-4)


def test_the_client_who_paid_most_is_found_among_all() -> None:
    """Beside each client's own epsilon, for sampled and unsampled noise of three kinds."""
    generator = torch.Generator().manual_seed(0)
    for rate in (1.0, 0.5):
        noises = [Noise(1.0, rate), Noise(2.0, 1.0, 2.0), Noise(5.0)]
        table = torch.randint(3, (3, 3), generator=generator).tolist()
        record: Any = {}
        for noise, times in zip(noises, zip(*table, strict=True), strict=True):
            record = with_noise(record, noise, num_clients=3, kind="central_gaussian", delta=DELTA)
            record = with_answers(record, dict(enumerate(times)))
        each = [
            privacy.accountant.composed_epsilon(
                {(1.0, rate): a, (2.0, 1.0): 2 * b, (5.0, 1.0): c}, delta=DELTA
            )
            for a, b, c in {tuple(row) for row in table}
        ]
        assert spent_epsilon(record) == pytest.approx(max(each))


def test_what_clients_say_when_they_join_counts_too() -> None:
    """All are asked when they join, one of them in the round; a server may drop its old state."""
    made = task()
    first = ran(KINDS["local"](made, 2.0), made, 1)

    def welcome(inbox: Any, state: Any) -> Any:
        assert "privacy" not in state
        return inbox.sent, {"model": state["model"]}

    say = lambda graph: {"num_examples": torch.tensor(graph.num_train)}  # noqa: E731
    method = ruled(made.fedavg, joining=Joining(say, welcome))
    record = ran(method, made, 1, first, participation=0.01).server_state["privacy"]
    assert sorted(record["rounds"].tolist()) == [1] * (len(made.clients) - 1) + [2]
    assert float(record["noise_multiplier"]) == 0.0
