"""Layers: a method knows what it was made of, and a run of other settings is another run."""

import copy
import functools
import inspect
import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from federations import CLASSES, FEATURES, graphs, identified, ruled, script

import fgl
from fgl import methods, transforms
from fgl.federation.method.describe import Layer, described

PLAIN = fgl.fedavg(fgl.nn.GCN(FEATURES, 8, CLASSES, dropout=0.5))


def made_by(layer: Layer) -> list[Layer]:
    return [layer, *(deeper for inner in layer.inner for deeper in made_by(inner))]


RECIPES = ("fgssl", "fedgl", "fedego", "fedvgae", "gpfl")


def builder(name: str) -> Callable[..., Any]:
    for room in (methods, transforms, fgl, fgl.tasks.task):
        if hasattr(room, name):
            function: Callable[..., Any] = getattr(room, name)
            return function
    own = {"near_the_server": "your_own_method", "with_momentum": "your_own_server"}
    file = own.get(name, name)
    function = getattr(script(f"examples/{file}.py"), name)
    return function


def public_builders() -> list[str]:
    names = []
    for room in (methods, transforms):
        for name in room.__all__:
            function = getattr(room, name)
            if inspect.signature(function).return_annotation in ("Method", fgl.Method):
                names.append(name)
    return names


@pytest.mark.parametrize("name", [*public_builders(), *RECIPES])
def test_every_builder_notes_itself(name: str) -> None:
    assert hasattr(builder(name), "__wrapped__"), f"{name} has no fgl.layer"


def test_a_builder_of_ones_own() -> None:
    @fgl.layer
    def mine(fedavg: fgl.Method, *, rate: float = 0.5, **how: Any) -> fgl.Method:
        return methods.fedprox(ruled(fedavg, exchange=2), mu=rate)

    method = mine(PLAIN, rate=0.25, extra=3)
    training = "Training(SGD(lr=0.1), num_steps=1)"
    assert repr(method) == f"mine(fedavg(GCN(...), train={training}), rate=0.25, extra=3)"
    assert [layer.name for layer in method.layers] == ["fedavg", "mine"]
    assert method.layers[-1].settings == {"rate": 0.25, "extra": 3}
    assert [layer.name for layer in made_by(method.layers[-1])] == ["mine", "fedprox"]
    assert not method.unknown


def test_a_builder_that_returns_no_method() -> None:
    @fgl.layer
    def forgetful(fedavg: fgl.Method) -> fgl.Method:
        ruled(fedavg, exchange=2)
        return None  # type: ignore[return-value]

    with pytest.raises(TypeError, match="Expected forgetful to return a Method, but got NoneType"):
        forgetful(PLAIN)


def test_what_a_builder_used_inside_is_refused_too() -> None:
    @fgl.layer
    def mine(fedavg: fgl.Method) -> fgl.Method:
        return methods.scaffold(fedavg)

    with pytest.raises(ValueError, match=r"gcfl to be given a method without scaffold.*mine\("):
        methods.gcfl(mine(PLAIN))


class Named:
    def __init__(self, size: int) -> None:
        self.size = size

    def __repr__(self) -> str:
        return f"Named({self.size})"


@pytest.mark.parametrize(("one", "other"), [
    (np.float32(0.1), np.float32(0.2)),
    (np.arange(3), np.arange(4)),
    (torch.ones(2), torch.zeros(2)),
    (torch.device("cpu"), torch.device("meta")),
    (torch.float32, torch.float64),
    (Path("a"), Path("b")), (Named(1), Named(2)),
    (partial(torch.clamp, min=np.float32(0.1)), partial(torch.clamp, min=np.float32(0.2))),
    ({"a": [1]}, {"a": [2]}),
    (torch.nn.Dropout(0.1), torch.nn.Dropout(0.2)),
], ids=[str(number) for number in range(10)])  # fmt: skip
def test_values_that_differ_are_described_differently(one: Any, other: Any) -> None:
    assert described(one) != described(other)
    assert described(one) == described(copy.deepcopy(one))
    json.dumps(described(one))


def test_seals_hold_under_a_layer() -> None:
    private = transforms.local_gaussian(PLAIN, length=1.0, noise_multiplier=1.0)

    @fgl.layer
    def around(method: fgl.Method) -> fgl.Method:
        inside = transforms.local_gaussian(method, length=1.0, noise_multiplier=1.0)
        return replace(inside, send=PLAIN.send)

    @fgl.layer
    def second(method: fgl.Method, other: fgl.Method) -> fgl.Method:
        return replace(other, send=method.send)

    @fgl.layer
    def several(*methods: fgl.Method) -> fgl.Method:
        return replace(methods[0], send=PLAIN.send)

    for method in (around(PLAIN), second(PLAIN, private), several(private)):
        with pytest.raises(ValueError, match="local_gaussian to be the outermost wrapper"):
            fgl.run(method, graphs(), num_rounds=1)
    with pytest.raises(ValueError, match="whose rules.silent is another"):
        fgl.run(ruled(private, silent=False), graphs(), num_rounds=1)


def test_what_a_builder_used_inside_is_part_of_a_run() -> None:
    def made(mu: float) -> fgl.Method:
        @fgl.layer
        def inside(method: fgl.Method) -> fgl.Method:
            return methods.fedprox(method, mu=mu)

        return inside(PLAIN)

    assert identified(made(0.1)) == identified(made(0.1)) != identified(made(5.0))


def test_functions_are_described_by_what_they_hide() -> None:
    def cyclic(value: Any) -> Any:
        return cyclic(value)

    pairs: list[tuple[Any, Any]] = [
        (lambda: 1.0, lambda: 0.5),
        (lambda a=1: a, lambda a=2: a),
        (Named(1).__repr__, Named(2).__repr__),
        (functools.partial(max, 1), functools.partial(max, 2)),
    ]
    for one, other in pairs:
        assert described(one) != described(other)
    described(cyclic)
    described(torch.eye(2).to_sparse())
    described(torch.zeros(2, device="meta"))
    described(np.array(["a", "b"])[::-1])
    described(np.array([object()]))


def test_a_place_is_one_value_of_clients() -> None:
    """What is no place is refused."""
    for clients in ("x", 3, fgl.federation.Here):
        with pytest.raises(TypeError, match=r"Expected client"):
            fgl.run(PLAIN, clients, num_rounds=1)  # type: ignore[arg-type]
    here = fgl.federation.Here(graphs())
    with pytest.raises(ValueError, match="clients_at_once and score to be left out beside a place"):
        fgl.run(PLAIN, here, clients_at_once=1, num_rounds=1)
    with pytest.raises(TypeError, match="but got on=Here: did you mean clients="):
        fgl.run(PLAIN, on=here, num_rounds=1)  # type: ignore[call-arg]  # its name of old
