"""Post: how messages reach remote clients, and how their replies come back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from ...method.message import Message


class Reply(NamedTuple):
    """A reply: the letter it answers, its node, and an error's code and message or a content."""

    number: str
    node: int
    error: tuple[int, str] | None
    content: Any


class Post(Protocol):
    """An interface that carries letters to nodes and replies back; see `fgl.federation.Flower`."""

    @property
    def num_clients(self) -> int: ...

    @property
    def timeout(self) -> float: ...

    @property
    def poll(self) -> float: ...

    @property
    def names(self) -> Sequence[str]: ...

    def nodes(self) -> dict[int, tuple[str, ...]]:
        """The registered nodes, and the verified names of each."""
        ...

    def letters(self, notes: Mapping[int, Any], messages: Mapping[int, Message]) -> dict[int, Any]:
        """Make a content for each client."""
        ...

    def push(self, kind: str, contents: Mapping[int, Any], ttl: float) -> dict[int, str]:
        """Send each node its content; returns the numbers of the accepted letters."""
        ...

    def pull(self, numbers: Sequence[str]) -> Iterable[Reply]:
        """The replies that have arrived."""
        ...

    def note(self, content: Any) -> Mapping[str, Any]:
        """The note in a content; its integers are strings of digits."""
        ...

    def message(self, content: Any) -> Message:
        """The message in a content."""
        ...

    def size(self, content: Any) -> tuple[int, int]:
        """Sizes in bytes of the message in a content, and of the data beside it."""
        ...
