"""The reference's pages: one for each room of fgl, with all that the room exports."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from types import ModuleType
from typing import TYPE_CHECKING, Any

import fgl

if TYPE_CHECKING:  # the tests read this file without MkDocs
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOMS = sorted(
    module.name for module in pkgutil.iter_modules(fgl.__path__) if module.name[0] != "_"
)
WITH_A_RUN = {  # the other rooms are the primitives
    "Federation": ["federation"],
    "Methods": ["methods", "transforms"],
    "Tasks": ["tasks"],
    "Experiments": ["experiment", "study"],
}
# What a room has beside the names that it exports.
FURTHER = {
    "federation": [
        "fgl.federation.executors.remote.flower.Flower",
        "fgl.federation.executors.remote.flower.client_app",
    ],
    "privacy": ["fgl.privacy.masks", "fgl.privacy.signatures"],
}


def groups() -> dict[str, list[str]]:
    """The heads of the reference and the rooms under each."""
    higher = [room for rooms in WITH_A_RUN.values() for room in rooms]
    return {"Primitives": [room for room in ROOMS if room not in higher], **WITH_A_RUN}


def public(module: ModuleType) -> dict[str, Any]:
    """The paths that a module exports: its `__all__`, or what it defines without an underscore."""
    names = getattr(module, "__all__", None)
    if names is None:
        names = [
            name
            for name, value in vars(module).items()
            if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__
        ]
    return {f"{module.__name__}.{name}": getattr(module, name) for name in names}


def words(room: str) -> dict[str, Any]:
    """The exports of a room and of the rooms inside it, and those of `fgl` that it defines."""
    package = importlib.import_module(f"fgl.{room}")
    own = public(package)
    for value in list(own.values()):
        if inspect.ismodule(value) and hasattr(value, "__all__"):
            own |= public(value)
    short = {
        path: value
        for path, value in public(fgl).items()
        if getattr(value, "__module__", "").startswith(f"{package.__name__}.")
    }
    return own | short


def entries(room: str) -> list[str]:
    """The path of each name that a room exports, where it is defined.

    The room's own path would not do for a function whose file has its name: it means the file.
    """
    found = []
    for path, value in words(room).items():
        if inspect.isfunction(value) or inspect.isclass(value):
            if value.__module__.split(".")[1] != room:
                continue  # it is on the page of the room that it comes from
            found.append(f"{value.__module__}.{value.__name__}")
        elif inspect.ismodule(value):
            found.append(value.__name__)
        else:
            found.append(path)
    return found + FURTHER.get(room, [])


def page(room: str) -> str:
    """The Markdown of a room's page."""
    head = f"# fgl.{room}\n\n::: fgl.{room}\n    options:\n      members: false\n"
    head += "      show_root_heading: false\n      show_root_toc_entry: false\n"
    return head + "".join(f"\n::: {path}\n" for path in entries(room))


def table(rooms: list[str]) -> str:
    rows = "| package | what is in it |\n|---|---|\n"
    for room in rooms:
        said = (importlib.import_module(f"fgl.{room}").__doc__ or "").split("\n\n")[0]
        rows += f"| [`fgl.{room}`](reference/{room}.md) | {' '.join(said.split())} |\n"
    return rows


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """The tab's pages follow its first."""
    tab = next(entry["Reference"] for entry in config.nav or [] if "Reference" in entry)
    for head, rooms in groups().items():
        tab.append({head: [{f"fgl.{room}": f"reference/{room}.md"} for room in rooms]})
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    from mkdocs.structure.files import File

    for room in ROOMS:
        files.append(File.generated(config, f"reference/{room}.md", content=page(room)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    if page.file.src_uri != "reference.md":
        return markdown
    return markdown + "".join(f"\n## {head}\n\n{table(rooms)}" for head, rooms in groups().items())
