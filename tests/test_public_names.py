"""The public names: a change of one is a change of `public_names.txt`, and of the changelog."""

import importlib
import pkgutil
import re
from pathlib import Path
from types import FunctionType

import pytest

import fgl

NAMES = Path(__file__).with_name("public_names.txt")
ROOT = NAMES.parents[1]


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


def test_a_name_is_public_in_one_room() -> None:
    paths: dict[int, list[str]] = {}
    for path in exported():
        room, name = path.rsplit(".", 1)
        value = getattr(importlib.import_module(room), name)
        if isinstance(value, type | FunctionType):
            paths.setdefault(id(value), []).append(path)
    assert not [each for each in paths.values() if len(each) > 1]


def test_an_unknown_name_is_told_its_home() -> None:
    for path in ("fgl.data.partitions.louvain_partition", "fgl.data.splits.split", "fgl.compare"):
        name = path.rsplit(".", 1)[1]
        for wrong in (name, f"{name}_"):
            with pytest.raises(AttributeError, match=rf"no attribute '{wrong}': .* {path}\?$"):
                getattr(fgl.metrics, wrong)
    with pytest.raises(AttributeError, match="'fgl.sparse' has no attribute 'qqq'$"):
        fgl.sparse.qqq  # noqa: B018


def test_the_version_is_the_same_everywhere() -> None:
    cited = re.search(r"^version: (.+)$", (ROOT / "CITATION.cff").read_text("utf-8"), re.M)
    top = re.search(r"^## \[([\d.]+)\]", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.M)
    assert cited and top
    assert cited[1] == top[1] == fgl.__version__
