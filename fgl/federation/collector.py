"""The garbage collector of Python during a round: it looks at young objects only."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

NEVER = 2**30


@contextmanager
def young_only() -> Iterator[None]:
    """No collection of the oldest generation meanwhile; the thresholds are put back at the end.

    Such a collection looks at every object there is, and a round makes objects for each client: all
    of them together would take time that grows faster than the number of clients. Cycles that a
    round makes and drops are young, and go as ever.

    Example:
        >>> import gc
        >>> before = gc.get_threshold()
        >>> with young_only():
        ...     gc.get_threshold()[2] > before[2]
        True
        >>> gc.get_threshold() == before
        True
    """
    before = gc.get_threshold()
    if before[2] >= NEVER:  # somebody around sees to it
        yield
        return
    gc.set_threshold(*before[:2], NEVER)
    try:
        yield
    finally:
        gc.set_threshold(*before)
