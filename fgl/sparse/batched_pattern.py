"""Batched patterns: a stack of patterns, and the pattern of one member inside `vmap`.

Inside a `vmap` over the members, each member has a separate `SparseMatrix`. The tensors of this
matrix are batched and padded to the largest member. A product is computed for the whole stack at
once, with the block-diagonal matrix. Padding entries belong to no row, so products, sums and
softmax skip them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor
from torch._C import _functorch as functorch
from torch.autograd import Function

from ..transfer import to_device
from .autograd import positional
from .pattern import Pattern, kept, outside
from .recording import unrecorded


class PatternStack:
    """A stack of K patterns, padded to the largest numbers of rows, columns and entries.

    Args:
        parts: the patterns.

    Example:
        >>> a = Pattern(torch.tensor([0, 1]), torch.tensor([0]), (1, 1))
        >>> b = Pattern(torch.tensor([0, 1, 3]), torch.tensor([1, 0, 1]), (2, 2))
        >>> stack = PatternStack([a, b])
        >>> stack.shape, stack.nnz, stack.diagonal.col
        ((2, 2), 3, tensor([0, 3, 2, 3]))
    """

    def __init__(self, parts: Sequence[Pattern]) -> None:
        self.parts = list(parts)
        self.shape = (max(p.shape[0] for p in parts), max(p.shape[1] for p in parts))
        self.backend = parts[0].backend
        self.counts = [p.nnz for p in parts]
        self.nnz = max(self.counts)
        self._ones: dict[torch.dtype, Tensor] = {}
        self.constant: Tensor | None = None  # values [K, nnz] that are packed a single time
        self._packed: Tensor | None = None

    @property
    def device(self) -> torch.device:
        return self.parts[0].col.device

    def padded(self, tensors: Sequence[Tensor], length: int | None = None) -> Tensor:
        """Stack one tensor per part, padded with zeros to `length` entries (by default `nnz`)."""
        length = self.nnz if length is None else length
        out = tensors[0].new_zeros(len(tensors), length)
        for row, tensor in zip(out, tensors, strict=True):
            row[: tensor.numel()] = tensor
        return out

    @kept
    def crow(self) -> Tensor:
        crow = self.padded([p.crow for p in self.parts], self.shape[0] + 1)
        for row, part in zip(crow, self.parts, strict=True):
            row[part.shape[0] + 1 :] = part.nnz
        return crow

    @kept
    def col(self) -> Tensor:
        return self.padded([p.col for p in self.parts])

    @kept
    def row(self) -> Tensor:
        return self.padded([p.row for p in self.parts])

    @kept
    def slots(self) -> Tensor | None:
        """Indices of the entries in the flattened ``[K, nnz]``; None if no part is padded."""
        if all(count == self.nnz for count in self.counts):
            return None
        with unrecorded():
            return to_device(self._inside().flatten().nonzero().squeeze(1), self.device)

    def _inside(self) -> Tensor:
        return torch.arange(self.nnz) < torch.tensor(self.counts)[:, None]

    def pack(self, value: Tensor) -> Tensor:
        """Flatten ``[K, nnz]`` and remove its padding."""
        if functorch.is_functorch_wrapped_tensor(value):  # by an outer gradient: no address
            return self._flat(value)
        ones = self._ones.get(value.dtype)
        if ones is not None and ones.data_ptr() == value.data_ptr():
            return self.diagonal.ones(value.dtype)  # its transpose is known, too
        constant = self.constant
        if constant is None or constant.data_ptr() != value.data_ptr() or value.requires_grad:
            return self._flat(value)
        if self._packed is None:
            with outside():
                self._packed = self._flat(constant)
        return self._packed

    def _flat(self, value: Tensor) -> Tensor:
        flat = value.flatten()
        return flat if self.slots is None else flat.index_select(0, self.slots)

    def unpack(self, flat: Tensor) -> Tensor:
        """The inverse of `pack`; padding is filled with zeros."""
        size = len(self.parts)
        if self.slots is None:
            return flat.view(size, self.nnz)
        return flat.new_zeros(size * self.nnz).index_copy(0, self.slots, flat).view(size, self.nnz)

    @kept
    def start(self) -> Tensor:
        """Index of each part's first entry in the block-diagonal pattern, int64 ``[K + 1]``."""
        with unrecorded():
            return to_device(torch.tensor([0, *accumulate(self.counts)]), self.device)

    def _joined(self, step: int) -> tuple[Tensor, Tensor]:
        """Concatenate the parts' rows; each part begins `step` columns after the previous part."""
        crow = torch.cat([self.start[:1], (self.crow[:, 1:] + self.start[:-1, None]).flatten()])
        return crow, torch.cat([part.col + i * step for i, part in enumerate(self.parts)])

    @kept
    def diagonal(self) -> Pattern:
        """The block-diagonal pattern."""
        return _Diagonal(self)

    @kept
    def tall(self) -> Pattern:
        """Concatenate the rows of all parts, to multiply all parts by the same matrix at once."""
        shape = (len(self.parts) * self.shape[0], self.shape[1])
        return Pattern(*self._joined(0), shape, self.backend)

    @kept
    def flipped(self) -> PatternStack:
        parts = [part.flipped for part in self.parts]
        symmetric = all(new.col is own.col for new, own in zip(parts, self.parts, strict=True))
        return self if symmetric else PatternStack(parts)

    @kept
    def transpose(self) -> tuple[PatternStack, Tensor]:
        return self.flipped, self.padded([part.transpose[1] for part in self.parts])

    @kept
    def loops(self) -> tuple[PatternStack, Tensor]:
        """Add the whole diagonal to every part, like `Pattern.loops`.

        The second result contains each entry's index in the vector ``cat([value, ones(rows)])`` of
        its part. This vector begins with the part's padded values.
        """
        parts, sources = zip(*(p.loops for p in self.parts), strict=True)
        places = [
            source + (source >= part.nnz) * (self.nnz - part.nnz)
            for source, part in zip(sources, self.parts, strict=True)
        ]
        stack = PatternStack(parts)
        return stack, stack.padded(places)

    @kept
    def incidence(self) -> PatternStack:
        return PatternStack([part.incidence for part in self.parts])

    def ones(self, dtype: torch.dtype) -> Tensor:
        """The mask ``[K, nnz]`` as numbers: 1 for an entry, 0 for padding."""
        if dtype not in self._ones:
            with outside():
                self._ones[dtype] = to_device(self._inside().to(dtype), self.device)
        return self._ones[dtype]


class _Diagonal(Pattern):
    """A stack's block-diagonal pattern; its transpose is built from the transposes of the parts."""

    def __init__(self, stack: PatternStack) -> None:
        size, (rows, cols) = len(stack.parts), stack.shape
        super().__init__(*stack._joined(cols), (size * rows, size * cols), stack.backend)
        self._stack = stack

    @property
    def flipped(self) -> Pattern:
        return self._stack.flipped.diagonal

    @kept
    def transpose(self) -> tuple[Pattern, Tensor]:
        starts = [0, *accumulate(self._stack.counts)]
        orders = [part.transpose[1] + s for part, s in zip(self._stack.parts, starts, strict=False)]
        return self.flipped, torch.cat(orders)


class StackedPattern(Pattern):
    """The pattern of one member of a stack, for functions inside `vmap`.

    The tensors of this pattern are batched, since `vmap` maps over the members of the stack.

    Args:
        stack: the patterns of all members.
        member: the member that `vmap` evaluates.
    """

    def __init__(self, stack: PatternStack, member: Member) -> None:
        self.stack = stack
        self.shape = stack.shape
        self.backend = stack.backend
        self._member = member
        self._ones, self._turned = {}, None  # the stack has the ones

    @property
    def nnz(self) -> int:
        return int(self.stack.nnz)

    @cached_property
    def crow(self) -> Tensor:  # type: ignore[override]
        return self._member.part(self.stack.crow)

    @cached_property
    def col(self) -> Tensor:  # type: ignore[override]
        return self._member.part(self.stack.col)

    @cached_property
    def row(self) -> Tensor:
        return self._member.part(self.stack.row)

    @cached_property
    def transpose(self) -> tuple[Pattern, Tensor]:
        stack, order = self.stack.transpose
        return StackedPattern(stack, self._member), self._member.part(order)

    @cached_property
    def loops(self) -> tuple[Pattern, Tensor]:
        stack, source = self.stack.loops
        return StackedPattern(stack, self._member), self._member.part(source)

    @cached_property
    def incidence(self) -> Pattern:
        return StackedPattern(self.stack.incidence, self._member)

    def ones(self, dtype: torch.dtype) -> Tensor:
        return self._member.part(self.stack.ones(dtype))

    def cleaned(self, value: Tensor) -> Tensor:
        return torch.where(self.ones(torch.bool), value, 0)

    def owned(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Batch the first argument of a product, with one view of the argument per member.

        If any argument is already batched, the arguments are returned unchanged.
        """
        if any(isinstance(arg, Tensor) and _batched(arg) for arg in args):
            return args
        first = args[0].expand(len(self.stack.parts), *args[0].shape)
        return (_Lift.apply(self._member.index, first), *args[1:])  # type: ignore[no-untyped-call]

    @property
    def inside(self) -> bool:  # type: ignore[override]
        """Whether the rule of an inner `vmap` is running.

        An inner `vmap` is nested in the `vmap` over members.
        """
        level = functorch.maybe_current_level()
        return level is not None and bool(level >= functorch.maybe_get_level(self._member.index))


def _batched(tensor: Tensor) -> bool:
    while functorch.is_functorch_wrapped_tensor(tensor):
        if functorch.is_batchedtensor(tensor):
            return True
        tensor = functorch.get_unwrapped(tensor)
    return False


class Member:
    """A member that `vmap` currently evaluates: its index, and its slice of every stacked tensor.

    Args:
        index: the member's index, int64; `vmap` must map over this argument.
        batched: dict from the `id` of a stacked tensor to this member's slice of the tensor. Pass
            the slices of all stacked tensors that are arguments of `vmap`.

    If a stacked tensor is not an argument of `vmap`, the first call of `part` with this tensor
    creates a batched tensor, and adds the stacked tensor to `lifted`. Pass the tensors in `lifted`
    as arguments to make the next call of `vmap` faster.

    Example:
        >>> stack = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
        >>> torch.func.vmap(lambda index: Member(index).part(stack).sum())(torch.arange(2))
        tensor([3., 7.])
    """

    def __init__(self, index: Tensor, batched: dict[int, Tensor] | None = None) -> None:
        self.index = index
        self.batched = {} if batched is None else batched
        self.lifted: list[Tensor] = []

    def part(self, stack: Tensor) -> Tensor:
        """This member's tensor ``[...]`` of ``stack [K, ...]``, without a copy."""
        if id(stack) not in self.batched:
            self.batched[id(stack)] = _Lift.apply(self.index, stack)  # type: ignore[no-untyped-call]
            self.lifted.append(stack)
        return self.batched[id(stack)]


class _Lift(Function):
    @staticmethod
    @positional
    def forward(index: Tensor, stack: Tensor) -> Tensor:
        raise RuntimeError("Expected index to be batched by vmap, but got a plain tensor")

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        pass

    @staticmethod
    def vmap(info: Any, in_dims: Any, index: Tensor, stack: Tensor) -> tuple[Tensor, int]:
        return stack.view_as(stack), 0  # an output that is an input would be unbatched
