"""The client network against loops over the formulas and against autograd."""

import math
from typing import Any

import pytest
import torch
from federations import refuses
from torch import Tensor

from fgl import client_network as cn
from fgl.client_network.grouping import nearest_rows

K = 6
DOUBLE = torch.float64


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=DOUBLE)


def start(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def close(a: Tensor, b: Tensor, atol: float = 1e-12) -> None:
    torch.testing.assert_close(a, b, rtol=0, atol=atol)


def naive_similarity(rows: list[list[float]]) -> list[list[float]]:
    k, width = len(rows), len(rows[0])
    mean = [sum(row[c] for row in rows) / k for c in range(width)]
    apart = [[row[c] - mean[c] for c in range(width)] for row in rows]
    length = [math.sqrt(sum(v * v for v in row)) for row in apart]
    return [
        [
            sum(a * b for a, b in zip(apart[i], apart[j], strict=True)) / (length[i] * length[j])
            for j in range(k)
        ]
        for i in range(k)
    ]


# Features


@pytest.mark.parametrize(("size", "width"), [(23, 5), (20, 5), (7, 100), (250, 100)])
@pytest.mark.parametrize("l2", [True, False])
def test_pooled_features_are_their_formula(size: int, width: int, l2: bool) -> None:
    flat = draw(K, size)
    window = max(1, size // width)
    pooled = [
        [sum(row[at : at + window]) / window for at in range(0, size - window + 1, window)]
        for row in flat.tolist()
    ]
    mean = [sum(column) / K for column in zip(*pooled, strict=True)]
    want = [[v - m for v, m in zip(row, mean, strict=True)] for row in pooled]
    if l2:
        want = [[v / math.sqrt(sum(u * u for u in row)) for v in row] for row in want]
    close(cn.pooled_features(flat, width=width, l2=l2), torch.tensor(want, dtype=DOUBLE))


# Networks


def test_property_network_is_its_formula() -> None:
    properties = draw(K, 4) * torch.tensor([1.0, 100, 0.01, 5]).double()
    want = torch.tensor(naive_similarity(properties.tolist()), dtype=DOUBLE).clamp(min=0)
    close(cn.property_network(properties), want)


def naive_selection(properties: Tensor, wanted: Tensor) -> list[int]:
    def error(columns: list[int]) -> float:
        network = cn.property_network(properties[:, columns])
        total = 0.0
        for i in range(len(network)):
            for j in range(len(network)):
                total += (float(network[i, j]) - max(0.0, float(wanted[i, j]))) ** 2
        return total

    kept = list(range(properties.shape[1]))
    while len(kept) > 2:
        trials = [(error([c for c in kept if c != out]), out) for out in kept]
        lowest, out = min(trials)
        if lowest >= error(kept):
            break
        kept.remove(out)
    return kept


def test_select_properties_is_its_rule() -> None:
    lengths = set()
    for seed in range(12):
        properties, wanted = draw(K, 6, seed=seed), cn.similarity(draw(K, 9, seed=seed + 100))
        got = cn.select_properties(properties, wanted)
        assert got.tolist() == naive_selection(properties, wanted)
        again = cn.select_properties(properties, wanted)
        assert torch.equal(again, got)
        lengths.add(len(got))
    assert len(lengths) > 1  # it stopped at two columns, and also before


# The auto-encoder


def encode(network: Tensor, x: Tensor, p: dict[str, Tensor]) -> Tensor:
    h = network @ x @ p["weight0"] + p["bias0"]
    normed = torch.nn.functional.layer_norm(h, h.shape[1:], p["norm_weight"], p["norm_bias"])
    return network @ (normed.relu() @ p["weight1"]) + p["bias1"]


def link_loss(z: Tensor, weight: float) -> Tensor:  # Eq. 9
    a, e = (z @ z.T).sigmoid(), 1e-6
    entropy = -a * (a + e).log() - (1 - a) * (1 - a + e).log()
    return (entropy - weight * (1 + e - a).log()).mean()


@pytest.mark.parametrize("weight", [0.0, 1.0, 2.5])
def test_reconstruct_is_torchs_adam_on_the_loss(weight: float) -> None:
    network, x = cn.normalize_rows(draw(K, K).abs()), draw(K, 7, seed=1)
    p = cn.autoencoder.init_encoder(7, hidden=12, out=4, generator=start(5), dtype=DOUBLE)
    leaves = [value.requires_grad_() for value in p.values()]
    optimizer = torch.optim.Adam(leaves, lr=2e-3, weight_decay=1e-2)
    for _ in range(30):
        optimizer.zero_grad()
        link_loss(encode(network, x, p), weight).backward()
        optimizer.step()
    options: dict[str, Any] = {"hidden": 12, "out": 4, "steps": 30, "lr": 2e-3}
    options |= {"weight_decay": 1e-2, "weight": weight, "generator": start(5)}
    got = cn.reconstruct(network, x, **options)
    close(got, encode(network, x, p).detach(), atol=1e-10)
    assert not got.is_inference() and not got.requires_grad


# The whole


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_refused_with_the_client(bad: float) -> None:
    rows, square, outputs = draw(K, 4), draw(K, K), draw(K, 2, 3)
    fine = square.clone()
    for tensor in (rows, square, outputs):
        tensor[4, 1] = bad
    calls: list[tuple[str, Any, Any]] = [
        ("flat", cn.pooled_features, [rows]),
        ("outputs", cn.functional_embedding, [outputs]),
        ("rows", cn.similarity, [rows]),
        ("properties", cn.property_network, [rows]),
        ("properties", cn.select_properties, [rows, fine]),
        ("embedding_similarity", cn.select_properties, [draw(K, 3), square]),
        ("embedding_similarity", cn.running_network, [fine, square]),
        ("previous", cn.running_network, [square, fine]),
        ("network", cn.normalize_rows, [square]),
        ("network", cn.reconstruct, [square, draw(K, 3)]),
        ("features", cn.reconstruct, [fine, rows]),
        ("z", cn.discretise, [rows]),
    ]
    for name, function, given in calls:
        message = f"Expected {name} to be finite, but got NaN or infinity in client 4's row"
        with pytest.raises(ValueError, match=message):
            function(*given)


@pytest.mark.parametrize(("call", "message"), [
    (lambda: cn.similarity(torch.ones(2, 2).long()), "rows to be floating point"),
    (lambda: cn.similarity(torch.ones(2)), r"rows to have shape \[k, \*\], but got \[2\]"),
    (lambda: cn.pooled_features(torch.ones(2, 2), width=0), "width to be an integer >= 1"),
    (lambda: cn.functional_embedding(torch.ones(2, 2)), r"shape \[k, R, C\], but got \[2, 2\]"),
    (lambda: cn.normalize_rows(torch.ones(2, 3)), r"shape \[k, k\], but got \[2, 3\]"),
    (lambda: cn.running_network(torch.ones(2, 2), torch.ones(3, 3)), "embedding_similarity"),
    (lambda: cn.running_network(torch.eye(2), torch.eye(2), beta=1.5), r"beta .*got 1.5"),
    (lambda: cn.normalize_rows(-torch.eye(2)), "network to be not negative, but got -1.0"),
    (lambda: cn.discretise(torch.ones(2, 2), threshold=float("nan")), "threshold to be a num"),
    (lambda: cn.discretise(torch.full((2, 1), 1e20)), r"z @ z\.T to be finite, .* client 0's"),
    (lambda: cn.reconstruct(torch.eye(2), torch.eye(2), hidden=0), "hidden to be an integer"),
    (lambda: cn.reconstruct(torch.eye(2), torch.eye(2), steps=-1), "steps to be an integer >="),
    (lambda: cn.reconstruct(torch.eye(2), torch.ones(3, 2)), "as many clients, but got 2 and"),
    (lambda: cn.probe_graphs(0, num_features=2), "num to be an integer >= 1, but got 0"),
    (lambda: cn.probe_graphs(p=2.0, num_features=2), "p to be a number >= 0 and <= 1"),
    (lambda: cn.probe_graphs(num_features=0), "num_features to be an integer >= 1, but got 0"),
])  # fmt: skip
def test_bad_input_is_refused_by_name(call: Any, message: str) -> None:
    refuses(message, call, (TypeError, ValueError))


def test_one_huge_client_does_not_erase_the_others() -> None:
    rows = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1e20, 0.0], [-3e38, 3e38]])
    exact = cn.similarity(rows.double())
    assert exact.abs().sum() > 4
    torch.testing.assert_close(cn.similarity(rows), exact.float(), rtol=0, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.half, torch.bfloat16])
def test_reconstruct_of_half_precision_is_that_of_single(dtype: torch.dtype) -> None:
    rows, network = draw(K, 3).to(dtype), cn.normalize_rows(torch.rand(K, K, generator=start()))
    got = cn.reconstruct(network, rows, generator=start())
    want = cn.reconstruct(network, rows.float(), generator=start())
    assert got.dtype == dtype and torch.equal(got, want.to(dtype))


@pytest.mark.parametrize("scale", [1e-30, 1e-22, 1e22])
def test_similarity_does_not_depend_on_the_scale(scale: float) -> None:
    rows = draw(K, 5).float()
    torch.testing.assert_close(cn.similarity(rows * scale), cn.similarity(rows))


def test_ties_are_kept() -> None:
    even = torch.zeros(4, 2)  # all shares are 1/4
    assert cn.discretise(even, threshold=0.25).tolist() == [[0.25] * 4] * 4
    assert not cn.discretise(even, threshold=0.2500001).any()


@pytest.mark.parametrize(("dtype", "big"), [(torch.float16, 3e4), (torch.float32, 3e38)])
def test_rows_whose_sum_overflows_are_normalised(dtype: torch.dtype, big: float) -> None:
    network = torch.tensor([[big, big, big], [0, 0, 0], [1, 3, 0]], dtype=dtype)
    want = torch.tensor([[1 / 3, 1 / 3, 1 / 3], [0, 0, 0], [0.25, 0.75, 0]])
    torch.testing.assert_close(cn.normalize_rows(network).float(), want, rtol=1e-3, atol=0)


def test_few_rows_have_few_neighbours() -> None:
    rows = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]])
    assert nearest_rows(rows, 5).tolist() == [[1, 2], [0, 2], [1, 0]]
