"""Shares of a secret; the secret can be recovered even if some shares are false.

Shamir's secret sharing comes from `pycryptodome`.
"""

import itertools
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from ..checks import imported, install, reject_if

# This module needs the extra `private`.
need = partial(imported, purpose="for secure sums and signatures", how=install("private"))
SECRET = 32  # bytes of a secret and of a share
HALF = 16  # bytes of a secret that the library splits in one call
TRIES = 300  # largest number of sets of shares that are tried for a secret


class CannotUnmask(ValueError):
    """Error for revealed shares that are false, or too few to remove the masks.

    Example:
        >>> issubclass(CannotUnmask, ValueError)
        True
    """


def split(secret: bytes, threshold: int, number: int) -> list[bytes]:
    """Split a secret into Shamir's shares over GF(2^128), one share for each row.

    The argument `threshold` is the number of shares that are needed to recover the secret.

    Example:
        >>> shares = split(bytes(range(32)), 2, 3)
        >>> combine({0: shares[0], 2: shares[2]}) == bytes(range(32))
        True
    """
    shamir = need("Crypto.Protocol.SecretSharing").Shamir
    halves = [
        dict(shamir.split(threshold, number, secret[i : i + HALF])) for i in range(0, SECRET, HALF)
    ]
    return [b"".join(half[row + 1] for half in halves) for row in range(number)]


def combine(shares: Mapping[int, bytes]) -> bytes:
    """Compute a secret from exactly `threshold` shares, given as a dict from row to share.

    Example:
        >>> combine(dict(enumerate(split(b"0123456789abcdef" * 2, 3, 3))))
        b'0123456789abcdef0123456789abcdef'
    """
    shamir = need("Crypto.Protocol.SecretSharing").Shamir
    parts = (
        shamir.combine([(row + 1, share[i : i + HALF]) for row, share in shares.items()])
        for i in range(0, SECRET, HALF)
    )
    return b"".join(parts)


def recovered(
    shares: Mapping[int, bytes],
    threshold: int,
    fits: Callable[[bytes], bool],
    doubted: frozenset[int] = frozenset(),
) -> tuple[bytes, frozenset[int]]:
    """Recover a secret that passes a check, even if some shares are false.

    The function tries at most 300 sets of `threshold` shares. It begins with sets of shares that
    have consecutive rows. So one false share among at most 300 shares cannot prevent recovery.
    Next, the function tries all other sets of shares, or random sets if there are too many.

    Args:
        shares: the received shares, by row.
        threshold: number of shares that are needed to recover the secret.
        fits: function that returns whether a recovered secret is correct.
        doubted: rows of clients that may have sent false shares; the function tries their shares
            last.

    Returns:
        The secret, and the rows with false shares. The function looks for false shares only if the
        first set of shares fails the check.

    Raises:
        CannotUnmask: if too few shares arrived, or if all tried sets fail the check.

    Example:
        >>> secret, shares = bytes(range(32)), dict(enumerate(split(bytes(range(32)), 2, 3)))
        >>> got, false = recovered({**shares, 0: bytes(32)}, 2, lambda found: found == secret)
        >>> got == secret, false
        (True, frozenset({0}))
    """
    reject_if(len(shares) < threshold, f"{threshold} shares of it", len(shares), CannotUnmask)
    rows = sorted(shares, key=lambda row: (row in doubted, row))
    for tried, chosen in enumerate(itertools.islice(_sets(rows, threshold), TRIES)):
        secret = combine({row: shares[row] for row in chosen})
        if not fits(secret):
            continue
        others = [row for row in rows if row not in chosen] if tried else []
        rest = {row: shares[row] for row in chosen[1:]}
        false = [row for row in others if combine({**rest, row: shares[row]}) != secret]
        return secret, frozenset(false)
    raise CannotUnmask(
        f"Expected {threshold} true shares of it, but got {len(shares)} with false ones among them"
    )


def _sets(rows: Sequence[int], threshold: int) -> Iterator[Sequence[int]]:
    """Sets of rows to combine: first the sets of consecutive rows, then all sets or random sets."""
    if threshold == len(rows):
        yield rows
        return
    ring = [*rows, *rows]
    for first in range(len(rows)):
        yield ring[first : first + threshold]
    if math.comb(len(rows), threshold) <= TRIES - len(rows):
        yield from itertools.combinations(rows, threshold)
        return
    generator = random.Random(0)
    while True:
        yield generator.sample(rows, threshold)
