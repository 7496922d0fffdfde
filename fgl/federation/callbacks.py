"""Callbacks of a run: called after each round, and optionally before the first and at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from .gate.guard import unchanged
from .history import Result, Round
from .round import kept

Callback = Callable[[Round, Result], bool | None]


@contextmanager
def heard(callbacks: Sequence[Callback], result: Result) -> Iterator[None]:
    """A context that calls the callbacks' ``begin(result)`` first and their ``end(result)`` last.

    Both are optional. ``end`` is called after an error in a round too, so that a file or a
    progress bar can be closed.
    """
    with ExitStack() as stack:
        for callback in callbacks:
            with unchanged(*kept(result)):
                getattr(callback, "begin", _nothing)(result)
            stack.callback(getattr(callback, "end", _nothing), result)
        yield


def _nothing(result: Result) -> None:
    """Do nothing, in place of a missing ``begin`` or ``end``."""
