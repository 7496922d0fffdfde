"""Participants of a round: a share of the clients, drawn from a seed."""

from __future__ import annotations

import torch

from ..kinds import explained


def participants(num_clients: int, participation: float, seed: int) -> list[int]:
    """The participants of a round, in order: a share of the clients, at least one."""
    count = num_participants(num_clients, participation)
    if count == num_clients:
        return list(range(num_clients))
    generator = torch.Generator().manual_seed(seed)
    return sorted(torch.randperm(num_clients, generator=generator)[:count].tolist())


@explained
def num_participants(num_clients: int, participation: float) -> int:
    """The number of participants of a round: a share of the clients, rounded, at least one.

    Example:
        >>> num_participants(10, 0.25), num_participants(10, 0.01)
        (2, 1)
    """
    return max(1, round(participation * num_clients))
