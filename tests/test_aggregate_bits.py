"""Aggregates: the bits of a result depend on values alone, wherever tensors lie."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from federations import printed, same, threads
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fgl.aggregate import mean, mix, server_step

DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int64, torch.uint8]
SHAPES = [(), (0,), (1,), (7,), (3, 5), (2, 0), (64, 33), (2, 3, 4), (300, 301), (70_000,)]


def turned(value: Tensor) -> Tensor:
    """The same values, the last dimension slowest."""
    dims = list(range(value.dim()))[::-1]
    return value.permute(dims).contiguous().permute(dims)


def apart(value: Tensor) -> Tensor:
    """The same values, each second one of a tensor that is twice as wide in every dimension."""
    wide = torch.full([2 * size + 1 for size in value.shape], 77).to(value.dtype)
    part = wide[tuple(slice(1, 2 * size + 1, 2) for size in value.shape)]
    return part.copy_(value)


def askew(value: Tensor) -> Tensor:
    """The same values, not where a vector of the processor would begin."""
    room = torch.zeros(value.numel() + 3, dtype=value.dtype)[3:].view(value.shape)
    return room.copy_(value)


def columns(value: Tensor) -> Tensor:
    """The same values, the clients' matrices by columns."""
    return value.mT.contiguous().mT if value.dim() > 2 else turned(value)


LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "turned": turned,
    "apart": apart,
    "askew": askew,
    "columns": columns,
    "clone": torch.clone,
}
LISTS: dict[str, Callable[[Tensor], list[Tensor]]] = {
    "rows": list,
    "own": lambda value: [row.clone() for row in value],
    "turned": lambda value: [turned(row) for row in value],
    "apart": lambda value: [apart(row) for row in value],
    "parts": lambda value: list(apart(value)),
    "mixed": lambda value: [
        [turned, apart, askew, torch.clone][k % 4](row) for k, row in enumerate(value)
    ],
}


def drawn(clients: int, shape: tuple[int, ...], dtype: torch.dtype, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    value = torch.randn(clients, *shape, generator=generator, dtype=torch.float64)
    if not dtype.is_floating_point:
        return (value.abs() * 20).to(dtype)
    spread = torch.randn(clients, *shape, generator=generator, dtype=torch.float64)
    return (value * 10**spread).to(dtype)


CASES = dict(
    clients=st.sampled_from([1, 2, 3, 5, 8, 10, 17, 33]),
    shape=st.sampled_from(SHAPES),
    dtype=st.sampled_from(DTYPES),
    count=st.sampled_from([1, 2]),
    seed=st.integers(0, 99),
)


@pytest.mark.slow
@given(layout=st.sampled_from([*LAYOUTS, *(f"list {name}" for name in LISTS)]), **CASES)
def test_mean_has_the_same_bits_wherever_tensors_lie(
    layout: str, clients: int, shape: Any, dtype: Any, count: int, seed: int
) -> None:
    value = drawn(clients, shape, dtype, seed)
    weight = drawn(clients, (), torch.float64, seed + 1).abs() + 0.1
    want = mean({"w": value}, weight)
    name = layout.removeprefix("list ")
    there = LISTS[name](value) if layout.startswith("list") else LAYOUTS[name](value)
    with threads(count):
        got = mean({"other": drawn(clients, (2,), dtype), "w": there}, apart(weight))
    assert same({"w": got["w"]}, want)
    assert got["w"].untyped_storage().nbytes() == got["w"].numel() * got["w"].element_size()


@pytest.mark.slow
@given(layout=st.sampled_from(list(LAYOUTS)), where=st.sampled_from(list(LAYOUTS)), **CASES)
def test_mix_has_the_same_bits_wherever_tensors_lie(
    layout: str, where: str, clients: int, shape: Any, dtype: Any, count: int, seed: int
) -> None:
    value, matrix = drawn(clients, shape, dtype, seed), drawn(clients, (clients,), torch.float32)
    want = mix({"w": value}, matrix, self_weight=0.3)
    with threads(count):
        got = mix({"w": LAYOUTS[layout](value)}, LAYOUTS[where](matrix), self_weight=0.3)
    assert same(got, want)


@given(
    layout=st.sampled_from(list(LAYOUTS)),
    rule=st.sampled_from(["sgd", "adam", "yogi", "adagrad"]),
    **CASES,
)
def test_server_step_has_the_same_bits_wherever_tensors_lie(
    layout: str, rule: Any, clients: int, shape: Any, dtype: Any, count: int, seed: int
) -> None:
    place = LAYOUTS[layout]
    models = drawn(3, shape, dtype, seed)
    want, wanted = server_step({"w": models[0]}, {"w": models[1]}, {}, rule=rule)
    want, wanted = server_step(want, {"w": models[2]}, wanted, rule=rule)
    with threads(count):
        got, kept = server_step({"w": place(models[0])}, {"w": models[1]}, {}, rule=rule)
        kept = {name: {k: place(v) for k, v in moments.items()} for name, moments in kept.items()}
        got, kept = server_step(got, {"w": place(models[2])}, kept, rule=rule)
    assert same(got, want)
    assert same(kept, wanted)


def test_mean_of_long_tensors_has_the_same_bits_in_parts() -> None:
    """Long tensors, short ones and a few columns take ways of their own to one sum."""
    value, weight = drawn(21, (300_000,), torch.float32), torch.arange(1, 22)
    whole = mean({"w": value}, weight)["w"]
    for size in (7, 5_000, 20_000):
        for part in (value[:, :size], list(value[:, :size])):
            assert torch.equal(mean({"w": part}, weight)["w"], whole[:size])


@pytest.mark.parametrize("clients", [1, 2, 3, 4, 5, 10, 23, 100])
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_mean_is_this_sum(clients: int, kind: Any) -> None:
    value = drawn(clients, (6,), torch.float64).numpy().astype(kind)
    weight = [float(w) for w in range(1, clients + 1)]

    def fold(terms: list[Any]) -> Any:
        while len(terms) > 1:
            half = len(terms) // 2
            added = [a + b for a, b in zip(terms[:half], terms[-half:], strict=True)]
            terms = added + terms[half : len(terms) - half]
        return terms[0]

    total, lanes = fold(weight), 1
    while lanes * 2 <= 2 ** ((clients.bit_length() - 1) * 5 // 9):
        lanes *= 2
    want = []
    for column in value.T:
        sums: list[Any] = []
        for k in range(clients):
            term = column[k] / kind(total / weight[k])
            if k < lanes:
                sums.append(term)
            else:
                sums[k % lanes] = sums[k % lanes] + term
        want.append(fold(sums))
    got = mean({"w": torch.from_numpy(value)}, torch.tensor(weight))["w"]
    assert got.tolist() == [float(x) for x in want]


def test_a_list_of_long_halves_is_added_in_singles() -> None:
    rows = [torch.rand(2**13 + 1).bfloat16() for _ in range(300)]
    exact = torch.stack(rows).double().mean(0)
    got = mean({"w": rows}, torch.ones(300))["w"]
    assert (got.double() - exact).abs().max() < torch.finfo(torch.bfloat16).eps / 3


@pytest.mark.parametrize("rule", ["sgd", "adam", "yogi", "adagrad"])
@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("lr", "beta1", "beta2", "tau"), [(0.3, 0.9, 0.99, 1e-3), (1.0, 0.0, 0.9, 0.1)]
)
def test_server_step_is_this_arithmetic(
    rule: Any, kind: Any, lr: float, beta1: float, beta2: float, tau: float
) -> None:
    """Sums, products, ratios and roots of IEEE arithmetic: the same on every processor."""
    old, new = (drawn(2, (3001,), torch.float64).numpy().astype(kind)[i] for i in range(2))
    w, m, v = old, np.zeros_like(old), np.full_like(old, tau**2)
    got, kept = {"w": torch.from_numpy(old)}, {}
    how = {"rule": rule, "lr": lr, "beta1": beta1, "beta2": beta2, "tau": tau}
    for target in (new, old - new, new / 1000):
        got, kept = server_step(got, {"w": torch.from_numpy(target)}, kept, **how)
        delta = target - w
        m = beta1 * m + (delta if rule == "sgd" else (1 - beta1) * delta)
        square = delta * delta
        if rule == "adam":
            v = beta2 * v + (1 - beta2) * square
        elif rule == "yogi":
            v = v - (1 - beta2) * square * np.sign(v - square)
        elif rule == "adagrad":
            v = v + square
        w = w + (lr * m if rule == "sgd" else lr * m / (1 / (1 / np.sqrt(v)) + tau))
        np.testing.assert_array_equal(got["w"].numpy(), w)


PRINT = """
import hashlib, torch
from fgl.aggregate import mean, mix, robust, server_step
torch.manual_seed(0)
for dtype in (torch.float32, torch.float64):
    w, b, matrix = (torch.rand(37, n, dtype=torch.float64) - 0.3 for n in (1159, 7, 37))
    w, b = w.to(dtype), b.to(dtype)
    found = mean({"w": w, "b": b}, torch.arange(1, 38))
    found["mix"] = mix({"w": w}, matrix, self_weight=0.1)["w"]
    for rule in ("sgd", "adam", "yogi", "adagrad"):
        found[rule] = server_step({"w": w[0]}, {"w": w[1]}, {}, rule=rule)[0]["w"]
    few = {"w": w[:11]}
    for rule in ("median", "trimmed_mean", "krum", "multi_krum", "geometric_median"):
        found[rule] = getattr(robust, rule)(few, bad=2)["w"]
    found["nearest_means"] = robust.nearest_means(few, bad=2)["w"]
    found["norm_bound"] = robust.norm_bound(few)["w"]
    found["centred_clipping"] = robust.centred_clipping(few)["w"]
    for name, value in [*found.items(), ("given", w)]:
        print(name, hashlib.sha256(value.contiguous().numpy().tobytes()).hexdigest())
"""


@pytest.mark.slow
def test_a_plain_processor_finds_the_same_bits() -> None:
    """Kernels for a processor without AVX, beside those for this one."""
    plain = {"ATEN_CPU_CAPABILITY": "default", "MKL_CBWR": "COMPATIBLE"}
    assert printed("-c", PRINT) == printed("-c", PRINT, **plain)


def above(size: float) -> float:
    return math.ldexp(1.0, math.frexp(size)[1]) if size else 2.0**-899


def test_mix_is_the_exact_sum_on_its_grid() -> None:
    value, matrix = drawn(9, (11,), torch.float32), drawn(9, (9,), torch.float64, 3)
    x, a = value.double().tolist(), matrix.tolist()
    scale = [above(1.001 * max(abs(e) for e in row)) for row in x]
    unit = [[e / s for e in row] for row, s in zip(x, scale, strict=True)]
    want = []
    for row in a:
        entries = [e * s for e, s in zip(row, scale, strict=True)]
        step = above(1.001 * sum(abs(e) for e in entries)) * 2.0**-27
        entries = [round(e / step) * step for e in entries]
        want.append([])
        for column in zip(*unit, strict=True):
            small = above(1.001 * max(abs(e) for e in column)) * 2.0**-26
            rounded = [round(e / small) * small for e in column]
            products = [p * q for p, q in zip(entries, rounded, strict=True)]
            want[-1].append(math.fsum(products))
            assert sum(reversed(products)) == sum(products) == want[-1][-1]  # in any order
    assert torch.equal(mix({"w": value}, matrix)["w"], torch.tensor(want, dtype=torch.float32))


@pytest.mark.parametrize("clients", [3, 40, 600])
def test_mix_of_doubles_is_as_exact_as_doubles_are(clients: int) -> None:
    value = drawn(clients, (20,), torch.float64)
    matrix = drawn(clients, (clients,), torch.float64, 1)
    got = mix({"w": value}, matrix)["w"]
    for i in range(0, clients, 20):
        for p in range(20):
            terms = [a * x for a, x in zip(matrix[i].tolist(), value[:, p].tolist(), strict=True)]
            size = math.fsum(abs(t) for t in terms)
            assert float(got[i, p]) == pytest.approx(math.fsum(terms), abs=2.0**-50 * size, rel=0)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_mix_of_a_client_that_is_not_finite(bad: float, dtype: Any) -> None:
    value = drawn(3, (5, 4), dtype)
    value[0, 2] = bad
    matrix = torch.tensor([[0.5, 0.5, 0], [0, 0.3, 0.7], [0, 0, 1]])
    dense = mix({"w": value}, matrix)["w"]
    assert not dense[:, 2].isfinite().any()
    assert dense[:, [0, 1, 3, 4]].isfinite().all()
    sparse = mix({"w": value}, matrix.to_sparse())["w"]
    assert not sparse[0, 2].isfinite().any()
    assert sparse[1:].isfinite().all()
    want = matrix[1:, 1:].double() @ value[1:].double().flatten(1)
    atol = 2.0**-22 * float(value[1:].abs().max())
    torch.testing.assert_close(sparse[1:].flatten(1).double(), want, rtol=0, atol=atol)
