"""A method's defaults are FedAvg, and its randomness is derived."""

from dataclasses import fields, replace
from typing import Any

import pytest
import torch
from federations import graph, keep_own, model, printed, same

import fgl
from fgl import Method, Training
from fgl.federation import Rules, average, fold_in, supervised
from fgl.federation.method.old_names import takes_old_names


def test_initial_is_a_copy_without_gradient() -> None:
    net = model()
    first = fgl.fedavg(net).initial()
    assert same(first, dict(net.state_dict()))
    assert not any(tensor.requires_grad for tensor in first.values())
    first["convs.0.bias"] += 1
    assert not net.state_dict()["convs.0.bias"].any()


def test_supervised_wants_labels() -> None:
    with pytest.raises(ValueError, match=r"graph.y to be a tensor of labels, but got None"):
        supervised(model())(fgl.fedavg(model()).initial(), graph(y=None), {})


def test_fold_in_differs_for_every_party_round_and_purpose() -> None:
    seeds = [
        fold_in(seed, index, *rest)
        for seed in range(5)
        for index in range(20)
        for rest in [(client,) for client in range(20)] + [("who",), (3, "dropout"), ("server",)]
    ]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed < 2**63 for seed in seeds)


@pytest.mark.slow
def test_fold_in_does_not_depend_on_the_process() -> None:
    code = "from fgl.federation import fold_in; print(fold_in(7, 3, 1), fold_in(7, 3, 'who'))"
    out = printed("-c", code, PYTHONHASHSEED="5")
    assert out.split() == [str(fold_in(7, 3, 1)), str(fold_in(7, 3, "who"))]


def test_training_is_checked() -> None:
    for options, text in (
        ({"num_steps": -1}, "num_steps to be an integer >= 0, but got -1"),
        ({"max_grad_norm": 0.0}, "max_grad_norm to be a number > 0, but got 0.0"),
        ({"max_grad_norm": float("nan")}, "max_grad_norm to be a number > 0, but got nan"),
    ):
        with pytest.raises(ValueError, match=text):
            Training(**options)  # type: ignore[arg-type]


def test_the_former_fields_work_for_one_release() -> None:
    """Given, replaced and read: each warns, names its group and changes that field alone."""
    former: dict[str, Any] = {
        "exchange": ("rules", 3),
        "participants": ("rules", 2),
        "silent": ("rules", True),
        "ragged": ("rules", ("rows",)),
        "max_examples": ("rules", 9.0),
        "max_change": ("rules", 8.0),
        "joining": ("rules", fgl.federation.Joining(len, average)),  # type: ignore[arg-type]
        "costs": ("privacy", dict),
        "onward": ("privacy", ("seed",)),
        "account": ("privacy", keep_own),
        "personal": ("own", {"mask": torch.ones(1)}),
    }
    method = fgl.fedavg(model())
    for name, (group, value) in former.items():
        with pytest.warns(DeprecationWarning, match=f"Method.{group}.{name} now"):
            other = replace(method, **{name: value})
        want = replace(getattr(method, group), **{name: value})
        assert vars(getattr(other, group)) == vars(want), name
        rest = {each.name for each in fields(Method)} - {group}
        assert all(getattr(other, each) is getattr(method, each) for each in rest), name
        with pytest.warns(DeprecationWarning, match=name):
            assert getattr(other, name) is value, name
    with pytest.warns(DeprecationWarning, match=r"Method.own.modules now"):
        other = replace(method, own=("convs.0",))
    assert other.own.modules == ("convs.0",)
    with pytest.warns(DeprecationWarning, match=r"Method.own is Method.own.modules now"):
        assert (*other.own,) == ("convs.0",) and "convs.0" in other.own and len(other.own) == 1
    functions = {name: getattr(method, name) for name in list(vars(method))[:8]}
    with pytest.warns(DeprecationWarning):
        assert Method(**functions, exchange=4).rules.exchange == 4  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="rules to be a Rules, but got 3"):
        replace(method, rules=3)  # type: ignore[arg-type]
    kind = type("Kind", (), {"__init__": lambda self, rules=None: setattr(self, "rules", rules)})
    with pytest.warns(DeprecationWarning, match=r"Method.rules.exchange now"):
        assert takes_old_names(kind)(exchange=4).rules.exchange == 4  # type: ignore[call-arg]
    with pytest.warns(DeprecationWarning, match=r"Method.rules.silent now"):
        assert kind(rules=Rules(silent=True)).silent  # type: ignore[attr-defined, call-arg]
    with pytest.raises(TypeError, match="did you mean rules=1"):
        kind(rule=1)  # type: ignore[call-arg]


def test_rules_and_privacy_check_what_they_are_given() -> None:
    for most in (float("nan"), -1, "a"):
        with pytest.raises((ValueError, TypeError), match="max_change"):
            Rules(max_change=most)  # type: ignore[arg-type]
    for build in (lambda: Rules(ragged="model"), lambda: fgl.federation.Privacy(onward="model")):
        with pytest.raises(TypeError, match="but got .model."):
            build()
