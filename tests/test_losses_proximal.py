"""`proximal` against loops over the formula."""

import pytest
import torch
from federations import refuses
from torch import Tensor

from fgl.losses import distance_per_entry, proximal

SHAPES = {"conv.weight": (3, 2), "conv.bias": (3,), "scale": ()}


def model(seed: int, *batch: int, dtype: torch.dtype = torch.float64) -> dict[str, Tensor]:
    g = torch.Generator().manual_seed(seed)
    return {
        name: torch.randn((*batch, *shape), generator=g, dtype=dtype).requires_grad_()
        for name, shape in SHAPES.items()
    }


def loops(params: dict[str, Tensor], reference: dict[str, Tensor]) -> float:
    total = 0.0
    for name, value in params.items():
        pairs = zip(value.flatten().tolist(), reference[name].flatten().tolist(), strict=True)
        total += sum((a - b) ** 2 for a, b in pairs)
    return total / 2


def test_equals_loops() -> None:
    params, reference = model(0), model(1)
    assert proximal(params, reference).item() == pytest.approx(loops(params, reference), rel=1e-13)


def test_nothing_to_compare_is_zero() -> None:
    assert proximal({}, {}).item() == 0
    assert proximal({"n": torch.tensor(1)}, {"n": torch.tensor(5)}).item() == 0


@pytest.mark.parametrize(("reference", "message"), [
    ({}, r"Expected reference\['w'\] to have shape \[3\], but got no such tensor"),
    ({"w": torch.ones(1)}, r"Expected reference\['w'\] to have shape \[3\], but got \[1\]"),
    ({"w": torch.ones(3, 1)}, r"Expected reference\['w'\] to have shape \[3\], but got \[3, 1"),
])  # fmt: skip
def test_bad_input(reference: dict[str, Tensor], message: str) -> None:
    refuses(message, lambda: proximal({"w": torch.ones(3)}, reference))


def test_distance_per_entry_equals_loops() -> None:
    params, reference = model(0), model(1)
    total = 0.0
    for name, value in params.items():
        pairs = list(zip(value.flatten().tolist(), reference[name].flatten().tolist(), strict=True))
        total += sum((a - b) ** 2 for a, b in pairs) ** 0.5 / len(pairs)
    got = distance_per_entry(params, reference)
    assert got.item() == pytest.approx(total, rel=1e-13)
    got.backward()
    for name, value in params.items():
        moved = (value - reference[name]).detach()
        assert value.grad is not None
        torch.testing.assert_close(value.grad, moved / moved.norm() / moved.numel())
        assert reference[name].grad is None


def test_distance_per_entry_gradcheck_and_start() -> None:
    reference = model(1)
    assert torch.autograd.gradcheck(
        lambda *values: distance_per_entry(dict(zip(SHAPES, values, strict=True)), reference),
        tuple(model(0).values()),
    )
    counted = {"w": torch.ones(4), "steps": torch.tensor(7)}
    moved = {"w": torch.zeros(4), "steps": torch.tensor(2)}
    assert distance_per_entry(counted, moved).item() == 0.5  # a counter has no distance
    params = model(0)
    loss = distance_per_entry(params, {name: v.detach() for name, v in params.items()})
    loss.backward()
    assert loss.item() == 0
    assert all(not v.grad.any() for v in params.values() if v.grad is not None)
    with pytest.raises(ValueError, match=r"reference\['w'\] to have shape \[2\]"):
        distance_per_entry({"w": torch.zeros(2)}, {"w": torch.zeros(1)})


def test_halves_are_squared_in_float32() -> None:
    """The square of 1e-4 is nothing in a float16."""
    params, reference = ({"w": torch.full((1000,), x).half()} for x in (1e-4, 0.0))
    assert proximal(params, reference).item() == pytest.approx(5e-6, rel=1e-3)
    assert distance_per_entry(params, reference).item() == pytest.approx(1e-4 / 1000**0.5, rel=1e-3)
