"""Callbacks of a run: called after each round, and asked before the first and after the last."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from .gate.guard import unchanged
from .history import Result, Round
from .round import kept

Callback = Callable[[Round, Result], bool | None]


@contextmanager
def heard(callbacks: Sequence[Callback], result: Result) -> Iterator[None]:
    """Call the ``begin(result)`` of callbacks that have one now, their ``end(result)`` at the end.

    ``end`` is called after an error in a round too, so that a file or a bar can be closed.
    """
    with ExitStack() as stack:
        for callback in callbacks:
            with unchanged(*kept(result)):
                getattr(callback, "begin", _nothing)(result)
            stack.callback(getattr(callback, "end", _nothing), result)
        yield


def _nothing(result: Result) -> None:
    """What a plain function does before the first round and after the last."""
