"""Check of edge weights whose sums, the degrees of nodes, are divisors."""

from __future__ import annotations

from torch import Tensor
from torch._C import _functorch as functorch

from .recording import recorded


def check_degrees(value: Tensor | None) -> None:
    """Raise a ValueError for negative weights of edges where a degree is divided by."""
    if (
        value is None
        or value.is_cuda
        or value.is_meta
        or functorch.is_functorch_wrapped_tensor(value)
        or recorded()
    ):
        return
    if (value < 0).any():
        raise ValueError(
            "Expected edge_weight to be at least 0 where degrees are normalised, but got "
            f"{float(value.min())}: edge_weight.abs(), or edge_attr=edge_weight[:, None] for a "
            "model that reads signs"
        )
