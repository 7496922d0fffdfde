"""A shelf, which stores a client's states and replies in a folder or in memory."""

import re
import shutil
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from filelock import FileLock

from ...saved.checkpoint import read_sealed, write_sealed


class Shelf(Protocol):
    """Storage for a client's states and replies, by round, in a folder or in memory.

    A shelf has at most one item of the kind ``"onward"``. This item is stored under round 0, and is
    never reset to earlier values.
    """

    def read(self, index: int, kind: str = "state") -> bytes | None: ...
    def write(self, index: int, payload: bytes, kind: str = "state") -> None: ...
    def rounds(self, kind: str = "state") -> list[int]: ...
    def drop(self, index: int, kind: str = "state") -> None: ...
    def alone(self) -> AbstractContextManager[Any]: ...


class StateFolder:
    """A client's stored states and replies, as files in a folder.

    Each state is a file with a checksum. The file is written completely or not at all.

    Only the owner can read the folders and files.

    Example:
        >>> import tempfile
        >>> shelf = StateFolder(tempfile.mkdtemp(), run=7, client=1)
        >>> shelf.write(3, b"state")
        >>> shelf.rounds(), shelf.read(3), shelf.read(4)
        ([3], b'state', None)
    """

    def __init__(self, root: str | Path, run: int, client: int) -> None:
        self.folder = Path(root) / f"run-{run:016x}" / f"client-{client}"

    def _path(self, index: int, kind: str) -> Path:
        return self.folder / f"round-{index:06d}.{kind}"

    def read(self, index: int, kind: str = "state") -> bytes | None:
        path = self._path(index, kind)
        return read_sealed(path) if path.exists() else None

    def write(self, index: int, payload: bytes, kind: str = "state") -> None:
        for folder in (self.folder.parent.parent, self.folder.parent, self.folder):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_sealed(self._path(index, kind), payload)

    def rounds(self, kind: str = "state") -> list[int]:
        names = [path.name for path in self.folder.glob(f"*.{kind}")]  # others' are left alone
        matches = [re.fullmatch(rf"round-(\d{{6,}})\.{kind}", name) for name in names]
        return sorted(int(each[1]) for each in matches if each)

    def drop(self, index: int, kind: str = "state") -> None:
        self._path(index, kind).unlink(missing_ok=True)

    def alone(self) -> AbstractContextManager[Any]:
        """A context during which only this process can write to the shelf."""
        root = self.folder.parent.parent
        root.mkdir(parents=True, exist_ok=True, mode=0o700)
        return FileLock(root / "lock", mode=0o600)


def make_room(root: str | Path, run: int, most: int) -> list[str]:
    """Remove folders of other runs, least recently used first, until at most `most` runs are left.

    Returns:
        Names of the removed folders.

    Example:
        >>> import tempfile
        >>> root = tempfile.mkdtemp()
        >>> StateFolder(root, run=7, client=1).write(0, b"state")
        >>> make_room(root, 7, most=1), make_room(root, 8, most=1)
        ([], ['run-0000000000000007'])
    """
    name, runs = f"run-{run:016x}", Path(root).glob("run-*")
    others = [path for path in runs if re.fullmatch(r"run-[0-9a-f]{16}", path.name)]
    others = [path for path in others if path.name != name and not path.is_symlink()]
    removed = sorted(others, key=_last_used)[: max(len(others) - most + 1, 0)]
    for path in removed:
        shutil.rmtree(path, ignore_errors=True)
    return [path.name for path in removed]


def _last_used(folder: Path) -> int:
    """The time at which a run's folder last changed."""
    return max(path.stat().st_mtime_ns for path in (folder, *folder.glob("client-*")))
