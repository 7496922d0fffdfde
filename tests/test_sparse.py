"""`SparseMatrix` and the products against dense matrices and loops."""

import copy
import math
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck
from torch.func import vmap
from torch.testing import assert_close
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.utils import add_remaining_self_loops, to_dense_adj

from fgl import SparseMatrix
from fgl.sparse import row_log_softmax, row_softmax, row_sum, sampled_product, weighted_product
from fgl.sparse.pattern import Pattern
from fgl.sparse.rows import pair_sum

ROWS, COLS, WIDTH, BATCH = 5, 4, 3, 6
D = torch.float64
Op = Callable[..., Tensor]


def matrix(rows: int = ROWS, cols: int = COLS, *, density: float = 0.5, seed: int = 0) -> Any:
    """A random matrix; row 1 and column 2 are empty where there are that many."""
    g = torch.Generator().manual_seed(seed)
    dense = torch.randn(rows, cols, generator=g, dtype=D)
    dense = dense * (torch.rand(rows, cols, generator=g) < density)
    dense[1:2] = 0
    dense[:, 2:3] = 0
    return SparseMatrix.from_dense(dense)


def repeated() -> SparseMatrix:
    """Edges 0 -> 1 (three times), 2 -> 1, 1 -> 1 and 1 -> 3 (twice), of different weights."""
    edges = torch.tensor([[0, 2, 0, 1, 1, 0, 1], [1, 1, 1, 3, 1, 1, 3]])
    weight = torch.arange(1, 8, dtype=D)
    return SparseMatrix.from_edge_index(edges, 4, weight)


CASES = {
    "random": matrix(), "full": matrix(density=1.0), "empty": matrix(density=0.0),
    "no rows": matrix(rows=0), "no columns": matrix(cols=0), "repeated": repeated(),
    "square": SparseMatrix.from_dense(torch.arange(1, 10, dtype=D).view(3, 3)),
}  # fmt: skip
cases = pytest.mark.parametrize("A", CASES.values(), ids=CASES.keys())


def draw(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=D)


def entries(A: SparseMatrix) -> list[tuple[int, int]]:
    """(row, column) of every entry, from the raw pointers."""
    crow, col = A.pattern.crow.tolist(), A.pattern.col.tolist()
    return [(r, col[e]) for r in range(A.shape[0]) for e in range(crow[r], crow[r + 1])]


def softmax_loops(A: SparseMatrix, logit: Tensor, mask: Tensor | None = None) -> Tensor:
    out = [0.0] * A.nnz
    where = entries(A)
    for row in range(A.shape[0]):
        mine = [e for e in range(A.nnz) if where[e][0] == row and (mask is None or bool(mask[e]))]
        total = sum(math.exp(float(logit[e])) for e in mine)
        for e in mine:
            out[e] = math.exp(float(logit[e])) / total
    return torch.tensor(out, dtype=logit.dtype)


@cases
def test_product(A: SparseMatrix) -> None:
    x = draw(A.shape[1], WIDTH)
    assert_close(A @ x, A.to_dense() @ x)
    assert_close(A.T @ draw(A.shape[0], 2), A.to_dense().T @ draw(A.shape[0], 2))
    assert_close(A.with_value(None) @ x, A.with_value(None).to_dense().double() @ x)
    assert (A @ x[:, :0]).shape == (A.shape[0], 0)


@cases
def test_sampled_product(A: SparseMatrix) -> None:
    left, right = draw(A.shape[0], WIDTH), draw(A.shape[1], WIDTH, seed=2)
    want = [float((left[r] * right[c]).sum()) for r, c in entries(A)]
    got = sampled_product(A.pattern, left, right)
    assert_close(got, torch.tensor(want, dtype=D))
    transposed = draw(WIDTH, A.shape[0]).T
    assert_close(
        sampled_product(A.pattern, transposed, right),
        sampled_product(A.pattern, transposed.contiguous(), right),
    )


@cases
def test_row_sum(A: SparseMatrix) -> None:
    assert_close(row_sum(A.pattern, A.value), A.to_dense().sum(1))


@cases
def test_pair_sum(A: SparseMatrix) -> None:
    left, right = draw(A.shape[0]), draw(A.shape[1], seed=2)
    want = [float(left[r] + right[c]) for r, c in entries(A)]
    assert_close(pair_sum(A.pattern, left, right), torch.tensor(want, dtype=D))


@cases
def test_row_softmax(A: SparseMatrix) -> None:
    logit = draw(A.nnz)
    assert_close(row_softmax(A.pattern, logit), softmax_loops(A, logit))
    assert_close(row_log_softmax(A.pattern, logit), softmax_loops(A, logit).log(), equal_nan=True)
    mask = draw(A.nnz, seed=3) > 0
    mask[:1] = False
    got = row_softmax(A.pattern, logit, mask)
    assert_close(got, softmax_loops(A, logit, mask))
    assert not row_softmax(A.pattern, logit, torch.zeros_like(mask)).any()


def masked_softmax(A: SparseMatrix) -> Op:
    mask = torch.arange(A.nnz) % 3 > 0
    return lambda logit: row_softmax(A.pattern, logit, mask)


OPS: dict[str, tuple[Callable[[SparseMatrix], Op], Callable[[SparseMatrix], list[Any]]]] = {
    "weighted_product": (lambda A: lambda value, x: weighted_product(A.pattern, value, x),
        lambda A: [(A.nnz,), (A.shape[1], WIDTH)],),
    "sampled_product": (lambda A: lambda left, right: sampled_product(A.pattern, left, right),
        lambda A: [(A.shape[0], WIDTH), (A.shape[1], WIDTH)],),
    "row_sum": (lambda A: lambda value: row_sum(A.pattern, value), lambda A: [(A.nnz,)]),
    "pair_sum": (lambda A: lambda left, right: pair_sum(A.pattern, left, right),
        lambda A: [(A.shape[0],), (A.shape[1],)],),
    "row_softmax": (lambda A: lambda e: row_softmax(A.pattern, e), lambda A: [(A.nnz,)]),
    "row_softmax masked": (masked_softmax, lambda A: [(A.nnz,)]),
    "row_log_softmax": (lambda A: lambda e: row_log_softmax(A.pattern, e), lambda A: [(A.nnz,)]),
}  # fmt: skip
ops = pytest.mark.parametrize("name", OPS)


@ops
@pytest.mark.parametrize("case", ["random", "repeated"])
def test_gradients(name: str, case: str) -> None:
    A = CASES[case]
    op, shapes = OPS[name]
    inputs = [draw(*s, seed=i).requires_grad_() for i, s in enumerate(shapes(A))]
    assert gradcheck(op(A), inputs)
    assert gradgradcheck(op(A), inputs)


def batched(name: str) -> list[Any]:
    """Every combination of batched (in dimension 0 or 1) and shared inputs, not all shared."""
    n = 2 if "product" in name or "pair" in name else 1
    dims: list[tuple[int | None, ...]] = [()]
    for _ in range(n):
        dims = [(*old, new) for old in dims for new in (None, 0, 1)]
    return [pytest.param(name, d, id=f"{name}-{d}") for d in dims if any(v is not None for v in d)]


combinations = pytest.mark.parametrize(("name", "dims"), [p for name in OPS for p in batched(name)])


def stacked(name: str, dims: tuple[int | None, ...], A: SparseMatrix) -> list[Tensor]:
    inputs = []
    for i, (shape, dim) in enumerate(zip(OPS[name][1](A), dims, strict=True)):
        size = list(shape)
        if dim is not None:
            size.insert(dim, BATCH)
        inputs.append(draw(*size, seed=i))
    return inputs


@combinations
def test_vmap_equals_the_loop(name: str, dims: tuple[int | None, ...]) -> None:
    for A in (CASES["random"], CASES["repeated"], CASES["empty"]):
        op, inputs = OPS[name][0](A), stacked(name, dims, A)
        want = []
        for b in range(BATCH):
            one = [t if d is None else t.select(d, b) for t, d in zip(inputs, dims, strict=True)]
            want.append(op(*one))
        assert_close(vmap(op, in_dims=dims)(*inputs), torch.stack(want))


@given(seed=st.integers(0, 10**6), n=st.integers(1, 8), loops=st.booleans(), weighted=st.booleans())
def test_edge_index_and_pyg(seed: int, n: int, loops: bool, weighted: bool) -> None:
    g = torch.Generator().manual_seed(seed)
    edges = torch.randint(n, (2, 3 * n), generator=g)
    own = edges[0] == edges[1]
    edges = edges[:, ~own]
    if loops:  # at most one per node: of several PyG keeps a random one
        own_node = torch.randperm(n, generator=g)[: n // 2]
        edges = torch.cat([edges, own_node.expand(2, -1)], dim=1)
    weight = torch.rand(edges.shape[1], generator=g, dtype=D) + 0.1 if weighted else None
    A = SparseMatrix.from_edge_index(edges, n, weight)

    def dense(index: Tensor, value: Tensor | None) -> Tensor:
        return to_dense_adj(index, edge_attr=value, max_num_nodes=n)[0].T.double()

    assert_close(A.to_dense().double(), dense(edges, weight))
    index, value = add_remaining_self_loops(edges, weight, 1.0, n)
    assert_close(A.with_self_loops.to_dense().double(), dense(index, value))
    index, value = gcn_norm(edges, weight, n, dtype=D)
    assert_close(A.gcn_norm.to_dense().double(), dense(index, value), atol=1e-6, rtol=0)
    assert A.pattern.crow[-1] == A.nnz == edges.shape[1]


def test_zero_values_are_absent() -> None:
    A = SparseMatrix.from_edge_index(
        torch.tensor([[0, 1, 2, 1], [1, 2, 0, 1]]), 3, torch.tensor([2.0, 0.0, 3.0, 0.0])
    )
    without = SparseMatrix.from_edge_index(
        torch.tensor([[0, 2], [1, 0]]), 3, torch.tensor([2.0, 3])
    )
    assert A.present is not None
    assert A.present.sum() == 2
    assert without.with_value(None).present is None
    assert_close(A.with_self_loops.to_dense(), without.with_self_loops.to_dense())
    assert_close(A.gcn_norm.to_dense(), without.gcn_norm.to_dense())


@pytest.mark.parametrize("index", [[], [3], [1], [4, 0, 2], [2, 2, 1, 2]])
@cases
def test_rows(A: SparseMatrix, index: list[int]) -> None:
    index = [i for i in index if i < A.shape[0]]
    picked = torch.tensor(index, dtype=torch.int64)
    assert_close(A.rows(picked).to_dense(), A.to_dense()[picked])
    ones = A.with_value(None)
    assert_close(ones.rows(picked).to_dense(), ones.to_dense()[picked])


def test_scipy_and_back() -> None:
    given = scipy.sparse.random(6, 5, 0.4, format="coo", rng=np.random.default_rng(0))
    for form in ("coo", "csr", "csc"):
        A = SparseMatrix.from_scipy(given.asformat(form), torch.float64)
        np.testing.assert_array_equal(A.to_dense().numpy(), given.toarray())
        back = scipy.sparse.csr_matrix(
            (A.value.numpy(), A.pattern.col.numpy(), A.pattern.crow.numpy()), shape=A.shape
        )
        assert (back != given).nnz == 0
    assert SparseMatrix.from_scipy(given).dtype == torch.float32
    unsorted = scipy.sparse.csr_matrix(([1.0, 2.0], [2, 0], [0, 2]), shape=(1, 3))
    assert SparseMatrix.from_scipy(unsorted).pattern.col.tolist() == [0, 2]


def test_errors() -> None:
    A, edges = matrix(), torch.tensor([[0, 1], [1, 0]])
    eye: Any = scipy.sparse.eye_array(3, format="csr")
    refused: list[tuple[Callable[[], Any], str]] = [
        (lambda: SparseMatrix(A.pattern, torch.ones(1)), rf"value .*\[{A.nnz}\], but got \[1\]"),
        (lambda: A @ draw(ROWS, 2), r"x to have shape \[4, \*\], but got \[5, 2\]"),
        (lambda: A @ draw(COLS), r"x to have shape \[4, \*\], but got \[4\]"),
        (lambda: A.with_self_loops, "the matrix to be square"),
        (lambda: SparseMatrix.from_edge_index(edges + 5, 3), r"edge_index .*\[0, 3\), but got 6"),
        (lambda: SparseMatrix.from_edge_index(edges - 1, 3), "edge_index .* but got -1"),
        *(
            (
                lambda k=k: SparseMatrix.from_edge_index(edges, 2, torch.ones(k)),
                rf"edge_weight to have shape \[2\], but got \[{k}\]",
            )
            for k in (1, 3)
        ),
        (lambda: SparseMatrix(eye), "pattern to be a Pattern, but got csr_array.*from_scipy"),
    ]
    for call, text in refused:
        with pytest.raises((TypeError, ValueError), match=f"Expected {text}"):
            call()
            pytest.fail(text)
    assert repr(A) == f"SparseMatrix(shape=(5, 4), nnz={A.nnz}, dtype=torch.float64)"


def test_more_entries_than_cells() -> None:
    """Edges may repeat; torch's own kernel refuses a pattern with more of them than cells."""
    edges = torch.tensor([[0, 1, 0, 1, 0], [1, 0, 1, 0, 1]])
    pattern = SparseMatrix.from_edge_index(edges, 2).pattern
    left, right = draw(2, 3), draw(2, 3, seed=2)
    got = sampled_product(pattern, left, right)
    want = [left[i] @ right[j] for i, j in zip(pattern.row, pattern.col, strict=True)]
    assert torch.allclose(got, torch.stack(want))
    inputs = [t.requires_grad_() for t in (draw(5, seed=3), left, right)]

    def both(value: Tensor, left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
        return weighted_product(pattern, value, left), sampled_product(pattern, left, right)

    assert gradcheck(both, inputs)
    assert gradgradcheck(both, inputs)


def test_the_last_of_repeated_self_loops_counts() -> None:
    weight = torch.arange(2.0, 5.0)
    A = SparseMatrix.from_edge_index(torch.zeros(2, 3, dtype=torch.int64), 1, weight)
    assert A.with_self_loops.to_dense().tolist() == [[4.0]]


def test_a_row_of_more_entries_than_a_half_can_count() -> None:
    n = 70_000
    pattern = Pattern(torch.tensor([0, n]), torch.zeros(n, dtype=torch.int64), (1, 1))
    zeros = torch.zeros(n, dtype=torch.float16)
    assert float(row_softmax(pattern, zeros).float().sum()) == pytest.approx(1, abs=0.01)
    assert float(row_log_softmax(pattern, zeros)[0]) == pytest.approx(-math.log(n), abs=0.01)
    A = SparseMatrix(pattern, zeros + 1)
    assert float(A.mean_norm.value.float().sum()) == pytest.approx(1, abs=0.01)  # type: ignore[union-attr]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_rows_of_halves_are_summed_in_float32(dtype: torch.dtype) -> None:
    """A float16 plus 1 stays at 2,048, a bfloat16 at 256."""
    n = 4096
    edges = torch.stack([torch.arange(n), torch.zeros(n, dtype=torch.int64)])
    A = SparseMatrix.from_edge_index(edges, n, torch.ones(n, dtype=dtype))
    assert float(row_sum(A.pattern, A.pattern.ones(dtype))[0]) == n
    assert float(A.mean_norm.value[0]) == 1 / n  # type: ignore[index]
    assert float(row_softmax(A.pattern, torch.zeros(n, dtype=dtype))[0]) == 1 / n


def test_normalising_with_negative_weights() -> None:
    edges = torch.tensor([[0, 1, 2], [2, 2, 0]])
    A = SparseMatrix.from_edge_index(edges, 3, torch.tensor([-1.0, -3.0, 1.0]))
    assert A.mean_norm.to_dense()[2].tolist() == [0.5, 0.5, 0.0]
    with pytest.raises(ValueError, match=r"edge_weight to be at least 0 .* but got -3.0: edge_w"):
        _ = A.gcn_norm  # the degree of the last is 1 - 4: no root of that
    inside = torch.func.vmap(lambda value: A.with_value(value).gcn_norm.values)
    assert inside(A.values[None]).isnan().any()  # no silent row of zeros


def test_a_matrix_that_was_used_can_be_copied() -> None:
    eye = torch.eye(3, dtype=D)
    A = SparseMatrix.from_dense(eye)
    for _ in range(3):
        A @ eye
    for other in (copy.deepcopy(A), copy.copy(A), pickle.loads(pickle.dumps(A))):
        assert (other @ eye).equal(eye)


def test_a_matrix_made_in_inference_mode_is_multiplied() -> None:
    for dtype in (torch.float32, D):
        with torch.inference_mode():
            eye = torch.eye(3, dtype=dtype)
            A = SparseMatrix.from_dense(eye)
            for _ in range(3):
                assert (A @ eye).equal(eye)
