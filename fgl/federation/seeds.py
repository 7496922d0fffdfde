"""Torch's generators: seeding them, and the stages of a round that use them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

from ..kinds import explained
from ..seeds import fold_in


def set_seed(seed: int) -> None:
    """Seed torch's generators.

    Faster than `torch.manual_seed`, which without a GPU stores every seed with the call stack.

    Example:
        >>> set_seed(1)
        >>> torch.initial_seed()
        1
    """
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(seed)


@explained
@contextmanager
def stage(seed: int, index: int, clients: Sequence[int] | int | None, name: str) -> Iterator[None]:
    """A context with a stage's seed; an error is raised again with its round, clients and stage.

    Example:
        >>> with stage(0, 3, 1, "train"):
        ...     raise ValueError("no loss")
        Traceback (most recent call last):
        ValueError: Round 3, client 1, train: no loss
    """
    involved = [clients] if isinstance(clients, int) else list(clients or ())
    set_seed(fold_in(seed, index, involved[0] if involved else "server", name))
    try:
        yield
    except Exception as error:
        where = f"Round {index}, {_named(involved)}, {name}"
        vars(error).setdefault("stage", name)
        again = _again(error, f"{where}: {error}")
        if again is None or where not in str(again):
            error.add_note(where)
            raise
        raise again from error


def _named(involved: list[int]) -> str:
    if not involved:
        return "server"
    if len(involved) == 1:
        return f"client {involved[0]}"
    some = ", ".join(map(str, involved[:8])) + (", ..." if len(involved) > 8 else "")
    return f"{len(involved)} clients ({some})"


def _again(error: Exception, text: str) -> Exception | None:
    """An error of the same type with the message `text`; None if the type does not allow it."""
    if isinstance(error, StopIteration):  # cannot leave a generator
        return None
    try:
        again = type(error).__new__(type(error), text)  # its __init__ may want anything
        again.__dict__.update(error.__dict__)
    except Exception:
        return None
    return again
