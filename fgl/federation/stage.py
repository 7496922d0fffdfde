"""Where in a run something happens: its randomness, and its name in an error."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from .method import fold_in, set_seed


@contextmanager
def stage(seed: int, index: int, clients: Sequence[int] | int | None, name: str) -> Iterator[None]:
    """Derive a stage's randomness; raise its error again naming round, client(s) and stage."""
    who = [clients] if isinstance(clients, int) else list(clients or ())
    set_seed(fold_in(seed, index, who[0] if who else "server", name))
    try:
        yield
    except Exception as error:
        where = f"Round {index}, {_named(who)}, {name}"
        again = _again(error, f"{where}: {error}")
        if again is None or where not in str(again):
            error.add_note(where)
            raise
        raise again from error


def _named(who: list[int]) -> str:
    if not who:
        return "server"
    if len(who) == 1:
        return f"client {who[0]}"
    some = ", ".join(map(str, who[:8])) + (", ..." if len(who) > 8 else "")
    return f"{len(who)} clients ({some})"


def _again(error: Exception, text: str) -> Exception | None:
    """An error of the same type that says `text`; None where the type does not allow it."""
    if isinstance(error, StopIteration):  # cannot leave a generator
        return None
    try:
        again = type(error).__new__(type(error), text)  # its __init__ may want anything
        again.__dict__.update(error.__dict__)
    except Exception:
        return None
    return again
