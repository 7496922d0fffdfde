"""The float32 product on a processor: its values against loops, its bits, and where it is used."""

from typing import Any

import pytest
import torch
from federations import threads
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from fgl import SparseMatrix
from fgl.sparse import kernels, weighted_product

BAG = "_embedding_bag"
pytestmark = pytest.mark.skipif(not kernels.has_bags(), reason="a build without FBGEMM")


def matrix(rows: int, cols: int, nnz: int, seed: int = 0) -> SparseMatrix:
    """Entries at random places, which repeat, with the first and the last rows empty."""
    g = torch.Generator().manual_seed(seed)
    row = torch.randint(1, max(rows - 1, 2), (nnz,), generator=g)
    col = torch.randint(cols, (nnz,), generator=g)
    return SparseMatrix.from_entries(row, col, (rows, cols), torch.randn(nnz, generator=g))


MATRICES = {
    "few": matrix(40, 30, 90),
    "repeated": matrix(6, 3, 60),
    "many a row": matrix(9, 200, 900),
    "one entry": matrix(3, 2, 1),
}
WIDTHS = (1, 3, 7, 15, 16, 17, 64, 300)


def by_loops(A: SparseMatrix, x: Tensor) -> Tensor:
    """The product in float64, entry by entry."""
    out = torch.zeros(A.shape[0], x.shape[1], dtype=torch.float64)
    crow, col, value = A.pattern.crow.tolist(), A.pattern.col.tolist(), A.values.double()
    for row in range(A.shape[0]):
        for e in range(crow[row], crow[row + 1]):
            out[row] += value[e] * x[col[e]].double()
    return out


def operand(A: SparseMatrix, width: int, seed: int = 1) -> Tensor:
    return torch.randn(A.shape[1], width, generator=torch.Generator().manual_seed(seed))


class Calls(TorchDispatchMode):
    """The operations that are called, with their arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, Any]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append((str(func), args))
        return func(*args, **(kwargs or {}))

    def bags(self) -> list[Any]:
        return [args for name, args in self.seen if BAG in name]


@pytest.mark.parametrize("bags", [True, False])
def test_values_are_those_of_loops(bags: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "has_bags", lambda: bags)
    for A in MATRICES.values():
        for width in WIDTHS:
            x = operand(A, width)
            got, want = A @ x, by_loops(A, x)
            scale = by_loops(A.with_value(A.values.abs()), x.abs())
            assert ((got - want).abs() <= 1e-6 * scale).all()
            assert not got[0].any() and not got[-1].any()


def test_bits_do_not_depend_on_layout_or_threads() -> None:
    A = matrix(500, 400, 4000)
    for width in WIDTHS:
        x = operand(A, width)
        want = A @ x
        turned, columns = x.t().contiguous().t(), torch.cat([x, x], 1)[:, :width]
        for other in (turned, columns, x.repeat_interleave(2, 0)[::2]):
            assert (A @ other).equal(want)
        strided = A.values.repeat_interleave(2)[::2]
        assert (A.with_value(strided) @ x).equal(want)
        with threads(2):
            assert (A @ x).equal(want)


def test_indices_are_not_copied() -> None:
    A = MATRICES["few"]
    with Calls() as calls:
        A @ operand(A, 16)
    ((_, col, crow, *_),) = calls.bags()
    assert col.data_ptr() == A.pattern.col.data_ptr()
    assert crow.data_ptr() == A.pattern.crow.data_ptr()


def test_the_kernel_follows_from_dtype_width_and_build(monkeypatch: pytest.MonkeyPatch) -> None:
    def uses_bags(A: SparseMatrix, width: int, dtype: torch.dtype = torch.float32) -> bool:
        with Calls() as calls:
            A.astype(dtype) @ operand(A, width).to(dtype)
        return bool(calls.bags())

    few, many = MATRICES["few"], MATRICES["many a row"]
    assert uses_bags(few, 1) and uses_bags(few, 64)
    assert uses_bags(many, 16) and not uses_bags(many, 15)
    assert not uses_bags(few, 64, torch.float64)
    monkeypatch.setattr(kernels, "has_bags", lambda: False)
    assert not uses_bags(few, 64)


def test_an_index_out_of_range_is_refused() -> None:
    A = MATRICES["few"]
    with pytest.raises(RuntimeError, match="valid range"):
        weighted_product(A.pattern, A.values, torch.ones(2, 16))
