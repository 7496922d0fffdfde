"""Paths of a dataset's files, which may lie there packed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


def need(folder: Path, files: Sequence[str]) -> list[Path]:
    """The paths of files that must be there."""
    paths = [there(folder, file) for file in files]
    missing = [file for file, path in zip(files, paths, strict=True) if path is None]
    if missing:
        what = "1 file" if len(files) == 1 else f"{len(files)} files"
        raise ValueError(f"Expected {folder} to hold {what}, but got none named {missing}")
    return [path for path in paths if path is not None]


def there(folder: Path, file: str) -> Path | None:
    """The path of a file, if it is there; a text may be packed, as ``FILE.txt.xz``."""
    names = (file, f"{file}.xz") if file.endswith(".txt") else (file,)
    return next((folder / name for name in names if (folder / name).is_file()), None)
