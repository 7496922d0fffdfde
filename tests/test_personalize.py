"""Layer split, label distributions, the mixing coefficient, interpolation."""

import math
from typing import Any

import pytest
import torch
from federations import close, same
from hypothesis import given
from hypothesis import strategies as st

from fgl.nn import EgoSAGE
from fgl.personalize import earth_mover, interpolate, label_distribution, mixing_coefficient, rest


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


W, Y, MASK = {"w": torch.zeros(2)}, torch.tensor([0, 1, 2]), torch.tensor([0.0, 1.0, 1.0])
HALVES, PARAMS = torch.tensor([0.5, 0.5]), EgoSAGE(4, 8, 2).state_dict()
REFUSED: list[tuple[Any, type[Exception], str]] = [
    *(
        (lambda name=name: rest(PARAMS, name), ValueError, f"prefixes to name .* got '{name}'")
        for name in ("conv", "reductio", "reduction.w", "")
    ),
    (lambda: interpolate(W, {"v": W["w"]}, 0.5), ValueError, r"keys \['w'\], but got \['v'\]"),
    (lambda: interpolate(W, {"w": torch.zeros(1)}, 0.5), ValueError, r"\[2\], but got \[1\]"),
    (lambda: interpolate(W, {"w": W["w"].double()}, 0.5), TypeError, "but got torch.float64"),
    (lambda: interpolate(W, W, torch.tensor(1.5)), ValueError, r"weight to be in .* got 1.5"),
    (lambda: interpolate(W, W, torch.tensor(math.nan)), ValueError, "weight to be in"),
    (lambda: label_distribution(Y, 2), ValueError, r"y to be in \[0, 2\)"),
    (lambda: label_distribution(Y.float(), 3), TypeError, "y to be int64, but got torch.float32"),
    (lambda: label_distribution(torch.eye(3).long(), 3), ValueError, r"y .* but got \[3, 3\]"),
    (lambda: label_distribution(Y, 3, MASK), TypeError, "mask to be bool, but got torch.float32"),
    (lambda: label_distribution(Y, 3, MASK.long()), TypeError, "mask to be bool, .*int64"),
    (lambda: label_distribution(Y, 3, MASK[:2].bool()), ValueError, r"mask .*\[3\], .*\[2\]"),
    (lambda: mixing_coefficient(HALVES, HALVES, gamma=0.0), ValueError, "gamma to be .* got 0"),
    (lambda: mixing_coefficient(HALVES, Y / 3), ValueError, r"one shape .* \[2\] and \[3\]"),
    (lambda: earth_mover(torch.ones(1, 2), torch.ones(1, 2)), ValueError, "one shape"),
]


def test_what_is_refused() -> None:
    for call, kind, text in REFUSED:
        with pytest.raises(kind, match=text):
            call()
            pytest.fail(text)


@pytest.mark.parametrize("bad", [
    [30.0, 10.0], [-1.0, 2.0], [math.nan, 1.0], [0.0, 0.0],
], ids=["counts", "<0", "nan", "0"])  # fmt: skip
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
