"""Robust means against byzfl's, for every rule of `fgl.aggregate.robust`.

Mutants that this file finds (each was tried):
- `trimmed_mean` that trims one client fewer at the lower end and one more at the upper end.
- `krum` with the distances to all others.
- `multi_krum` that averages one client fewer.
- `nearest_means` of one neighbour more.
- `centred_clipping` with a single step.

Faults that the suite let pass at 820a2c65, before this file stood (their texts, and the tests that
ran, in `benchmarks/results/truth_mutants.json`; `mutants.py --seeded` puts them in):
- `distances` that are not squared, by which Krum chooses others: tried, 1,254 tests.
- `krum` and `multi_krum` in float32: tried, 1,254 tests.
- steps of `geometric_median` in float32: tried, 1,254 tests.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from federations import script
from scipy.optimize import minimize
from torch import Tensor

from fgl.aggregate import mean, robust
from fgl.aggregate.robust import (
    centred_clipping,
    geometric_median,
    krum,
    median,
    multi_krum,
    nearest_means,
    norm_bound,
    trimmed_mean,
)

BYZFL = json.loads((Path(__file__).parents[1] / "byzfl.json").read_text())


def of_byzfl(name: str, x: Tensor) -> dict[str, Tensor]:
    """The same rule with byzfl's options."""
    zero = {"w": torch.zeros_like(x[0])}
    table: dict[str, Callable[[], dict[str, Tensor]]] = {
        "Median": lambda: median({"w": x}),
        "TrMean": lambda: trimmed_mean({"w": x}, bad=2),
        "Krum": lambda: krum({"w": x}, bad=2),
        "MultiKrum": lambda: multi_krum({"w": x}, bad=2),
        "GeometricMedian": lambda: geometric_median({"w": x}, start=zero, steps=3, eps=0.1),
        "CenteredClipping": lambda: centred_clipping({"w": x}, radius=1.5, steps=3),
        "Clipping": lambda: norm_bound({"w": x}, bound=2.0),
        "NNM": lambda: median(nearest_means({"w": x}, bad=2)),
    }
    return table[name]()


@pytest.mark.parametrize("name", [key for key in BYZFL if key not in ("made", "vectors")])
def test_equals_byzfl(name: str) -> None:
    """What byzfl 0.0.11 made of the same vectors, as ``byzfl_values.py`` stored it."""
    x = torch.tensor(BYZFL["vectors"], dtype=torch.float64)
    want = torch.tensor(BYZFL[name], dtype=torch.float64)
    torch.testing.assert_close(of_byzfl(name, x)["w"], want, rtol=0, atol=1e-6)


@pytest.mark.skipif(not find_spec("byzfl"), reason="pip install --no-deps byzfl==0.0.11")
def test_byzfl_itself_says_what_is_stored() -> None:
    made = script("benchmarks/reliability/byzfl_values.py").values(BYZFL["vectors"])
    assert made.keys() == BYZFL.keys() - {"made", "vectors"}
    for name, value in made.items():
        np.testing.assert_allclose(value, BYZFL[name], rtol=0, atol=1e-9)


def textbook(name: str, x: np.ndarray, bad: int, radius: float) -> np.ndarray:
    """The rules in NumPy's loops, in double."""
    if name == "mean":
        return x.mean(0)
    if name == "median":
        return np.median(x, 0)
    if name == "trimmed_mean":
        return np.sort(x, 0)[bad : len(x) - bad].mean(0)
    if name in ("norm_bound", "centred_clipping"):
        v = np.zeros_like(x[0])
        for _ in range(1 if name == "norm_bound" else 3):
            far = np.array([np.sqrt(((row - v) ** 2).sum()) for row in x])
            v = v + sum((row - v) * min(1.0, radius / f) for row, f in zip(x, far, strict=True)) / (
                len(x)
            )
        return v
    if name == "geometric_median":
        total = minimize(lambda v: sum(np.sqrt(((row - v) ** 2).sum()) for row in x), x.mean(0))
        return np.asarray(total.x)
    apart = np.array([[((one - two) ** 2).sum() for two in x] for one in x])
    scores = np.sort(apart, 1)[:, 1 : len(x) - bad].sum(1)
    order = np.argsort(scores)
    return x[order[: 1 if name == "krum" else len(x) - bad]].mean(0)


def of_library(name: str, stack: dict[str, Tensor], bad: int, radius: float) -> dict[str, Tensor]:
    if name == "mean":
        return mean(stack, torch.ones(len(next(iter(stack.values())))))
    more: dict[str, Any] = {"norm_bound": {"bound": radius}, "centred_clipping": {"radius": radius}}
    more |= {"median": {}, "geometric_median": {"steps": 400, "eps": 1e-12}}
    rule: Callable[..., dict[str, Tensor]] = getattr(robust, name)
    return rule(stack, **more.get(name, {"bad": bad}))


ALL = ("mean", "median", "trimmed_mean", "norm_bound", "centred_clipping", "geometric_median",
       "krum", "multi_krum")  # fmt: skip


def test_rules_of_many_clients_are_a_textbooks_in_every_precision() -> None:
    """Two tensors that are one vector; far from zero, where a sum of few bits would stand still."""
    draw = torch.Generator().manual_seed(0)
    for dtype, clients, near in (
        (torch.float64, 9, 1e-6), (torch.float32, 40, 1e-5), (torch.bfloat16, 60, 0.01),
    ):  # fmt: skip
        x = (10 + torch.randn(clients, 4, generator=draw, dtype=torch.float64)).to(dtype)
        x[:2] += 20
        stack = {"a": x[:, :1], "b": x[:, 1:].reshape(clients, 1, 3)}
        for name in ALL:
            want = textbook(name, x.double().numpy(), 2, 3.0)
            out = of_library(name, stack, 2, 3.0)
            got = torch.cat([out["a"], out["b"].flatten()])
            assert got.dtype == dtype, name
            assert np.abs(got.double().numpy() - want).max() < near * 10, (name, dtype)


def test_distances_are_squared_and_in_double() -> None:
    """Long tails, where sums of distances choose others, and far from zero, where float32 is 1."""
    for seed in range(30):
        draw = torch.Generator().manual_seed(seed)
        x = torch.randn(8, 3, generator=draw, dtype=torch.float64) ** 3
        for name in ("krum", "multi_krum", "geometric_median")[: 2 + (seed == 0)]:
            out = of_library(name, {"w": x + 1e7}, 2, 3.0)["w"] - 1e7
            assert np.abs(out.numpy() - textbook(name, x.numpy(), 2, 3.0)).max() < 1e-4, name


def test_a_mean_is_numpys_in_each_form_length_and_precision() -> None:
    """Long tensors are added one by one, short ones together; few bits round once, at the end."""
    draw, clients = torch.Generator().manual_seed(0), 24
    weight = torch.randint(1, 9, (clients,), generator=draw)
    for dtype, near in ((torch.bfloat16, 0.04), (torch.float32, 1e-5), (torch.int64, 0.5)):
        for size in (3, 2**13 + 1, 2**18 + 1):
            x = (10 + 3 * torch.randn(clients, size, generator=draw)).to(dtype)
            want = np.average(x.double().numpy(), 0, weight.numpy())
            for stack in (x, list(x), x.view(clients, size, 1).mT.contiguous().mT):
                got: Tensor = mean({"w": stack}, weight)["w"]
                assert got.dtype == dtype
                assert np.abs(got.flatten().double().numpy() - want).max() <= near, (dtype, size)


RULES = {"Median": "median", "TrMean": "trimmed_mean", "Krum": "krum", "MultiKrum": "multi_krum",
         "GeometricMedian": "geometric_median", "CenteredClipping": "centred_clipping",
         "Clipping": "norm_bound", "NNM": "nearest_means"}  # fmt: skip
NO_ROW = {"TooManyBad": "an error", "bucket_means": "draws: test_aggregate_robust.py"}


def test_every_rule_has_a_row() -> None:
    assert {*robust.__all__} == {*RULES.values()} | NO_ROW.keys()
    assert BYZFL.keys() - {"made", "vectors"} == RULES.keys()
