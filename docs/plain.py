"""Rules of plain English for docstrings, locals and pages, checked in the source.

    python docs/plain.py [--rooms fgl/federation fgl/checks.py docs README.md]

A docstring begins with a verb or with the noun of its result, and a local says what it holds. A
sentence of a page has at most `LONGEST` words, does not begin with a clause ("Where a client ...",
"What it sends ..."), and has none of the words in `PATTERNS`. The output lists every break of these
rules, and then their number per room. The command fails if a room has more breaks than `ALLOWED`
says.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import random
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
LONGEST = 40
PATTERNS = {  # a word or phrase that was read twice: what to write
    r"so many": "the number",
    r"(?:which|that) (?:is|are) no": "which is not a",
    r"said": "given",
    r"stands?": "is, has",
    r"rooms?": "package",
    r"one's own": "your own, its own",
    r"but for": "except",
    r"all but": "all except",
    r"every \w+ but": "every ... except",
    r"(?:go|goes|going|gone) on with": "continue with",
    r"in the place of": "instead of",
    r"none other": "no other",
    r"alone": "only, by itself",
    r"anew": "again",
    r"beside": "next to, in addition to",
    r"asks": "requests, calls",
    r"refuses": "rejects, raises an error",
    r"spoils?|spoiled": "corrupts",
    r"surely": "with certainty",
    r"half-known": "partly known",
    r"public codes?(?= of)": "public implementation",
    r"ma[dk]es? (?:of|from)": "computed from, built from",
    r"(?:stays?|stayed) with": "stays at, is kept by",
    r"(?:graph|metric|model|network|method) of (?:your|its|their) own": "your own graph",
    r"\d+ \w+ an? (?:batch|class|client|round|seed|step)": "per batch, per class",
}
CODE = re.compile(r"``[^`]*``|`[^`]*`")
CLAUSE = re.compile(r"(?:What|Where|Who|Whoever|Whatever|However many)\b[^?]*$")
# Accepted breaks per room; 0 for a room that is not listed.
ALLOWED: dict[str, int] = {}
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
DOCUMENTED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Module)


def breaks(source: str) -> Iterator[tuple[int, str]]:
    """Line and word of every break of the rules in a module."""
    yield from sorted(_walk(ast.parse(source), private=False, owner=None))


def sentences(page: str, as_written: bool = False) -> Iterator[tuple[int, str]]:
    """Line and text of every sentence of a page, without blocks, tables, headings and links.

    A piece of code is the word "Code", unless the sentence is wanted as it is written.
    """
    text = re.sub(r"```.*?```|<!--.*?-->", lambda m: "\n" * m[0].count("\n"), page, flags=re.S)
    start, parts = 1, []  # a paragraph or an entry of a list
    for number, line in enumerate([*text.splitlines(), ""], 1):
        bare = line.strip()
        outside = not bare or bare[0] in "|#!$" or line.startswith("    ")
        if outside or re.match(r"[-*] |\d+\. ", bare):
            yield from ((start, part) for part in _split(" ".join(parts), as_written))
            parts = []
        if not outside:
            start = start if parts else number
            parts.append(bare)


def _split(paragraph: str, as_written: bool) -> Iterator[str]:
    """Sentences of a paragraph; no sentence ends inside a piece of code."""
    text = re.sub(r"\]\([^)]*\)", "]", paragraph)
    pieces = iter(CODE.findall(text))
    text = re.sub(r"[*\[\]]|^(?:- |\d+\. )", "", CODE.sub("\0", text)).strip()
    for sentence in filter(None, re.split(r"(?<=[.!?])\s+(?=[A-Z(*\"\0])", text)):
        yield re.sub("\0", lambda _: next(pieces) if as_written else "Code", sentence)


def prose(docstring: str) -> str:
    """Text of a docstring as a page: no example, and a paragraph for each entry of Args."""
    text = re.sub(r"(?ms)^Example:.*?(?=^\S|\Z)", "", inspect.cleandoc(docstring))
    text = re.sub(r"(?m)^[A-Z]\w+:$", "", text)
    return re.sub(r"(?m)^ +", "", re.sub(r"(?m)^    (?=[\w*][\w*, .]*: )", "\n", text))


def sample(files: list[Path], seed: int, number: int = 80) -> list[str]:
    """Sentences of over three words for a reader: where they stand, and their text."""
    pool = []
    for file in files:
        text, where = file.read_text(encoding="utf-8"), file.relative_to(ROOT)
        pages = [("", text)]
        if file.suffix != ".md":
            nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, DOCUMENTED)]
            pages = [(getattr(n, "name", ""), prose(ast.get_docstring(n) or "")) for n in nodes]
        for name, page in pages:
            texts = [text for _, text in sentences(page, as_written=True) if text.count(" ") > 2]
            pool += [f"{where}:{name} | {text}" for text in texts]
    return random.Random(seed).sample(pool, number)


def page_breaks(page: str) -> Iterator[tuple[int, str]]:
    """Line and text of every break of the rules in a page."""
    for line, sentence in sentences(page):
        if len(sentence.split()) > LONGEST:
            yield line, f"sentence of {len(sentence.split())} words: {sentence[:60]}..."
        if CLAUSE.match(sentence):
            yield line, f"clause first: {sentence[:60]}..."
        for pattern, better in PATTERNS.items():
            if found := re.search(rf"\b{pattern}\b", sentence, re.IGNORECASE):
                yield line, f"{found[0]}: write {better}"


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


def files_of(names: list[str]) -> list[Path]:
    """Source files and pages of these folders and files; decisions are records and stay."""
    roots = [ROOT / name for name in names]
    found = {
        file
        for root in roots
        for file in [root, *root.rglob("*.py"), *root.rglob("*.md")]
        if file.is_file() and "decisions" not in file.parts
    }
    return sorted(file for file in found if file.suffix == ".md" or "docs" not in file.parts)


def main() -> int:
    """Print every break, then their number per room."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    rooms = ["fgl", "docs", "README.md"]
    parser.add_argument("--rooms", nargs="+", default=rooms, help="folders and files to read")
    parser.add_argument("--sample", type=int, metavar="SEED", help="print 80 sentences to read")
    args = parser.parse_args()
    files = files_of(args.rooms)
    if args.sample is not None:
        print("\n".join(sample(files, args.sample)))
        return 0
    counts: Counter[str] = Counter()
    for file in files:
        rules = page_breaks if file.suffix == ".md" else breaks
        for line, word in rules(file.read_text(encoding="utf-8")):
            print(f"{file.relative_to(ROOT)}:{line} {word}")
            counts[room(file)] += 1
    for name in sorted({room(file) for file in files}):
        print(f"{counts[name]:4d}  {name}")
    return int(any(number > ALLOWED.get(name, 0) for name, number in counts.items()))


if __name__ == "__main__":
    sys.exit(main())
