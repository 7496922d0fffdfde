"""The figures of the project's size: how they are counted, and what one upload may pass through."""

import ast

from federations import script

weight = script("benchmarks/weight.py")
TEXT = '''"""A module."""

import math  # to round


class Point:
    """A class.

    With two lines.
    """

    def far(self, x, y):
        """A function."""
        # Pythagoras
        text = """no
        docstring"""
        if x and y or not x:
            return [math.hypot(a, b) for a in x for b in y if b]
        with open(text) as file:
            return 1 if file else 2
'''


def test_lines_of_code_are_not_blank_no_comment_and_no_docstring() -> None:
    assert weight.code_lines(TEXT) == {3, 6, 12, 15, 16, 17, 18, 19, 20}


def test_branches_are_counted_by_hand() -> None:
    (function,) = (n for n in ast.walk(ast.parse(TEXT)) if isinstance(n, ast.FunctionDef))
    assert weight.branches(function) == 1 + 1 + 2 + 2 + 1 + 1  # if, and, or, for, for, with, if


def test_an_upload_passes_through_little() -> None:
    codes = weight.traced_round()
    names = {code.co_name for code in codes}
    assert {"send", "sift", "served", "keep"} <= names and "train" not in names
    assert weight.lines_of(codes) <= 1100 and len(codes) <= 90
