"""Weight of the project: lines, branches, tests, names, words, and what one upload passes through.

    python benchmarks/weight.py

A line of code is not blank, no comment and no docstring. A branch is an if, a for, a while, a
conditional expression, an except, a for of a comprehension, an operator `and` or `or`, a with or an
assert; a function has one more than it has branches, those of functions inside it included. The
last part traces one round of FedAvg with three clients, from the last client's `send` to the end of
the round, and counts the library's functions that it enters, their lines and their files. Words
are pieces between spaces, code and tables included, as `wc -w` counts them; the site's are those of
the pages in `docs`, decisions included, without the reference and the notebooks.
"""

import ast
import io
import sys
import tokenize
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import fields
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch

import fgl
from fgl import Result
from fgl.federation import Broadcast, Loop, checked
from fgl.federation.round import Plan, play

ROOT = Path(__file__).parents[1]
MOST = 15  # branches of a function that is still read at once
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
ONE = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.IfExp, ast.ExceptHandler, ast.comprehension,
       ast.With, ast.AsyncWith, ast.Assert)  # fmt: skip
NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
           tokenize.ENDMARKER, tokenize.ENCODING}  # fmt: skip


def code_lines(text: str) -> set[int]:
    """Numbers of the lines with code, without blanks, comments and docstrings.

    >>> code_lines("x = 1  # one\\n\\n# nothing\\ny = 2\\n")
    {1, 4}
    """
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    lines = {
        line
        for token in tokens
        if token.type not in NO_CODE
        for line in range(token.start[0], token.end[0] + 1)
    }
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.ClassDef, *FUNCTIONS)) and ast.get_docstring(node):
            first = node.body[0]
            lines -= set(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    return lines


def branches(function: ast.AST) -> int:
    """Number of branches of a function, and one.

    >>> branches(ast.parse("def f(x):\\n    return [y for y in x if y and x or y]"))
    4
    """
    nodes = list(ast.walk(function))
    operators = sum(len(node.values) - 1 for node in nodes if isinstance(node, ast.BoolOp))
    return 1 + operators + sum(isinstance(node, ONE) for node in nodes)


def python_files(folder: str) -> list[Path]:
    """The Python files of a folder of the project."""
    return sorted((ROOT / folder).rglob("*.py"))


def num_lines(paths: Iterable[Path]) -> int:
    """Number of lines of code in these files."""
    return sum(len(code_lines(path.read_text(encoding="utf-8"))) for path in paths)


def branches_of_functions(paths: Iterable[Path]) -> list[int]:
    """The branches of each function in these files."""
    trees = (ast.parse(path.read_text(encoding="utf-8")) for path in paths)
    nodes = (node for tree in trees for node in ast.walk(tree))
    return [branches(node) for node in nodes if isinstance(node, FUNCTIONS)]


def num_words(paths: Iterable[Path]) -> int:
    """Number of words in these pages."""
    return sum(len(path.read_text(encoding="utf-8").split()) for path in paths)


def traced_round() -> set[CodeType]:
    """The library's functions from the last client's `send` to the end of a round."""
    graph = fgl.Graph(torch.eye(4), torch.tensor([[0], [1]]), y=torch.tensor([0, 1, 0, 1]))
    clients = [graph, graph.replace(x=2 * torch.eye(4)), graph.replace(x=3 * torch.eye(4))]
    method = fgl.fedavg(fgl.nn.GCN(4, 8, 2))
    guarded = checked(method)
    first: Any = {"model": method.initial()}
    result = Result(Broadcast(first, len(clients)), dict(first), {}, [])
    executor = Loop(guarded, clients, seed=0)
    result.history.append(play(guarded, executor, result, Plan(0, 1.0, 0.0, None)))
    entered: set[CodeType] = set()
    last, library = guarded.send.__code__, str(ROOT / "fgl")
    waiting = [len(clients)]

    def note(frame: FrameType, event: str, value: Any) -> None:
        if event != "call":
            return
        waiting[0] -= frame.f_code is last
        if not waiting[0] and frame.f_code.co_filename.startswith(library):
            entered.add(frame.f_code)

    sys.setprofile(note)
    try:
        play(guarded, executor, result, Plan(0, 1.0, 0.0, None))
    finally:
        sys.setprofile(None)
    return {code for code in entered if not code.co_name.startswith("<")}


def lines_of(codes: Iterable[CodeType]) -> int:
    """Number of lines of code of these functions, each line once."""
    by_file: dict[str, set[int]] = {}
    for code in codes:
        last = max(line for *_, line in every_code(code) if line is not None)
        own = range(code.co_firstlineno, last + 1)
        by_file.setdefault(code.co_filename, set()).update(own)
    return sum(
        len(lines & code_lines(Path(name).read_text(encoding="utf-8")))
        for name, lines in by_file.items()
    )


def every_code(code: CodeType) -> Iterator[tuple[int, int, int | None]]:
    """The lines of a function and of the functions inside it."""
    yield from code.co_lines()
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from every_code(inner)


def table() -> list[tuple[str, str]]:
    """What is counted, and the figure."""
    library = python_files("fgl")
    each = branches_of_functions(library)
    size, tests = num_lines(library), num_lines(python_files("tests"))
    codes = traced_round()
    names = (ROOT / "tests" / "public_names.txt").read_text(encoding="utf-8").split()
    words = [num_words(pages) for pages in ([ROOT / "README.md"], (ROOT / "docs").rglob("*.md"))]
    path = f"{lines_of(codes):,}; {len(codes)}; {len({code.co_filename for code in codes})}"
    return [
        ("library, lines of code", f"{size:,}"),
        ("library, files", f"{len(library)}"),
        ("branches a function", f"{sum(each) / len(each):.2f}"),
        (f"functions with over {MOST} branches", f"{sum(count > MOST for count in each)}"),
        ("test code, lines", f"{tests:,}"),
        ("test lines for a line of the library", f"{tests / size:.2f}"),
        ("benchmarks, lines of code", f"{num_lines(python_files('benchmarks')):,}"),
        ("send to the end of a round: lines; functions; files", path),
        ("fields of Method", f"{len(fields(fgl.Method))}"),
        ("public names", f"{len(names)}"),
        ("words of README; of the site", f"{words[0]:,}; {words[1]:,}"),
    ]


def main() -> None:
    warnings.simplefilter("ignore")
    rows = table()
    width = max(len(name) for name, _ in rows)
    for name, figure in rows:
        print(f"{name:{width}}  {figure}")


if __name__ == "__main__":
    main()
