"""Flags of the benchmarks: the help that a script's docstring is, and where numbers are written."""

from __future__ import annotations

import argparse
from pathlib import Path


def parser_of(about: str | None, *, json: bool = True) -> argparse.ArgumentParser:
    """A parser whose help is a script's docstring; with ``--json``, where it writes numbers."""
    parser = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    if json:
        parser.add_argument("--json", type=Path, metavar="PATH", help="write the numbers there")
    return parser
