"""Links to the reference from public names in the text of a page, such as `fgl.losses.ranking`.

A page of a paper may leave out the package: `ranking`.
"""

from __future__ import annotations

import importlib
import re
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parent))
from reference import ROOMS, entries, words

if TYPE_CHECKING:
    from mkdocs.structure.pages import Page

CODE = re.compile(r"```.*?```|^( {4}|#).*?$|\[[^\]]*\]\([^)]*\)", re.DOTALL | re.MULTILINE)
NAME = re.compile(r"`(fgl(?:\.\w+)+)`")
SHORT = re.compile(r"`([\w.]+)`")


@cache
def places() -> dict[str, str]:
    """Public name to the page and the anchor of its entry in the reference."""
    found = {}
    for room in ROOMS:
        importlib.import_module(f"fgl.{room}")
        found[f"fgl.{room}"] = f"reference/{room}.md"
        for path in entries(room):
            name = path.rpartition(".")[2]
            found[f"fgl.{room}.{name}"] = f"reference/{room}.md#{path}"
        inner = [path for path in words(room) if path.count(".") == 3]
        found |= {path: f"reference/{room}.md#{path}" for path in inner}
    import fgl

    for name in fgl.__all__:
        value = getattr(fgl, name)
        room = getattr(value, "__module__", "fgl").split(".")[1:2]
        if room and (place := found.get(f"fgl.{room[0]}.{name}")):
            found[f"fgl.{name}"] = place
    short = {name.rpartition(".")[2]: place for name, place in found.items() if "#" in place}
    return short | found


def with_links(markdown: str, up: str = "", name: re.Pattern[str] = NAME) -> str:
    """The page with a link at each public name outside of code, headings and other links."""

    def link(match: re.Match[str]) -> str:
        place = places().get(match[1])
        return f"[{match[0]}]({up}{place})" if place else match[0]

    parts, last = [], 0
    for code in CODE.finditer(markdown):
        parts += [name.sub(link, markdown[last : code.start()]), code[0]]
        last = code.end()
    return "".join([*parts, name.sub(link, markdown[last:])])


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    if page.file.src_uri.startswith(("reference/", "decisions/")):
        return markdown
    name = SHORT if page.file.src_uri.startswith("papers/") else NAME
    return with_links(markdown, "../" * page.file.src_uri.count("/"), name)
