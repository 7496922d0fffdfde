"""`model_contrast` against loops over the formula."""

import math
from typing import Any

import pytest
import torch
from by_loops import cosine
from federations import refuses
from torch import Tensor
from torch.func import grad, vmap

from fgl.losses import model_contrast

N, D, Q = 6, 4, 3


def rows(seed: int, *shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*(shape or (N, D)), dtype=torch.float64, generator=generator)


def loops(z: Tensor, received: Tensor, previous: Tensor, temperature: float) -> float:
    total = 0.0
    for u in range(len(z)):
        near = math.exp(cosine(z[u], received[u]) / temperature)
        far = sum(math.exp(cosine(z[u], old[u]) / temperature) for old in previous)
        total -= math.log(near / (near + far))
    return total / len(z)


@pytest.mark.parametrize("temperature", [0.1, 0.5, 2.0])
@pytest.mark.parametrize("size", [1, Q])
def test_equals_loops(size: int, temperature: float) -> None:
    z, received, previous = rows(0), rows(1), rows(2, size, N, D)
    got = model_contrast(z, received, previous, temperature=temperature)
    assert float(got) == pytest.approx(loops(z, received, previous, temperature))


@pytest.mark.parametrize("options", [
    {},
    {"previous": rows(2, 0, N, D)},
    {"previous": rows(2, Q, N, D), "queue_mask": torch.zeros(Q).bool()},
    {"previous": rows(2, Q, N, D), "mask": torch.zeros(N).bool()},
])  # fmt: skip
def test_nothing_to_contrast_is_zero_with_a_zero_gradient(options: dict[str, Any]) -> None:
    z = rows(0).requires_grad_()
    value = model_contrast(z, rows(1), **options)
    value.backward()
    assert value.item() == 0
    assert z.grad is not None and (z.grad == 0).all()


def test_vmap_with_padding_and_queues_of_unequal_length() -> None:
    z, received, previous = rows(0, 2, N, D), rows(1, 2, N, D), rows(2, 2, N, Q, D)
    nodes = torch.arange(N) < torch.tensor([[N], [4]])
    places = torch.arange(Q) < torch.tensor([[0], [2]])
    received[1, 4:] = 0

    def loss(z: Tensor, g: Tensor, p: Tensor, n: Tensor, q: Tensor) -> Tensor:
        return model_contrast(z, g, p.transpose(0, 1), mask=n, queue_mask=q)

    given = (received, previous, nodes, places)
    got = vmap(loss)(z, *given)
    want = loops(z[1, :4], received[1, :4], previous[1, :4, :2].transpose(0, 1), 0.5)
    assert got.tolist() == pytest.approx([0, want])
    slopes = grad(lambda z: vmap(loss)(z, *given).sum())(z)
    assert (slopes[0] == 0).all() and (slopes[1, 4:] == 0).all()
    torch.testing.assert_close(vmap(grad(loss))(z, *given), slopes)


@pytest.mark.parametrize(("change", "message"), [
    ({"received": rows(1, N, 2)}, r"received to have the shape of z \[6, 4\]"),
    ({"mask": torch.ones(2)}, r"mask to have shape \[6\], but got \[2\]"),
    ({"queue_mask": torch.ones(5)}, r"queue_mask to have shape \[3\], but got \[5\]"),
    ({"temperature": 0.0}, "temperature to be a number > 0, but got 0.0"),
])  # fmt: skip
def test_malformed(change: dict[str, Any], message: str) -> None:
    given: Any = {"z": rows(0), "received": rows(1), "previous": rows(2, Q, N, D)} | change
    refuses(message, lambda: model_contrast(**given))


def test_the_other_models_are_frozen_and_what_is_masked_out_may_be_nan() -> None:
    z, received, previous = rows(0), rows(1), rows(2, Q, N, D)
    leaves = [each.clone().requires_grad_() for each in (z, received, previous)]
    model_contrast(*leaves).backward()
    assert leaves[0].grad is not None
    assert leaves[1].grad is leaves[2].grad is None
    there = torch.arange(N) < N - 1
    for each in (z, received, previous):
        each[..., N - 1, :] = math.nan
    options: dict[str, Any] = {"queue_mask": torch.tensor([1, 0, 1])}
    got = model_contrast(z, received, previous, mask=there, **options)
    want = model_contrast(z[:-1], received[:-1], previous[:, :-1], **options)
    torch.testing.assert_close(got, want)
    slope = grad(lambda z: model_contrast(z, received, previous, mask=there))(z)
    assert slope.isfinite().all()


def test_a_place_of_the_queue_that_is_not_taken_may_be_nan() -> None:
    z = rows(0, 4, 3).requires_grad_()
    previous = torch.stack([rows(2, 4, 3), torch.full((4, 3), torch.nan)])
    taken = torch.tensor([True, False])
    loss = model_contrast(z, rows(1, 4, 3), previous, queue_mask=taken)
    want = model_contrast(z, rows(1, 4, 3), previous[:1])
    (got, expected) = (torch.autograd.grad(each, z)[0] for each in (loss, want))
    assert torch.isfinite(loss)
    torch.testing.assert_close(got, expected)
