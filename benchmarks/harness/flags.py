"""Flags of the benchmarks: a name and its default; a script's docstring is the help."""

import argparse
import sys
from argparse import SUPPRESS as SUPPRESS
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

COMMON = {
    "report": "measure nothing, write the page from the numbers that are there",
    "repeats": "how often each is timed, in turn",
    "threads": "of torch",
}


def arguments(
    argv: Sequence[str] | None = None, /, *, json: bool = True, **flags: Any
) -> argparse.Namespace:
    """What a command line says: flags by name, each with its default, or as `flag` and `some` say.

    With ``--json``, where a script writes its numbers.
    """
    about, raw = sys.modules["__main__"].__doc__, argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=about, formatter_class=raw)
    if json:
        parser.add_argument("--json", type=Path, metavar="PATH", help="write the numbers there")
    for name, value in flags.items():
        options = dict(value if isinstance(value, dict) else flag(value))
        dashes = "" if options.pop("positional", False) else "--"
        options["help"] = options["help"] or COMMON.get(name)
        parser.add_argument(dashes + name.replace("_", "-"), **options)
    return parser.parse_args(argv)


def flag(default: Any, help: str | None = None, **options: Any) -> dict[str, Any]:
    """A flag as argparse takes it: of its default's type; False is a switch, a list takes several.

    A type in the default's place is one of a flag that may be left out.
    """
    if default is False:
        return {"action": "store_true", "help": help}
    if isinstance(default, type):
        return {"type": default, "help": help, **options}
    several = isinstance(default, Sequence) and not isinstance(default, str)
    first = next(iter(default), "") if several else default
    kind = {"type": type(first), "nargs": "+"} if several else {"type": type(first)}
    return {**kind, "default": default, "help": help, **options}


def some(choices: Iterable[Any], default: Any = ..., **options: Any) -> dict[str, Any]:
    """A flag that takes some of the choices; all of them by default."""
    names = list(choices)
    kind = {"nargs": "+", "type": type(names[0]), "choices": names}
    return {**kind, "default": names if default is ... else default, "help": None, **options}
