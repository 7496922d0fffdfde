"""Labels made of numbers, and collections dealt at random."""

import math

import pytest
import torch
from federations import refuses

from fgl.data.partitions import quantile_labels


@pytest.mark.parametrize("bins", [2, 3, 7])
@pytest.mark.parametrize("ties", [False, True])
def test_equals_a_loop(bins: int, ties: bool) -> None:
    y = torch.randn(40)
    y = y.round() if ties else y
    y[::6] = torch.nan
    ordered = sorted(value for value in y.tolist() if not math.isnan(value))
    starts = [ordered[k * len(ordered) // bins] for k in range(1, bins)]
    want = [bins if math.isnan(v) else sum(v >= start for start in starts) for v in y.tolist()]
    got = quantile_labels(y, bins)
    assert got.dtype == torch.int64 and got.tolist() == want


def test_unknown_equal_few_and_none() -> None:
    assert quantile_labels(torch.full((3,), torch.nan), 4).tolist() == [4, 4, 4]
    assert quantile_labels(torch.zeros(0), 2).shape == (0,)
    assert quantile_labels(torch.ones(5), 2).unique().numel() == 1
    assert quantile_labels(torch.tensor([1.0, 2.0]), 5).tolist() == [2, 4]


def test_bad_input() -> None:
    with pytest.raises(TypeError, match="y to be floating point, but got torch.int64"):
        quantile_labels(torch.zeros(3, dtype=torch.int64), 2)
    with pytest.raises(ValueError, match=r"y to have shape \[n\], one column, but got \[3, 2\]"):
        quantile_labels(torch.zeros(3, 2), 2)
    refuses("bins to be an integer >= 2, but got 1", lambda: quantile_labels(torch.zeros(3), 1))
