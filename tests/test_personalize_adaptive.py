"""Adaptive aggregation and the part of a model that travels."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from fgl.personalize import adaptive_aggregation


def model(value: float) -> dict[str, Tensor]:
    return {"w": torch.full((2,), value), "b": torch.tensor(value / 2)}


def loops(received: float, own: float, validate: Any, last: float, **options: Any) -> Any:
    """The same on one number, straight from the text."""
    phi, delta, most = (options[k] for k in ("phi", "delta", "max_adjust"))
    theta, score, count = received, validate(received), 0
    while count < most and score < last - delta:
        theta = phi * own + (1 - phi) * theta
        score = validate(theta)
        count += 1
    return theta, score, count


@pytest.mark.parametrize("last", [0.0, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("phi", [0.0, 0.25, 0.5, 1.0])
@pytest.mark.parametrize("max_adjust", [0, 1, 4])
def test_equals_loops(last: float, phi: float, max_adjust: int) -> None:
    options = {"phi": phi, "delta": 0.1, "max_adjust": max_adjust}
    want = loops(8.0, 1.0, lambda w: 1 / w, last, **options)
    got, score, count = adaptive_aggregation(
        model(8.0), model(1.0), lambda m: 1 / float(m["w"][0]), last, **options
    )
    assert count == want[2] and score == pytest.approx(want[1])
    torch.testing.assert_close(got, model(want[0]))


def test_a_drop_is_what_exceeds_delta() -> None:
    def mixed(score: float, last: float, **options: Any) -> int:
        return adaptive_aggregation(model(1.0), model(2.0), lambda m: score, last, **options)[2]

    assert mixed(0.5, 0.5625, delta=0.0625) == 0  # exactly delta
    assert mixed(0.5, 0.5626, delta=0.0625) == 1
    assert mixed(0.5, 0.5625, delta=0.0625, strict=False) == 1
    assert mixed(0.5, 0.5, delta=0.0, strict=False) == 1  # Algorithm 1: R_t <= R_{t-1}
    assert mixed(0.5, 0.5, delta=0.0) == 0
    assert mixed(0.9, 0.5) == mixed(0.5, math.nan) == mixed(math.nan, 0.5) == 0


@pytest.mark.parametrize(("change", "message"), [
    ({"phi": -0.1}, r"phi to be a number >= 0 and <= 1, but got -0.1"),
    ({"phi": math.nan}, "phi"),
    ({"delta": -1.0}, "delta to be a number >= 0, but got -1.0"),
    ({"max_adjust": -1}, "max_adjust to be an integer >= 0, but got -1"),
])  # fmt: skip
def test_out_of_range(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        adaptive_aggregation(model(1.0), model(2.0), lambda m: 1.0, 1.0, **change)
