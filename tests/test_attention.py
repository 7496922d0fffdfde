"""Attention over clients and the projection onto the simplex, against loops and a solver."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from federations import refuses
from scipy.optimize import minimize
from test_client_network import K, close, draw

from fgl import client_network as cn
from fgl.aggregate import project_to_simplex


def test_similarity_without_centring_is_the_cosine() -> None:
    rows = draw(K, 7)
    rows[2] = 0
    got = cn.similarity(rows, centre=False)
    for i in range(K):
        for j in range(K):
            dot = sum(a * b for a, b in zip(rows[i].tolist(), rows[j].tolist(), strict=True))
            size = math.hypot(*rows[i].tolist()) * math.hypot(*rows[j].tolist())
            assert float(got[i, j]) == pytest.approx(dot / size if size else 0.0)
    small = rows.float()
    small[0] *= 1e-25  # its square is none
    close(cn.similarity(small, centre=False), got.float(), atol=1e-6)
    assert not torch.allclose(cn.similarity(rows), got)
    assert cn.similarity(torch.zeros(0, 3), centre=False).shape == (0, 0)


@pytest.mark.parametrize("own", [None, 0.0, 0.3, 1.0])
def test_softmax_attention_is_its_formula(own: float | None) -> None:
    alike = cn.similarity(draw(K, 3), centre=False)
    got = cn.network.softmax_attention(alike, scale=4.0, own=own)
    for i in range(K):
        among = [j for j in range(K) if own is None or j != i]
        total = sum(math.exp(4 * float(alike[i, j])) for j in among)
        for j in range(K):
            want = math.exp(4 * float(alike[i, j])) / total * (1 if own is None else 1 - own)
            assert float(got[i, j]) == pytest.approx(want if j in among else own)
    close(got.sum(1), torch.ones(K, dtype=got.dtype))
    one = torch.ones(1, 1)
    close(cn.network.softmax_attention(one, own=own), one)


def solved(row: np.ndarray) -> np.ndarray:
    """The nearest shares, as scipy's solver finds them."""
    k = len(row)
    found = minimize(
        lambda x: ((x - row) ** 2).sum(),
        np.full(k, 1 / k),
        jac=lambda x: 2 * (x - row),
        bounds=[(0, None)] * k,
        constraints={"type": "eq", "fun": lambda x: x.sum() - 1, "jac": lambda x: np.ones(k)},
        method="SLSQP",
        options={"ftol": 1e-16, "maxiter": 1000},
    )
    return found.x


@pytest.mark.parametrize("k", [1, 2, 5, 12])
def test_projection_is_the_solvers(k: int) -> None:
    rows = torch.cat([draw(10, k, seed=k), 0.2 * draw(10, k, seed=k + 1) + 1 / k])
    got = project_to_simplex(rows)
    assert (got >= 0).all()
    close(got.sum(1), torch.ones(20, dtype=got.dtype))
    for row, mine in zip(rows.numpy(), got.numpy(), strict=True):
        assert np.abs(solved(row) - mine).max() < 4e-8


def test_normal_features_of_probe_graphs() -> None:
    def made(seed: int) -> Any:
        how: Any = {"num_features": 30, "features": "normal"}
        return cn.probe_graphs(4, 50, generator=torch.Generator().manual_seed(seed), **how)

    x, edges, batch = made(0)
    assert x.shape == (200, 30)
    assert (batch[edges[0]] == batch[edges[1]]).all()
    assert abs(float(x.mean())) < 0.1 and abs(float(x.std()) - 1) < 0.1
    assert torch.equal(x, made(0)[0]) and not torch.equal(x, made(1)[0])
    assert not torch.equal(x[:50], x[50:100])


BAD: list[tuple[Any, str]] = [
    (lambda: cn.flat_parameters({"n": torch.ones(2, dtype=torch.int64)}), "stack to have floating"),
    (lambda: cn.flat_parameters({"a": torch.ones(2), "b": torch.ones(3)}), "'b'.*2 clients"),
    (lambda: cn.network.softmax_attention(torch.ones(2, 3)), "alike to have shape"),
    (lambda: cn.network.softmax_attention(torch.ones(2, 2), scale=-1), "scale to be"),
    (lambda: cn.network.softmax_attention(torch.ones(2, 2), own=1.5), "own to be"),
    (lambda: cn.network.distance_attention(torch.full((2, 2), math.nan)), "rows to be finite"),
    (lambda: cn.network.distance_attention(torch.ones(2, 2), sigma=0), "sigma to be"),
    (lambda: cn.network.distance_attention(torch.ones(2, 2), lr=-1), "lr to be"),
    (lambda: project_to_simplex(torch.ones(2, 0)), "rows to have a column"),
    (lambda: project_to_simplex(torch.ones(3)), "rows to have shape"),
    (lambda: cn.probe_graphs(num_features=2, features="none"), "features to be"),  # type: ignore
]


@pytest.mark.parametrize(("call", "message"), BAD)
def test_bad_input_is_refused_by_name(call: Any, message: str) -> None:
    refuses(f".*{message}", call)
