"""`cross_entropy` against loops over the formula."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import grad, vmap

from fgl.losses import cross_entropy

N, C = 11, 4
Y = torch.tensor([0, 1, 2, 3, 0, 1, 2, 3, 0, 0, 1])
MASK = torch.tensor([1, 0, 1, 1, 0, 0, 1, 0, 1, 1, 0], dtype=torch.bool)


def logits(dtype: torch.dtype = torch.float64) -> Tensor:
    g = torch.Generator().manual_seed(1)
    return torch.randn(N, C, generator=g, dtype=torch.float64).to(dtype).requires_grad_()


def loops(logits: Tensor, y: Tensor, mask: Tensor | None = None) -> float:
    """The formula, in plain Python."""
    z, c = logits.tolist(), y.tolist()
    weight = [1.0] * len(c) if mask is None else [float(m) for m in mask]
    total = 0.0
    for v in range(len(c)):
        share = math.exp(z[v][c[v]]) / sum(math.exp(s) for s in z[v])
        total -= weight[v] * math.log(share)
    return total / sum(weight)


@pytest.mark.parametrize("mask", [None, MASK, torch.arange(N) / 3, MASK.double()])
def test_equals_loops(mask: Tensor | None) -> None:
    z = logits()
    assert cross_entropy(z, Y, mask).item() == pytest.approx(loops(z, Y, mask), rel=1e-12)
    assert torch.autograd.gradcheck(lambda z: cross_entropy(z, Y, mask), z)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equals_torch_on_the_masked_nodes(dtype: torch.dtype) -> None:
    z = logits(dtype)
    for mask in (None, MASK):
        some = slice(None) if mask is None else mask
        got, want = cross_entropy(z, Y, mask), F.cross_entropy(z[some], Y[some])
        assert got.dtype == dtype
        torch.testing.assert_close(got, want)
        torch.testing.assert_close(torch.autograd.grad(got, z), torch.autograd.grad(want, z))


def test_a_masked_out_node_gets_no_gradient() -> None:
    z = logits()
    cross_entropy(z, Y, MASK).backward()
    assert (z.grad[~MASK] == 0).all() and (z.grad[MASK] != 0).all()


@pytest.mark.parametrize("num_nodes", [0, N])
def test_an_empty_mask_is_zero_with_zero_gradient(num_nodes: int) -> None:
    z = logits()
    mask = torch.zeros(num_nodes, dtype=torch.bool)
    loss = cross_entropy(z[:num_nodes], Y[:num_nodes], mask)
    loss.backward()
    assert loss.item() == 0 and (z.grad == 0).all()


def test_no_node_at_all_is_zero_with_a_gradient() -> None:
    z = torch.zeros(0, C, requires_grad=True)
    loss = cross_entropy(z, Y[:0])
    loss.backward()
    assert loss.item() == 0 and z.grad.shape == (0, C)


def test_vmap_equals_the_loop() -> None:
    z = torch.randn(3, N, C, dtype=torch.float64, requires_grad=True)
    y = torch.randint(C, (3, N))
    mask = torch.rand(3, N) < 0.5
    mask[-1] = False
    got = vmap(cross_entropy)(z, y, mask)
    want = torch.stack([cross_entropy(*each) for each in zip(z, y, mask, strict=True)])
    torch.testing.assert_close(got, want)
    (slope,) = torch.autograd.grad(want.sum(), z)
    torch.testing.assert_close(torch.autograd.grad(got.sum(), z)[0], slope)
    torch.testing.assert_close(vmap(grad(cross_entropy))(z, y, mask), slope)
    unmasked = torch.stack([cross_entropy(*each) for each in zip(z, y, strict=True)])
    torch.testing.assert_close(vmap(cross_entropy)(z, y), unmasked)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y": Y[1:]}, r"Expected y to have shape \[11\], but got \[10\]"),
        ({"y": F.one_hot(Y, C)}, r"Expected y to have shape \[11\], but got \[11, 4\]"),
        ({"mask": MASK[1:]}, r"Expected mask to have shape \[11\], but got \[10\]"),
        ({"mask": MASK[:, None]}, r"Expected mask to have shape \[11\], but got \[11, 1\]"),
        ({"mask": MASK.nonzero()[:, 0]}, r"Expected mask to have shape \[11\], but got \[6\]"),
    ],
)
def test_bad_input(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        cross_entropy(**{"logits": torch.ones(N, C), "y": Y} | change)
