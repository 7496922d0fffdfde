"""Robust means against byzfl's, for every rule of `fgl.aggregate.robust`.

Mutants that this file finds (each was tried):
- `trimmed_mean` that trims one client fewer at the lower end and one more at the upper end.
- `krum` with the distances to all others.
- `multi_krum` that averages one client fewer.
- `nearest_means` of one neighbour more.
- `centred_clipping` with a single step.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from federations import script
from torch import Tensor

from fgl.aggregate import robust
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


RULES = {"Median": "median", "TrMean": "trimmed_mean", "Krum": "krum", "MultiKrum": "multi_krum",
         "GeometricMedian": "geometric_median", "CenteredClipping": "centred_clipping",
         "Clipping": "norm_bound", "NNM": "nearest_means"}  # fmt: skip
NO_ROW = {"TooManyBad": "an error", "bucket_means": "draws: test_aggregate_robust.py"}


def test_every_rule_has_a_row() -> None:
    assert {*robust.__all__} == {*RULES.values()} | NO_ROW.keys()
    assert BYZFL.keys() - {"made", "vectors"} == RULES.keys()
