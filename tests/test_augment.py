"""Random views: what is dropped, how often, and that nothing else happens."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from fgl import SparseMatrix
from fgl.augment import augment, drop_edges, mask_features, strong, weak

N, F, E = 100, 200, 5000


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def edge_index(num_edges: int = E) -> Tensor:
    """Directed edges in no order, some of them self-loops, none of them twice."""
    pairs = torch.randperm(N * N, generator=seeded(1))[:num_edges]
    return torch.stack([pairs // N, pairs % N])


def adjacency(weighted: bool = False) -> SparseMatrix:
    weight = torch.rand(E, generator=seeded(2)) + 0.5 if weighted else None
    return SparseMatrix.from_edge_index(edge_index(), N, weight)


def features() -> Tensor:
    return torch.rand(N, F, generator=seeded(3)) + 0.5  # no zero of its own


def edges_of(matrix: SparseMatrix) -> Tensor:
    """The entries that are left, as an ``edge_index``."""
    left = slice(None) if matrix.value is None else matrix.value != 0
    return torch.stack([matrix.pattern.col[left], matrix.pattern.row[left]])


def share_is(kept: Tensor, p: float) -> bool:
    """Whether the share of kept draws is within five standard deviations of 1 - p."""
    return abs(kept.double().mean() - (1 - p)) <= 5 * math.sqrt(p * (1 - p) / kept.numel())


CALLS: dict[str, Callable[..., Tensor]] = {
    "edge_index": lambda p, g: drop_edges(edge_index(), p=p, generator=g),
    "matrix": lambda p, g: drop_edges(adjacency(), p=p, generator=g).value,
    "weighted": lambda p, g: drop_edges(adjacency(weighted=True), p=p, generator=g).value,
    "dense": lambda p, g: mask_features(features(), p=p, generator=g),
    "sparse": lambda p, g: mask_features(
        SparseMatrix.from_dense(features()), p=p, generator=g
    ).to_dense(),
}
calls = pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)


@calls
def test_torchs_own_generator_is_used_only_without_another(call: Callable[..., Tensor]) -> None:
    before = torch.get_rng_state()
    call(0.5, seeded())
    assert torch.equal(torch.get_rng_state(), before)
    once = call(0.5, None)
    assert not torch.equal(torch.get_rng_state(), before)
    torch.set_rng_state(before)
    assert torch.equal(call(0.5, None), once)


@pytest.mark.parametrize("p", [0.0, 0.1, 0.3, 0.8, 1.0])
@pytest.mark.parametrize("seed", range(3))
def test_rates(p: float, seed: int) -> None:
    kept = drop_edges(edge_index(), p=p, generator=seeded(seed)).shape[1]
    assert share_is(torch.arange(E) < kept, p)
    assert share_is(drop_edges(adjacency(), p=p, generator=seeded(seed)).value != 0, p)
    assert share_is(mask_features(features(), p=p, generator=seeded(seed))[0] != 0, p)


def test_every_edge_has_the_same_chance_and_they_are_independent() -> None:
    draws = 400
    matrix = SparseMatrix.from_edge_index(edge_index(60), N)
    g = seeded()
    kept = torch.stack([drop_edges(matrix, p=0.3, generator=g).value for _ in range(draws)])
    bound = 5 * math.sqrt(0.3 * 0.7 / draws)
    assert (kept.mean(0) - 0.7).abs().max() < bound
    correlation = torch.corrcoef(kept.t()) - torch.eye(60)
    assert correlation.abs().max() < 5 / math.sqrt(draws)


def test_edge_index_keeps_its_type_and_its_order() -> None:
    edges = edge_index()
    out = drop_edges(edges, p=0.4, generator=seeded())
    assert out.dtype == torch.int64 and out.shape[0] == 2
    numbered = torch.stack([torch.arange(E), torch.arange(E)])
    kept = drop_edges(numbered, p=0.4, generator=seeded())[0]
    assert (kept.diff() > 0).all()
    assert torch.equal(out, edges[:, kept])


@pytest.mark.parametrize("weighted", [False, True])
def test_a_matrix_keeps_its_type_pattern_and_other_values(weighted: bool) -> None:
    matrix = adjacency(weighted)
    out = drop_edges(matrix, p=0.4, generator=seeded())
    assert isinstance(out, SparseMatrix)
    assert out.pattern is matrix.pattern and out.dtype == matrix.dtype
    before = torch.ones(E) if matrix.value is None else matrix.value
    left = out.value != 0
    assert torch.equal(out.value[left], before[left])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dtypes_are_kept(dtype: torch.dtype) -> None:
    matrix = adjacency(weighted=True)
    matrix = matrix.with_value(matrix.value.to(dtype))
    assert drop_edges(matrix, p=0.5).value.dtype == dtype
    x = features().to(dtype)
    assert mask_features(x, p=0.5).dtype == dtype
    assert mask_features(SparseMatrix.from_dense(x), p=0.5).value.dtype == dtype


def test_edge_index_and_matrix_drop_the_same_edges() -> None:
    # Where the edges are in the matrix's order, one generator gives one view.
    sorted_edges = edges_of(adjacency())
    listed = drop_edges(sorted_edges, p=0.6, generator=seeded())
    assert torch.equal(listed, edges_of(drop_edges(adjacency(), p=0.6, generator=seeded())))


def test_a_column_is_masked_for_all_nodes_alike() -> None:
    x = features()
    out = mask_features(x, p=0.3, generator=seeded())
    gone = (out == 0).any(0)
    assert 0 < gone.sum() < F
    assert (out[:, gone] == 0).all()
    assert torch.equal(out[:, ~gone], x[:, ~gone])  # not rescaled


def test_sparse_features_are_masked_as_dense_ones() -> None:
    x = features() * (torch.rand(N, F) < 0.1)
    x[4] = 0
    sparse = SparseMatrix.from_dense(x)
    dense = mask_features(x, p=0.3, generator=seeded())
    masked = mask_features(sparse, p=0.3, generator=seeded())
    assert masked.pattern is sparse.pattern
    assert torch.equal(masked.to_dense(), dense)
    ones = mask_features(sparse.with_value(None), p=0.3, generator=seeded())
    assert torch.equal(ones.to_dense(), (dense != 0).float())


def test_empty_graphs() -> None:
    none = torch.zeros(2, 0, dtype=torch.int64)
    assert drop_edges(none, p=0.5).shape == (2, 0)
    assert drop_edges(SparseMatrix.from_edge_index(none, N), p=0.5).nnz == 0
    assert mask_features(torch.zeros(0, F), p=0.5).shape == (0, F)
    assert mask_features(torch.zeros(N, 0), p=0.5).shape == (N, 0)


@pytest.mark.parametrize(("view", "edge_p", "feature_p"), [(weak, 0.3, 0.3), (strong, 0.8, 0.5)])
def test_the_two_views_of_fgssl(view: Callable[..., Any], edge_p: float, feature_p: float) -> None:
    x, edges = view(features(), adjacency(), generator=seeded())
    assert share_is(edges.value != 0, edge_p)
    assert share_is(x[0] != 0, feature_p)
    again_x, again = augment(
        features(), adjacency(), edge_p=edge_p, feature_p=feature_p, generator=seeded()
    )
    assert torch.equal(x, again_x) and torch.equal(edges.value, again.value)


def test_gradients_flow_through_what_is_left() -> None:
    x = features().requires_grad_()
    out = mask_features(x, p=0.5, generator=seeded())
    out.sum().backward()
    assert torch.equal(x.grad, (out != 0).float())


@pytest.mark.parametrize("p", [-0.1, 1.1, math.nan, math.inf])
@calls
def test_p_is_a_probability(call: Callable[..., Tensor], p: float) -> None:
    with pytest.raises(ValueError, match=rf"Expected p to be a number >= 0 and <= 1, but got {p}"):
        call(p, None)
