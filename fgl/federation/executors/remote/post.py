"""Post: how an executor's letters reach clients elsewhere, and how their replies come back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from ...method.message import Message


class Reply(NamedTuple):
    """What came back: to which letter, from which node, an error's code and words, or a content."""

    number: str
    node: int
    error: tuple[int, str] | None
    content: Any


class Post(Protocol):
    """How letters reach nodes, and answers come back; see `fgl.federation.Flower`."""

    @property
    def num_clients(self) -> int: ...

    @property
    def timeout(self) -> float: ...

    @property
    def poll(self) -> float: ...

    @property
    def names(self) -> Sequence[str]: ...

    def nodes(self) -> dict[int, tuple[str, ...]]:
        """The nodes that are there, and the names by which each is known for sure."""
        ...

    def letters(self, notes: Mapping[int, Any], messages: Mapping[int, Message]) -> dict[int, Any]:
        """A content for each client."""
        ...

    def push(self, kind: str, contents: Mapping[int, Any], ttl: float) -> dict[int, str]:
        """Send each node its content: the numbers of the letters that were taken."""
        ...

    def pull(self, numbers: Sequence[str]) -> Iterable[Reply]:
        """What has come back by now."""
        ...

    def note(self, content: Any) -> Mapping[str, Any]:
        """The note in a content; its integers are strings of digits."""
        ...

    def message(self, content: Any) -> Message:
        """The message in a content."""
        ...

    def size(self, content: Any) -> tuple[int, int]:
        """Bytes of the message in a content, and of what stands beside it."""
        ...
