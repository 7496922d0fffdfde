"""Clipping and noise as transforms of methods: what leaves a client, what a server sends."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from conformance import ROWS, K, known, without_edges
from federations import close, receive_as_a_run, refuses, same

import fgl
import fgl.experiment
from fgl import Method, methods, privacy
from fgl.aggregate.robust import norm_bound
from fgl.federation import Inbox, OfMeans
from fgl.transforms import (
    attacked,
    central_gaussian,
    clipped,
    local_gaussian,
    per_example_gaussian,
    privacy_spent,
    robust,
    scaled_updates,
    secure_sum,
    summed_gaussian,
)

F32, F64 = torch.float32, torch.float64
KINDS: dict[str, Callable[..., Method]] = {"local": local_gaussian, "central": central_gaussian}
kinds = pytest.mark.parametrize("kind", KINDS)


def task(dtype: torch.dtype = F64, name: str = "nodes") -> Any:
    return known(name, 0.0, dtype)


def rehearsed(kind: str, method: Method, **how: Any) -> Method:
    """With noise of the run's seed, which may be repeated."""
    how = {"length": 0.5, "noise_multiplier": 0.1, **how}
    with pytest.warns(UserWarning, match="protects nothing"):
        return KINDS[kind](method, **how, unprotected=True)


def change(message: Any, sent: Any) -> torch.Tensor:
    return torch.cat([(value - sent[n]).flatten() for n, value in message["model"].items()])


def uploads(method: Method, made: Any, seed: int = 0) -> tuple[dict[int, Any], Any]:
    """What every client sends in the first round."""
    first: Any = {"model": method.initial()}
    found = {}
    for client, own in enumerate(made.clients):
        params, context = receive_as_a_run(method, first, {}, own)
        done = fgl.federation.train(method, params, own, context, seed=seed)
        torch.manual_seed(client)
        found[client] = method.send(done.params, context, {}, own)[0]
    return found, first


def test_clipped_updates_have_the_length_and_the_direction() -> None:
    made = task()
    plain, first = uploads(made.fedavg, made)
    short, _ = uploads(clipped(made.fedavg, length=0.05), made)
    for client in plain:
        before, after = (change(each[client], first["model"]) for each in (plain, short))
        assert before.norm() > 0.05
        close(after.norm(), torch.tensor(0.05, dtype=F64))
        close(after / after.norm(), before / before.norm())
        assert short[client]["num_examples"] == 1
        assert list(short[client]) == list(plain[client])


@kinds
def test_the_noise_is_as_large_as_it_says(kind: str) -> None:
    """Local: ``2 length noise`` in every upload. Central: ``length noise / K`` in the mean."""
    made = task()
    length, noise = 0.05, 30.0
    sigma = 2 * length * noise if kind == "local" else length * noise / K
    method = KINDS[kind](made.fedavg, length=length, noise_multiplier=noise)
    found, first = uploads(method, made)
    drawn = [change(message, first["model"]) for message in found.values()]
    if kind == "central":
        assert max(float(each.norm()) for each in drawn) <= length * (1 + 1e-9)
        inbox = Inbox(found, K, dict.fromkeys(found, first))
        outboxes = [method.aggregate(inbox, first)[0] for _ in range(20)]
        drawn = [change(outbox[0], first["model"]) for outbox in outboxes]
    every = torch.cat(drawn)
    error = sigma / math.sqrt(2 * len(every))
    assert abs(float(every.std()) - sigma) < 6 * error + length
    assert abs(float(every.mean())) < 6 * sigma / math.sqrt(len(every)) + length


@kinds
def test_noise_does_not_come_from_the_seed(kind: str) -> None:
    """What the how-to did: the same run again takes the noise away. Here it does not."""
    made = task()
    method = KINDS[kind](made.fedavg, length=0.5, noise_multiplier=1.0)
    one, two = (fgl.run(method, made, num_rounds=1, seed=3) for _ in range(2))
    apart = change(one.outbox[0], two.outbox[0]["model"])
    assert float(apart.norm()) > 0.1
    rehearsal = rehearsed(kind, made.fedavg)
    one, two = (fgl.run(rehearsal, made, num_rounds=2, seed=3) for _ in range(2))
    assert same(dict(one.outbox[0]), dict(two.outbox[0]))
    other = fgl.run(rehearsal, made, num_rounds=2, seed=4)
    assert not same(dict(one.outbox[0]), dict(other.outbox[0]))


def test_the_central_sum_bounds_what_a_lying_client_does() -> None:
    made = task()
    method = central_gaussian(made.fedavg, length=0.05, noise_multiplier=1e-6)
    found, first = uploads(method, made)
    sent = dict.fromkeys(found, first)
    honest = method.aggregate(Inbox(found, K, sent), first)[0]
    for forged in (1e30, math.inf, math.nan):
        model = {name: torch.full_like(value, forged) for name, value in first["model"].items()}
        lied = {**found, 2: {"model": model, "num_examples": torch.tensor(10**9)}}
        got = method.aggregate(Inbox(lied, K, sent), first)[0]
        moved = change(got[0], honest[0]["model"]).norm()
        assert float(moved) <= 2 * 0.05 / K + 1e-4


REFUSED = {
    ("scaffold", "nodes"): "'shift'",
    ("fedselect", "nodes"): "'own'",
    ("fedpub", "nodes"): "'embedding'",
    ("fedgl", "overlapping"): "'node_id', 'embeddings', 'predictions'",
    ("fedego", "ego"): "'embeddings', 'labels'",
    ("gpfl", "graphs"): "'answers', 'properties'",
    ("local", "nodes"): "to have a model to clip",
}


@kinds
@pytest.mark.parametrize("name", REFUSED, ids=lambda pair: pair[0])
def test_parts_that_are_not_covered_are_refused_by_name(kind: str, name: Any) -> None:
    made = known(name[1], 0.0, F32)
    inner = ROWS[name[0]].build(made)
    whole_inbox = kind == "central" and not isinstance(inner.aggregate, OfMeans)
    said = "whole inbox" if whole_inbox else REFUSED[name]
    with pytest.raises(ValueError, match=said):
        fgl.run(KINDS[kind](inner, length=1.0, noise_multiplier=1.0), made, num_rounds=1)


@kinds
def test_a_wrapper_outside_that_adds_a_part_is_refused(kind: str) -> None:
    made = known("nodes", 0.0, F32)
    inner = KINDS[kind](made.fedavg, length=1.0, noise_multiplier=1.0)

    def send(*given: Any) -> Any:
        message, state = inner.send(*given)
        return {**message, "secret": torch.ones(2)}, state

    with pytest.raises(ValueError, match="outermost wrapper, but got .* whose send is another"):
        fgl.run(replace(inner, send=send), made, num_rounds=1)


def test_a_server_without_one_mean_takes_local_noise_only() -> None:
    made = task()
    fedamp = methods.fedamp(made.fedavg)
    with pytest.raises(ValueError, match="central_gaussian .* fedamp.* the whole inbox"):
        central_gaussian(fedamp, length=1.0, noise_multiplier=1.0)
    local = local_gaussian(fedamp, length=1.0, noise_multiplier=1.0)
    result = fgl.run(local, made, num_rounds=2, watch=privacy_spent)
    assert result.history[-1].metrics["epsilon"] > 0


@kinds
def test_epsilon_is_in_the_history_of_who_took_part_most(kind: str) -> None:
    made = known("nodes", 0.0, F32)
    method = KINDS[kind](made.fedavg, length=1.0, noise_multiplier=2.0, delta=1e-4)
    how: Any = {"seed": 1, "participation": 0.5, "watch": privacy_spent}
    result = fgl.run(method, made, num_rounds=5, dropouts=lambda i, k: (i, k) == (4, 0), **how)
    times = torch.zeros(K, dtype=torch.int64)
    for record in result.history:
        times[[k for k in record.participants if k not in record.dropped]] += 1
        want = privacy.epsilon(noise_multiplier=2.0, rounds=int(times.max()), delta=1e-4)
        assert record.metrics["epsilon"] == pytest.approx(want)
        assert record.metrics["delta"] == pytest.approx(1e-4)
    assert times.max() < 5
    known_: Any = result.server_state["privacy"]
    assert known_["rounds"].equal(times)
    said: Any = {"recipe": "fedavg", "dataset": "none", "clients": K, "rounds": 5, "seed": 1}
    found = fgl.experiment.report(result, **said, config={})
    assert found["metrics"]["epsilon"]["last"] == result.history[-1].metrics["epsilon"]
    assert len(found["curves"]["epsilon"]) == 5


@pytest.mark.parametrize("name", ["local", "central", "summed"])
def test_noise_of_any_size_is_counted(name: str) -> None:
    """A server's state with a number above 300 was refused, and the round with it."""
    made = known("nodes", 0.0, F32)
    noise = privacy.noise_for(epsilon=0.001, rounds=1, delta=1e-5)
    assert noise > 1000
    how: dict[str, Any] = {"length": 1e-4, "noise_multiplier": noise}
    method = summed_gaussian(made.fedavg, threshold=4, **how) if name == "summed" else None
    method = method or KINDS[name](made.fedavg, **how)
    result = fgl.run(
        method, made, num_rounds=method.rules.exchange, watch=privacy_spent, strict=True
    )
    assert result.history[-1].dropped == {}
    assert result.history[-1].metrics["epsilon"] == pytest.approx(0.001, rel=1e-3)


@kinds
def test_a_rehearsal_has_spent_everything(kind: str) -> None:
    made = known("nodes", 0.0, F32)
    result = fgl.run(rehearsed(kind, made.fedavg), made, num_rounds=1, watch=privacy_spent)
    assert result.history[0].metrics["epsilon"] == math.inf


def test_what_cannot_be_accounted_is_refused() -> None:
    made = known("nodes", 0.0, F32)
    refuses("server's state to have 'privacy'", lambda: privacy_spent({"model": {}, "m": {}}))
    one = partial(local_gaussian, length=1.0, noise_multiplier=1.0)
    refuses("another inside", lambda: one(one(made.fedavg)))
    for bad in ({"length": 0.0}, {"noise_multiplier": 0.0}, {"delta": 1.0}):
        for kind in KINDS.values():
            with pytest.raises(ValueError, match=f"Expected {next(iter(bad))}"):
                kind(made.fedavg, **{"length": 1.0, "noise_multiplier": 1.0, **bad})


NOISY = {"length": 0.5, "noise_multiplier": 1.0, "delta": 1e-5, "unprotected": False}
SAMPLED = {**NOISY, "sample_rate": 0.5, "expected_batch_size": 8, "num_steps": 1}
SUMMED = {"threshold": 3, "bits": 28, "bound": 1024.0, "colluders": 0, "signed": None}
# A transform, all that it is set to, and another setting.
TOLD: dict[str, Any] = {
    "clipped": (clipped, {"length": 0.5}, {"length": 0.6}),
    "local_gaussian": (local_gaussian, NOISY, {"noise_multiplier": 2.0}),
    "central_gaussian": (central_gaussian, NOISY, {"delta": 1e-6}),
    "per_example_gaussian": (per_example_gaussian, SAMPLED, {"expected_batch_size": 4}),
    "secure_sum": (secure_sum, {**SUMMED, "honest": 2, "unprotected": False}, {"bits": 20}),
    "summed_gaussian": (summed_gaussian, {**SUMMED, **NOISY}, {"colluders": 1}),
    "robust": (robust, {"rule": partial(norm_bound, bound=1.0), "bucket": 1, "untouched": []},
        {"rule": partial(norm_bound, bound=2.0)},),
    "attacked": (attacked, {"attackers": [1], "attack": scaled_updates(-1.0)},
        {"attack": scaled_updates(-2.0)},),
}  # fmt: skip


@pytest.mark.few
@pytest.mark.parametrize("name", TOLD)
def test_a_run_knows_what_a_transform_is_set_to(name: str, tmp_path: Any) -> None:
    """A checkpoint made with other noise is another run's, even where no round shows it."""
    wrap, how, other = TOLD[name]
    made = without_edges(task(F32))
    method = wrap(made.fedavg, **how)
    given: Any = {"checkpoint": tmp_path, "config": {"mu": 1}, "clients_at_once": 1}
    result = fgl.run(method, made.clients, num_rounds=1, **given)
    told = result.config["layers"][-1]
    assert result.config["mu"] == 1
    assert {"name", *how} <= set(told) and told["name"] == name
    assert all(told[key] == value for key, value in how.items() if not callable(value))
    again = fgl.run(wrap(made.fedavg, **how), made.clients, num_rounds=1, **given)
    assert again.config == result.config
    with pytest.raises(ValueError, match=f"of this run with settings of {name}={{"):
        fgl.run(wrap(made.fedavg, **{**how, **other}), made.clients, num_rounds=1, **given)
    refuses("of this run with", lambda: fgl.run(made.fedavg, made.clients, num_rounds=1, **given))


BESIDE: dict[str, Any] = {  # what wraps a method, and whether its clients keep to themselves
    "clipped": (partial(clipped, length=0.5), False),
    "central": (partial(central_gaussian, length=0.5, noise_multiplier=1.0), False),
    "local": (partial(local_gaussian, length=0.5, noise_multiplier=1.0), True),
    "examples": (partial(per_example_gaussian, **TOLD["per_example_gaussian"][1]), True),
    "secure": (partial(secure_sum, threshold=3), True),
    "summed": (partial(summed_gaussian, threshold=3, length=0.5, noise_multiplier=1.0), True),
}


def sized(dtype: torch.dtype = F32) -> tuple[Any, list[fgl.Graph]]:
    """A task without edges, and clients of other sizes, one of them without an example."""
    made = without_edges(task(dtype))
    own = made.clients[0]
    empty = own.replace(train_mask=torch.zeros_like(own.train_mask))
    return made, [*made.clients, empty]


@pytest.mark.parametrize("at_once", [1, "all"])
@pytest.mark.parametrize("name", BESIDE)
def test_what_stands_beside_a_message(name: str, at_once: Any, reached: Any) -> None:
    """Losses and numbers of examples, of everybody whose message does not hide them."""
    (wrap, silent), (made, clients) = BESIDE[name], sized()
    method = wrap(made.fedavg)
    first: Any = {"model": method.initial()}
    outbox = dict.fromkeys(range(len(clients)), first)
    executor: Any = fgl.federation.Loop(method, clients, seed=0)
    if at_once == "all":
        executor = fgl.federation.Batch(method, clients, len(clients), seed=0)
    answers = [answer for _, answer in sorted(executor.train(0, outbox, range(len(clients))))]
    told = [(len(answer.losses), answer.num_examples) for answer in answers]
    if silent:
        reached("clients told something beside", sum(each != (0, 1) for each in told), len(told))
        assert told == [(0, 1)] * len(clients)
    else:
        steps = made.fedavg.train.num_steps
        assert told == [(steps, own.num_train) for own in clients] and told[-1] == (steps, 0)
    forms = [fgl.federation.gate.uploads.form_of(answer.message) for answer in answers]
    assert all(form == forms[0] for form in forms)
    if name not in ("secure", "summed"):  # which say their keys first
        assert [int(answer.message["num_examples"]) for answer in answers] == [1] * len(clients)


@pytest.mark.parametrize("name", ["local", "examples"])
def test_a_history_tells_nothing_that_noise_hides(name: str) -> None:
    made, clients = sized()
    (record,) = fgl.run(BESIDE[name][0](made.fedavg), clients, num_rounds=1).history
    assert math.isnan(record.loss) and record.zero_weight == [] and record.dropped == {}


def test_before_the_first_answer_nothing_is_spent_and_without_noise_nothing_is_said() -> None:
    """A run without noise has no epsilon, in no round: 0 would say that it is perfectly private."""
    made = known("nodes", 0.0, F32)
    plain, threshold = made.fedavg, K // 2 + 1
    one = local_gaussian(plain, length=1.0, noise_multiplier=1.0, delta=1e-6)
    before: Any = {"callbacks": [lambda record, _: record.round == 2]}  # before the sum
    for method, rounds in ((one, 0), (secure_sum(one, threshold=threshold), 4)):
        state = fgl.run(method, made.clients, num_rounds=rounds, **before).server_state
        assert privacy_spent(state) == {"epsilon": 0.0, "delta": 1e-6}
    for method in (plain, secure_sum(plain, threshold=threshold)):
        for rounds in (0, method.rules.exchange):
            with pytest.raises(ValueError, match="server's state to have 'privacy'"):
                privacy_spent(fgl.run(method, made.clients, num_rounds=rounds).server_state)
