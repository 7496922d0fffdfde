"""Files that survive a kill or a power failure: atomic writes, appends, and a lock."""

import contextlib
import functools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from filelock import FileLock, Timeout


def write_whole(path: Path, content: bytes, *, private: bool = False) -> None:
    """Write a file completely or not at all, even if the power fails during the write.

    With `private` only the file's owner can read the file.

    Example:
        >>> import pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_whole(pathlib.Path(folder, "a"), b"hello")
        ...     pathlib.Path(folder, "a").read_bytes()
        b'hello'
    """
    with _beside(path, content, private) as partial:
        os.replace(partial, path)
    _sync_folder(path.parent)


def try_writing(path: Path, content: bytes) -> None:
    """Write and remove a temporary file beside `path`, to detect a problem of the disk early."""
    with _beside(path, content, private=True):
        pass


def write_at(path: Path, position: int, content: bytes) -> None:
    """Write at a position of a file.

    All content after this position, such as half a line, is removed.
    """
    with path.open("r+b" if position else "wb") as file:
        file.seek(position)
        file.truncate()
        file.write(content)
        _sync(file)


@contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """A context that locks a folder.

    If the process is killed, the system unlocks the folder.

    Raises:
        ValueError: if a different run already uses the folder, in this process or elsewhere.
    """
    lock = FileLock(folder / "lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise ValueError(
            f"Expected checkpoint folder {folder} to be of one run at a time, but got another run "
            f"that has it now ({folder / 'lock'} is locked): wait for its end, or take another "
            "folder"
        ) from None
    try:
        yield
    finally:
        lock.release()


@contextmanager
def _beside(path: Path, content: bytes, private: bool = False) -> Iterator[Path]:
    """Write `content` to a temporary file in the folder of `path`; the context yields this file.

    At the end, the file is removed unless it was renamed.
    """
    partial = path.with_name(f"{path.name}.partial")
    try:
        partial.unlink(missing_ok=True)  # left by a kill; the new file would keep its mode
        mode = 0o600 if private else 0o666
        with open(partial, "wb", opener=functools.partial(os.open, mode=mode)) as file:
            file.write(content)
            _sync(file)
        yield partial
    finally:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)


def _sync(file: IO[bytes]) -> None:
    """Wait until the file's content is on the disk."""
    file.flush()
    os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    """Wait until the folder's file names are on the disk.

    On Windows this is not necessary.
    """
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
