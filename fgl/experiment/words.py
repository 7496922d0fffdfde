"""Parts of a command line: the first words, the flags, and help texts from docstrings."""

import functools
import inspect
import itertools
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def choose_names(
    about: str, argv: Sequence[str] | None = None, **tables: Mapping[str, Any]
) -> tuple[tuple[str, ...], list[str]]:
    """Read the first words of a command line; the keys of one table are the choices for one word.

    Args:
        about: description of the program for ``--help``.
        argv: the command line; by default the program's arguments.
        tables: dict from each kind of word to a second dict, which maps each possible word to an
            object, such as a function. The help text for a word is the first line of this object's
            docstring.

    Returns:
        The chosen words, and the rest of the command line.

    Raises:
        SystemExit: if ``--help`` is among the words; with code 2 if a word is unknown.

    Example:
        >>> methods = {"local": fgl.methods.local, "ring": fgl.methods.ring}
        >>> choose_names("Baselines.", ["ring", "--rounds", "3"], method=methods)
        (('ring',), ['--rounds', '3'])
    """
    rest = list(sys.argv[1:] if argv is None else argv)
    words: list[str] = []
    program = Path(sys.argv[0]).name
    usage = " ".join(["usage:", program, *(kind.upper() for kind in tables), "[FLAGS]"])
    for kind, table in tables.items():
        word = rest.pop(0) if rest else ""
        if word in ("-h", "--help"):
            listed = map(_listed, tables, tables.values())
            print("\n\n".join([usage, inspect.cleandoc(about or ""), *listed]))
            raise SystemExit(0)
        if word not in table:
            error = f"Expected {kind} to be one of {', '.join(table)}, but got {word or 'none'}"
            print(f"{usage}\n{program}: error: {error}", file=sys.stderr)
            raise SystemExit(2)
        words.append(word)
    return tuple(words), rest


def option(name: str) -> str:
    """A parameter's name, written as a flag of a command line."""
    return "--" + name.replace("_", "-")


def written(name: str, value: Any) -> str:
    """A flag and the flag's value, in the form of a command line."""
    if isinstance(value, bool):
        return option(name if value else f"no_{name}")
    values = value if isinstance(value, list | tuple) else [value]
    return " ".join([option(name), *map(str, values)])


def preset_table(presets: Mapping[str, Mapping[str, Any]]) -> str:
    """The text at the end of ``--help``, which lists the flags that each dataset sets."""
    if not any(presets.values()):
        return ""
    width = max(len(name) for name in presets)
    lines = ["Presets: what --dataset NAME sets by itself; a flag that you give overrides it."]
    for name, preset in presets.items():
        lines.append(f"  {name:{width}}  {' '.join(itertools.starmap(written, preset.items()))}")
    return "\n".join([*lines, ""])


def first_line(documented: Any) -> str:
    """First line of a function's docstring, or "".

    If the argument is a `functools.partial`, the docstring of the wrapped function is used.
    """
    if isinstance(documented, functools.partial):
        documented = documented.func
    return _plain((inspect.getdoc(documented) or "").split("\n")[0])


def sentence(name: str, sources: Sequence[Any]) -> str | None:
    """Documentation of a parameter or a field, from the first source that documents it.

    Example:
        >>> sentence("lr", (fgl.methods.local, fgl.tasks.Local))
        '...earning rate...'
    """
    documented = map(_sentences, filter(None, sources))
    return next((texts[name] for texts in documented if name in texts), None)


@functools.cache
def _sentences(source: Any) -> dict[str, str]:
    """The documentation of each parameter (of a function) or field (of a dataclass)."""
    import docstring_parser  # comes with tyro

    texts: dict[str, str] = {}
    for documented in reversed(source.__mro__[:-1]) if isinstance(source, type) else [source]:
        for parameter in docstring_parser.parse_from_object(documented).params:
            text = _plain(" ".join((parameter.description or "").split()))
            texts |= {name: text[:1].upper() + text[1:] for name in parameter.arg_name.split(", ")}
    return texts


def _plain(text: str) -> str:
    """Remove the code markup of docstrings from a text."""
    return text.replace("`", "")


def _listed(kind: str, table: Mapping[str, Any]) -> str:
    """Table for the help: each possible word, and the first docstring line of the word's object."""
    width = max(map(len, table))
    rows = [f"  {word:{width}}  {first_line(each)}".rstrip() for word, each in table.items()]
    return "\n".join([f"{kind.upper()} is one of", *rows])
