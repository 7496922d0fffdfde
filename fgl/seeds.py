"""Seeds: one for each client, round and purpose."""

from __future__ import annotations

import hashlib
import operator


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
