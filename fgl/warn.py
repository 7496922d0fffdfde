"""Warnings that point at the line of the caller, however many functions of fgl stand between."""

from __future__ import annotations

import sys
import warnings

# Packages whose functions stand between a caller and a warning of fgl.
BETWEEN = {"contextlib", "dataclasses", "fgl", "functools", "torch"}


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the innermost line outside of fgl.

    Example:
        >>> with warnings.catch_warnings(record=True, action="always") as caught:
        ...     warn("The cut loses 3 of 4 edges")
        >>> str(caught[0].message)
        'The cut loses 3 of 4 edges'
    """
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and _package(frame.f_globals) in BETWEEN:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level + 1)


def _package(names: dict[str, object]) -> str:
    return str(names.get("__name__", "")).split(".")[0]
