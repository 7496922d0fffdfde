"""Mutants of a source file: one small change in one function each, as a wrong program would have.

A mutant's key holds the file, the function, the operator and the changed text, but no line: a
judgement about it stays true where code above it changes. Constants of modules, defaults and
decorators are not changed, since they are read when a module is imported; words and types neither.
"""

import ast
import copy
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
COMPARISONS: dict[type[ast.cmpop], list[type[ast.cmpop]]] = {
    ast.Lt: [ast.LtE],
    ast.LtE: [ast.Lt],
    ast.Gt: [ast.GtE],
    ast.GtE: [ast.Gt],
    ast.Eq: [ast.NotEq, ast.LtE],
    ast.NotEq: [ast.Eq, ast.Lt],
    ast.Is: [ast.IsNot],
    ast.IsNot: [ast.Is],
    ast.In: [ast.NotIn],
    ast.NotIn: [ast.In],
}
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
# Methods of tensors, arrays and words without which a program often still runs.
LEFT_OUT = {"abs", "clamp", "clamp_min", "clamp_max", "clip", "clone", "copy", "detach", "double",
            "flip", "float", "sort", "strip", "truncate", "unique"}  # fmt: skip

# Keywords of which no test on one processor can tell, or that guard against one's own slips.
UNTOLD = {"device", "non_blocking", "stacklevel", "strict"}


class Mutant(NamedTuple):
    """A change of one node of a file; its lines are counted from the function's first."""

    key: str
    path: str
    function: str
    lines: range
    node: int
    change: int


@cache
def source(path: str) -> str:
    """A file as it is now, also where it changes while its mutants run."""
    return (ROOT / path).read_text(encoding="utf-8")


def mutants(path: str) -> list[Mutant]:
    """All mutants of a file, whose path is relative to the repository."""
    tree = ast.parse(source(path))
    numbers = {id(node): number for number, node in enumerate(ast.walk(tree))}
    copies: Counter[str] = Counter()
    found = []
    for name, function in functions(tree):
        for statement, node in changeable(function):
            for change, (operator, after) in enumerate(changes(node)):
                text = f"{operator}: {shown(node)} -> {shown(after)}"
                key = f"{path}::{name} {text}"
                copies[key] += 1
                if copies[key] > 1:
                    key += f" ({copies[key]})"
                first, last = statement.lineno, end_of_header(statement)
                lines = range(first - function.lineno, last - function.lineno + 1)
                found.append(Mutant(key, path, name, lines, numbers[id(node)], change))
    return found


def mutated(mutant: Mutant) -> ast.Module:
    """The changed file, with every node on the line where it was."""
    tree = ast.parse(source(mutant.path))
    target = list(ast.walk(tree))[mutant.node]
    _, after = list(changes(target))[mutant.change]
    ast.copy_location(after, target)

    class Replace(ast.NodeTransformer):
        def visit(self, node: ast.AST) -> ast.AST:
            return after if node is target else self.generic_visit(node)

    return ast.fix_missing_locations(Replace().visit(tree))


def functions(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, ast.FunctionDef]]:
    """Functions of modules and classes with their qualified names; those inside belong to them."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef):
            yield prefix + node.name, node
        elif isinstance(node, ast.ClassDef):
            yield from functions(node, f"{prefix}{node.name}.")


def changeable(function: ast.FunctionDef) -> Iterator[tuple[ast.stmt, ast.AST]]:
    """Nodes of a function's body, each with its statement; an error's words are left alone."""

    def below(node: ast.AST, statement: ast.stmt) -> Iterator[tuple[ast.stmt, ast.AST]]:
        statement = node if isinstance(node, ast.stmt) else statement
        if isinstance(node, ast.JoinedStr | ast.arguments):
            return
        yield statement, node
        if isinstance(node, ast.Raise):
            return
        for field, value in ast.iter_fields(node):
            if field in ("annotation", "returns", "decorator_list"):
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.keyword) and child.arg in UNTOLD:
                    continue
                if isinstance(child, ast.AST):
                    yield from below(child, statement)

    for statement in function.body:
        yield from below(statement, statement)


def end_of_header(statement: ast.stmt) -> int:
    """The last line of a simple statement, or of what stands before a compound one's body."""
    body = getattr(statement, "body", None)
    if not body:
        return statement.end_lineno or statement.lineno
    return max(statement.lineno, body[0].lineno - 1)


def shown(node: ast.AST) -> str:
    """A node on one line: at most 100 characters, of a compound statement its first line."""
    text = ast.unparse(node).split("\n")[0] if not isinstance(node, ast.arguments) else ""
    return text if len(text) <= 100 else text[:48] + " ... " + text[-47:]


def changes(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Names of operators and what each makes of the node."""
    yield from _of_expressions(node)
    yield from _of_statements(node)


def _with(node: ast.AST, **fields: object) -> ast.AST:
    changed = copy.copy(node)
    for name, value in fields.items():
        setattr(changed, name, value)
    return changed


def _of_expressions(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    match node:
        case ast.Compare(ops=[op], comparators=[right]):
            words = isinstance(right, ast.Constant) and isinstance(right.value, str)  # no order
            for other in COMPARISONS[type(op)][: 1 if words else None]:
                yield "comparison", _with(node, ops=[other()])
        case ast.BoolOp(op=op):
            other = ast.Or() if isinstance(op, ast.And) else ast.And()
            yield "and, or", _with(node, op=other)
        case ast.BinOp(op=op, left=left):
            if type(op) in ARITHMETIC:
                yield "arithmetic", _with(node, op=ARITHMETIC[type(op)]())
            if isinstance(op, ast.Add | ast.Sub):
                yield "left side alone", left
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
            yield "sign", operand
        case ast.Constant(value=bool() as value):
            yield "constant", ast.Constant(not value)
        case ast.Constant(value=int() as value):
            yield "constant", ast.Constant(value + 1)
        case ast.Constant(value=float() as value):
            yield "constant", ast.Constant(2 * value or 1.0)
        case ast.Call():
            yield from _of_calls(node)
        case ast.Slice(lower=lower, upper=upper):
            if lower is not None:
                yield "slice", _with(node, lower=None)
            if upper is not None:
                yield "slice", _with(node, upper=None)
        case ast.IfExp(test=test):
            yield "condition", _with(node, test=ast.UnaryOp(ast.Not(), test))
        case ast.comprehension(ifs=[_, *_]):
            yield "condition", _with(node, ifs=[])


def _of_calls(node: ast.Call) -> Iterator[tuple[str, ast.AST]]:
    for keyword in node.keywords:
        if keyword.arg is not None and keyword.arg not in UNTOLD:
            rest = [other for other in node.keywords if other is not keyword]
            yield f"without {keyword.arg}", _with(node, keywords=rest)
    match node:
        case ast.Call(func=ast.Attribute(value=value, attr=name)) if name in LEFT_OUT:
            yield f"without {name}", value
        case ast.Call(func=ast.Name(id="max" | "min" as name), args=[first, _], keywords=[]):
            yield f"without {name}", first


def _of_statements(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    match node:
        case ast.If(test=test) | ast.While(test=test):
            yield "condition", _with(node, test=ast.UnaryOp(ast.Not(), test))
        case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
            yield "returns nothing", ast.Return(ast.Constant(None))
        case ast.Expr(value=ast.Call()) | ast.Raise() | ast.AugAssign() | ast.Delete():
            yield "statement", ast.Pass()
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield "statement", ast.Pass()
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            if any(isinstance(n, ast.Name) and n.id == name for n in ast.walk(value)):
                yield "statement", ast.Pass()
        case ast.ExceptHandler():
            yield "not caught", _with(node, body=[ast.Raise()])
