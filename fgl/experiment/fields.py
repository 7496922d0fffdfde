"""Fields of nested settings: their names, their values, and copies with new values."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any


def members(settings: Any) -> dict[str, Any]:
    """The fields of a dataclass, or the arguments of a `main` function."""
    if isinstance(settings, dict):
        return settings
    return {f.name: getattr(settings, f.name) for f in dataclasses.fields(settings) if f.init}


def leaves(settings: Any, *path: str) -> Iterator[tuple[str, str, Any]]:
    """For each flag: its name, its path (such as ``"task.local.lr"``) and its value."""
    for name, value in members(settings).items():
        if dataclasses.is_dataclass(value):
            yield from leaves(value, *path, name)
        else:
            yield name, ".".join((*path, name)), value


def flat(settings: Any) -> dict[str, Any]:
    """The value of each flag, by name."""
    return {name: value for name, _, value in leaves(settings)}


def changed(settings: Any, values: Mapping[str, Any]) -> Any:
    """Copy the arguments, with new values for some flags, even in nested dataclasses."""
    new = {
        name: changed(own, values) if dataclasses.is_dataclass(own) else values.get(name, own)
        for name, own in members(settings).items()
    }
    return new if isinstance(settings, dict) else dataclasses.replace(settings, **new)
