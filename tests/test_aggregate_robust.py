"""Robust means against loops in numpy, and against what bad clients can do."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from federations import close, refuses, same
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fgl.aggregate import mean
from fgl.aggregate.robust import (
    TooManyBad,
    bucket_means,
    centred_clipping,
    geometric_median,
    krum,
    median,
    multi_krum,
    nearest_means,
    norm_bound,
    trimmed_mean,
)

RULES: dict[str, Callable[..., dict[str, Tensor]]] = {
    "median": median,
    "trimmed mean": trimmed_mean,
    "krum": krum,
    "multi-krum": multi_krum,
    "geometric median": geometric_median,
    "nearest means": lambda stack, bad: median(nearest_means(stack, bad=bad), bad=bad),
}
CLIPS: dict[str, Callable[..., dict[str, Tensor]]] = {
    "norm bound": lambda stack, bad: norm_bound(stack),
    "centred clipping": lambda stack, bad: centred_clipping(stack),
}
ALL = {**RULES, **CLIPS}
each = pytest.mark.parametrize("name", ALL)


def clients(number: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> dict[str, Tensor]:
    """Stacks of several shapes, one of them empty."""
    g = torch.Generator().manual_seed(seed)
    shapes: dict[str, tuple[int, ...]] = {"weight": (4, 3), "bias": (3,), "scale": (), "no": (0,)}
    return {
        name: torch.randn(number, *shape, generator=g, dtype=torch.float64).to(dtype)
        for name, shape in shapes.items()
    }


def rows(stack: dict[str, Tensor]) -> np.ndarray:
    return (
        torch.cat([value.reshape(len(value), -1) for value in stack.values()], 1).double().numpy()
    )


def vector(params: dict[str, Tensor]) -> np.ndarray:
    return torch.cat([value.flatten() for value in params.values()]).double().numpy()


# Twins: the formulas in loops.


def sorted_columns(x: np.ndarray) -> list[list[float]]:
    return [sorted(x[:, d].tolist()) for d in range(x.shape[1])]


def naive_median(x: np.ndarray, bad: int) -> list[float]:
    half = len(x) // 2
    return [c[half] if len(x) % 2 else (c[half - 1] + c[half]) / 2 for c in sorted_columns(x)]


def naive_trimmed(x: np.ndarray, bad: int) -> list[float]:
    kept = [column[bad : len(x) - bad] for column in sorted_columns(x)]
    return [sum(column) / len(column) for column in kept]


def naive_scores(x: np.ndarray, nearest: int) -> list[float]:
    scores = []
    for i in range(len(x)):
        far = [sum((a - b) ** 2 for a, b in zip(x[i], x[j], strict=True)) for j in range(len(x))]
        scores.append(sum(sorted(far[:i] + far[i + 1 :])[:nearest]))
    return scores


def naive_multi_krum(x: np.ndarray, bad: int, keep: int | None = None) -> Any:
    scores = naive_scores(x, len(x) - bad - 1)
    best = sorted(range(len(x)), key=scores.__getitem__)[: keep or len(x) - bad]
    return sum(x[k] for k in best) / len(best)


def naive_clipping(x: np.ndarray, radius: float | None, steps: int) -> Any:
    v = np.zeros(x.shape[1])
    for _ in range(steps):
        apart = [row - v for row in x]
        size = [math.sqrt(sum(a * a for a in row)) for row in apart]
        limit = float(np.median(size)) if radius is None else radius
        v = v + sum(
            row * min(1.0, limit / s if s else 1.0) for row, s in zip(apart, size, strict=True)
        ) / len(x)
    return v


def naive_nearest(x: np.ndarray, bad: int) -> Any:
    out = []
    for row in x:
        near = sorted(range(len(x)), key=lambda j: float(((row - x[j]) ** 2).sum()))
        out.append(sum(x[j] for j in near[: len(x) - bad]) / (len(x) - bad))
    return naive_median(np.array(out), bad)


TWINS: dict[str, Callable[..., Any]] = {
    "median": naive_median,
    "trimmed mean": naive_trimmed,
    "krum": partial(naive_multi_krum, keep=1),
    "multi-krum": naive_multi_krum,
    "nearest means": naive_nearest,
    "norm bound": lambda x, bad: naive_clipping(x, None, 1),
    "centred clipping": lambda x, bad: naive_clipping(x, None, 3),
}


@pytest.mark.parametrize(("number", "bad"), [(1, 0), (2, 0), (3, 1), (6, 2), (7, 0), (9, 4)])
@pytest.mark.parametrize("name", TWINS)
def test_equals_loops(name: str, number: int, bad: int) -> None:
    if name == "krum" and number in (2, 3):
        pytest.skip("the two nearest tie: see the test of ties")
    stack = clients(number, seed=number)
    got = ALL[name](stack, bad=bad)
    assert {key: value.shape for key, value in got.items()} == {
        key: value.shape[1:] for key, value in stack.items()
    }
    np.testing.assert_allclose(vector(got), TWINS[name](rows(stack), bad), atol=1e-12)


def test_krum_of_ties_is_decided_by_the_entries() -> None:
    low, high = torch.tensor([1.0, -5.0]), torch.tensor([1.0, 2.0])
    for pair in ((low, high), (high, low)):
        assert same(krum({"w": torch.stack(pair)}, bad=0), {"w": low})


HOSTILE = [1e30, -1e30, 1e9, -3.0, 0.0, 2.0]


@settings(max_examples=60, deadline=None)
@given(
    number=st.integers(3, 11),
    share=st.floats(0, 1),
    seed=st.integers(0, 10**6),
    lie=st.sampled_from(HOSTILE),
    split=st.booleans(),
)
def test_minorities_break_none(
    number: int, share: float, seed: int, lie: float, split: bool
) -> None:
    """Entry by entry within the honest ones, or within a known distance of their mean."""
    bad = round(share * ((number - 1) // 2))
    stack = clients(number, seed=seed)
    honest = {key: value[bad:].clone() for key, value in stack.items()}
    signs = torch.tensor([1.0, -1.0]).repeat(number)[:bad] if split else torch.ones(bad)
    for value in stack.values():
        value[:bad] = lie * signs.double().view(-1, *[1] * (value.dim() - 1))
    low, high = rows(honest).min(0), rows(honest).max(0)
    for name in ("median", "trimmed mean"):
        got = vector(RULES[name](stack, bad=bad))
        assert (low - 1e-12 <= got).all() and (got <= high + 1e-12).all()
    centre = rows(honest).mean(0)
    spread = np.linalg.norm(rows(honest) - centre, axis=1).max()
    good = number - bad
    bounds = {  # distances from the honest mean, with slack for what is not yet converged
        "geometric median": 2 * good / (good - bad) * spread,
        "krum": (1 + 2 * math.sqrt(good)) * spread,
        "multi-krum": (1 + 2 * math.sqrt(good)) * spread,
    }
    for name, bound in bounds.items():
        options = {"steps": 100} if name == "geometric median" else {}
        got = vector(RULES[name](stack, bad=bad, **options))
        assert np.linalg.norm(got - centre) <= bound + 1e-9, name
    bound = float(np.linalg.norm(rows(honest), axis=1).max())
    clipped = vector(norm_bound(stack, bound=bound))
    untouched = rows(honest).sum(0) / number
    assert np.linalg.norm(clipped - untouched) <= bad / number * bound + 1e-9


@pytest.mark.parametrize("name", RULES)
def test_a_half_of_bad_clients_is_refused(name: str) -> None:
    for number in range(1, 7):
        for bad in range(0, 5):
            if 2 * bad < number:
                RULES[name](clients(number), bad=bad)
            else:
                said = f"Expected bad to be less than half of the {number} clients, but got {bad}"
                with pytest.raises(TooManyBad, match=said):
                    RULES[name](clients(number), bad=bad)


def test_centred_clipping_holds_for_a_tenth() -> None:
    centred_clipping(clients(10), bad=1)
    with pytest.raises(TooManyBad, match="at most a tenth of the 10 clients, but got 2"):
        centred_clipping(clients(10), bad=2)


def test_buckets_are_means_of_everybody_once() -> None:
    stack = clients(7)
    generator = torch.Generator().manual_seed(3)
    order = torch.randperm(7, generator=torch.Generator().manual_seed(3)).tolist()
    got = bucket_means(stack, size=3, generator=generator)
    assert got["weight"].shape == (3, 4, 3)
    x = rows(stack)
    want = [x[order[a : a + 3]].mean(0) for a in (0, 3, 6)]
    np.testing.assert_allclose(rows(got), want, atol=1e-12)
    assert same(bucket_means(stack, size=1), stack)
    close(
        {key: value[0] for key, value in bucket_means(stack, size=9).items()},
        mean(stack, torch.ones(7)),  # type: ignore[arg-type]
    )


@each
@pytest.mark.parametrize(("stack", "said"), [
    ({}, "Expected stack to have a tensor, but got none"),
    ({"w": torch.zeros(0, 2)}, "Expected stack to have a client, but got none"),
    ({"w": torch.tensor(1.0)}, r"shapes \[K, ...\], but got \[\]"),
    ({"w": torch.zeros(3), "b": torch.zeros(2)}, "to have 3 clients"),
    ({"w": [torch.zeros(2), torch.zeros(1)]}, "to have one shape"),
    ({"w": torch.zeros(3, dtype=torch.complex64)}, "to be real"),
])  # fmt: skip
def test_malformed_stacks_are_refused(name: str, stack: Any, said: str) -> None:
    refuses(said, lambda: ALL[name](stack, bad=0), (TypeError, ValueError))


@pytest.mark.parametrize(("call", "said"), [
    (lambda s: median(s, bad=-1), "Expected bad to be an integer >= 0, but got -1"),
    (lambda s: geometric_median(s, steps=0), "steps to be an integer >= 1"),
    (lambda s: centred_clipping(s, radius=0.0), "radius to be a number > 0"),
    (lambda s: centred_clipping(s, steps=0), "steps to be an integer >= 1"),
    (lambda s: bucket_means(s, size=0), "size to be an integer >= 1"),
])  # fmt: skip
def test_options_out_of_range_are_refused(call: Callable[[Any], Any], said: str) -> None:
    refuses(said, lambda: call(clients(5)))


def test_clipping_knows_no_unit() -> None:
    whole = clients(5)
    small = {name: value * 1e-3 for name, value in whole.items()}
    for rule, name in ((norm_bound, "bound"), (centred_clipping, "radius")):
        found = rule(small, **{name: 5e-4})
        close(found, {n: 1e-3 * v for n, v in rule(whole, **{name: 0.5}).items()}, atol=1e-9)
