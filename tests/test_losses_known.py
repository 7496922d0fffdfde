"""Losses of numbers and of half-known answers against loops over their formulas."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from federations import refuses
from torch import Tensor

from fgl.losses import absolute_error, binary_cross_entropy, huber, squared_error

N, T = 9, 3
MASK = torch.tensor([1, 0, 1, 1, 0, 0, 1, 0, 1], dtype=torch.bool)
MASKS = [None, MASK, torch.arange(N) / 3, MASK.double()]


def logistic(z: float, y: float) -> float:
    share = 1 / (1 + math.exp(-z))
    return -(y * math.log(share) + (1 - y) * math.log(1 - share))


def robust(delta: float, z: float, y: float) -> float:
    e = abs(z - y)
    return e * e / 2 if e <= delta else delta * (e - delta / 2)


LOSSES: dict[str, tuple[Callable[..., Tensor], Callable[[float, float], float]]] = {
    "squared": (squared_error, lambda z, y: (z - y) ** 2),
    "absolute": (absolute_error, lambda z, y: abs(z - y)),
    "huber": (huber, partial(robust, 1.0)),
    "narrow huber": (partial(huber, delta=0.3), partial(robust, 0.3)),
    "binary": (binary_cross_entropy, logistic),
}
EACH = pytest.mark.parametrize("name", LOSSES)


def outputs(*shape: int, seed: int = 1) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).requires_grad_()


def answers(*shape: int, unknown: float = 0.4, seed: int = 2) -> Tensor:
    """Zeros and ones, some of them NaN."""
    generator = torch.Generator().manual_seed(seed)
    y = (torch.rand(*shape, generator=generator) < 0.5).double()
    return y.masked_fill(torch.rand(*shape, generator=generator) < unknown, torch.nan)


def loops(name: str, output: Tensor, y: Tensor, mask: Tensor | None) -> float:
    """The mean over the known entries of masked rows, in plain Python."""
    each = LOSSES[name][1]
    rows = zip(output.reshape(N, -1).tolist(), y.reshape(N, -1).tolist(), strict=True)
    total = weights = 0.0
    for v, (said, known) in enumerate(rows):
        weight = 1.0 if mask is None else float(mask[v])
        for z, answer in zip(said, known, strict=True):
            if not math.isnan(answer):
                total += weight * each(z, answer)
                weights += weight
    return total / weights if weights else 0.0


@EACH
@pytest.mark.parametrize("mask", MASKS, ids=["all", "mask", "weights", "zeros and ones"])
@pytest.mark.parametrize(
    ("shape", "of_y"), [((N,), (N,)), ((N, 1), (N,)), ((N,), (N, 1)), ((N, T), (N, T))], ids=str
)
def test_equals_loops(name: str, mask: Any, shape: Any, of_y: Any) -> None:
    loss, z, y = LOSSES[name][0], outputs(*shape), answers(*of_y)
    assert loss(z, y, mask).item() == pytest.approx(loops(name, z, y, mask), rel=1e-6)
    assert torch.autograd.gradcheck(lambda z: loss(z, y, mask), z)


@EACH
def test_what_is_unknown_or_masked_out_has_no_gradient_and_no_say(name: str) -> None:
    loss, z, y = LOSSES[name][0], outputs(N, T), answers(N, T)
    value = loss(z, y, MASK)
    (slope,) = torch.autograd.grad(value, z)
    counts = ~y.isnan() & MASK[:, None]
    assert slope.isfinite().all() and not slope[~counts].any() and slope[counts].all()
    wild = torch.where(counts, z.detach(), torch.inf)
    assert loss(wild, y, MASK) == value


@EACH
@pytest.mark.parametrize("shape", [(0,), (0, T), (N, T)], ids=str)
def test_nothing_known_is_zero_with_a_gradient(name: str, shape: Any) -> None:
    loss, z = LOSSES[name][0], outputs(*shape)
    for mask in (None, torch.ones(shape[0]).bool(), torch.zeros(shape[0])):
        value = loss(z, torch.full(shape, torch.nan), mask)
        (slope,) = torch.autograd.grad(value, z)
        assert value == 0 and slope.shape == z.shape and not slope.any()
    assert loss(z, answers(*shape), torch.zeros(shape[0], dtype=torch.bool)) == 0


def test_a_sure_mistake_stays_finite() -> None:
    z = torch.tensor([1e4, -1e4], requires_grad=True)
    loss = binary_cross_entropy(z, torch.tensor([0.0, 1.0]))
    loss.backward()
    assert loss == 1e4 and z.grad is not None and z.grad.isfinite().all()


@EACH
def test_half_precision_neither_vanishes_nor_overflows(name: str) -> None:
    n = 70_000  # more than the largest float16
    z, y = torch.full((n,), 2.0, dtype=torch.float16), torch.ones(n)
    value = LOSSES[name][0](z, y)
    assert value.dtype == torch.float16
    assert float(value) == pytest.approx(LOSSES[name][1](2.0, 1.0), rel=2e-3)


@EACH
def test_the_dtype_is_the_outputs(name: str) -> None:
    loss = LOSSES[name][0]
    assert loss(outputs(N).float(), answers(N)).dtype == torch.float32
    assert loss(outputs(N), answers(N).float(), MASK.float()).dtype == torch.float64


Y = torch.zeros(N)
BAD: list[tuple[Any, str]] = [
    ((torch.zeros(N, 2), Y), r"output to have shape \[9\] or \[9, 1\] as y has \[9\]"),
    ((torch.zeros(N), torch.zeros(N, 2)), r"output to have shape \[9, 2\] as y has"),
    ((torch.zeros(1, N), Y), r"but got \[1, 9\]"),
    ((torch.zeros(N - 1), Y), r"but got \[8\]"),
    ((torch.zeros(N, 1, 1), Y), r"but got \[9, 1, 1\]"),
    ((torch.zeros(()), torch.zeros(())), r"y to have shape \[n\] or \[n, t\], but got"),
    ((Y, Y, MASK[1:]), r"mask to have shape \[9\], but got \[8\]"),
    ((Y, Y, MASK[:, None]), r"mask to have shape \[9\], but got \[9, 1\]"),
    ((Y, Y.long()), r"y to be floating point, but got torch.int64: call .float\(\)"),
    ((Y, Y, MASK.long()), r"mask to be bool or float weights, but got torch.int64"),
]


@EACH
@pytest.mark.parametrize(("given", "message"), BAD, ids=[each[1] for each in BAD])
def test_bad_input(name: str, given: Any, message: str) -> None:
    refuses(message, lambda: LOSSES[name][0](*given), (TypeError, ValueError))


def test_hubers_line_begins_above_zero() -> None:
    refuses("Expected delta to be a number > 0, but got 0", lambda: huber(Y, Y, delta=0))
