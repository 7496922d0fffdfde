"""Fetching a file once: checksum, progress, nothing half-written."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tempfile
import urllib.request
from pathlib import Path
from typing import Any


def download(url: str, path: str | os.PathLike[str], sha256: str) -> Path:
    """Download a file, check it, and only then put it in its place.

    Args:
        url: where it is; ``file:`` works too.
        path: where it goes; folders are made.
        sha256: the checksum it must have, in hexadecimal.

    Returns:
        The path.

    Raises:
        ValueError: if the checksum differs; nothing is left behind.
        OSError: if the address cannot be read.

    Example:
        >>> import hashlib, pathlib, tempfile
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> _ = (folder / "a").write_bytes(b"graph")
        >>> checksum = hashlib.sha256(b"graph").hexdigest()
        >>> download((folder / "a").as_uri(), folder / "b", checksum).read_bytes()
        b'graph'
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    partial = Path(name)
    try:
        with os.fdopen(handle, "wb") as file, urllib.request.urlopen(url) as source:
            shutil.copyfileobj(_shown(source, path.name), file)
        check_sha256(partial, sha256, url)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    return path


def check_sha256(path: Path, sha256: str, name: str | None = None) -> None:
    """Compare a file with its checksum.

    Raises:
        ValueError: naming the file, if they differ.
    """
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != sha256:
        raise ValueError(f"Expected {name or path} to have sha256 {sha256}, but got {found}")


def _shown(source: Any, name: str) -> Any:
    """`source` with a progress bar where tqdm is installed, else with a line on stderr."""
    try:
        from tqdm import tqdm
    except ImportError:
        sys.stderr.write(f"downloading {name}\n")
        return source
    total = int(source.headers.get("Content-Length") or 0) or None
    return tqdm.wrapattr(source, "read", total=total, desc=name)
