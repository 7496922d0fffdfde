"""The public names: a change of one is a change of `public_names.txt`, and of the changelog."""

import importlib
import pkgutil
import re
from pathlib import Path

import fgl

NAMES = Path(__file__).with_name("public_names.txt")


def exported() -> list[str]:
    """Every name in the `__all__` of the library and of its rooms, with the room before it."""
    rooms = [fgl.__name__]
    rooms += [m.name for m in pkgutil.walk_packages(fgl.__path__, "fgl.") if m.ispkg]
    modules = (importlib.import_module(room) for room in rooms)
    return [f"{m.__name__}.{name}" for m in modules for name in getattr(m, "__all__", ())]


def test_public_names_are_those_of_the_list() -> None:
    """Whoever adds, renames or takes back a name says so in `public_names.txt`."""
    listed = NAMES.read_text(encoding="utf-8").split()
    assert listed == sorted(set(listed))
    assert sorted(exported()) == listed


def test_public_names_exist() -> None:
    for path in exported():
        room, name = path.rsplit(".", 1)
        assert hasattr(importlib.import_module(room), name), path


def test_the_version_is_the_same_everywhere() -> None:
    root = NAMES.parents[1]
    cited = re.search(r"^version: (.+)$", (root / "CITATION.cff").read_text("utf-8"), re.M)
    top = re.search(r"^## \[([\d.]+)\]", (root / "CHANGELOG.md").read_text("utf-8"), re.M)
    assert cited and top
    assert cited[1] == top[1] == fgl.__version__
