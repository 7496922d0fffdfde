"""Writes docs/methods.md: all methods, from their docstrings and from the tables of other pages.

python docs/tables/methods.py
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import fgl

sys.path.insert(0, str(Path(__file__).parent))
import runs_on

DOCS = Path(__file__).parents[1]
PAGE = DOCS / "methods.md"
HEAD = """# All methods

**Start with FedAvg, and compare it with local training. Then decide which model you evaluate.**

## Which method should I use?

- **One shared model**: with equal numbers of tuning trials, few methods gain over FedAvg, and most
  differences are within the standard errors ([measured](#measured)). Choose a method for other
  reasons, such as fewer bytes, a secure sum or a robust mean.
- **If each client is a community of a graph, with its own model and test nodes**, tune the
  optimizer and the number of steps first. If all methods are tuned
  ([the leaderboard](leaderboard.md)), FGSSL gains 0.5 points over FedAvg on average over six
  settings, and local training loses 2.7 points.
- **Clients with different features, classes or networks**: use
  [FedPer](guides/clients_that_differ.md). If `shared` leaves out the norms, FedPer is
  [FedBN](guides/personal.md).

A function such as `fedprox` turns a task's FedAvg into another method. A transform, such as
`quantised`, turns any method into another method. You can nest these functions:

```python
import fgl

task = fgl.tasks.Nodes(clients=3, model="gcn", hidden=16).load(seed=0)
method = fgl.transforms.quantised(fgl.methods.fedprox(task.fedavg, mu=0.1), bits=8)
result = fgl.run(method, task, num_rounds=2)
```

Some calls on this page use small values such as `epochs=1`, to save time in a test. Omit these
arguments in your own runs.

"""
MEASURED = """## Measured

The table shows each method's gain over FedAvg with the same network, in percentage points.
FedSage+ is compared with FedSage instead. Gains are means over seeds with standard errors. [The
matrix](matrix.md) gives the details. [The leaderboard](leaderboard.md) shows the scores of each
client's own model on its own nodes.

"""
WHERE = """
## Which method runs where

A method of `fgl.methods` runs on every task of `fgl.tasks`, with these exceptions. The five recipes
have commands for their papers' tasks; in Python they also run on other tasks.

"""
AFTER = """
The following methods and tasks need class labels: FGSSL, FedGL, FedEgo, FedSage+, FedTAD, FedGM,
O-pFGL, FedSPA, S2FGL, AdaFGL, FedDEP, and the tasks `OwnNodes` and `EgoNodes`. All other methods
and tasks also support regression and partly known labels ([targets](guides/regression.md)). If a
method does not support a task, an error gives the reason.
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
    changes: str
    published: str
    call: str
    runs_on: str
    measured: dict[str, str]
    pages: list[str]


def plain(name: str) -> str:
    """A name without its spelling: `FED-PUB` and `fedpub`, `GCFL+` and `gcfl_plus` are one."""
    return re.sub(r"[^a-z0-9]", "", name.lower().replace("+", "plus"))


def rows(page: str, head: str) -> Iterator[tuple[str, dict[str, str]]]:
    """The rows of a page's tables whose first column is called so, with the section they are in."""
    section, columns = "", None
    long = DOCS.parent / "benchmarks/results/tables" / page  # tables that are not on the site
    texts = [path.read_text(encoding="utf-8") for path in (DOCS / page, long) if path.exists()]
    for line in "\n\n".join(texts).splitlines():
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
def ran() -> dict[str, dict[str, str]]:
    """The calls with which each method ran, by task."""
    stored = json.loads(runs_on.FILE.read_text(encoding="utf-8"))
    return {plain(name.partition(" (`hops`")[0]): calls for name, calls in stored.items()}


@cache
def places() -> dict[str, str]:
    """The tasks of the methods that do not run on all."""
    names = [name for title in runs_on.NEEDS for name in title.split(", ")]
    keys = [plain(name.partition(" (`hops`")[0]) for name in names]
    further = {plain(title): where for title, (_, where) in runs_on.FURTHER.items()}
    return {key: runs_on.written(ran()[key]) for key in keys} | further


def call_of(*names: str, place: str = "") -> str:
    """The call of a method as a test runs it, with a link to `place` and the task that it needs."""
    calls = next((ran()[plain(name)] for name in names if plain(name) in ran()), {})
    if not calls:
        return ""
    task, _, call = calls.get("Nodes", next(iter(calls.values()))).partition(": ")
    return linked(call, place) + f" on `{task}`" * (not task.endswith("()"))


def linked(code: str, place: str) -> str:
    return f"[`{code}`]({place})" if place else f"`{code}`"


def source(doc: str) -> str:
    """Who published it: a docstring's `Source:`, with its addresses as links."""
    found = re.search(r"^\s*Source: (.+?)(?:\n\s*\n|\Z)", doc, re.MULTILINE | re.DOTALL)
    if found is None:
        return ""
    text = " ".join(found[1].split()).rstrip(".")
    text = re.sub(r"([^;\s][^;]*?),? (https?://[^\s;,)]+)", r"[\1](\2)", text)
    code = r"; (?:https://github\.com/)?([\w-]+/[\w.-]+)"
    return re.sub(code, r"; [\1](https://github.com/\1)", text)


@cache
def spellings() -> dict[str, str]:
    """The methods' names as their papers write them."""
    pages = ("leaderboard.md", "matrix.md")
    found = {plain(row["method"]): row["method"] for p in pages for _, row in rows(p, "method")}
    return found | {plain(name): name for title in runs_on.NEEDS for name in title.split(", ")}


def results(title: str) -> list[str]:
    """Links to the pages of results that have this method in a table."""
    found = []
    for short in sorted((DOCS / "results").glob("*.md")):
        page = DOCS.parent / "benchmarks/results/tables" / short.name
        lines = page.read_text(encoding="utf-8").splitlines()
        cell = re.compile(rf"\| (?:[^|]*[ ,])?{re.escape(title)}(?:[ ,][^|]*)? \|")
        if any(line.startswith("|") and cell.search(line) for line in lines):
            paper = lines[0].lstrip("# ").partition(":")[0]
            found.append(f"[{paper}](results/{page.name})")
    return found


def entry(name: str, function: Callable[..., Any]) -> Entry:
    place = reference(function)
    doc = inspect.getdoc(function) or ""
    title = TITLES.get(name) or spellings().get(plain(name), name)
    key = plain(CALLED.get(name, name))
    return Entry(
        title=title,
        changes=doc.split("\n\n")[0].replace("\n", " "),
        published=source(doc),
        runs_on=places().get(key, "every task"),
        call=call_of(title, CALLED.get(name, name), name, place=place)
        or linked(function.__name__, place),
        measured=gains().get(key, {}),
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
        changes=changes[0].upper() + changes[1:],
        published=f"{published}. Equations: [{title}](papers/{path.stem}.md)",
        runs_on=places().get(plain(title), "every task"),
        call=f"{call_of(title)} from `examples/{path.name}`",
        measured=gains().get(plain(title), {}),
        pages=results(title),
    )


def builders(room: str) -> Iterator[Entry]:
    """The functions of a room that make a method of a method."""
    module = getattr(fgl, room)
    for name in module.__all__:
        value = getattr(module, name)
        if inspect.isfunction(value) and inspect.signature(value).return_annotation in (
            "Method",
            fgl.Method,
        ):
            yield entry(name, value)


def reference(function: Callable[..., Any]) -> str:
    """The address of a function in the reference."""
    room = function.__module__.split(".")[1]
    return f"reference/{room}.md#{function.__module__}.{function.__name__}"


def groups() -> dict[str, list[Entry]]:
    beside = [
        entry("fedavg", fgl.fedavg),
        entry("centralized", fgl.tasks.centralized),
        entry("neighbour_sums", fgl.data.neighbour_sums),
        entry("mended", fgl.tasks.mended),
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


def section(e: Entry) -> str:
    """What the page says of a method."""
    call, such_as, task = e.call.partition(" on ")
    if e.runs_on != "every task":
        call += " on [supported tasks](#which-method-runs-where)"
        such_as = such_as and ", such as "
    lines = [f"### {e.title}\n", f"{e.changes}\n", f"- Use {call}{such_as}{task}."]
    if e.published:
        lines.append(f"- {e.published}")
    if e.pages:
        lines.append(f"- Results: {', '.join(e.pages)}")
    return "\n".join(lines) + "\n"


def written() -> str:
    """The page."""
    found = groups()
    entries = [e for group in found.values() for e in group if e.measured]
    stored = json.loads(runs_on.FILE.read_text(encoding="utf-8"))
    text = HEAD + MEASURED + overview(entries) + WHERE + runs_on.needs_table(stored) + AFTER
    for head, group in found.items():
        text += f"\n## {head}\n\n" + "\n".join(map(section, group))
    return text


if __name__ == "__main__":
    PAGE.write_text(written(), encoding="utf-8")
