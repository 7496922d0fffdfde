"""Modules of the extra `private`, which are loaded when they are needed."""

from __future__ import annotations

import importlib
from typing import Any

from ..checks import install


def need(name: str) -> Any:
    """A module of the extra `private`.

    Raises:
        ImportError: saying what to install.

    Example:
        >>> need("cryptography.exceptions").InvalidTag.__name__
        'InvalidTag'
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(
            "Expected cryptography and pycryptodome to be installed, but got neither: "
            f"{install('private')}"
        ) from error
