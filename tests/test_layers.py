"""Layers: a method knows what it was made of, and a run of other settings is another run."""

from __future__ import annotations

import copy
import inspect
import json
from collections.abc import Callable
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conformance import CASES, case
from federations import CLASSES, FEATURES, graphs, script

import fgl
from fgl import methods, transforms
from fgl.federation import Training
from fgl.federation.method.layers import Layer, described
from fgl.federation.saved.checkpoint import _check_identity
from fgl.federation.saved.identity import identity

PLAIN = fgl.fedavg(fgl.nn.GCN(FEATURES, 8, CLASSES))


def made_by(layer: Layer) -> list[Layer]:
    return [layer, *(deeper for inner in layer.inner for deeper in made_by(inner))]


def found() -> dict[str, tuple[fgl.Method, int]]:
    """Every builder of the conformance table: a method that it made, and the place of its layer."""
    out: dict[str, tuple[fgl.Method, int]] = {}
    for name, task in CASES:
        method, _ = case(name, task)
        for place, layer in enumerate(method.layers):
            out.setdefault(layer.name, (method, place))
    return out


FOUND = found()
RECIPES = ("fgssl", "fedgl", "fedego", "fedvgae", "gpfl")


def builder(name: str) -> Callable[..., Any]:
    for room in (methods, transforms, fgl, fgl.tasks.task):
        if hasattr(room, name):
            function: Callable[..., Any] = getattr(room, name)
            return function
    file = "your_own_method" if name == "near_the_server" else name
    function = getattr(script(f"examples/{file}.py"), name)
    return function


def public_builders() -> list[str]:
    names = []
    for room in (methods, transforms):
        for name in room.__all__:
            function = getattr(room, name)
            annotation = inspect.signature(function).return_annotation
            if annotation == "Method":
                names.append(name)
    return names


@pytest.mark.parametrize("name", [*public_builders(), *RECIPES])
def test_every_builder_notes_itself(name: str) -> None:
    assert hasattr(builder(name), "__wrapped__"), f"{name} has no fgl.layer"


def identified(method: fgl.Method) -> dict[str, Any]:
    return identity(method, 0, 1.0, 0.0, None)


SETTINGS = [(name, key) for name in FOUND for key in FOUND[name][0].layers[FOUND[name][1]].settings]


@pytest.mark.parametrize("name", [name for name in FOUND if name != "fedavg"])
def test_settings_are_all_arguments_but_the_method(name: str) -> None:
    method, place = FOUND[name]
    parameters = inspect.signature(builder(name)).parameters.values()
    plain = [each.name for each in parameters if each.kind is not each.VAR_KEYWORD]
    assert set(plain[1:]) <= set(method.layers[place].settings)
    json.dumps(dict(method.layers[place].settings))


@pytest.mark.parametrize(("name", "key"), SETTINGS)
def test_another_setting_is_another_run(name: str, key: str) -> None:
    """Of every argument of every builder of the table."""
    method, place = FOUND[name]
    changed = list(method.layers)
    settings = {**changed[place].settings, key: "another value"}
    changed[place] = replace(changed[place], settings=settings)
    other = replace(method, layers=tuple(changed))
    text = rf"of this run with settings of {name}( 2)?=\{{'{key}': .*but got .*another value"
    with pytest.raises(ValueError, match=text):
        _check_identity(Path("x"), json.loads(json.dumps(identified(other))), identified(method))


def as_it_was(first: Any, second: Any, context: Any) -> Any:
    return first


OTHER: dict[str, Any] = {
    "optimizer": partial(torch.optim.SGD, lr=0.2),
    "num_steps": 2,
    "batches": fgl.federation.node_minibatches,
    "max_grad_norm": 1.0,
    "keep_optimizer": True,
    "adjust": as_it_was,
    "settle": as_it_was,
    "settle_moments": True,
    "loss": lambda params, graph, context: PLAIN.loss(params, graph, context),
    "receive": lambda message, state, graph: PLAIN.receive(message, state, graph),
    "send": lambda params, context, state, graph: PLAIN.send(params, context, state, graph),
    "aggregate": lambda inbox, state: PLAIN.aggregate(inbox, state),
    "deploy": lambda message, state, graph: PLAIN.deploy(message, state, graph),
    "accept": lambda message, client, state: None,
    "exchange": 2,
    "silent": True,
    "ragged": frozenset({"rows"}),
    "max_examples": 10.0,
    "max_change": 10.0,
}


@pytest.mark.parametrize("name", OTHER)
def test_another_field_is_another_run(name: str, tmp_path: Path) -> None:
    """Of every field of a method and of its training: none is left out by hand."""
    train = {each.name for each in fields(Training)}
    rest = {each.name for each in fields(fgl.Method)} - {"model", "personal", "train", "layers"}
    assert set(OTHER) == train | rest
    method = replace(PLAIN, train=Training(num_steps=1))
    fgl.run(method, graphs(), num_rounds=1, checkpoint=tmp_path)
    if name in train:
        how = {"num_steps": None} if name == "batches" else {}
        other = replace(method, train=replace(method.train, **{**how, name: OTHER[name]}))
    else:
        other = replace(method, **{name: OTHER[name]})
    wanted = name if name != "batches" else "num_steps"
    with pytest.raises(ValueError, match=f"to be of this run with {wanted}="):
        fgl.run(other, graphs(), num_rounds=2, checkpoint=tmp_path)


def test_another_dropout_of_the_model_is_another_run(tmp_path: Path) -> None:
    """It is no tensor, and no function's name."""

    def method(dropout: float) -> fgl.Method:
        torch.manual_seed(0)
        return fgl.fedavg(fgl.nn.GCN(FEATURES, 8, CLASSES, dropout=dropout))

    fgl.run(method(0.5), graphs(), num_rounds=1, checkpoint=tmp_path)
    with pytest.raises(ValueError, match=r"of this run with architecture=.*dropout=0\.25"):
        fgl.run(method(0.25), graphs(), num_rounds=2, checkpoint=tmp_path)
    assert len(fgl.run(method(0.5), graphs(), num_rounds=2, checkpoint=tmp_path).history) == 2


def test_another_weight_of_a_method_is_another_run(tmp_path: Path) -> None:
    prox = methods.fedprox
    fgl.run(prox(PLAIN, mu=0.1), graphs(), num_rounds=1, checkpoint=tmp_path)
    text = r"of this run with settings of fedprox={'mu': 5\.0}, but got {'mu': 0\.1}"
    with pytest.raises(ValueError, match=text):
        fgl.run(prox(PLAIN, mu=5.0), graphs(), num_rounds=2, checkpoint=tmp_path)


def test_a_builder_of_ones_own() -> None:
    @fgl.layer
    def mine(fedavg: fgl.Method, *, rate: float = 0.5, **how: Any) -> fgl.Method:
        return methods.fedprox(replace(fedavg, exchange=2), mu=rate)

    method = mine(PLAIN, rate=0.25, extra=3)
    assert repr(method) == "mine(fedavg(GCN(...)), rate=0.25, extra=3)"
    assert [layer.name for layer in method.layers] == ["fedavg", "mine"]
    assert method.layers[-1].settings == {"rate": 0.25, "extra": 3}
    assert [layer.name for layer in made_by(method.layers[-1])] == ["mine", "fedprox"]
    assert not method.replaced


def test_a_builder_that_returns_no_method() -> None:
    @fgl.layer
    def forgetful(fedavg: fgl.Method) -> fgl.Method:
        replace(fedavg, exchange=2)
        return None  # type: ignore[return-value]

    with pytest.raises(TypeError, match="Expected forgetful to return a Method, but got NoneType"):
        forgetful(PLAIN)


def test_what_a_builder_used_inside_is_refused_too() -> None:
    @fgl.layer
    def mine(fedavg: fgl.Method) -> fgl.Method:
        return methods.scaffold(fedavg)

    with pytest.raises(ValueError, match=r"gcfl to be given a method without scaffold.*mine\("):
        methods.gcfl(mine(PLAIN))


def test_what_no_builder_noted_is_said(tmp_path: Path) -> None:
    method = replace(methods.fedprox(PLAIN, mu=0.1), send=OTHER["send"], accept=OTHER["accept"])
    assert repr(method) == "replace(fedprox(fedavg(GCN(...)), mu=0.1), send=..., accept=...)"
    result = fgl.run(method, graphs(), num_rounds=1, checkpoint=tmp_path)
    assert result.config["layers"][-1] == {"name": "replace", "functions": ["send", "accept"]}
    with pytest.warns(UserWarning, match="got send and accept of a builder without fgl.layer"):
        fgl.run(method, graphs(), num_rounds=2, checkpoint=tmp_path)


def test_a_layer_describes_equal_arguments_equally_in_any_order() -> None:
    def layers(shared: Any) -> Any:
        return methods.fedper(PLAIN, shared=shared).layers[-1].settings

    assert layers(["convs.0"]) == layers(("convs.0",)) != layers(["convs.1"])


class Named:
    def __init__(self, size: int) -> None:
        self.size = size

    def __repr__(self) -> str:
        return f"Named({self.size})"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (np.float32(0.1), np.float32(0.2)),
        (np.arange(3), np.arange(4)),
        (torch.ones(2), torch.zeros(2)),
        (torch.device("cpu"), torch.device("meta")),
        (torch.float32, torch.float64),
        (Path("a"), Path("b")),
        (Named(1), Named(2)),
        (partial(torch.clamp, min=np.float32(0.1)), partial(torch.clamp, min=np.float32(0.2))),
        ({"a": [1]}, {"a": [2]}),
        (torch.nn.Dropout(0.1), torch.nn.Dropout(0.2)),
    ],
    ids=str,
)
def test_values_that_differ_are_described_differently(one: Any, other: Any) -> None:
    assert described(one) != described(other)
    assert described(one) == described(copy.deepcopy(one))
    json.dumps(described(one))
