"""Every method with every transform of privacy, in both orders: it runs, or says why it does not.

A method outside a transform would undo or bypass it, so that only what changes nothing that leaves
a client may stand there.
"""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from conformance import ROWS, known, without_edges
from federations import same

import fgl
from fgl import Method, methods, transforms
from fgl.aggregate.robust import median

STEPS: dict[str, Any] = {"sample_rate": 0.9, "expected_batch_size": 6, "num_steps": 1}
TRANSFORMS: dict[str, Callable[[Method], Method]] = {
    "clipped": partial(transforms.clipped, length=0.5),
    "local": partial(transforms.local_gaussian, length=0.5, noise_multiplier=1.0),
    "central": partial(transforms.central_gaussian, length=0.5, noise_multiplier=1.0),
    "examples": partial(transforms.per_example_gaussian, length=0.5, noise_multiplier=1.0, **STEPS),
    "secure": partial(transforms.secure_sum, threshold=3),
    "summed": partial(transforms.summed_gaussian, threshold=3, length=0.5, noise_multiplier=1.0),
}
NOISE = ("local", "central", "examples", "summed")
SECURE = ("secure", "summed")
ORDERS = ("transform(method)", "method(transform)")
QUICK = ("scaffold", "fedpub", "moon", "fedamp")


def composed(name: str, transform: str, order: str) -> tuple[Method, Any]:
    """A method of the conformance table on its first task, with the transform."""
    made = known(ROWS[name].tasks[0], 0.0, torch.float32)
    if transform == "examples":
        made = without_edges(made)
    wrap = TRANSFORMS[transform]
    if order == "transform(method)":
        return wrap(ROWS[name].build(made)), made
    return ROWS[name].build(replace(made, fedavg=wrap(made.fedavg))), made


def runs_or_says_why(name: str, transform: str, order: str) -> str:
    """What came of it; anything but a run with its noise or a plain error fails the test."""
    try:
        method, made = composed(name, transform, order)
        rounds = method.rules.exchange
        how: Any = {"num_rounds": rounds, "seed": 0, "clients_at_once": 1, "strict": True}
        watch = transforms.privacy_spent if transform in NOISE else None
        result = fgl.run(method, made.clients, watch=watch, **how)
    except (ValueError, TypeError) as error:
        assert "Expected " in str(error), error
        return str(error)
    told = [each["name"] for each in result.config["layers"]]
    assert any(each.startswith(name_of(transform)) for each in told), told
    if transform in NOISE:
        assert result.history[-1].metrics["epsilon"] > 0
        again = fgl.run(method, made.clients, **how)
        assert not same(dict(result.outbox[0]), dict(again.outbox[0]))  # noise is of no seed
    if transform in SECURE:
        assert rounds == 4 and method.rules.silent
        state: Any = result.server_state["secure"]
        assert int(state["summed"]) == len(made.clients)
    return ""


def name_of(transform: str) -> str:
    return "per" if transform == "examples" else transform


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("name", QUICK)
def test_a_pair_runs_or_says_why(name: str, transform: str, order: str) -> None:
    why = runs_or_says_why(name, transform, order)
    if order == "method(transform)" and name != "moon":  # they change what leaves a client
        assert "outermost wrapper" in why or "server sends the clients' mean" in why, why


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_every_pair_runs_or_says_why(transform: str, order: str) -> None:
    for name in ROWS:
        why = runs_or_says_why(name, transform, order)
        print(f"{order} {transform} {name}: {why.splitlines()[0][:150] if why else 'runs'}")


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_an_attack_around_a_broken_seal_does_not_mend_it(transform: str) -> None:
    made = without_edges(known("nodes", 0.0, torch.float32))
    hostile = partial(transforms.attacked, attackers=[1], attack=transforms.scaled_updates())
    private = TRANSFORMS[transform](made.fedavg)
    with pytest.raises(ValueError, match="to be the outermost wrapper|without secure_sum"):
        fgl.run(hostile(transforms.robust(private, median)), made, num_rounds=1)
    # Masked uploads cannot be forged one by one.
    told = pytest.raises(ValueError, match="attacked to be given a method without secure_sum")
    with told if transform in SECURE else nullcontext():
        fgl.run(hostile(private), made, num_rounds=1)


def test_scaffold_around_a_secure_sum_says_how_to_write_it() -> None:
    """It was a KeyError of its control variates."""
    made = known("nodes", 0.0, torch.float32)
    method = methods.scaffold(transforms.secure_sum(made.fedavg, threshold=3))
    with pytest.raises(ValueError, match=r"secure_sum to be the outermost .* secure_sum\(method"):
        fgl.run(method, made, num_rounds=4)
    fgl.run(
        transforms.secure_sum(methods.scaffold(made.fedavg), threshold=3),
        made,
        num_rounds=4,
        strict=True,
    )
