"""Stacked uploads for the robust means: checks, conversion to double, and distances."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from ...checks import check_number, reject_if
from ..mean import check_stack, exact, folded, root

Stack = Mapping[str, Tensor | Sequence[Tensor]]


class TooManyBad(ValueError):
    """Error for a round that may have more bad clients than the robust mean can withstand.

    Example:
        >>> fgl.aggregate.robust.median({"w": torch.zeros(4, 1)}, bad=2)
        Traceback (most recent call last):
        fgl.aggregate.robust.stacks.TooManyBad: Expected bad to be less than half of the 4 ...
    """


def stacked(stack: Stack) -> tuple[dict[str, Tensor], int]:
    """Return a dict from name to stacked tensor ``[K, ...]``, and the number K of clients.

    Raises:
        TypeError: if a tensor is complex, or if the tensors of a list have different dtypes.
        ValueError: if there is no tensor or no client, or if two tensors have different numbers of
            clients.
    """
    reject_if(not stack, "stack to have a tensor", "none")
    first = next(iter(stack.values()))
    scalar = isinstance(first, Tensor) and first.dim() == 0
    reject_if(scalar, "stack to have shapes [K, ...]", "[]")
    clients = len(first)
    reject_if(not clients, "stack to have a client", "none")
    out = {}
    for name, value in stack.items():
        exact(check_stack(name, value, clients))  # raises for complex tensors
        out[name] = value if isinstance(value, Tensor) else torch.stack(list(value))
    return out, clients


def check_minority(bad: int, clients: int) -> None:
    """Raise an error unless `bad` is less than half of the number of clients.

    Raises:
        TooManyBad: if `bad` is at least half of the number K of clients.
    """
    check_number("bad", bad, at_least=0, integer=True)
    expected = f"bad to be less than half of the {clients} clients"
    reject_if(2 * bad >= clients, expected, bad, TooManyBad)


def in_order(value: Tensor) -> Tensor:
    """Sort each entry of ``[K, ...]`` over clients in ascending order, in the dtype for sums."""
    return (value.to(exact(value)) + 0.0).sort(0).values  # turns -0.0 into 0.0: ties of equal bits


def flat(stack: Mapping[str, Tensor]) -> Tensor:
    """Each client's floating-point entries, sorted by name, as a row of float64 ``[K, D]``."""
    names = sorted(name for name, value in stack.items() if value.is_floating_point())
    parts = [stack[name].reshape(len(stack[name]), -1).double() for name in names]
    return torch.cat(parts, 1) if parts else torch.zeros(len(next(iter(stack.values()))), 0)


def lengths(rows: Tensor) -> Tensor:
    """Euclidean norm of each row, ``[K]``, bit-identical for any memory layout of the rows."""
    if not rows.shape[1]:
        return rows.new_zeros(len(rows))
    return root(folded((rows * rows).mT))


def distances(rows: Tensor) -> Tensor:
    """Squared distances between all pairs of rows, as an exactly symmetric matrix ``[K, K]``."""
    out = rows.new_zeros(len(rows), len(rows))
    for i in range(len(rows) - 1):
        out[i, i + 1 :] = out[i + 1 :, i] = lengths(rows[i + 1 :] - rows[i]).square()
    return out
