"""Warnings that name the line outside of fgl from which fgl was called."""

import sys
import warnings

# Packages whose functions may be between a caller and a warning of fgl on the call stack.
BETWEEN = {"contextlib", "dataclasses", "fgl", "functools", "torch"}


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Give a warning that names the innermost line outside of fgl.

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
