"""Every public name is documented with an example, and the code in the documents runs."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from federations import script
from papers import TABLES

import fgl

ROOT = Path(__file__).parents[1]
ROOMS = [f"fgl.{m.name}" for m in pkgutil.iter_modules(fgl.__path__) if not m.name.startswith("_")]
REFERENCE = re.findall(
    r"^::: (\S+)$", (ROOT / "docs/reference.md").read_text(encoding="utf-8"), re.MULTILINE
)
DECISIONS = sorted((ROOT / "docs/decisions").glob("[0-9]*.md"))
PAGES = [ROOT / "README.md", *sorted(set((ROOT / "docs").rglob("*.md")) - set(DECISIONS))]


def public(module: ModuleType) -> dict[str, Any]:
    """What a module exports: its `__all__`, or what it defines without an underscore."""
    names = getattr(module, "__all__", None)
    if names is None:
        names = [
            name
            for name, value in vars(module).items()
            if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__
        ]
    return {name: getattr(module, name) for name in names}


DOCUMENTED = {
    f"{room}.{name}": value
    for room in ["fgl", *ROOMS]
    for name, value in public(importlib.import_module(room)).items()
    if inspect.isfunction(value) or inspect.isclass(value)
}


@pytest.mark.parametrize("name", DOCUMENTED)
def test_public_name_has_a_docstring_with_an_example(name: str) -> None:
    doc = DOCUMENTED[name].__doc__ or ""
    assert doc.strip() and ">>>" in doc


def test_reference_lists_every_room_once() -> None:
    assert sorted(name for name in REFERENCE if name.count(".") == 1) == sorted(ROOMS)


@pytest.mark.parametrize("name", DOCUMENTED)
def test_reference_shows_the_name(name: str) -> None:
    value = DOCUMENTED[name]
    room = ".".join(value.__module__.split(".")[:2])
    assert room in REFERENCE
    if value.__module__ == f"{room}.{value.__name__}":
        # A file of the same name hides it from its room's entry: it needs one of its own.
        assert f"{value.__module__}.{value.__name__}" in REFERENCE


def test_top_level_names_exist() -> None:
    assert fgl.__all__
    assert set(fgl.__all__) <= set(dir(fgl))


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_code_in_a_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ```python blocks of a page run from top to bottom, as one script."""
    blocks = re.findall(
        r"^```python\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    if page.name == "README.md":
        assert blocks
    monkeypatch.chdir(tmp_path)
    exec(compile("\n".join(blocks), str(page), "exec"), {"__name__": "__main__"})


RESULTS = sorted((ROOT / "docs" / "results").glob("*.md"))


@pytest.mark.parametrize("page", RESULTS, ids=lambda page: page.stem)
def test_every_table_of_results_ends_before_the_next_begins(page: Path) -> None:
    """Writing a table replaces all from its marker to the next end."""
    marks = re.findall(r"^<!-- (.+) -->$", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert marks and "end" not in marks[::2]
    assert set(marks[1::2]) == {"end"} and len(marks) % 2 == 0


def test_every_table_has_one_place() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in RESULTS)
    assert TABLES
    assert [name for name in sorted(TABLES) if text.count(f"<!-- {name} -->") != 1] == []


@pytest.mark.parametrize("page", ["fgssl", "fedgl", "fedego", "fedvgae", "gpfl"])
def test_pictures_of_results_show_runs_and_the_papers_cells(
    page: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib")
    pictures = script("docs/pictures/results.py")
    drawn: list[Any] = []
    monkeypatch.setattr(pictures, "draw", lambda _, panels, *rest: drawn.append(panels))
    pictures.PAGES[page]()
    for panels in drawn:
        points = [p for row in panels for panel in row for p in pictures.points(page, panel)]
        assert any(paper is not None for _, _, paper, *_ in points)


def test_the_index_of_decisions_has_each_once_with_its_title() -> None:
    index = (ROOT / "docs/decisions/index.md").read_text(encoding="utf-8")
    listed = re.findall(r"^- \[(.+)\]\((\S+)\)$", index, re.MULTILINE)
    written = []
    for page in DECISIONS:
        title, date, text = page.read_text(encoding="utf-8").split("\n\n", 2)
        assert re.fullmatch(r"20\d\d-\d\d-\d\d", date), page.name
        assert text.strip(), page.name
        written.append((title.removeprefix("# "), page.name))
    assert sorted(listed) == sorted(written)
