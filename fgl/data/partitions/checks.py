"""Checks that several partition functions use, and a message on stderr before a slow partition."""

from contextlib import AbstractContextManager
from typing import Any

from torch import Tensor

from ...checks import check_index, reject_if
from ...progress import shown


def check_num_clients(num_clients: int, total: int) -> None:
    """Raise a ValueError unless there is at least one example per client."""
    reject_if(not 1 <= num_clients <= total, f"num_clients to be in [1, {total}]", num_clients)


def check_labels(y: Any) -> None:
    """Raise an error unless `y` is int64 ``[n]`` with classes from 0.

    If `y` holds floats, the error message suggests a solution.
    """
    if isinstance(y, Tensor) and y.is_floating_point():
        raise TypeError(
            f"Expected y to be an int64 tensor, but got {y.dtype}: "
            "fgl.data.partitions.quantile_labels makes labels of numbers"
        )
    check_index("y", y, (None,), None)


def announced(what: str, num_edges: int, many: int) -> AbstractContextManager[Any]:
    """Print a message to stderr before the slow partition of a graph with many edges."""
    return shown(f"{what} of {num_edges:,} edges", long=num_edges > many)


def filled(owner: Tensor, num_clients: int) -> list[Tensor]:
    """Sorted node ids per client; a client without nodes gets the largest client's first node.

    Args:
        owner: the client of each node, int64 ``[n]``. This tensor is changed in place.
        num_clients: number of clients, at most n.
    """
    size = owner.bincount(minlength=num_clients)
    for part in (size == 0).nonzero().flatten().tolist():
        node = (owner == size.argmax()).nonzero()[0]
        size[owner[node]] -= 1
        size[part] += 1
        owner[node] = part
    return list(owner.argsort(stable=True).split(size.tolist()))
