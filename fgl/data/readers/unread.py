"""Names of what a file holds and its reader does not read."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path

from ...warn import warn


def warn_unread(path: Path, names: Iterable[str], ignore: Collection[str], reads: str = "") -> None:
    """Warn, once for a file, of the names that are not read and not ignored.

    Args:
        path: the file or folder.
        names: what is not read.
        ignore: the names that need not be read.
        reads: the argument that reads them, if there is one.
    """
    left = [name for name in dict.fromkeys(names) if name not in ignore]
    if left:
        how = f"{reads}, or leave them out by " if reads else "leave them out by "
        warn(f"{path} holds {left}, which are not read: {how}ignore={left}")
