"""Downloads of files; size and SHA-256 are checked, and no partly written file remains."""

import contextlib
import hashlib
import os
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from http.client import HTTPException
from pathlib import Path, PurePosixPath
from typing import IO
from urllib.request import urlopen
from uuid import uuid4

from ..checks import check_disk, reject_if
from ..progress import shown

ELSEWHERE = "; FGL_DATA or XDG_CACHE_HOME may name another folder"
LIMIT = 2**28  # bytes after unpacking: three times the largest file of the catalogue
# Exceptions that reading a truncated, damaged or unsupported zip file can raise.
DAMAGES = (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError)


def download(
    url: str, path: str | os.PathLike[str], sha256: str, *, max_bytes: int = LIMIT
) -> Path:
    """Download a file and check its content.

    The content is first written to a temporary file in the folder of `path`. When the content is
    complete, the temporary file is renamed to `path`. An interrupted download therefore leaves no
    file. If tqdm is installed and stderr is a terminal, a progress bar is shown. Without tqdm or a
    terminal, a line is printed when a download has taken more than ten seconds.

    Args:
        url: any address that `urllib` can open, including ``file://``.
        path: path of the new file. Missing folders are created. An existing file is replaced.
        sha256: the expected SHA-256 in hexadecimal.
        max_bytes: largest allowed size of the content in bytes; the default is 256 MiB.

    Returns:
        The path.

    Raises:
        OSError: if the address cannot be opened, if the connection breaks, or if the file cannot be
            written.
        ValueError: if the content is larger than `max_bytes`, or if its SHA-256 is not `sha256`.

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
    return _fetch(url, path, sha256, path.name, path, max_bytes)


def download_members(
    url: str, folder: Path, sha256: Mapping[str, str], *, max_bytes: int = LIMIT
) -> None:
    """Download a zip file, check the SHA-256 of some of its files, and keep these files.

    `max_bytes` limits the size of the zip file and of each kept file.
    """
    archive = folder / f"{uuid4().hex}.zip"
    try:
        _fetch(url, archive, None, Path(url).name, folder, max_bytes)
        reject_if(not zipfile.is_zipfile(archive), f"{url} to be a zip file", "another")
        with _whole(url), zipfile.ZipFile(archive) as packed:
            inside = {PurePosixPath(member).name: member for member in packed.namelist()}
            for file, expected in sha256.items():
                reject_if(file not in inside, f"{url} to hold {file}", ", ".join(sorted(inside)))
                name = f"{file} in {url}"
                _check_size(name, packed.getinfo(inside[file]).file_size, max_bytes)
                with packed.open(inside[file]) as member:
                    _write(name, member, folder / file, expected, max_bytes)
    finally:
        with contextlib.suppress(OSError):
            archive.unlink(missing_ok=True)


def verify(path: Path, sha256: str) -> None:
    """Raise a ValueError if a file's checksum is wrong, or an OSError if the file is unreadable."""
    with check_disk(f"{path} to be a file one can read"), path.open("rb") as file:
        checksum = hashlib.file_digest(file, "sha256").hexdigest()
    _compare(str(path), sha256, checksum)


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Open a temporary file that replaces `path` when the block ends without an error."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{uuid4().hex}.part")
    try:
        with part.open("xb") as file:
            yield file
        os.replace(part, path)
    finally:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)


def _fetch(
    url: str, path: Path, sha256: str | None, title: str, target: Path, max_bytes: int
) -> Path:
    """Write the body of a response to `path`; `title` is for progress bars, `target` for errors."""
    with ExitStack() as stack:
        try:
            source = stack.enter_context(urlopen(url, timeout=60))
        except OSError as error:
            raise OSError(
                f"{url} did not answer: {error}; a copy at {target} would do as well"
            ) from error
        size = source.headers["Content-Length"]
        promised = int(size) if size and size.isdigit() else None
        if promised is not None:
            _check_size(url, promised, max_bytes)
        advance = stack.enter_context(shown(title, promised, unit="B", bar_after=0.0))
        return _write(url, source, path, sha256, max_bytes, advance, promised)


def _write(
    name: str,
    source: IO[bytes],
    path: Path,
    sha256: str | None,
    max_bytes: int,
    advance: Callable[[int], object] = lambda _: None,
    promised: int | None = None,
) -> Path:
    """Write the rest of `source`; raise an error if the size or the SHA-256 is wrong."""
    digest = hashlib.sha256()
    size = 0
    with check_disk(f"{path} to be written", ELSEWHERE), replacing(path) as target:
        while block := _block(name, source):
            size += len(block)
            _check_size(name, size, max_bytes)
            target.write(block)
            digest.update(block)
            advance(len(block))
        if promised is not None and size < promised:
            raise OSError(
                f"{name} sent {size} of {promised} bytes: the connection was cut; try again"
            )
        if sha256 is not None:
            _compare(name, sha256, digest.hexdigest())
    return path


def _block(name: str, source: IO[bytes]) -> bytes:
    """Read the next block; replace a connection error with a one-sentence error."""
    try:
        return source.read(1 << 16)
    except (OSError, HTTPException) as error:
        raise OSError(f"The connection to {name} broke: {error!r}; try again") from error


@contextmanager
def _whole(url: str) -> Iterator[None]:
    """Convert errors that a damaged zip file causes to a ValueError with a text of one sentence."""
    try:
        yield
    except DAMAGES as error:
        if isinstance(error, OSError) and error.errno is None:
            raise  # an error of this module, already one sentence
        raise ValueError(f"Expected {url} to be a whole zip file, but got {error!r}") from error


def _check_size(name: str, size: int, max_bytes: int) -> None:
    reject_if(size > max_bytes, f"{name} to have at most {max_bytes} bytes", size)


def _compare(name: str, expected: str, actual: str) -> None:
    reject_if(actual != expected, f"{name} to have sha256 {expected}", actual)
