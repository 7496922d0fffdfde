"""Pages of the executed notebooks in docs/notebooks: their text, code and outputs."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

ORDER = ["own_graph", "own_method", "molecules", "privacy", "flower"]  # the others come after them
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def joined(text: str | list[str]) -> str:
    """Notebooks keep a text as one string or as a list of lines."""
    return text if isinstance(text, str) else "".join(text)


def fenced(text: str, language: str) -> str:
    fence = "~~~~" if "```" in text else "```"
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def shown(output: dict[str, Any], name: str, pictures: dict[str, bytes]) -> str:
    """An output as Markdown. Its picture, if it is one, joins the pictures."""
    if output["output_type"] == "error":
        return fenced(COLOURS.sub("", "\n".join(output["traceback"])), "text")
    if output["output_type"] == "stream":
        return fenced(COLOURS.sub("", joined(output["text"])), "text")
    data = output["data"]
    if "image/png" in data:
        file = f"{name}-{len(pictures)}.png"
        pictures[file] = base64.b64decode(joined(data["image/png"]))
        return f"![What the cell above drew]({file})"
    if "text/markdown" in data:
        return joined(data["text/markdown"])
    return fenced(joined(data.get("text/plain", "")), "text")


def page(notebook: dict[str, Any], name: str) -> tuple[str, dict[str, bytes]]:
    """The Markdown of a notebook, and the pictures that it shows by their file names."""
    pictures: dict[str, bytes] = {}
    parts = []
    for cell in notebook["cells"]:
        source = joined(cell["source"]).strip()
        if not source:
            continue
        if cell["cell_type"] == "code":
            parts.append(fenced(source, "python"))
            parts += [shown(output, name, pictures) for output in cell["outputs"]]
        else:
            parts.append(source)
    title, *rest = parts or [""]
    download = f"This page is a [notebook]({name}.ipynb) with its outputs."
    return "\n\n".join([title, download, *rest]) + "\n", pictures


def notebooks(config: MkDocsConfig) -> list[Path]:
    found = sorted((Path(config.docs_dir) / "notebooks").glob("*.ipynb"))
    return sorted(found, key=lambda path: ([*ORDER, path.stem].index(path.stem), path.stem))


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """The notebooks are the last group of the first tab."""
    start = next(entry["Start"] for entry in config.nav or [] if "Start" in entry)
    if found := notebooks(config):
        start.append({"Notebooks": [f"notebooks/{path.stem}.md" for path in found]})
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    from mkdocs.structure.files import File

    for path in notebooks(config):
        text, pictures = page(json.loads(path.read_text(encoding="utf-8")), path.stem)
        files.append(File.generated(config, f"notebooks/{path.stem}.md", content=text))
        for name, picture in pictures.items():
            files.append(File.generated(config, f"notebooks/{name}", content=picture))
    return files
