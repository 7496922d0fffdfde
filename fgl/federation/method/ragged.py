"""Ragged tensors of a context: their length differs by client, and a mask marks padding."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...sparse import SparseMatrix


class Ragged:
    """A tensor whose first dimension differs from client to client, with a mask of its rows.

    A batch of clients pads such a tensor with zeros, so a loss must know what is padding: put it
    into the context as ``Ragged(tensor)``, read it as ``context[key].values``, and leave out the
    rows that ``context[key].mask`` excludes. Without a batch the mask is true everywhere.

    Args:
        values: ``[n, ...]``, or a `SparseMatrix` of n rows.
        mask: bool ``[n]``; default all.

    Raises:
        TypeError: if `values` is neither.
        ValueError: if `values` has no dimension, or `mask` not one entry per row.

    Example:
        >>> pairs = Ragged(torch.tensor([[0, 1], [1, 2], [2, 0]]))
        >>> pairs.values.shape, pairs.mask
        (torch.Size([3, 2]), tensor([True, True, True]))
    """

    def __init__(self, values: Any, mask: Tensor | None = None) -> None:
        if not isinstance(values, Tensor | SparseMatrix):
            got = type(values).__name__
            raise TypeError(f"Expected values to be a tensor or a SparseMatrix, but got {got}")
        shape = tuple(values.shape)
        if not shape:
            raise ValueError("Expected values to have a first dimension, but got a scalar")
        if mask is not None and tuple(mask.shape) != shape[:1]:
            raise ValueError(
                f"Expected mask to have shape [{shape[0]}], but got {list(mask.shape)}"
            )
        self.values: Any = values
        if mask is None:
            mask = torch.ones(shape[0], dtype=torch.bool, device=values.device)
        self.mask = mask

    def __len__(self) -> int:
        return int(self.values.shape[0])

    def __repr__(self) -> str:
        return f"Ragged({list(self.values.shape)})"
