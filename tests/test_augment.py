"""Random views: what is dropped, how often, and that nothing else happens."""

import math
from collections.abc import Callable

import pytest
import torch
from federations import refuses, seeded
from torch import Tensor

from fgl import SparseMatrix
from fgl.augment import drop_edges, mask_features

N, F, E = 100, 200, 5000


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


@pytest.mark.parametrize("weighted", [False, True])
def test_a_matrix_keeps_its_type_pattern_and_other_values(weighted: bool) -> None:
    matrix = adjacency(weighted)
    out = drop_edges(matrix, p=0.4, generator=seeded())
    assert isinstance(out, SparseMatrix)
    assert out.pattern is matrix.pattern and out.dtype == matrix.dtype
    before = torch.ones(E) if matrix.value is None else matrix.value
    left = out.value != 0
    assert torch.equal(out.value[left], before[left])


def test_edge_index_and_matrix_drop_the_same_edges() -> None:
    # Where the edges are in the matrix's order, one generator gives one view.
    sorted_edges = edges_of(adjacency())
    listed = drop_edges(sorted_edges, p=0.6, generator=seeded())
    assert torch.equal(listed, edges_of(drop_edges(adjacency(), p=0.6, generator=seeded())))


@pytest.mark.parametrize("p", [-0.1, 1.1, math.nan, math.inf])
@calls
def test_p_is_a_probability(call: Callable[..., Tensor], p: float) -> None:
    refuses(rf"Expected p to be a number >= 0 and <= 1, but got {p}", lambda: call(p, None))
