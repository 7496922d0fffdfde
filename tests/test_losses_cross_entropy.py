"""`cross_entropy` against loops over the formula."""

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fgl import losses
from fgl.losses import cross_entropy, soft_cross_entropy
from fgl.losses.cross_entropy import _known as known

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


@pytest.mark.parametrize(("change", "message"), [
    ({"y": Y[1:]}, r"Expected y to have shape \[11\], but got \[10\]"),
    ({"y": F.one_hot(Y, C)}, r"Expected y to have shape \[11\], but got \[11, 4\]"),
    ({"mask": MASK[1:]}, r"Expected mask to have shape \[11\], but got \[10\]"),
    ({"mask": MASK[:, None]}, r"Expected mask to have shape \[11\], but got \[11, 1\]"),
    ({"mask": MASK.nonzero()[:, 0]}, r"Expected mask to have shape \[11\], but got \[6\]"),
    ({"y": torch.zeros(N)}, "y to be int64, but got torch.float32"),
    ({"mask": MASK.long()}, "mask to be bool or float weights, but got torch.int64"),
])  # fmt: skip
def test_bad_input(change: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        cross_entropy(**{"logits": torch.ones(N, C), "y": Y} | change)


def soft_loops(logits: Tensor, target: Tensor, mask: Tensor | None = None) -> float:
    """`soft_cross_entropy`'s formula, in plain Python."""
    weight = [1.0] * len(logits) if mask is None else [float(m) for m in mask]
    total = 0.0
    for row, wanted, w in zip(logits.tolist(), target.tolist(), weight, strict=True):
        norm = sum(math.exp(v) for v in row)
        total -= w * sum(
            t * math.log(math.exp(v) / norm + 1e-7) for v, t in zip(row, wanted, strict=True)
        )
    return total / sum(weight) if any(weight) else 0.0


@pytest.mark.parametrize("mask", [None, MASK, MASK.double() / 3, torch.zeros(N)])
def test_soft_labels_equal_loops(mask: Tensor | None) -> None:
    z = logits()
    target = torch.rand(N, C, dtype=torch.float64).softmax(1)
    got = soft_cross_entropy(z, target, mask)
    assert got.item() == pytest.approx(soft_loops(z.detach(), target, mask), rel=1e-12)
    (gradient,) = torch.autograd.grad(got, z)
    assert torch.isfinite(gradient).all()
    if mask is not None:
        assert not gradient[mask == 0].any()


def test_soft_labels_of_another_shape() -> None:
    with pytest.raises(ValueError, match=r"target to have shape \[11, 4\], but got \[11\]"):
        soft_cross_entropy(logits(), Y)
    with pytest.raises(ValueError, match=r"mask to have shape \[11\], but got \[3\]"):
        soft_cross_entropy(logits(), logits(), MASK[:3])


@pytest.mark.parametrize("masked", [False, True])
def test_a_half_precision_mean_of_many_terms_neither_vanishes_nor_overflows(masked: bool) -> None:
    n = 70_000  # more than the largest float16
    z, y = torch.zeros(n, 2, dtype=torch.float16), torch.zeros(n, dtype=torch.int64)
    pairs, mask = torch.zeros(2, n, dtype=torch.int64), torch.ones(n).bool() if masked else None
    log2 = torch.tensor(2.0).log().half()
    assert losses.cross_entropy(z, y, mask).isclose(log2, rtol=1e-3)
    assert losses.soft_cross_entropy(z, torch.full_like(z, 0.5), mask).isclose(log2, rtol=1e-3)
    assert losses.kl_divergence(z + 1, z, mask=mask) == 1
    assert losses.model_contrast(z + 1, z + 1, (z + 1)[None], mask=mask).isclose(log2, rtol=1e-3)
    loss = losses.sampled_reconstruction(z, pairs, pairs[:, :0], mask=mask)
    assert loss.isclose(log2, rtol=1e-3)


def test_a_label_that_is_none_may_be_masked_out() -> None:
    """As `fgl.pseudo.pseudo_labels` gives them."""
    z = logits()
    y = torch.arange(len(z)) % z.shape[1]
    none = torch.arange(len(z)) % 2 == 0
    want = cross_entropy(z, y, ~none)
    assert torch.equal(cross_entropy(z, torch.where(none, -1, y), ~none), want)
    assert torch.equal(cross_entropy(z, torch.where(none, z.shape[1], y), (~none).double()), want)


def composed(z: Tensor, y: Tensor, mask: Tensor | None) -> Tensor:
    """The formula in operations of torch, whose derivatives are torch's own."""
    own = y.clamp(min=0)
    each = z.logsumexp(1) - z.gather(1, own[:, None])[:, 0]
    weight = torch.ones_like(each) if mask is None else mask.to(each.dtype)
    return (each * weight).sum() / weight.sum()


@pytest.mark.parametrize("mask", [None, MASK, torch.arange(N) / 3], ids=["all", "mask", "weights"])
def test_further_derivatives_are_those_of_the_formula(mask: Tensor | None) -> None:
    z = logits()
    assert torch.autograd.gradgradcheck(lambda z: cross_entropy(z, Y, mask), z)
    z = z.detach()
    want = torch.func.hessian(lambda z: composed(z, Y, mask))(z)
    for how in (torch.func.hessian, lambda f: torch.func.jacrev(torch.func.jacrev(f))):
        torch.testing.assert_close(how(lambda z: cross_entropy(z, Y, mask))(z), want)
    one = torch.ones_like(z).cumsum(1)
    got = torch.func.jvp(lambda z: cross_entropy(z, Y, mask), (z,), (one,))
    torch.testing.assert_close(got, torch.func.jvp(lambda z: composed(z, Y, mask), (z,), (one,)))


def test_weights_that_are_trained_have_a_gradient() -> None:
    weight = (torch.arange(N).double() / 3).requires_grad_()
    assert torch.autograd.gradcheck(lambda w: cross_entropy(logits().detach(), Y, w), weight)


def test_what_is_known_of_a_mask_goes_with_it() -> None:
    before, mask = len(known), MASK.clone()
    cross_entropy(logits(), Y, mask)
    assert len(known) == before + 1
    del mask
    assert len(known) == before
