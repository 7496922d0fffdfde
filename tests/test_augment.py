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
def test_the_generator_decides(call: Callable[..., Tensor]) -> None:
    once = call(0.5, seeded(7))
    torch.manual_seed(123)
    assert torch.equal(call(0.5, seeded(7)), once)
    other = call(0.5, seeded(8))
    assert other.shape != once.shape or not torch.equal(other, once)


@calls
def test_a_generator_moves_on(call: Callable[..., Tensor]) -> None:
    g = seeded()
    once, again = call(0.5, g), call(0.5, g)
    assert once.shape != again.shape or not torch.equal(once, again)


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


def test_the_two_directions_of_an_edge_are_dropped_independently() -> None:
    source = torch.arange(0, 4000, 2)
    both = torch.cat([torch.stack([source, source + 1]), torch.stack([source + 1, source])], 1)
    matrix = drop_edges(SparseMatrix.from_edge_index(both, 4000), p=0.5, generator=seeded())
    kept = edges_of(matrix)
    pairs = torch.bincount(kept.min(0).values // 2, minlength=2000)
    assert share_is(pairs == 1, 0.5)  # one direction without the other: half of all pairs


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


@pytest.mark.parametrize("weighted", [False, True])
def test_a_product_does_not_see_a_dropped_edge(weighted: bool) -> None:
    matrix = adjacency(weighted)
    x = torch.randn(N, 4)
    view = drop_edges(matrix, p=0.7, generator=seeded())
    left = view.value != 0
    gone = SparseMatrix.from_edge_index(edges_of(view), N, view.value[left])
    assert gone.nnz < matrix.nnz / 2
    torch.testing.assert_close(view @ x, gone @ x)
    torch.testing.assert_close(view.T @ x, gone.T @ x)
    torch.testing.assert_close(view.gcn_norm @ x, gone.gcn_norm @ x)


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


@pytest.mark.parametrize("weighted", [False, True])
def test_zero_changes_nothing(weighted: bool) -> None:
    assert torch.equal(drop_edges(edge_index(), p=0.0), edge_index())
    matrix, x = adjacency(weighted), features()
    assert torch.equal(drop_edges(matrix, p=0).to_dense(), matrix.to_dense())
    assert torch.equal(mask_features(x, p=0.0), x)
    assert torch.equal(mask_features(SparseMatrix.from_dense(x), p=0.0).to_dense(), x)


def test_one_leaves_nothing() -> None:
    assert drop_edges(edge_index(), p=1.0).shape == (2, 0)
    assert (drop_edges(adjacency(weighted=True), p=1).value == 0).all()
    assert (mask_features(features(), p=1.0) == 0).all()
    assert (mask_features(SparseMatrix.from_dense(features()), p=1.0).value == 0).all()


def test_empty_graphs() -> None:
    none = torch.zeros(2, 0, dtype=torch.int64)
    assert drop_edges(none, p=0.5).shape == (2, 0)
    assert drop_edges(SparseMatrix.from_edge_index(none, N), p=0.5).nnz == 0
    assert mask_features(torch.zeros(0, F), p=0.5).shape == (0, F)
    assert mask_features(torch.zeros(N, 0), p=0.5).shape == (N, 0)


@pytest.mark.parametrize("view", [weak, strong])
def test_inputs_are_untouched(view: Callable[..., Any]) -> None:
    x, matrix, edges = features(), adjacency(weighted=True), edge_index()
    kept = x.clone(), matrix.value.clone(), edges.clone()
    view(x, matrix)
    view(SparseMatrix.from_dense(x), matrix)
    drop_edges(edges, p=0.5)
    assert all(torch.equal(a, b) for a, b in zip((x, matrix.value, edges), kept, strict=True))


@pytest.mark.parametrize(("view", "edge_p", "feature_p"), [(weak, 0.3, 0.3), (strong, 0.8, 0.5)])
def test_the_two_views_of_fgssl(view: Callable[..., Any], edge_p: float, feature_p: float) -> None:
    x, edges = view(features(), adjacency(), generator=seeded())
    assert share_is(edges.value != 0, edge_p)
    assert share_is(x[0] != 0, feature_p)
    again_x, again = augment(
        features(), adjacency(), edge_p=edge_p, feature_p=feature_p, generator=seeded()
    )
    assert torch.equal(x, again_x) and torch.equal(edges.value, again.value)


@pytest.mark.parametrize("view", [weak, strong])
def test_views_of_sparse_and_dense_features_are_the_same(view: Callable[..., Any]) -> None:
    x, edges = view(features(), adjacency(), generator=seeded())
    sparse = SparseMatrix.from_dense(features())
    sparse_x, sparse_edges = view(sparse, adjacency(), generator=seeded())
    assert torch.equal(sparse_x.to_dense(), x)
    assert torch.equal(sparse_edges.value, edges.value)


def test_views_take_an_edge_index_too() -> None:
    x, edges = weak(features(), edge_index(), generator=seeded())
    assert edges.dtype == torch.int64 and 0 < edges.shape[1] < E
    assert x.shape == (N, F)


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
