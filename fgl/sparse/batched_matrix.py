"""Batched matrices: a stack of sparse matrices that is one operator inside `vmap`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import torch
from torch import Tensor

from .batched_pattern import Member, PatternStack, StackedPattern
from .matrix import SparseMatrix
from .pattern import outside


class MatrixStack:
    """A stack of K sparse matrices; matrices derived from the stack are computed once and stored.

    Args:
        parts: the matrices.

    Example:
        >>> stack = MatrixStack([SparseMatrix.from_dense(torch.eye(n)) for n in (1, 2)])
        >>> product = lambda index: stack.of(Member(index)) @ torch.ones(2, 1)
        >>> torch.func.vmap(product)(torch.arange(2)).squeeze(2)
        tensor([[1., 0.],
                [1., 1.]])
    """

    def __init__(self, parts: Sequence[SparseMatrix]) -> None:
        self.parts = list(parts)
        self.patterns = PatternStack([part.pattern for part in parts])
        self.value: Tensor | None = None
        if any(part.value is not None for part in parts):
            dtype = reduce(torch.promote_types, (part.dtype for part in parts))
            self.parts = [part.astype(dtype) for part in parts]
            values = [p.pattern.ones(dtype) if p.value is None else p.value for p in self.parts]
            with outside(*values):  # it must outlast a transform
                self.value = self.patterns.padded(values)
            self.patterns.constant = self.value
        self._derived: dict[str, MatrixStack] = {}

    def of(self, member: Member) -> SparseMatrix:
        """Within `vmap`, return the matrix of one member."""
        return _StackedMatrix(self, member)

    def derived(self, name: str, make: Callable[[SparseMatrix], SparseMatrix]) -> MatrixStack:
        """Stack ``make(part)`` over all parts once, and store this stack under `name`."""
        if name not in self._derived:
            with outside():
                parts = [make(part) for part in self.parts]
                same = all(new is old for new, old in zip(parts, self.parts, strict=True))
                self._derived[name] = self if same else MatrixStack(parts)
        return self._derived[name]


class _StackedMatrix(SparseMatrix):
    def __init__(self, stack: MatrixStack, member: Member) -> None:
        value = None if stack.value is None else member.part(stack.value)
        super().__init__(StackedPattern(stack.patterns, member), value)
        self._stack = stack
        self._member = member

    def _once(self, name: str, make: Any) -> SparseMatrix:
        stack = self._stack.derived(name, lambda part: getattr(part, name))
        return stack.of(self._member)

    def astype(self, dtype: torch.dtype) -> SparseMatrix:
        dtype = self._wide(dtype)
        if self.dtype == dtype:
            return self
        return self._stack.derived(str(dtype), lambda part: part.astype(dtype)).of(self._member)
