"""The process of a run: what its allocator and its garbage collector do meanwhile."""

from __future__ import annotations

import ctypes
import gc
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock

NEVER = 2**30
TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h
LARGEST = 32 * 2**20  # bytes; glibc's own largest block that does not go back when it is freed
SETTINGS = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_MMAP_MAX_")
_inside, _lock = [0], Lock()


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


@contextmanager
def memory_kept() -> Iterator[None]:
    """Freed memory stays with the process meanwhile, and goes back to the system at the end.

    A local step makes tensors of some megabytes and frees them. glibc gives freed memory at the end
    of its heap back to the system at once, and the system fills every page with zeros when it is
    asked for again: a third of the processor time of a round of FedAvg with 10 clients of Cora.
    Blocks above 32 MiB go back as ever. Where the C library is another one, or the environment
    says what glibc shall do (``MALLOC_TRIM_THRESHOLD_`` and the like), nothing is changed.

    Example:
        >>> with memory_kept():
        ...     float(torch.ones(2**20).sum())
        1048576.0
    """
    tune = _glibc()
    if tune is None:
        yield
        return
    with _lock:
        _inside[0] += 1
        if _inside[0] == 1:
            tune(2**31 - 1)
    try:
        yield
    finally:
        with _lock:
            _inside[0] -= 1
            if not _inside[0]:
                tune(2 * LARGEST)  # where glibc's own rule ends up after a block of that size


def _glibc() -> Callable[[int], None] | None:
    """Sets how many free bytes the heap may keep; None where the allocator is not glibc's."""
    if any(name in os.environ for name in SETTINGS) or "malloc" in os.environ.get(
        "GLIBC_TUNABLES", ""
    ):
        return None
    try:
        library = ctypes.CDLL(None)
        mallopt, trim = library.mallopt, library.malloc_trim
    except (OSError, TypeError, AttributeError):
        return None

    def tune(threshold: int) -> None:
        mallopt(MMAP_THRESHOLD, LARGEST)
        mallopt(TRIM_THRESHOLD, threshold)
        if threshold < 2**31 - 1:
            trim(0)

    return tune
