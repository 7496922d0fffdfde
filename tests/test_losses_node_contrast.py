"""`node_contrast` against loops over the formula, and where a cosine goes wrong."""

import math
from itertools import product
from typing import Any

import pytest
import torch
from federations import refuses
from torch import Tensor
from torch.func import grad, vmap

from fgl.losses import node_contrast

N, D = 13, 5
Y = torch.tensor([0, 1, 2, 0, 1, 2, 0, 0, 1, 0, 3, 0, 1])  # class 3 has one member
MASK = torch.tensor([1, 1, 0, 1, 1, 1, 0, 1, 1, 1, 1, 0, 1], dtype=torch.bool)
OPTIONS = [
    {"denominator": denominator, "direction": direction, "mask": mask}
    for denominator, direction, mask in product(
        ("negatives", "all"), ("anchor", "symmetric"), (None, MASK)
    )
]
options = pytest.mark.parametrize(
    "kwargs",
    OPTIONS,
    ids=[
        f"{o['denominator']}-{o['direction']}-{'all' if o['mask'] is None else 'masked'}"
        for o in OPTIONS
    ],
)


def pair(dtype: torch.dtype = torch.float64, n: int = N) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(7)
    a, k = torch.randn(2, n, D, generator=g, dtype=torch.float64).to(dtype).unbind()
    return a.clone().requires_grad_(), k.clone().requires_grad_()


def cosine(a: list[float], b: list[float]) -> float:
    long_a = math.sqrt(sum(v * v for v in a))
    long_b = math.sqrt(sum(v * v for v in b))
    if long_a < 1e-6 or long_b < 1e-6:
        return 0.0
    return sum(v * w for v, w in zip(a, b, strict=True)) / long_a / long_b


def loops(
    anchor: Tensor,
    keys: Tensor,
    y: Tensor,
    *,
    temperature: float = 0.1,
    mask: Tensor | None = None,
    denominator: str = "negatives",
    direction: str = "anchor",
) -> float:
    """The formula, in plain Python."""
    if direction == "symmetric":
        rest: dict[str, Any] = {
            "temperature": temperature,
            "mask": mask,
            "denominator": denominator,
        }
        return (loops(anchor, keys, y, **rest) + loops(keys, anchor, y, **rest)) / 2
    a, k, c = anchor.tolist(), keys.tolist(), y.tolist()
    nodes = [i for i in range(len(c)) if mask is None or mask[i]]
    total, count = 0.0, 0
    for i in nodes:
        phi = {j: math.exp(cosine(a[i], k[j]) / temperature) for j in nodes}
        positives = [p for p in nodes if c[p] == c[i]]
        if not positives:
            continue
        count += 1
        negatives = sum(phi[j] for j in nodes if c[j] != c[i])
        everyone = sum(phi[j] for j in nodes)
        mean = 0.0
        for p in positives:
            below = phi[p] + negatives if denominator == "negatives" else everyone
            mean += math.log(phi[p] / below) / len(positives)
        total -= mean
    return total / max(count, 1)


@options
@pytest.mark.parametrize("temperature", [0.02, 0.1, 1.0])
def test_equals_loops(kwargs: dict[str, Any], temperature: float) -> None:
    a, k = pair()
    want = loops(a, k, Y, temperature=temperature, **kwargs)
    got = node_contrast(a, k, Y, temperature=temperature, **kwargs).item()
    assert got == pytest.approx(want, rel=1e-10, abs=1e-10)


@pytest.mark.few
@options
def test_gradcheck(kwargs: dict[str, Any]) -> None:
    a, k = pair(n=7)
    mask = kwargs["mask"]
    kwargs = kwargs | {"mask": None if mask is None else mask[:7]}
    assert torch.autograd.gradcheck(
        lambda a, k: node_contrast(a, k, Y[:7], temperature=0.3, **kwargs), (a, k)
    )


@pytest.mark.parametrize("who", ["anchor", "keys", "same"])
def test_only_who_wants_a_gradient_gets_one(who: str) -> None:
    a, k = pair(n=7)
    if who == "same":
        assert torch.autograd.gradcheck(lambda a: node_contrast(a, a, Y[:7], temperature=0.3), a)
        return
    leaf, other = (a, k) if who == "anchor" else (k, a)
    whole = torch.autograd.grad(node_contrast(a, k, Y[:7], direction="symmetric"), leaf)[0]
    other.requires_grad_(False)
    node_contrast(a, k, Y[:7], direction="symmetric").backward()
    torch.testing.assert_close(leaf.grad, whole, rtol=1e-9, atol=1e-10)
    assert other.grad is None


@options
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_zero_row_is_like_nobody_and_moves_not(
    kwargs: dict[str, Any], dtype: torch.dtype
) -> None:
    a, k = (t.detach().clone() for t in pair(dtype))
    a[3] = 0
    k[5] = 0
    a[8] = 0
    k[8] = 0
    a[9] = 1e-9
    a.requires_grad_()
    k.requires_grad_()
    got = node_contrast(a, k, Y, **kwargs)
    tolerance = 1e-6 if dtype == torch.float32 else 1e-10
    assert got.item() == pytest.approx(loops(a, k, Y, **kwargs), rel=tolerance)
    got.backward()
    assert (a.grad[[3, 8, 9]] == 0).all()
    assert (k.grad[[5, 8]] == 0).all()
    assert a.grad.norm() < 1e3 and k.grad.norm() < 1e3
    assert a.grad[0].norm() > 0 and k.grad[3].norm() > 0


def stacked(clients: int = 3) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    a = torch.randn(clients, N, D, dtype=torch.float64, requires_grad=True)
    k = torch.randn(clients, N, D, dtype=torch.float64, requires_grad=True)
    y = torch.randint(3, (clients, N))
    mask = torch.rand(clients, N) < 0.7
    mask[-1] = False  # a client without a node to contrast
    return a, k, y, mask


SIDES: list[dict[str, Any]] = [  # clients that fit into a block together, and those that do not
    {"denominator": denominator, "direction": direction}
    for denominator, direction in product(("negatives", "all"), ("anchor", "symmetric"))
]
SIDES += [{"direction": "symmetric", "block": block} for block in (1, 2 * N * N)]


@pytest.mark.parametrize("rest", SIDES)
def test_vmap_equals_the_loop(rest: dict[str, Any]) -> None:
    a, k, y, mask = stacked()

    def loss(a: Tensor, k: Tensor, y: Tensor, mask: Tensor) -> Tensor:
        return node_contrast(a, k, y, mask=mask, **rest)

    got = vmap(loss)(a, k, y, mask)
    want = torch.stack([loss(*each) for each in zip(a, k, y, mask, strict=True)])
    torch.testing.assert_close(got, want, rtol=1e-13, atol=1e-13)
    slopes = torch.autograd.grad(want.sum(), (a, k))
    batch_then_sum = torch.autograd.grad(got.sum(), (a, k))
    results = [batch_then_sum, vmap(grad(loss, argnums=(0, 1)))(a, k, y, mask)]
    if rest.get("block") != 1:  # torch refuses this order where a block is written into
        results.append(grad(lambda a, k: vmap(loss)(a, k, y, mask).sum(), argnums=(0, 1))(a, k))
    for result in results:
        for ours, theirs in zip(result, slopes, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-13)


def test_a_far_positive_beside_a_near_rival_costs_its_logarithm_to_the_last_digits() -> None:
    """``log(1 + e^g)`` with g = 22: what lies above g is 2.8e-10."""
    x = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [1.0, 0.0]], dtype=torch.float64)
    y, g = torch.tensor([0, 0, 1]), 2 / (1 / 11)
    got = node_contrast(x, x, y, temperature=1 / 11, denominator="negatives")
    tail = math.log1p(math.exp(-g))
    first, second = (math.log(2) + g + tail) / 2, (math.log(2) + tail) / 2
    want = (first + second + math.log(2 + math.exp(-g))) / 3
    assert float(got) == pytest.approx(want, rel=1e-13)
    batched = vmap(lambda a: node_contrast(a, a, y, temperature=1 / 11))
    assert batched(x.expand(2, 3, 2)).tolist() == pytest.approx([want, want], rel=1e-13)


@pytest.mark.parametrize(("change", "message"), [
    ({"keys": torch.ones(N, D + 1)}, r"Expected keys to have the anchor's shape \[13, 5\]"),
    ({"keys": torch.ones(N - 1, D)}, r"but got \[12, 5\]"),
    ({"y": Y[1:]}, r"Expected y to have shape \[13\], but got \[12\]"),
    ({"y": Y[:, None]}, r"Expected y to have shape \[13\], but got \[13, 1\]"),
    ({"mask": MASK[1:]}, r"Expected mask to have shape \[13\], but got \[12\]"),
    ({"mask": torch.tensor([0, 3])}, r"Expected mask to have shape \[13\], but got \[2\]"),
    ({"mask": torch.full((N,), 1e-4)}, "mask to be a bool tensor, but got torch.float32"),
    ({"temperature": 0.0}, "Expected temperature to be a number > 0, but got 0.0"),
    ({"temperature": -1.0}, "Expected temperature to be a number > 0, but got -1.0"),
    ({"denominator": "some"}, "Expected denominator to be one of .* but got 'some'"),
    ({"direction": "back"}, "Expected direction to be one of .* but got 'back'"),
])  # fmt: skip
def test_bad_input(change: dict[str, Any], message: str) -> None:
    good = {"anchor": torch.ones(N, D), "keys": torch.ones(N, D), "y": Y}
    refuses(message, lambda: node_contrast(**good | change), (TypeError, ValueError))


@pytest.mark.parametrize("leaf", ["anchor", "keys"])
def test_a_second_derivative_is_refused(leaf: str) -> None:
    a, k = pair()
    by = a if leaf == "anchor" else k
    (slope,) = torch.autograd.grad(node_contrast(a, k, Y), by, create_graph=True)
    with pytest.raises(RuntimeError, match="node_contrast has no second derivative"):
        torch.autograd.grad(slope.sum(), by)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("denominator", ["negatives", "all"])
def test_half_precision_has_no_over_or_underflow(dtype: torch.dtype, denominator: str) -> None:
    y = torch.arange(900) % 3  # the sum over pairs is beyond float16's 65,504
    a, k = (x.detach().to(dtype).requires_grad_() for x in pair(torch.float32, 900))
    wide = [x.detach().float().requires_grad_() for x in (a, k)]
    got, want = (node_contrast(*x, y, denominator=denominator) for x in ((a, k), wide))
    assert got.dtype == dtype
    torch.testing.assert_close(got, want.to(dtype))
    got.backward()
    want.backward()
    for half, full in zip((a, k), wide, strict=True):
        torch.testing.assert_close(half.grad, full.grad.to(dtype), rtol=0.02, atol=1e-6)
