"""Downloads: files checked by sha256, written as a whole or not at all."""

from __future__ import annotations

import hashlib
import os
import zipfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path, PurePosixPath
from typing import IO
from urllib.request import urlopen
from uuid import uuid4


def download(url: str, path: str | os.PathLike[str], sha256: str) -> Path:
    """Download a file, unless its content is not the expected one.

    The content is written beside `path` and renamed, so an interrupted download leaves nothing.
    Where tqdm is installed and stderr is a terminal, a bar shows the progress.

    Args:
        url: any address that `urllib` opens; ``file://`` too.
        path: where the file shall be; missing folders are made, an old file is replaced.
        sha256: the expected checksum, hexadecimal.

    Returns:
        The path.

    Raises:
        OSError: if the address cannot be opened, or the file not be written.
        ValueError: if the content has another checksum.

    Example:
        >>> import hashlib, pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     source = pathlib.Path(folder, "source")
        ...     _ = source.write_text("hello")
        ...     checksum = hashlib.sha256(b"hello").hexdigest()
        ...     fgl.data.download(source.as_uri(), f"{folder}/new/copy", checksum).read_text()
        'hello'
    """
    path = Path(path)
    return _fetch(url, path, sha256, path.name, path)


def unpack(url: str, folder: Path, sha256: Mapping[str, str]) -> None:
    """Download a zip file and keep some of its files, each checked by its own sha256."""
    archive = folder / f"{uuid4().hex}.zip"
    try:
        _fetch(url, archive, None, Path(url).name, folder)
        if not zipfile.is_zipfile(archive):
            raise ValueError(f"Expected {url} to be a zip file, but got another")
        with zipfile.ZipFile(archive) as packed:
            inside = {PurePosixPath(member).name: member for member in packed.namelist()}
            for file, expected in sha256.items():
                if file not in inside:
                    raise ValueError(
                        f"Expected {url} to hold {file}, but got {', '.join(sorted(inside))}"
                    )
                with packed.open(inside[file]) as member:
                    _write(f"{file} in {url}", member, folder / file, expected)
    finally:
        archive.unlink(missing_ok=True)


def verify(path: Path, sha256: str) -> None:
    """Raise a ValueError unless the file has this checksum."""
    with path.open("rb") as file:
        _compare(str(path), sha256, hashlib.file_digest(file, "sha256").hexdigest())


def _fetch(url: str, path: Path, sha256: str | None, title: str, wanted: Path) -> Path:
    """Write what an address answers; a bar says `title`, an error where `wanted` would be."""
    with ExitStack() as stack:
        try:
            source = stack.enter_context(urlopen(url, timeout=60))
        except OSError as error:
            raise OSError(
                f"Expected {url} to be reachable, but got {error}; "
                f"a copy at {wanted} would do as well"
            ) from error
        advance = _progress(stack, title, source.headers["Content-Length"])
        return _write(url, source, path, sha256, advance)


def _write(
    name: str,
    source: IO[bytes],
    path: Path,
    sha256: str | None,
    advance: Callable[[int], object] = lambda _: None,
) -> Path:
    """Write what `source` has left, unless its checksum is another one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{uuid4().hex}.part")
    digest = hashlib.sha256()
    try:
        with part.open("xb") as target:
            while block := source.read(1 << 16):
                target.write(block)
                digest.update(block)
                advance(len(block))
        if sha256 is not None:
            _compare(name, sha256, digest.hexdigest())
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
    return path


def _compare(name: str, expected: str, found: str) -> None:
    if found != expected:
        raise ValueError(f"Expected {name} to have sha256 {expected}, but got {found}")


def _progress(stack: ExitStack, name: str, size: str | None) -> Callable[[int], object]:
    """A function to call with the number of bytes that arrived."""
    try:
        from tqdm import tqdm
    except ImportError:
        return lambda _: None
    total = int(size) if size else None
    bar = tqdm(desc=name, total=total, unit="B", unit_scale=True, disable=None)
    return stack.enter_context(bar).update
