"""Seeds for each client, round and purpose. Only one thread at a time may use the generators."""

import hashlib
import operator
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import RLock
from typing import Any

import torch

CPU = torch.device("cpu")
_seeding = RLock()


def fold_in(seed: int, *path: int | str) -> int:
    """Derive a seed from a seed and further values, as in ``fold_in(seed, round, client)``.

    The new seed is a hash of all these values, so it does not depend on the order of clients, on
    restarts or on processes.

    Returns:
        An integer in ``[0, 2^63)``.

    Example:
        >>> fold_in(0, 3, 1) == fold_in(0, 3, 1), fold_in(0, 3, 1) == fold_in(0, 1, 3)
        (True, False)
    """
    parts: tuple[Any, ...] = (seed, *path)
    if not {*map(type, parts)} <= {int, str}:
        parts = tuple(p if isinstance(p, str) else operator.index(p) for p in parts)
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


@contextmanager
def one_thread() -> Iterator[None]:
    """A context that only one thread of a process may enter at a time; the thread may nest it.

    Runs and tasks set the seed of torch's generator, and all threads use this one generator. So
    runs in two threads would change each other's random numbers.

    Raises:
        RuntimeError: if another thread is inside the context.

    Example:
        >>> with one_thread(), one_thread():
        ...     pass
    """
    if not _seeding.acquire(blocking=False):
        raise RuntimeError(
            "Expected one thread of a process to run or to load a task at a time, since they seed "
            "torch's generator, which all threads share, but got a second thread: use a process "
            "for each, as concurrent.futures.ProcessPoolExecutor does"
        )
    try:
        yield
    finally:
        _seeding.release()


def set_seed(seed: int) -> None:
    """Seed torch's generators.

    This function is faster than `torch.manual_seed`. Without a GPU, `torch.manual_seed` also stores
    every seed together with the call stack.

    Example:
        >>> set_seed(1)
        >>> torch.initial_seed()
        1
    """
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(seed)


@contextmanager
def drawing_from(seed: int, device: torch.device = CPU) -> Iterator[None]:
    """Seed torch's generators for a context, and restore their old states when the context ends.

    Example:
        >>> with drawing_from(1):
        ...     torch.initial_seed()
        1
    """
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        set_seed(seed)
        yield


@dataclass
class stage:  # a class costs half of what `contextmanager` does
    """A context that sets the seed of a stage and adds round, clients and stage to error messages.

    Example:
        >>> with stage(0, 3, 1, "train"):
        ...     raise ValueError("no loss")
        Traceback (most recent call last):
        ValueError: Round 3, client 1, train: no loss
    """

    seed: int
    index: int
    clients: Sequence[int] | int | None
    name: str

    def __enter__(self) -> None:
        own = self.clients
        self.involved = [own] if isinstance(own, int) else list(own or ())
        first = self.involved[0] if self.involved else "server"
        set_seed(fold_in(self.seed, self.index, first, self.name))

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if not isinstance(error, Exception):
            return
        where = f"Round {self.index}, {_named(self.involved)}, {self.name}"
        vars(error).setdefault("stage", self.name)
        again = _again(error, f"{where}: {error}")
        if again is None or where not in str(again):
            error.add_note(where)
            return
        raise again from error


def _named(involved: list[int]) -> str:
    if not involved:
        return "server"
    if len(involved) == 1:
        return f"client {involved[0]}"
    some = ", ".join(map(str, involved[:8])) + (", ..." if len(involved) > 8 else "")
    return f"{len(involved)} clients ({some})"


def _again(error: Exception, text: str) -> Exception | None:
    """A new error with the old error's type and the message `text`; None if this fails."""
    if isinstance(error, StopIteration):  # a generator cannot raise it
        return None
    try:
        again = type(error).__new__(type(error), text)  # __init__ may need other arguments
        again.__dict__.update(error.__dict__)
    except Exception:
        return None
    return again
