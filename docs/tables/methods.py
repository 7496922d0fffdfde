"""Writes docs/methods.md: all methods, from their docstrings and from the tables of other pages.

python docs/tables/methods.py
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import fgl

DOCS = Path(__file__).parents[1]
PAGE = DOCS / "methods.md"
HEAD = """# All methods

A method is a function of a task's FedAvg: `fgl.methods.fedprox(task.fedavg, mu=0.1)`. A transform
is a function of any method, and they nest. What a method changes is the first line of its
docstring. [The idea](idea.md#which-method-runs-where) says what a method needs of a task. Numbers
are differences in points, means over seeds and standard errors. [The matrix](matrix.md) has them
from FedAvg of the same network (for FedSage+ from FedSage); it has errors of ESOL too, which are no
points. [The leaderboard](leaderboard.md) has them from FedAvg where each client is scored on its
own nodes with its own model. `python docs/tables/methods.py` writes this page.

## Which method should I use?

FedAvg first, and training alone beside it: they are one line each. Then ask whom you score.

- **One model for everybody** (as in the table below): with equal trials few methods gain over
  FedAvg, and most differences are within the errors. Choose by what you need, such as fewer bytes,
  a secure sum, or a robust mean.
- **Each client's own model on its own nodes**, where clients are communities of a graph: training
  alone may beat FedAvg, and then methods that keep or correct something of each client pay.
  [The leaderboard](leaderboard.md#what-to-use-when) says which, with bytes and seconds.
- **Clients with other features, classes or networks**: [FedPer](guides/clients_that_differ.md).

"""
# What the tables call a function, where it is not the function's own name.
CALLED = {
    "centralized": "centralized training",
    "ring": "D-FedGNN",
    "mix_updates": "uniform",
    "fedopt": "FedOpt, Adam",
    "neighbour_sums": "FedGCN",
    "mended": "FedSage+",
    "fedsage_plus": "generators of FedSage+ (`fedsage_plus`)",
}
TITLES = {"ring": "D-FedGNN, a ring", "mix_updates": "Mixed updates", "fedopt": "FedOpt"}
TITLES |= {"own_models": "Own models", "local": "Local", "fedavg": "FedAvg"}
TITLES |= {
    "adaptive_fedprox": "FedProx with an adaptive weight",
    "fedsage_plus": "Generators of FedSage+",
}
TITLES |= {
    "gcfl_plus": "GCFL+, clusters by history",
    "centralized": "Centralized",
    "neighbour_sums": "FedGCN",
    "mended": "FedSage+",
}


@dataclass(frozen=True)
class Entry:
    """What the page says of one method."""

    title: str
    where: str
    changes: str
    published: str
    runs_on: str
    measured: dict[str, str]
    own: dict[str, str]
    pages: list[str]


def plain(name: str) -> str:
    """A name without its spelling: `FED-PUB` and `fedpub`, `GCFL+` and `gcfl_plus` are one."""
    return re.sub(r"[^a-z0-9]", "", name.lower().replace("+", "plus"))


def rows(page: str, head: str) -> Iterator[tuple[str, dict[str, str]]]:
    """The rows of a page's tables whose first column is called so, with the section they are in."""
    section, columns = "", None
    for line in (DOCS / page).read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("#"):
            section = line.lstrip("# ")
        elif not line.startswith("|"):
            columns = None
        elif columns is None:
            columns = cells if cells[0] == head else []
        elif columns and not set(line) <= set("|-: "):
            yield section, dict(zip(columns, cells, strict=True))


@cache
def gains() -> dict[str, dict[str, str]]:
    """Each method's difference from its base, by the matrix's tasks."""
    found: dict[str, dict[str, str]] = {}
    for task, row in rows("matrix.md", "method"):
        gain = row["against its base"]
        if gain and "test" in row:  # an error, where less is better, is no gain in points
            found.setdefault(plain(row["method"]), {})[task] = gain
    return found


@cache
def own_gains() -> dict[str, dict[str, str]]:
    """Each method's difference from FedAvg, by the leaderboard's datasets and layouts."""
    found: dict[str, dict[str, str]] = {}
    for block, row in rows("leaderboard.md", "method"):
        if block.endswith((", disjoint", ", overlapping")) and row["against FedAvg"]:
            found.setdefault(plain(row["method"]), {})[block] = row["against FedAvg"]
    return found


@cache
def places() -> dict[str, str]:
    """The tasks of the methods that do not run on all, from the page on the idea."""
    return {
        plain(name.partition(" (`hops`")[0]): row["so it runs on"]
        for _, row in rows("idea.md", "method")
        for name in row["method"].split(", ")
    }


def source(doc: str) -> str:
    """Who published it: a docstring's `Source:`, with its addresses as links."""
    found = re.search(r"^\s*Source: (.+?)(?:\n\s*\n|\Z)", doc, re.MULTILINE | re.DOTALL)
    if found is None:
        return ""
    text = " ".join(found[1].split()).rstrip(".")
    return re.sub(r"([^;]+?),? (https?://[^\s;,)]+)", r"[\1](\2)", text)


@cache
def spellings() -> dict[str, str]:
    """The methods' names as their papers write them."""
    pages = ("leaderboard.md", "matrix.md", "idea.md")
    return {plain(row["method"]): row["method"] for p in pages for _, row in rows(p, "method")}


def results(title: str) -> list[str]:
    """Links to the pages of results that have this method in a table."""
    found = []
    for page in sorted((DOCS.parent / "benchmarks/results/tables").glob("*.md")):
        lines = page.read_text(encoding="utf-8").splitlines()
        cell = re.compile(rf"\| (?:[^|]*[ ,])?{re.escape(title)}(?:[ ,][^|]*)? \|")
        if any(line.startswith("|") and cell.search(line) for line in lines):
            paper = lines[0].lstrip("# ").partition(":")[0]
            found.append(f"[{paper}](results/{page.name})")
    return found


def entry(name: str, function: Callable[..., Any], where: str) -> Entry:
    doc = inspect.getdoc(function) or ""
    title = TITLES.get(name) or spellings().get(plain(name), name)
    key = plain(CALLED.get(name, name))
    return Entry(
        title=title,
        where=where,
        changes=doc.split("\n\n")[0].replace("\n", " "),
        published=source(doc),
        runs_on=places().get(key, "every task"),
        measured=gains().get(key, {}),
        own=own_gains().get(key, {}),
        pages=results(title),
    )


def recipe(path: Path) -> Entry:
    """A paper's method that is a file of `examples/`."""
    doc = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    title, _, changes = doc.split("\n\n")[0].partition(": ")
    paper = (DOCS / f"papers/{path.stem}.md").read_text(encoding="utf-8").split("\n\n")[1]
    published = " ".join(
        re.split(r"(?<=[\d)])[.,] ", paper.replace("\n", " "), maxsplit=1)[0].split()
    )
    return Entry(
        title=title,
        where=f"`examples/{path.name}`, [equations](papers/{path.stem}.md)",
        changes=changes[0].upper() + changes[1:],
        published=published,
        runs_on=places().get(plain(title), "every task"),
        measured=gains().get(plain(title), {}),
        own=own_gains().get(plain(title), {}),
        pages=results(title),
    )


def builders(room: str) -> Iterator[Entry]:
    """The functions of a room that make a method of a method."""
    module = getattr(fgl, room)
    for name in module.__all__:
        value = getattr(module, name)
        if inspect.isfunction(value) and inspect.signature(value).return_annotation == "Method":
            yield entry(name, value, f"`fgl.{room}.{name}`")


def groups() -> dict[str, list[Entry]]:
    beside = [
        entry("fedavg", fgl.fedavg, "`fgl.fedavg`"),
        entry("centralized", fgl.tasks.centralized, "`fgl.tasks.centralized`"),
        entry("neighbour_sums", fgl.data.neighbour_sums, "`fgl.data.neighbour_sums`"),
        entry("mended", fgl.tasks.mended, "`fgl.tasks.mended`"),
    ]
    recipes = [path for path in sorted((DOCS.parent / "examples").glob("*.py"))]
    return {
        "FedAvg, and what is done before it": beside,
        "Methods": sorted(builders("methods"), key=lambda e: e.title.lower()),
        "The five papers": [recipe(p) for p in recipes if (DOCS / f"papers/{p.stem}.md").exists()],
        "Transforms": list(builders("transforms")),
    }


def anchor(title: str) -> str:
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", title.lower()).strip())


def overview(entries: list[Entry]) -> str:
    tasks = list(dict.fromkeys(task for e in entries for task in e.measured))
    text = f"| method | {' | '.join(tasks)} |\n|---|{'---|' * len(tasks)}\n"
    for e in entries:
        cells = [e.measured.get(task, "") for task in tasks]
        text += f"| [{e.title}](#{anchor(e.title)}) | {' | '.join(cells)} |\n"
    return text


def measurements(head: str, gains: dict[str, str], page: str) -> list[str]:
    """A line of a method's gains, where there are any."""
    told = "; ".join(f"{where} {gain}" for where, gain in gains.items())
    return [f"- **{head}**: {told} ({page})"] if told else []


def section(e: Entry) -> str:
    """What the page says of a method."""
    lines = [f"### {e.title}\n", f"{e.changes}\n", f"- **Where**: {e.where}"]
    if e.published:
        lines.append(f"- **Published**: {e.published}")
    lines.append(f"- **Runs on**: {e.runs_on}")
    lines += measurements("Measured", e.measured, "[the matrix](matrix.md)")
    lines += measurements(
        "Measured on clients' own nodes", e.own, "[the leaderboard](leaderboard.md)"
    )
    if e.pages:
        lines.append(f"- **Tables with it**: {', '.join(e.pages)}")
    return "\n".join(lines) + "\n"


def written() -> str:
    """The page."""
    found = groups()
    entries = [e for group in found.values() for e in group if e.measured]
    text = HEAD + "## Measured\n\n" + overview(entries)
    for head, group in found.items():
        text += f"\n## {head}\n\n" + "\n".join(map(section, group))
    return text


if __name__ == "__main__":
    PAGE.write_text(written(), encoding="utf-8")
