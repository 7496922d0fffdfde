"""Partition of molecules by scaffold: each client, a company say, studies rings of its own."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import torch
from torch import Tensor

from ...checks import check_number
from ...kinds import typed
from ..scaffolds import scaffold_groups


@typed
def scaffold_partition(scaffolds: Sequence[Hashable], num_clients: int) -> list[Tensor]:
    """Molecules that share a scaffold go to one client; nothing is drawn.

    The groups of `scaffold_groups`, the largest first, go one after the other to the client that
    has the fewest molecules so far, of equals to the first.

    Args:
        scaffolds: one a molecule, as `murcko_scaffolds` finds them, or any other ids.
        num_clients: number of clients.

    Returns:
        One sorted int64 tensor of molecules per client; every molecule is in exactly one.

    Raises:
        ValueError: if `num_clients` is not positive, or more than there are scaffolds.

    Example:
        >>> fgl.data.partitions.scaffold_partition(["a", "b", "a", "c"], 2)
        [tensor([0, 2]), tensor([1, 3])]
    """
    check_number("num_clients", num_clients, integer=True)
    groups = scaffold_groups(scaffolds)
    if not 1 <= num_clients <= len(groups):
        raise ValueError(
            f"Expected num_clients to be in [1, {len(groups)}], the number of scaffolds, "
            f"but got {num_clients}"
        )
    parts: list[list[int]] = [[] for _ in range(num_clients)]
    for group in groups:
        min(parts, key=len).extend(group)
    return [torch.tensor(sorted(part)) for part in parts]
