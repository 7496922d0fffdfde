"""The formulas of docstrings in TeX.

A docstring holds a formula as plain text between double backticks, which reads well in `help()`:
``theta <- sum_k n_k theta_k / sum_k n_k``. The site sets it.
"""

from __future__ import annotations

import re

GREEK = "alpha beta gamma delta epsilon eps eta theta lambda mu phi rho sigma tau xi Delta Phi pi"
OPERATORS = {"sum": r"\sum", "in": r"\in", "and": r"\ \text{and}\ ", "not": r"\ \text{not}\ "}
OPERATORS |= {name: rf"\{name}" for name in ("min", "max", "exp", "log", "cos", "tanh")}
OPERATORS |= {"argmin": r"\operatorname*{argmin}", "mean": r"\operatorname{mean}"}
OPERATORS |= {
    "softmax": r"\operatorname{softmax}",
    "eps": r"\varepsilon",
    "epsilon": r"\varepsilon",
}
LETTERS = {name: rf"\{name}" for name in GREEK.split()} | OPERATORS
SIGNS = {
    "<-": r"\leftarrow",
    "<=": r"\le",
    ">=": r"\ge",
    "!=": r"\ne",
    "+-": r"\pm",
    "||": r"\|",
    "*": r"\ast",
    "~": r"\sim",
    "#": r"\#",
    "%": r"\%",
    "&": r"\&",
    "...": r"\dots",
    "{": r"\{",
    "}": r"\}",
}
TOKEN = re.compile(
    r"\^-?(?=[({])|\^(?:-?\d+/\d+|-?[\w.]+|\+)|[A-Za-z]\w*(?<!_)|_(?=[{(])|_\w+"
    r"|\d[\d.]*(?:,\d{3})*(?:e-?\d+)?|<-|<=|>=|!=|\+-|\|\||\.\.\.| \. |\s+|."
)
CODE = re.compile(
    r"""["'`@\\]{2}|["@]|->|//|>>|\*\*|\w=\S|\w\(\.\.\.|[a-z]\.[a-z]|lambda \w+:|\w\w \[|\w\["""
)
SYMBOL = rf"(?<!\w)(?:[A-Za-z]|{'|'.join(GREEK.split())})"
MATHS = re.compile(rf"\^|\|\||sum_|{SYMBOL}_\w|{SYMBOL}_{{| (?:<-|=|[+*/<>-]|<=|>=|\.) ")
WORDS = re.compile(r"[a-z]{3,} [a-z]{3,} [a-z]{3,}")


def is_formula(text: str) -> bool:
    """Whether what stands between double backticks is mathematics, and not code or a shape."""
    if CODE.search(text) or WORDS.search(text) or text.startswith("["):
        return False
    return MATHS.search(text) is not None


def name(word: str) -> str:
    """A name with its index, if it has one: `theta_i`, `h_global`, `noise_multiplier`."""
    if word in LETTERS:
        return LETTERS[word] + " "
    base, _, index = word.partition("_")
    if index and (len(base) == 1 or base in LETTERS or len(index) <= 2 or base.isupper()):
        return f"{name(base)}_{{{index_of(index)}}}"
    stem = base.rstrip("0123456789")
    if stem != base and not index and (len(stem) == 1 or stem in LETTERS):  # beta1
        return f"{LETTERS.get(stem, stem)}_{{{base[len(stem) :]}}}"
    return word if len(word) == 1 else rf"\mathrm{{{word}}}".replace("_", r"\_")


def index_of(text: str) -> str:
    """One or two letters are indices side by side; more are a word, unless a number follows."""
    if text in LETTERS:
        return LETTERS[text]
    if text[0] == "-":
        return f"-{index_of(text[1:])}"
    if "_" in text:
        return name(text)
    return text if len(text) <= 2 or text[0].isdigit() else rf"\mathrm{{{text}}}"


def tex(text: str) -> str:
    """The TeX of a formula in plain text.

    Example:
        >>> print(tex("theta <- sum_k n_k theta_k / sum_k n_k"))
        \\theta  \\leftarrow  \\sum _{k}\\,n_{k}\\,\\theta _{k} / \\sum _{k}\\,n_{k}
    """
    out: list[str] = []
    open_brackets: list[str] = []  # how each of them will be closed
    tokens = [" ", *TOKEN.findall(text), " "]
    for before, token, after in zip(tokens, tokens[1:], tokens[2:], strict=False):
        if token in ("^", "^-", "_") and after in ("{", "("):
            out.append(f"{token[0]}{{{token[1:]}")
            open_brackets.append("}")
        elif token[0] in "^_" and len(token) > 1:
            out.append(f"{token[0]}{{{index_of(token[1:])}}}")
        elif token == "sqrt" and after == "(":
            out.append(r"\sqrt{")
            open_brackets.append("}")
        elif token in ("{", "(") and before in ("^", "^-", "_", "sqrt"):
            continue  # it was opened by what stands before it
        elif token in ("{", "("):
            out.append(SIGNS.get(token, token))
            open_brackets.append(r"\}" if token == "{" else ")")
        elif token in ("}", ")") and open_brackets:
            out.append(open_brackets.pop())
        elif token == " . ":
            out.append(r" \cdot ")
        elif token.isspace():
            out.append(space(before, after))
        elif token == "<" and after != " ":
            out.append(r"\langle ")
        elif token == ">" and before != " ":
            out.append(r"\rangle ")
        elif token[0].isalpha():
            out.append(name(token))
        elif token[0].isdigit():
            out.append(re.sub(r"e(-?\d+)", r" \\cdot 10^{\1}", token).replace(",", "{,}"))
        else:
            out.append(SIGNS.get(token, token) + " " * (token in SIGNS))
    return "".join(out).strip()


def space(before: str, after: str) -> str:
    """Between two factors; TeX would leave none."""
    if not (before[-1].isalnum() or before in (")", "]")) or not after[0].isalpha():
        return " "
    words = [len(word) > 1 and word.partition("_")[0] not in LETTERS for word in (before, after)]
    return r"\ " if any(words) else r"\,"


def with_tex(docstring: str) -> str:
    """The docstring with its formulas between TeX's own signs."""

    def sub(found: re.Match[str]) -> str:
        text = " ".join(found[1].split())
        return rf"\({tex(text)}\)" if is_formula(text) else found[0]

    return re.sub(r"``([^`]+)``", sub, docstring)
