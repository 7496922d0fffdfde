"""Checks that several partitions share."""

from __future__ import annotations


def check_num_clients(num_clients: int, total: int) -> None:
    """Raise a ValueError unless every client can get an example."""
    if not 1 <= num_clients <= total:
        raise ValueError(f"Expected num_clients to be in [1, {total}], but got {num_clients}")
