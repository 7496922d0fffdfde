"""`Pattern`: the positions of a matrix's entries, and results that depend only on positions."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache, cached_property, wraps
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch._C import _functorch as functorch
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack

from ..checks import reject_if
from .gather import gather_rows
from .kernels import backend as kernels
from .kernels import csr_of

T = TypeVar("T")


def outside(*of: Tensor | None) -> AbstractContextManager[None]:
    """Disable inference mode and torch.func in a context, so that tensors made there can be cached.

    A tensor that is created inside a call of ``torch.func.grad`` is valid only in this call. Later
    calls cannot use this tensor, even if it is cached.

    Args:
        of: tensors from which the cached tensor is computed. The context keeps torch.func enabled
            if a transform of torch.func wraps one of these tensors.
    """
    if functorch.peek_interpreter_stack() is None and not torch.is_inference_mode_enabled():
        return nullcontext()  # this is frequent, and a tenth of the time
    return _left(of)


@contextmanager
def _left(of: tuple[Tensor | None, ...]) -> Iterator[None]:
    inside = any(functorch.is_functorch_wrapped_tensor(each) for each in of if each is not None)
    clear = nullcontext() if inside else temporarily_clear_interpreter_stack()
    with torch.inference_mode(False), clear:
        yield


def kept(make: Callable[[Any], T]) -> cached_property[T]:
    """A `cached_property` that is computed outside torch.func, so that later calls can use it."""

    @wraps(make)
    def normal(self: Any) -> T:
        with outside():
            return make(self)

    return cached_property(normal)


@cache
def scalar(value: float, dtype: torch.dtype, device: torch.device) -> Tensor:
    """A number as a tensor that all calls share, so never change the tensor."""
    with outside():
        return torch.full((), value, dtype=dtype, device=device)


class Pattern:
    """Positions of a matrix's entries: CSR row pointers and columns.

    Results that depend only on positions (rows, transpose, self-loops) are computed once. Matrices
    that differ only in their values share these results.

    Args:
        crow: int64 ``[rows + 1]``, the row pointers. The entries of row i begin at index
            ``crow[i]`` of `col`. The last row pointer is the number of all entries, nnz.
        col: int64 ``[nnz]``, columns of the entries, row by row.
        shape: ``(rows, cols)``.
        backend: kernels for products, ``"torch"`` or ``"torch_sparse"``.

    Raises:
        ValueError: for an unknown backend.
        ImportError: if the backend is not installed.

    Example:
        >>> pattern = Pattern(torch.tensor([0, 2, 3]), torch.tensor([0, 1, 1]), (2, 2))
        >>> pattern.row, pattern.nnz
        (tensor([0, 0, 1]), 3)
    """

    # A member of a stack overrides these: see `StackedPattern`.
    stack: Any = None
    inside = False

    def __init__(
        self, crow: Tensor, col: Tensor, shape: tuple[int, int], backend: str = "torch"
    ) -> None:
        kernels(backend)
        self.crow = crow
        self.col = col
        self.shape = shape
        self.backend = backend
        self._ones: dict[torch.dtype, Tensor] = {}
        self._turned: tuple[Tensor, int, Tensor] | None = None
        self._csr: tuple[weakref.ref[Tensor], int, Tensor | None] | None = None

    @property
    def nnz(self) -> int:
        return self.col.numel()

    def same(self, other: Pattern) -> bool:
        """Whether a second pattern has entries at the same positions as this pattern."""
        if self is other or (self.stack is not None and self.stack is other.stack):
            return True
        equal = self.stack is None and other.stack is None and self.shape == other.shape
        return equal and torch.equal(self.crow, other.crow) and torch.equal(self.col, other.col)

    @kept
    def row(self) -> Tensor:
        """Row of every entry, int64 ``[nnz]``."""
        return torch.repeat_interleave(self.crow.diff(), output_size=self.nnz)

    @kept
    def transpose(self) -> tuple[Pattern, Tensor]:
        """The transposed pattern, and the permutation of the values for the transposed pattern."""
        order = argsort(self.col, self.shape[1])
        pattern = self.like(pointers(self.col, self.shape[1]), self.row[order], self.shape[::-1])
        return (self.shared() if self.same(pattern) else pattern), order

    @property
    def flipped(self) -> Pattern:
        """The transposed pattern."""
        return self.transpose[0]

    def shared(self) -> Pattern:
        """A new pattern with the same tensors; used as the transpose of a symmetric pattern."""
        return self.like(self.crow, self.col, self.shape)

    def turned(self, value: Tensor) -> tuple[Pattern, Tensor]:
        """Transpose the pattern and reorder `value` to match; cache the last result."""
        if value is self._ones.get(value.dtype):
            return self.flipped, self.flipped.ones(value.dtype)
        pattern, order = self.transpose
        if value.requires_grad:  # a cached tensor has no graph
            return pattern, gather_rows(value, order)
        if (
            self._turned is None
            or self._turned[0] is not value
            or self._turned[1] != value._version
        ):
            self._turned = (value, value._version, value.index_select(0, order))
        return pattern, self._turned[2]

    def csr(self, value: Tensor) -> Tensor:
        """The matrix for torch's kernels; calls with the same values use a cached matrix."""
        if value.is_inference():  # it has no version counter
            return csr_of(self.crow, self.col, value, self.shape[1])
        last = self._csr
        if last is None or last[0]() is not value or last[1] != value._version:
            self._csr = weakref.ref(value), value._version, None
            return csr_of(self.crow, self.col, value, self.shape[1])
        if last[2] is None:
            matrix = csr_of(self.crow, self.col, value, self.shape[1])
            last = self._csr = (*last[:2], matrix)
        return last[2]  # type: ignore[return-value]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_csr": None}  # which torch cannot copy

    @kept
    def loops(self) -> tuple[Pattern, Tensor]:
        """Add the whole diagonal, and return each entry's index in ``cat([value, ones(n)])``."""
        n = self.shape[0]
        reject_if(n != self.shape[1], "the matrix to be square", f"shape {self.shape}")
        off = torch.nonzero(self.row != self.col).squeeze(1)
        on = torch.nonzero(self.row == self.col).squeeze(1)
        diagonal = torch.arange(n, device=self.col.device)
        source = diagonal + self.nnz
        source = source.scatter_reduce(0, self.row[on], on, "amax", include_self=False)
        row = torch.cat([self.row[off], diagonal])
        col = torch.cat([self.col[off], diagonal])
        order = row_major(row, col, n)
        pattern = self.like(pointers(row, n), col[order], self.shape)
        return pattern, torch.cat([off, source])[order]

    @kept
    def joined(self) -> tuple[Pattern, Tensor]:
        """A pattern whose rows begin with diagonal entries, and the new positions of old entries.

        The transpose of the new pattern is built at the same time, without sorting.
        """
        turned, order = self.transpose
        pattern, front, places = self._put()
        other, turned_front, turned_moved = pattern.shared(), front, places
        if turned.col is not self.col:
            other, turned_front, turned_moved = turned._put()
        place = torch.empty_like(other.col)
        place.scatter_(0, turned_front, front)
        place.scatter_(0, turned_moved, places.index_select(0, order))
        pattern.__dict__["transpose"] = other, place
        return pattern, places

    @kept
    def incidence(self) -> Pattern:
        """Pattern ``[rows, nnz]`` that has an entry (i, e) if entry e is in row i."""
        entries = torch.arange(self.nnz + 1, device=self.col.device)
        pattern = self.like(self.crow, entries[:-1], (self.shape[0], self.nnz))
        turned = self.like(entries, self.row, (self.nnz, self.shape[0]))
        pattern.__dict__["transpose"] = turned, entries[:-1]  # known without a sort
        turned.__dict__["transpose"] = pattern, entries[:-1]
        return pattern

    def _put(self) -> tuple[Pattern, Tensor, Tensor]:
        reject_if(self.shape[0] != self.shape[1], "the matrix to be square", f"shape {self.shape}")
        rows = torch.arange(self.shape[0] + 1, device=self.col.device)
        crow = self.crow + rows
        places = torch.arange(self.nnz, device=self.col.device) + self.row + 1
        col = self.col.new_empty(self.nnz + self.shape[0])
        col.scatter_(0, crow[:-1], rows[:-1])  # four times as fast as `col[places] = self.col`
        col.scatter_(0, places, self.col)
        return self.like(crow, col, self.shape), crow[:-1], places

    def ones(self, dtype: torch.dtype) -> Tensor:
        """A value of 1 for every entry, created once per dtype."""
        if dtype not in self._ones:
            with outside():
                self._ones[dtype] = torch.ones(self.nnz, dtype=dtype, device=self.col.device)
        return self._ones[dtype]

    def repeat(self, times: int) -> Pattern:
        """The block-diagonal pattern of `times` copies."""
        copies = torch.arange(times, device=self.col.device)[:, None]
        crow = (self.crow[1:] + copies * self.nnz).flatten()
        col = (self.col + copies * self.shape[1]).flatten()
        crow = torch.cat([self.crow[:1], crow])
        return self.like(crow, col, (self.shape[0] * times, self.shape[1] * times))

    def to(self, device: torch.device | str) -> Pattern:
        return self.like(self.crow.to(device), self.col.to(device), self.shape)

    def cleaned(self, value: Tensor) -> Tensor:
        """Set the padding entries of `value` to 0."""
        return value

    def like(self, crow: Tensor, col: Tensor, shape: tuple[int, int]) -> Pattern:
        """A new pattern of the given entries, on the backend of this pattern."""
        return Pattern(crow, col, shape, self.backend)


def pointers(row: Tensor, num_rows: int) -> Tensor:
    """Index of each row's first entry, then the number of entries: int64 ``[num_rows + 1]``."""
    crow = torch.zeros(num_rows + 1, dtype=torch.int64, device=row.device)
    if row.is_cuda:  # bincount would synchronise with the GPU
        crow[1:].scatter_add_(0, row, torch.ones_like(row))
        return crow.cumsum(0)
    torch.cumsum(torch.bincount(row, minlength=num_rows), 0, out=crow[1:])
    return crow


def row_major(row: Tensor, col: Tensor, num_cols: int) -> Tensor:
    """A stable order of entries: by row, then by column."""
    key = row * max(num_cols, 1) + col
    if bool((key[1:] >= key[:-1]).all()):  # this is frequent, and checking is cheaper than sorting
        return torch.arange(key.numel(), device=key.device)
    return argsort(key, int(key.max()) + 1)


def argsort(key: Tensor, bound: int) -> Tensor:
    """Stable order of integers in ``[0, bound)``; a narrow dtype sorts 2 to 9 times faster."""
    fits = (t for t in (torch.int16, torch.int32) if bound <= torch.iinfo(t).max)
    return torch.argsort(key.to(next(fits, torch.int64)), stable=True)
