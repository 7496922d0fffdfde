"""Suggestions for names that a package does not have."""

import difflib
import sys
from collections.abc import Callable
from typing import Any

# Names of other libraries -> what they are here.
MEANT = {
    "fedavg": "task.fedavg, or fgl.fedavg(model)",
    "fedbn": "fgl.methods.fedper(fedavg, shared=[...]) with all modules but the norms",
}


def suggest_names(package: str) -> None:
    """Make the error of an unknown name suggest a name, in each package that lists its names.

    Example:
        >>> getattr(fgl.data, "louvain_partition")
        Traceback (most recent call last):
        AttributeError: module 'fgl.data' has no ...: did you mean ...louvain_partition?
    """
    rooms = [room for room in sys.modules if room.split(".")[0] == package]
    rooms = [room for room in rooms if hasattr(sys.modules[room], "__all__")]
    for room in rooms:
        module = vars(sys.modules[room])
        module["__getattr__"] = _finder(room, rooms, module.get("__getattr__"))


def _finder(
    room: str, rooms: list[str], other: Callable[[str], Any] | None
) -> Callable[[str], Any]:
    def find(name: str) -> Any:
        if other is not None:
            return other(name)
        paths = {
            each.lower(): f"{place}.{each}"
            for place in (*rooms, "fgl.methods", "fgl", room)
            for each in sys.modules[place].__all__
        }
        nearest = difflib.get_close_matches(name.lower(), paths, n=1, cutoff=0.7)
        path = MEANT.get(name.lower(), paths[nearest[0]] if nearest else "")
        meant = f": did you mean {path}?" if path else ""
        raise AttributeError(f"module {room!r} has no attribute {name!r}{meant}")

    return find
