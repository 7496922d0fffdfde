"""Seeds, one for each client, round and purpose; one thread at a time uses them."""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock

from .kinds import explained

_seeding = RLock()


@explained
def fold_in(seed: int, *path: int | str) -> int:
    """A separate seed for each client and purpose, such as ``fold_in(seed, round, client)``.

    It is a hash, so it does not depend on the order of clients, on restarts or on processes.

    Returns:
        An integer in ``[0, 2^63)``.

    Example:
        >>> fold_in(0, 3, 1) == fold_in(0, 3, 1), fold_in(0, 3, 1) == fold_in(0, 1, 3)
        (True, False)
    """
    parts = tuple(p if isinstance(p, str) else operator.index(p) for p in (seed, *path))
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


@contextmanager
def one_thread() -> Iterator[None]:
    """A context that one thread of a process at a time may enter, also repeatedly.

    Runs and tasks seed torch's generator, which all threads share, so two of them would change each
    other's numbers.

    Raises:
        RuntimeError: if another thread is inside.

    Example:
        >>> with one_thread(), one_thread():
        ...     pass
    """
    if not _seeding.acquire(blocking=False):
        raise RuntimeError(
            "Expected one thread of a process to run or to load a task at a time, since they seed "
            "torch's generator, which all threads share, but got a second thread: use a process "
            "for each, as concurrent.futures.ProcessPoolExecutor does"
        )
    try:
        yield
    finally:
        _seeding.release()
