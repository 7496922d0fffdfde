"""`accuracy` against a loop."""

from __future__ import annotations

import math

import pytest
import torch

from fgl.metrics import accuracy


@pytest.mark.parametrize("masked", [False, True])
def test_equals_a_loop(masked: bool) -> None:
    logits, y = torch.randn(50, 3), torch.randint(3, (50,))
    mask = torch.rand(50) < 0.5 if masked else None
    nodes = [v for v in range(50) if mask is None or mask[v]]
    hits = sum(max(range(3), key=logits[v].tolist().__getitem__) == y[v] for v in nodes)
    got = accuracy(logits, y, mask)
    assert isinstance(got, float) and got == hits / len(nodes)


def test_bounds() -> None:
    y = torch.arange(4)
    assert accuracy(torch.eye(4), y) == 1.0
    assert accuracy(torch.eye(4), y.flip(0)) == 0.0


def test_only_the_masked_nodes_count() -> None:
    assert (
        accuracy(torch.eye(4), torch.tensor([0, 1, 0, 0]), torch.tensor([1, 1, 0, 0]).bool()) == 1
    )


def test_nothing_masked_in_is_nan() -> None:
    assert math.isnan(accuracy(torch.eye(4), torch.arange(4), torch.zeros(4, dtype=torch.bool)))
    assert math.isnan(accuracy(torch.zeros(0, 3), torch.zeros(0, dtype=torch.int64)))
