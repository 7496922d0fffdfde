"""Checks that several partitions share, and a word on stderr before a long one."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from ...checks import check_number
from ...progress import shown


def check_num_clients(num_clients: int, total: int) -> None:
    """Raise a ValueError unless every client can get an example, a TypeError for no integer."""
    check_number("num_clients", num_clients, integer=True)
    if not 1 <= num_clients <= total:
        raise ValueError(f"Expected num_clients to be in [1, {total}], but got {num_clients}")


def announced(what: str, num_edges: int, many: int) -> AbstractContextManager[Any]:
    """Announce a partition of more than so many edges: it is one call, and takes long."""
    return shown(f"{what} of {num_edges:,} edges", long=num_edges > many)
