"""Ragged stacks of sparse matrices under `vmap` against a loop over the matrices themselves."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import grad, vmap

from fgl import SparseMatrix
from fgl.sparse import row_log_softmax, row_softmax, row_sum, sampled_product
from fgl.sparse.batched_matrix import MatrixStack
from fgl.sparse.batched_pattern import Member
from fgl.sparse.pattern import Pattern
from fgl.sparse.rows import pair_sum

D, WIDTH = torch.float64, 3
Op = Callable[[SparseMatrix, Tensor, Tensor, Tensor], Tensor]


def matrix(rows: int, cols: int, *, nnz: int, weighted: bool = True) -> SparseMatrix:
    """`nnz` entries, none twice; the values are never 0."""
    generator = torch.Generator().manual_seed(100 * rows + 10 * cols + nnz)
    place = torch.randperm(rows * cols, generator=generator)[:nnz].sort().values
    crow = torch.zeros(rows + 1, dtype=torch.int64)
    crow[1:] = torch.bincount(place // max(cols, 1), minlength=rows).cumsum(0)
    value = torch.rand(nnz, generator=generator, dtype=D) + 0.5
    pattern = Pattern(crow, place % max(cols, 1), (rows, cols))
    return SparseMatrix(pattern, value if weighted else None)


def zeroed(A: SparseMatrix) -> SparseMatrix:
    """The first entry is there, and 0."""
    assert A.value is not None
    return A.with_value(A.value * (torch.arange(A.nnz) > 0))


def repeated() -> SparseMatrix:
    edges = torch.tensor([[0, 2, 0, 1, 1, 0], [1, 1, 1, 1, 1, 0]])
    return SparseMatrix.from_edge_index(edges, 3, torch.arange(1, 7, dtype=D))


SQUARE = {
    "ragged": [matrix(3, 3, nnz=4), matrix(5, 5, nnz=11), matrix(1, 1, nnz=1)],
    "no entry": [matrix(4, 4, nnz=7), matrix(2, 2, nnz=0)],
    "all empty": [matrix(4, 4, nnz=0), matrix(2, 2, nnz=0)],
    "a zero entry": [zeroed(matrix(3, 3, nnz=5)), zeroed(matrix(1, 1, nnz=1)), repeated()],
    "equal nnz": [matrix(n, n, nnz=4) for n in (4, 2, 5)],
    "equal size": [matrix(4, 4, nnz=n) for n in (4, 9, 2, 16)],
    "no node": [matrix(0, 0, nnz=0), matrix(3, 3, nnz=2)],
    "symmetric": [matrix(3, 3, nnz=9), matrix(2, 2, nnz=4)],
    "some weighted": [matrix(3, 3, nnz=5, weighted=False), matrix(2, 2, nnz=3)],
}
CASES = {
    **SQUARE,
    "rectangles": [matrix(2, 5, nnz=6), matrix(4, 3, nnz=0), matrix(1, 6, nnz=2)],
    "five": [matrix(n, 7 - n, nnz=n) for n in (1, 2, 3, 4, 5)],
    "equal nnz, rectangles": [matrix(2, 5, nnz=6), matrix(6, 1, nnz=6)],
}

# Functions of a matrix A [rows, cols], v [nnz] > 0, x [cols, WIDTH] and y [rows, WIDTH].
OPS: dict[str, Op] = {
    "own product": lambda A, v, x, y: A.astype(D) @ x,
    "product": lambda A, v, x, y: A.with_value(v) @ x,
    "dropped edges": lambda A, v, x, y: A.with_value(v * (v > 1)) @ x,
    "own slope": lambda A, v, x, y: grad(lambda z: (A.astype(D) @ z).square().sum())(x),
    "own transposed": lambda A, v, x, y: A.astype(D).T @ y,
    "transposed": lambda A, v, x, y: A.with_value(v).T @ y,
    "sampled": lambda A, v, x, y: sampled_product(A.pattern, y, x),
    "row_sum": lambda A, v, x, y: row_sum(A.pattern, v),
    "pair sum": lambda A, v, x, y: pair_sum(A.pattern, y[:, 0], x[:, 0]),
    "softmax": lambda A, v, x, y: row_softmax(A.pattern, v),
    "masked softmax": lambda A, v, x, y: row_softmax(A.pattern, v, v > 1),
    "own mask": lambda A, v, x, y: row_softmax(A.pattern, v, A.present),
    "log softmax": lambda A, v, x, y: row_log_softmax(A.pattern, v),
    "astype": lambda A, v, x, y: A.astype(torch.float32).astype(D) @ x,
    "own dense": lambda A, v, x, y: A.astype(D).to_dense(),
    "dense": lambda A, v, x, y: A.with_value(v).to_dense(),
    "dense of T": lambda A, v, x, y: A.with_value(v).T.to_dense(),
    "attention": lambda A, v, x, y: (A.with_value(row_softmax(A.pattern, sampled_product(A.pattern,
        y, x) * v)) @ x),
}  # fmt: skip
SQUARE_OPS: dict[str, Op] = {
    "own loops": lambda A, v, x, y: A.astype(D).with_self_loops @ x,
    "loops": lambda A, v, x, y: A.with_value(v).with_self_loops @ x,
    "loops after drop": lambda A, v, x, y: A.with_value(v * (v > 1)).with_self_loops @ x,
    "own gcn_norm": lambda A, v, x, y: A.astype(D).gcn_norm @ x,
    "gcn_norm": lambda A, v, x, y: A.with_value(v).gcn_norm @ x,
    "gcn_norm of T": lambda A, v, x, y: A.with_value(v).T.gcn_norm @ x,
    "T of gcn_norm": lambda A, v, x, y: A.with_value(v).gcn_norm.T @ y,
    "own plus_identity": lambda A, v, x, y: A.astype(D).plus_identity @ x,
    "dense loops": lambda A, v, x, y: A.with_value(v).with_self_loops.to_dense(),
    "dense gcn_norm": lambda A, v, x, y: A.astype(D).gcn_norm.to_dense(),
}
PAIRS = [(op, case) for op in OPS for case in CASES]
PAIRS += [(op, case) for op in SQUARE_OPS for case in SQUARE]
pairs = pytest.mark.parametrize(("op", "case"), PAIRS)


def padded(tensors: Sequence[Tensor], shape: Sequence[int], filler: float = 0.0) -> Tensor:
    """``[K, *shape]`` with each tensor in its corner."""
    rows = []
    for tensor in tensors:
        gaps = [(0, most - size) for most, size in zip(shape, tensor.shape, strict=True)]
        flat = [end for gap in reversed(gaps) for end in gap]
        rows.append(nn.functional.pad(tensor.to(D), flat, value=filler))
    return torch.stack(rows)


def inputs(parts: Sequence[SparseMatrix]) -> list[list[Tensor]]:
    """Values, x and y of every part."""
    generator = torch.Generator().manual_seed(1)

    def draw(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=generator, dtype=D) * 1.5 + 0.1

    sizes = [(part.nnz, *part.shape) for part in parts]
    make = [
        [draw(n) for n, _, _ in sizes],
        [draw(cols, WIDTH) for _, _, cols in sizes],
        [draw(rows, WIDTH) for _, rows, _ in sizes],
    ]
    return [[tensor.requires_grad_() for tensor in tensors] for tensors in make]


def most(parts: Sequence[SparseMatrix]) -> list[tuple[int, ...]]:
    """The padded shapes of values, x and y."""
    rows, cols = (max(part.shape[i] for part in parts) for i in (0, 1))
    return [(max(part.nnz for part in parts),), (cols, WIDTH), (rows, WIDTH)]


def mapped(function: Any, parts: Sequence[SparseMatrix], *args: Any, dims: Any = 0) -> Tensor:
    stack = MatrixStack(parts)

    def one(index: Tensor, *rest: Any) -> Tensor:
        return function(stack.of(Member(index)), *rest)

    in_dims = (0, *([dims] * len(args) if isinstance(dims, int) else dims))
    return vmap(one, in_dims)(torch.arange(len(parts)), *args)


def cut(row: Tensor, shape: Sequence[int]) -> Tensor:
    return row[tuple(slice(size) for size in shape)]


def check(got: Tensor, want: Sequence[Tensor]) -> None:
    """Each client's corner is right, and all around it there are zeros."""
    for row, one in zip(got, want, strict=True):
        torch.testing.assert_close(cut(row, one.shape), one, rtol=1e-11, atol=1e-12)
    torch.testing.assert_close(got, padded(want, got.shape[1:]), rtol=1e-11, atol=1e-12)


@pairs
@pytest.mark.parametrize("filler", [0.0, 1e30], ids=["zeros", "huge"])
def test_a_stack_is_a_loop_over_its_parts(op: str, case: str, filler: float) -> None:
    """Values and gradients; whatever lies in the padding of values and operands stays there."""
    function, parts = {**OPS, **SQUARE_OPS}[op], CASES[case]
    own = inputs(parts)
    stacks = [padded(t, s, filler).detach() for t, s in zip(own, most(parts), strict=True)]
    leaves = [stack.requires_grad_() for stack in stacks]
    want = [function(part, *each) for part, *each in zip(parts, *own, strict=True)]
    got = mapped(function, parts, *leaves)
    check(got, want)
    weights = [torch.rand_like(one) for one in want]
    flat = [tensor for tensors in own for tensor in tensors]
    loss = sum((w * one).sum() for w, one in zip(weights, want, strict=True))
    if not loss.requires_grad:  # none of the three is in it
        return
    wanted = iter(torch.autograd.grad(loss, flat, allow_unused=True, materialize_grads=True))
    total = (padded(weights, got.shape[1:]) * got).sum()
    slopes = torch.autograd.grad(total, leaves, allow_unused=True, materialize_grads=True)
    for slope in slopes:
        check(slope, [next(wanted) for _ in parts])


@pytest.mark.parametrize(
    "op", ["row_sum", "softmax", "log softmax", "product", "sampled", "pair sum"]
)
@pytest.mark.parametrize("case", ["ragged", "equal nnz"])
def test_values_and_operands_that_no_client_owns(op: str, case: str) -> None:
    """The same numbers for all clients, made inside: only the pattern is the client's own."""
    parts, function = CASES[case], OPS[op]

    def one(A: SparseMatrix) -> Tensor:
        ones = torch.ones(max(A.shape), WIDTH, dtype=D)
        return function(A, torch.ones(A.nnz, dtype=D), ones[: A.shape[1]], ones[: A.shape[0]])

    check(mapped(one, parts), [one(part) for part in parts])


@pytest.mark.parametrize("heads", [2, 3])
@pytest.mark.parametrize("op", ["row_sum", "softmax", "product"])
@pytest.mark.parametrize("case", ["ragged", "equal nnz"])
def test_another_vmap_inside(op: str, case: str, heads: int) -> None:
    """A map over heads inside the one over clients; there are three clients."""
    parts, function = CASES[case], OPS[op]
    shapes = most(parts)
    value = [torch.rand(heads, part.nnz, dtype=D) for part in parts]
    x = [torch.rand(part.shape[1], WIDTH, dtype=D) for part in parts]

    def each(A: SparseMatrix, values: Tensor, x: Tensor) -> Tensor:
        return vmap(lambda v: function(A, v, x, x))(values)

    got = mapped(each, parts, padded(value, (heads, *shapes[0])), padded(x, shapes[1]))
    check(got, [each(*one) for one in zip(parts, value, x, strict=True)])
