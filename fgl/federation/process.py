"""Settings of the process during a run: memory allocator and garbage collector."""

import ctypes
import gc
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock

NEVER = 2**30
TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h
LARGEST = 32 * 2**20  # bytes; the largest freed block that glibc's default rule may keep
SETTINGS = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_MMAP_MAX_")
_inside, _lock = [0], Lock()


@contextmanager
def young_only() -> Iterator[None]:
    """A context in which garbage collection skips the oldest generation.

    The previous thresholds are restored at the end of the context. With more clients, a round
    creates more objects, so garbage collections are more frequent. Each garbage collection of the
    oldest generation visits every object in the process. So the total time of garbage collection
    would grow faster than the number of clients. If a round creates and drops a reference cycle,
    this cycle is young, so it is collected as usual.

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
    if before[2] >= NEVER:  # an outer context already set the thresholds
        yield
        return
    gc.set_threshold(*before[:2], NEVER)
    try:
        yield
    finally:
        gc.set_threshold(*before)


@contextmanager
def memory_kept() -> Iterator[None]:
    """A context in which the process does not return freed memory to the system.

    At the end, the process returns this memory to the system.

    A local step allocates and frees tensors of a few megabytes. When memory at the end of the heap
    is freed, the library glibc immediately returns it to the system. When the process requests the
    memory again, the system fills it with zeros. For FedAvg with 10 clients of Cora, these zeros
    take a third of a round's CPU time. Memory blocks above 32 MiB are returned to the system as
    usual. Nothing is changed if the C library is not glibc, or if the environment sets options of
    glibc (``MALLOC_TRIM_THRESHOLD_`` and others).

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
                tune(2 * LARGEST)  # the value that glibc's own rule sets after a block of that size


def _glibc() -> Callable[[int], None] | None:
    """A function that sets how many free bytes the heap keeps; None if there is no glibc."""
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
