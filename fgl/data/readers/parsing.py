"""Shared helpers of the readers, for paths, for numbers in text, and for JSON.

Errors name the file and line.
"""

import csv
import json
import re
import warnings
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...checks import reject_if
from ...warn import warn


def need(folder: Path, files: Sequence[str]) -> list[Path]:
    """The paths of required files; raise an error if a file is missing."""
    paths = [there(folder, file) for file in files]
    missing = [file for file, path in zip(files, paths, strict=True) if path is None]
    what = "1 file" if len(files) == 1 else f"{len(files)} files"
    reject_if(missing, f"{folder} to hold {what}", f"none named {missing}")
    return [path for path in paths if path is not None]


def there(folder: Path, file: str) -> Path | None:
    """The path of an existing file; for a text file, this may be the path of ``FILE.txt.xz``."""
    names = (file, f"{file}.xz") if file.endswith(".txt") else (file,)
    return next((folder / name for name in names if (folder / name).is_file()), None)


def warn_unread(path: Path, names: Iterable[str], ignore: Collection[str], reads: str = "") -> None:
    """Give one warning per file; it lists all unread names that are not in `ignore`.

    Args:
        path: the file or folder.
        names: names of unread content.
        ignore: names that the warning should not contain.
        reads: the argument that would make the reader read this content; empty if there is no such
            argument.
    """
    left = [name for name in dict.fromkeys(names) if name not in ignore]
    if left:
        how = f"{reads}, or leave them out by " if reads else "leave them out by "
        warn(f"{path} holds {left}, which are not read: {how}ignore={left}")


@contextmanager
def readable(expected: str) -> Iterator[None]:
    """A context that turns any error of a malformed file into "Expected ..., but got ...".

    MemoryError, FileNotFoundError and PermissionError are raised unchanged.

    Args:
        expected: the text after "Expected", such as "a.json to be JSON".

    Example:
        >>> with readable("a.json to be JSON"):
        ...     json.loads("{")
        Traceback (most recent call last):
        ValueError: Expected a.json to be JSON, but got Expecting property name ...
    """
    try:
        yield
    except (MemoryError, FileNotFoundError, PermissionError):
        raise
    except Exception as error:  # a malformed file can raise any exception
        got = str(error) or type(error).__name__
        raise ValueError(f"Expected {expected}, but got {got}") from error


def read_csv(path: Path) -> tuple[list[str], list[int], list[list[str]]]:
    """Read a comma-separated table: the header, and each row's line number and fields."""
    lines, rows = [], []
    with (
        readable(f"{path} to be a table with commas"),
        path.open(encoding="utf-8-sig", newline="") as file,
    ):
        table = csv.reader(file, strict=True)
        own = filter(None, table)  # without blank lines
        header = [column.strip() for column in next(own, [])]
        for row in own:
            lines.append(table.line_num)
            rows.append(row)
    for line, row in zip(lines, rows, strict=True):
        expected = f"{path}, line {line}, to have {len(header)} fields"
        reject_if(len(row) != len(header), expected, len(row))
    return header, lines, rows


INTEGER = re.compile(r"[+-]?[0-9]{1,18}")
FLOAT = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


def integers(path: Path, columns: int | None, separator: str | None = None) -> NDArray[np.int64]:
    """Read one row of integers per line, int64 ``[lines, columns]``; None allows any `columns`.

    Raises:
        ValueError: if a line contains anything except this number of integers; the error names the
            first such line.
    """
    return _table(path, _text(path), np.int64, columns, separator)


def floats(
    path: Path, columns: int | None, separator: str | None = None, header: str = ""
) -> NDArray[np.float64]:
    """Skip a header, and read one row of finite numbers per line, float64 ``[lines, columns]``.

    Raises:
        ValueError: if the first line is not the header, or if a later line contains anything except
            finite numbers.
    """
    text = _text(path)
    if header:
        first = text.split("\n", 1)[0].strip()
        reject_if(first != header, f"{path}, line 1, to be {header!r}", f"{first[:60]!r}")
        text = text[text.find("\n") :] if "\n" in text else ""
    return _table(path, text, np.float64, columns, separator)


def _table(
    path: Path, text: str, dtype: type[Any], columns: int | None, separator: str | None
) -> NDArray[Any]:
    lines = _lines(text)
    if not lines:
        return np.zeros((0, columns or 0), dtype)
    table = _numbers([line for _, line in lines], dtype, separator)
    if table is None or columns not in (None, table.shape[1]):
        raise _bad_line(path, lines, dtype, columns, separator)
    return table


def _lines(text: str) -> list[tuple[int, str]]:
    """For each line that is not empty, the line's number (from 1) and its text."""
    return [(i, line) for i, line in enumerate(text.splitlines(), 1) if line.strip()]


def check_range(path: Path, rows: NDArray[Any], low: int, high: int) -> None:
    """Raise a ValueError that names the row if a number is below `low`, or is `high` or more."""
    rows = rows[:, None] if rows.ndim == 1 else rows
    out = (rows < low) | (rows >= high)
    if out.any():
        row = int(out.any(1).argmax())
        raise bad_row(path, row, f"in [{low}, {high})", f"{rows[row][out[row]][0]:.16g}")


def bad_row(path: Path, row: int, be: str, got: object) -> ValueError:
    """Error about a row of a text file; row 0 is the first line that is not empty."""
    line, _ = _lines(_text(path))[row]
    return ValueError(f"Expected {path}, line {line}, to be {be}, but got {got}")


def contiguous(path: Path, values: NDArray[np.int64]) -> tuple[Tensor, int]:
    """Renumber labels in ascending order as int64 0, 1, ...; also return the number of labels."""
    reject_if(not values.size, f"{path} to hold labels", "none")
    used, labels = np.unique(values, return_inverse=True)
    return torch.from_numpy(labels.reshape(values.shape).astype(np.int64)), len(used)


def read_json(path: Path) -> Any:
    """The unchecked content of a JSON file."""
    with readable(f"{path} to be JSON"):
        return json.loads(path.read_bytes())


def read_keys(folder: Path, file: str, keys: Sequence[str]) -> tuple[Path, Any]:
    """The path and the content of a JSON file; raise an error if one of the keys is missing."""
    (path,) = need(folder, [file])
    data = read_json(path)
    missing = [key for key in keys if not isinstance(data, dict) or key not in data]
    reject_if(missing, f"{path} to have {', '.join(keys)}", f"no {missing}")
    return path, data


def _text(path: Path) -> str:
    content = path.read_bytes()
    if path.suffix == ".xz":
        import lzma

        with readable(f"{path} to be an xz file"):
            content = lzma.decompress(content)
    return content.decode("utf-8-sig", errors="replace")


def _numbers(lines: list[str], dtype: type[Any], separator: str | None) -> NDArray[Any] | None:
    """Read a table of finite numbers; return None if the lines are not such a table."""
    if not all(map(str.isascii, lines)):  # NumPy may accept other characters as digits
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # for a float among integers
        try:
            table = np.loadtxt(lines, dtype, None, separator, ndmin=2, encoding=None)
        except (ValueError, Warning):
            return None
    return table if np.isfinite(table).all() else None


def _bad_line(
    path: Path,
    lines: list[tuple[int, str]],
    dtype: type[Any],
    columns: int | None,
    separator: str | None,
) -> ValueError:
    """Error about the first line that is not a row of the table."""
    columns = columns or len(lines[0][1].split(separator))
    rows = (_numbers([line], dtype, separator) for _, line in lines)
    bad = (each for each, row in zip(lines, rows) if row is None or row.shape[1] != columns)  # noqa: B905
    i, line = next(bad, lines[-1])
    what = "integer" if dtype is np.int64 else "finite number"
    be = f"one {what}" if columns == 1 else f"{columns} {what}s"
    how = f" separated by {separator!r}" if separator and columns > 1 else ""
    return ValueError(f"Expected {path}, line {i}, to be {be}{how}, but got {line[:60]!r}")
