"""Layer split, label distributions, the mixing coefficient, interpolation."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from federations import close, same
from hypothesis import given
from hypothesis import strategies as st

from fgl.nn import EgoSAGE
from fgl.personalize import (
    earth_mover,
    interpolate,
    label_distribution,
    mixing_coefficient,
    part,
    rest,
)


def test_split_by_prefix() -> None:
    params = EgoSAGE(4, 8, 2).state_dict()
    shared, own = part(params, "reduction"), rest(params, "reduction")
    assert list(shared) == ["reduction.weight", "reduction.bias"]
    assert [*shared, *own] == list(params)
    assert all(own[name] is params[name] for name in own)
    assert list(part(params, "convs.0", "head"))[-1] == "head.weight"
    assert list(rest(params, "convs.0", "head")) == [
        k for k in params if k not in part(params, "convs.0", "head")
    ]
    assert not rest(params)


@pytest.mark.parametrize("prefix", ["conv", "reductio", "reduction.w", ""])
def test_a_prefix_that_names_no_layer(prefix: str) -> None:
    with pytest.raises(ValueError, match=f"prefixes to name layers of .* but got '{prefix}'"):
        rest(EgoSAGE(4, 8, 2).state_dict(), prefix)


def test_interpolation() -> None:
    own = {"w": torch.randn(3, 2), "b": torch.randn(2), "n": torch.tensor(4)}
    other = {"w": torch.randn(3, 2), "b": torch.randn(2), "n": torch.tensor(8)}
    assert same(interpolate(own, other, torch.tensor(0.0)), own)
    assert same(interpolate(own, other, torch.tensor(1.0)), {**other, "n": own["n"]})
    wild = {"w": torch.tensor([3e38, -0.0, 1.0, torch.inf])}
    far = {"w": torch.tensor([-3e38, torch.inf, torch.nan, -0.0])}
    for weight, want in ((0.0, wild), (1, far)):
        exact = interpolate(wild, far, weight)
        assert same(exact, want) and torch.equal(exact["w"].signbit(), want["w"].signbit())
        assert exact["w"].data_ptr() != want["w"].data_ptr()
    got = interpolate(own, other, torch.tensor(0.3))
    for name in ("w", "b"):
        close(got[name], 0.3 * other[name] + 0.7 * own[name])
    got["w"].add_(1)
    assert not same(got["w"], own["w"])


@pytest.mark.parametrize(
    ("other", "weight", "message"),
    [
        ({"v": torch.zeros(2)}, 0.5, r"other to have keys \['w'\], but got \['v'\]"),
        ({"w": torch.zeros(1)}, 0.5, r"other\['w'\] to have shape \[2\], but got \[1\]"),
        ({"w": torch.zeros(2)}, 1.5, r"weight to be in \[0, 1\], but got 1.5"),
        ({"w": torch.zeros(2)}, float("nan"), "weight to be in"),
    ],
)
def test_bad_interpolation(other: Any, weight: float, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        interpolate({"w": torch.zeros(2)}, other, torch.tensor(weight))


def test_label_distribution_is_a_histogram() -> None:
    y = torch.tensor([0, 3, 3, 1, 3])
    mask = torch.tensor([True, True, False, True, True])
    for chosen in (None, mask):
        kept = [int(c) for i, c in enumerate(y) if chosen is None or chosen[i]]
        want = torch.tensor([kept.count(c) / len(kept) for c in range(5)])
        close(label_distribution(y, 5, chosen), want)
    assert label_distribution(y[torch.randperm(5)], 5).equal(label_distribution(y, 5))
    assert not label_distribution(y, 5, torch.zeros(5, dtype=torch.bool)).any()
    with pytest.raises(ValueError, match=r"y to be in \[0, 3\)"):
        label_distribution(y, 3)
    with pytest.raises(ValueError, match=r"mask to have shape \[5\], but got \[4\]"):
        label_distribution(y, 4, mask[:4])


@pytest.mark.parametrize(
    ("y", "error", "message"),
    [
        (torch.tensor([1.0]), TypeError, "y to be int64, but got torch.float32"),
        (torch.eye(3).long(), ValueError, r"y to have shape \[\*\], but got \[3, 3\]"),
    ],
)
def test_labels_that_are_no_classes(y: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        label_distribution(y, 3)


def test_a_mask_of_numbers_is_refused() -> None:
    for mask in (torch.tensor([0, 1, 1]), torch.tensor([0.0, 1.0, 1.0])):
        with pytest.raises(TypeError, match=f"mask to be bool, but got {mask.dtype}"):
            label_distribution(torch.tensor([0, 1, 2]), 3, mask)


def test_interpolation_between_dtypes() -> None:
    with pytest.raises(TypeError, match=r"other\['w'\] to be torch.float32, but got torch.float64"):
        interpolate({"w": torch.zeros(2)}, {"w": torch.zeros(2).double()}, 0.5)


distributions = st.lists(st.floats(0, 1), min_size=3, max_size=3).filter(lambda v: sum(v) > 0.01)


@pytest.mark.slow
@given(p=distributions, q=distributions, gamma=st.floats(0.1, 2))
def test_coefficient_by_hand(p: list[float], q: list[float], gamma: float) -> None:
    p, q = ([v / sum(values) for v in values] for values in (p, q))
    distance = sum(abs(a - b) for a, b in zip(p, q, strict=True))
    first, second = (torch.tensor(v, dtype=torch.double) for v in (p, q))
    assert abs(float(earth_mover(first, second)) - distance) < 1e-12
    got = float(mixing_coefficient(first, second, gamma=gamma))
    assert abs(got - min(distance / 2, 1) ** gamma) < 1e-9
    assert 0 <= got <= 1


def test_bad_coefficient() -> None:
    p = torch.tensor([0.5, 0.5])
    with pytest.raises(ValueError, match="gamma to be a number > 0, but got 0"):
        mixing_coefficient(p, p, gamma=0.0)
    with pytest.raises(ValueError, match=r"p and q to have one shape .* but got \[2\] and \[3\]"):
        mixing_coefficient(p, torch.ones(3) / 3)
    with pytest.raises(ValueError, match="p and q to have one shape"):
        earth_mover(torch.ones(1, 2), torch.ones(1, 2))


@pytest.mark.parametrize(
    "bad",
    [[30.0, 10.0], [-1.0, 2.0], [math.nan, 1.0], [0.0, 0.0]],
    ids=["counts", "<0", "nan", "0"],
)
def test_label_counts_are_no_distribution(bad: list[float]) -> None:
    share = torch.tensor([0.75, 0.25])
    for call in (earth_mover, mixing_coefficient):
        with pytest.raises(ValueError, match="Expected p to be shares that sum to 1, but got"):
            call(torch.tensor(bad), share)
        with pytest.raises(ValueError, match="Expected q to be shares that sum to 1, but got"):
            call(share, torch.tensor(bad))


def test_shares_that_almost_sum_to_one() -> None:
    """Up to 1e-3; and the coefficient stays in [0, 1]."""
    p, q = torch.tensor([1.0005, 0.0]), torch.tensor([0.0, 1.0005])
    assert float(mixing_coefficient(p, q, gamma=1.0)) == 1.0
    for far in (0.99, 1.01):
        with pytest.raises(ValueError, match=r"Expected p to be shares that sum to 1"):
            earth_mover(torch.tensor([far, 0.0]), q)
