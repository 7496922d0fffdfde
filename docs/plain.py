"""Rules of plain English for docstrings and locals, checked in the source.

    python docs/plain.py [--rooms fgl/federation fgl/checks.py]

A docstring begins with a verb or with the noun of its result, and a local says what it holds. The
output lists every break of these rules, and then their number per room. The command fails if a room
has more breaks than `ALLOWED` says.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BEGINNINGS = {"what", "who", "whose", "how", "where", "that", "those", "one", "of"}
LOCALS = set(
    re.findall(
        r"\w+",
        "told said heard made kept given known found came seen wanted asked held moved near alike "
        "there gone who why",
    )
)
ALLOWED: dict[str, int] = {}  # accepted breaks per room; 0 for a room that is not listed
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def breaks(source: str) -> Iterator[tuple[int, str]]:
    """Line and word of every break of the rules in a module."""
    yield from sorted(_walk(ast.parse(source), private=False, owner=None))


def _walk(node: ast.AST, private: bool, owner: ast.AST | None) -> Iterator[tuple[int, str]]:
    """Breaks at a node and below it, inside the function or class `owner`."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):  # a field's too
        first = re.match(r"\W*(\w+)", str(node.value.value))
        if first and first[1].lower() in BEGINNINGS:
            yield node.lineno, f"docstring: {first[1]}"
    name = _stored(node, private or isinstance(owner, ast.Lambda), owner)
    if name in LOCALS:
        yield getattr(node, "lineno", 1), f"local: {name}"
    if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
        title = getattr(node, "name", "_")
        hidden = title.startswith("_") and not title.endswith("__")
        private = private or hidden or isinstance(owner, FUNCTIONS)
        owner = node
    for child in ast.iter_child_nodes(node):
        yield from _walk(child, private, owner)


def _stored(node: ast.AST, private: bool, owner: ast.AST | None) -> str | None:
    """Local name that a node binds, or None for fields of a class and public parameters."""
    if isinstance(node, ast.arg):
        return node.arg if private else None
    if isinstance(owner, ast.ClassDef):
        return None
    if isinstance(node, ast.Name):
        return node.id if isinstance(node.ctx, ast.Store) else None
    if isinstance(node, (*FUNCTIONS, ast.ExceptHandler, ast.MatchAs)) and owner is not None:
        return getattr(node, "name", None)
    return node.asname if isinstance(node, ast.alias) else None


def room(path: Path) -> str:
    """Folder of the package or file of its root that a source file belongs to: `fgl/privacy`."""
    return "/".join(path.relative_to(ROOT).parts[:2])


def main() -> int:
    """Print every break, then their number per room."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rooms", nargs="+", default=["fgl"], help="folders and files to read")
    roots = [ROOT / name for name in parser.parse_args().rooms]
    files = sorted(
        {file for root in roots for file in [root, *root.rglob("*.py")] if file.is_file()}
    )
    counts: Counter[str] = Counter()
    for file in files:
        for line, word in breaks(file.read_text(encoding="utf-8")):
            print(f"{file.relative_to(ROOT)}:{line} {word}")
            counts[room(file)] += 1
    for name in sorted({room(file) for file in files}):
        print(f"{counts[name]:4d}  {name}")
    return int(any(number > ALLOWED.get(name, 0) for name, number in counts.items()))


if __name__ == "__main__":
    sys.exit(main())
