"""The bytes of the tensors that are alive: now, and at most so far."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

PARTS = {
    torch.sparse_csr: ("crow_indices", "col_indices", "values"),
    torch.sparse_csc: ("ccol_indices", "row_indices", "values"),
    torch.sparse_coo: ("_indices", "_values"),
}


class LiveBytes(TorchDispatchMode):
    """Counts the bytes of tensors that are made inside ``with LiveBytes() as count``.

    A tensor counts from the operation that makes it until its memory is freed; its views do not
    count again. Memory that an operation uses internally is not counted. The same operations give
    the same numbers on every machine.

    Example:
        >>> with LiveBytes() as count:
        ...     kept = torch.zeros(100) + torch.ones(100)
        >>> count.now, count.peak
        (400, 1200)
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.now = self.peak = 0
        self._known: dict[int, weakref.ref[Any]] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        if not func.is_view:
            for tensor in tree_leaves(out):
                if isinstance(tensor, Tensor):
                    self._add(tensor)
        return out

    def _add(self, tensor: Tensor) -> None:
        for part in _strided(tensor):
            storage = part.untyped_storage()
            key, size = storage._cdata, storage.nbytes()
            if key not in self._known and size:
                self._known[key] = weakref.ref(storage, partial(self._freed, key, size))
                self.now += size
        self.peak = max(self.peak, self.now)

    def _freed(self, key: int, size: int, _: Any) -> None:
        if self._known.pop(key, None) is not None:
            self.now -= size


def _strided(tensor: Tensor) -> Iterator[Tensor]:
    """The tensor, or those that a sparse one consists of."""
    names = PARTS.get(tensor.layout)
    if names is None:
        yield tensor
        return
    yield from (getattr(tensor, name)() for name in names)
