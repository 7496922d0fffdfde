"""Robust means and attacks as transforms of methods."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from conformance import K, known
from federations import close, refuses, same

import fgl
from fgl import Method, methods
from fgl.aggregate import mean
from fgl.aggregate import robust as rules
from fgl.federation import Inbox
from fgl.transforms import attacked, robust, scaled_updates
from fgl.transforms.attacks import Attack, heavy, little_is_enough, negated_models, noise

F64 = torch.float64
SENT = {"model": {"w": torch.tensor([1.0, -2.0, 0.5]), "b": torch.tensor(0.25)}}


def inbox(number: int = 5, *, seed: int = 0, examples: list[int] | None = None) -> Inbox:
    """Uploads of clients who were all sent the same."""
    g = torch.Generator().manual_seed(seed)
    came: dict[int, Any] = {
        k: {
            "model": {
                name: t + torch.randn(t.shape, generator=g) for name, t in SENT["model"].items()
            },
            "num_examples": torch.tensor(examples[k] if examples else 3 * k + 1),
        }
        for k in range(number)
    }
    return Inbox(came, number, dict.fromkeys(range(number), SENT))


def task(name: str = "nodes") -> Any:
    return known(name, 0.0, F64)


def test_a_lie_about_examples_weighs_nothing() -> None:
    """Bit for bit; FedAvg takes the liar's model."""
    fedavg = task().fedavg
    uploads = inbox()
    method = robust(fedavg, rules.geometric_median)
    honest, lied = method.aggregate(uploads, {}), None
    lied = attacked(method, [1], heavy()).aggregate(uploads, {})
    assert same(dict(honest[0]), dict(lied[0]))
    plain, _ = attacked(fedavg, [1], heavy()).aggregate(uploads, {})
    close(plain[0]["model"], uploads[1]["model"], atol=1e-6)


def test_clients_with_different_models_are_refused() -> None:
    uploads = inbox(3)
    sent = {k: {"model": {n: t + k for n, t in SENT["model"].items()}} for k in range(3)}
    with pytest.raises(ValueError, match="to have been sent the same model"):
        robust(task().fedavg, rules.median).aggregate(Inbox(dict(uploads), 3, sent), {})


def test_too_few_clients_keep_the_old_model() -> None:
    """Those who are left may be too few; a federation that is too small is an error."""
    made = task()
    method = robust(made.fedavg, partial(rules.trimmed_mean, bad=1))
    with pytest.warns(UserWarning, match="half of the 2 clients, but got 1: everybody keeps"):
        result = fgl.run(method, made, num_rounds=2, dropouts=lambda r, k: r == 1 and k > 1)
    want = fgl.run(method, made, num_rounds=1)
    assert same(dict(result.outbox), dict(want.outbox))
    with pytest.raises(rules.TooManyBad, match=f"half of the {K} clients, but got 2"):
        fgl.run(robust(made.fedavg, partial(rules.krum, bad=2)), made, num_rounds=1)
    with pytest.raises(rules.TooManyBad, match="half of the 2 clients, but got 1"):
        fgl.run(robust(made.fedavg, partial(rules.krum, bad=1), bucket=2), made, num_rounds=1)


# Attacks.

ATTACKS: dict[str, Attack] = {
    "scale -1e6": scaled_updates(-1e6), "scale -10": scaled_updates(-10.0),
    "sign of the model": negated_models, "sign of the update": scaled_updates(-1.0),
    "noise": noise(), "little is enough": little_is_enough(), "weight 1e9": heavy(),
}  # fmt: skip


def spy(method: Method, seen: list[Inbox]) -> Method:
    def aggregate(given: Inbox, state: Any) -> Any:
        seen.append(given)
        return method.aggregate(given, state)

    return replace(method, aggregate=aggregate)


def forged(attack: Attack, uploads: Inbox, bad: list[int]) -> Inbox:
    seen: list[Inbox] = []
    attacked(spy(task().fedavg, seen), bad, attack).aggregate(uploads, {})
    return seen[0]


def test_attacks_are_their_formulas() -> None:
    uploads = inbox()
    came, sent = uploads.stack("model")["w"], SENT["model"]["w"]
    tens = forged(scaled_updates(-10.0), uploads, [2])[2]["model"]
    torch.testing.assert_close(tens["w"], sent - 10 * (came[2] - sent))
    turned = forged(scaled_updates(-1.0), uploads, [2])[2]["model"]
    torch.testing.assert_close(turned["w"], 2 * sent - came[2])
    assert forged(negated_models, uploads, [2])[2]["model"]["w"].equal(-came[2])
    assert forged(heavy(), uploads, [2])[2]["num_examples"].equal(torch.tensor(10**9))
    honest = came[[0, 1, 3]]
    want = honest.mean(0) - 1.5 * ((honest - honest.mean(0)) ** 2).mean(0).sqrt()
    both = forged(little_is_enough(), uploads, [2, 4])
    torch.testing.assert_close(both[2]["model"]["w"], want)
    assert same(dict(both[2]["model"]), dict(both[4]["model"]))
    one, two = (forged(noise(0.5), uploads, [2])[2]["model"]["w"] - came[2] for _ in range(2))
    assert 0 < one.abs().max() < 5 and not one.equal(two)


def test_an_attacker_that_is_no_client_is_named() -> None:
    """A method without an attack looks robust."""
    made = task()
    with pytest.raises(ValueError, match=f"attackers .* {K}, but got {K + 5}"):
        fgl.run(attacked(made.fedavg, [K + 5], noise()), made, num_rounds=1)


def test_all_clients_hostile_is_still_a_run() -> None:
    uploads = inbox()
    assert same(dict(forged(little_is_enough(), uploads, list(range(5)))), dict(uploads))


def test_an_upload_without_a_model_is_named() -> None:
    inbox = Inbox({0: {"sums": torch.ones(1)}}, 1)
    refuses(r"a model to forge, but got \['sums'\]", lambda: scaled_updates()(inbox, [0]))


def test_what_accept_refuses_of_a_forgery_is_left_out() -> None:
    fedavg = task().fedavg

    def accept(message: Any, client: int, state: Any) -> None:
        if message["num_examples"] > 1000:
            raise ValueError("Expected fewer")

    strict, uploads = replace(fedavg, accept=accept), inbox()
    got, _ = attacked(strict, [1], heavy()).aggregate(uploads, {})
    others = Inbox({k: uploads[k] for k in (0, 2, 3, 4)}, 5, uploads.sent)
    assert same(dict(got), dict(fedavg.aggregate(others, {})[0]))
    endless, _ = attacked(fedavg, [1], scaled_updates(float("inf"))).aggregate(uploads, {})
    assert same(dict(endless), dict(got))


@pytest.mark.parametrize(
    "around", [lambda m: robust(m, rules.median), methods.fedopt, methods.gcfl, methods.ring]
)
def test_a_server_around_an_attack_is_refused(around: Callable[[Method], Method]) -> None:
    """It would see the honest uploads, and look as if it withstood."""
    made = task()
    hostile = attacked(made.fedavg, [0], scaled_updates())
    with pytest.raises(ValueError, match="attacked to be the outermost|ring .* would be lost"):
        fgl.run(around(hostile), made, num_rounds=1)


STRONG: dict[str, Callable[..., Any]] = {
    "median": rules.median, "trimmed mean": partial(rules.trimmed_mean, bad=1),
    "krum": partial(rules.krum, bad=1), "multi-krum": partial(rules.multi_krum, bad=1),
    "geometric median": partial(rules.geometric_median, bad=1), "norm bound": rules.norm_bound,
    "centred clipping": rules.centred_clipping,
}  # fmt: skip


@pytest.mark.parametrize("rule", STRONG)
@pytest.mark.parametrize("attack", ATTACKS)
def test_one_of_seven_cannot_drive_the_model_away(rule: str, attack: str) -> None:
    """Beside the honest mean, within twice the spread of the honest models."""
    uploads, fedavg = inbox(7, seed=4), task().fedavg
    torch.manual_seed(0)
    got, plain = (
        attacked(method, [3], ATTACKS[attack]).aggregate(uploads, {})[0][0]["model"]
        for method in (robust(fedavg, STRONG[rule]), fedavg)
    )
    honest = Inbox({k: uploads[k] for k in uploads if k != 3}, 7, uploads.sent).stack("model")
    centre: Any = mean(honest, torch.ones(6))

    def distance(one: Any) -> float:
        return float(sum(((one[n] - centre[n]) ** 2).sum() for n in centre) ** 0.5)

    spread = max(distance({n: honest[n][k] for n in honest}) for k in range(6))
    assert distance(got) <= 2 * spread
    assert attack != "scale -1e6" or distance(plain) > 1e4 * spread


def test_who_has_no_example_is_not_heard() -> None:
    fedavg = task().fedavg
    method = robust(fedavg, rules.median)
    got, _ = method.aggregate(inbox(4, examples=[1, 0, 7, 2]), {})
    whole = inbox(4)
    heard = Inbox({k: whole[k] for k in (0, 2, 3)}, 4, whole.sent)
    want, _ = method.aggregate(heard, {})
    assert same(dict(got), dict(want))
    with pytest.warns(UserWarning, match="num_examples to be positive, but got 0 from all"):
        assert method.aggregate(inbox(4, examples=[0] * 4), {"n": torch.ones(1)}) == ({}, {"n": 1})
