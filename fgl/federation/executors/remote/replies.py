"""Replies of remote clients, checks of their fields, and reports of errors at clients."""

import json
import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from reprlib import repr as brief
from typing import Any, NamedTuple, Protocol

from ....checks import reject_if
from ...gate.uploads import Limits
from ...history import shortened
from ...method.message import Message
from .. import Value


class Reply(NamedTuple):
    """A node's reply to a request: a content (Flower's `RecordDict`), or an error."""

    number: str
    node: int
    error: tuple[int, str] | None
    content: Any


class Post(Protocol):
    """An interface that sends requests to nodes and gets replies; see `fgl.federation.Flower`."""

    @property
    def num_clients(self) -> int: ...

    @property
    def timeout(self) -> float: ...

    @property
    def poll(self) -> float: ...

    @property
    def names(self) -> Sequence[str]: ...

    def nodes(self) -> dict[int, tuple[str, ...]]:
        """Dict from each registered node to the names that were verified for this node."""

    def letters(self, notes: Mapping[int, Any], messages: Mapping[int, Message]) -> dict[int, Any]:
        """Pack each client's note and message into one object that the network can send."""

    def push(self, kind: str, contents: Mapping[int, Any], ttl: float) -> dict[int, str]:
        """Send each node its own content. Return the ids of the requests that were accepted."""

    def pull(self, numbers: Sequence[str]) -> Iterable[Reply]:
        """The replies that have arrived."""

    def note(self, content: Any) -> Mapping[str, Any]:
        """Unpack the note, which is a dict of numbers and texts, from the content of a reply.

        The note stores each integer as a string of digits.
        """

    def message(self, content: Any) -> Message:
        """Unpack the message, which is a dict of tensors, from the content of a reply."""

    def size(self, content: Any) -> tuple[int, int]:
        """Two sizes in bytes: the message in a reply's content, and all other data in it."""


LOG = logging.getLogger("fgl")


class Refusal(ValueError):
    """The reason why a client does not answer.

    The reason contains no data, so the server may read it.

    For any other error, only the stage and the type are sent, since the error's message may quote
    data.

    Example:
        >>> told(Refusal("Expected round 3, but got 2"), "train")["text"]
        'Expected round 3, but got 2'
    """


@contextmanager
def refusing() -> Iterator[None]:
    """A context that converts errors to a `Refusal`.

    Use this context for code whose error messages quote no data.

    Example:
        >>> with refusing():
        ...     raise ValueError("Expected client to be an integer, but got '1'")
        Traceback (most recent call last):
        fgl.federation.executors.remote.replies.Refusal: Expected client to be an integer, ...
    """
    try:
        yield
    except (TypeError, ValueError) as error:
        raise Refusal(str(error)) from error


@contextmanager
def during(stage: str) -> Iterator[None]:
    """Context manager that stores a stage's name in every error raised inside it.

    If an error already has a stage, the error keeps this stage.

    Example:
        >>> try:
        ...     with during("build"):
        ...         raise KeyError("graphs")
        ... except KeyError as error:
        ...     told(error, "query")["stage"]
        'build'
    """
    try:
        yield
    except Exception as error:
        vars(error).setdefault("stage", stage)
        raise


def told(error: Exception, stage: str, *, full: bool = False) -> dict[str, str]:
    """A record of an error for the server: a code, the error's stage and the error's type.

    Args:
        error: the error.
        stage: the stage to report. If the error itself names a stage, such as ``"loss"``, this
            stage is reported instead.
        full: whether to send the error's message. The message of a `Refusal` is always sent.

    Example:
        >>> told(ValueError("patient 7 has no age"), "train")
        {'error': 'raised', 'stage': 'train', 'type': 'ValueError', 'text': ''}
    """
    refused = isinstance(error, Refusal)
    return {
        "error": "refused" if refused else "raised",
        "stage": str(vars(error).get("stage", stage)),
        "type": type(error).__name__,
        "text": shortened(str(error)) if refused or full else "",
    }


def logged(error: Exception, stage: str) -> None:
    """Write the whole error to the site's log, for its operator."""
    where = vars(error).get("stage", stage)
    LOG.error("The client's %s failed; its server is told the type", where, exc_info=error)


def said(note: Mapping[str, Any], site: str) -> str:
    """The problem that a client's note reports, as text for the history; "" if there is no problem.

    Args:
        note: the note of a reply; it is untrusted and may contain anything.
        site: name of the sender.

    Example:
        >>> said({"error": "raised", "stage": "loss", "type": "KeyError", "text": ""}, "clinic 3")
        'loss at clinic 3: KeyError (its log has the words)'
    """
    if "error" not in note:
        return ""
    stage, kind, text = (shortened(str(note.get(key, ""))) for key in ("stage", "type", "text"))
    words = text if text and note["error"] == "refused" else f"{kind}: {text}"
    words = words if text else f"{kind} (its log has the words)"
    return shortened(f"{stage} at {site}: {words}")


Note = Mapping[str, Any]


class Handshake(NamedTuple):
    """A node's answer when the server requests its client number.

    Args:
        client: the client's number.
        agreement: values that must be equal at client and server.
        scores: whether the client has a score.
    """

    client: int
    agreement: Mapping[str, Any]
    scores: bool


class Told(NamedTuple):
    """Data sent with an upload: losses, number of examples, and whether the client keeps a state.

    `paid` is the number of answers to this request for which the client's ledger recorded a cost.
    `paid` is 0 if there is no ledger, or if the upload is the first answer to this request.
    """

    keeps: bool
    losses: list[float]
    num_examples: int
    paid: int = 0


def handshake(note: Note) -> Handshake:
    """Read a handshake.

    Raises:
        ValueError: if a field is missing or has an invalid type; the error names the first such
            field.

    Example:
        >>> handshake({"client": "3", "agreement": "{}", "scores": True}).client
        3
    """
    return Handshake(whole(note, "client"), table(note, "agreement"), yes(note, "scores"))


def trained(note: Note) -> Told:
    """Read the data that were sent with an upload.

    Example:
        >>> trained({"keeps": False, "losses": [0.5], "num_examples": "7"})
        Told(keeps=False, losses=[0.5], num_examples=7, paid=0)
    """
    losses = _field(note, "losses")
    wrong = not isinstance(losses, list) or not all(type(loss) in (int, float) for loss in losses)
    reject_if(wrong, "losses to be a list of numbers", brief(losses))
    number = whole(note, "num_examples")
    reject_if(number < 0, "num_examples to be at least 0", number)
    paid = whole(note, "paid") if "paid" in note else 0
    return Told(yes(note, "keeps"), [float(loss) for loss in losses], number, paid)


def score(note: Note, limits: Limits) -> dict[str, Value]:
    """A client's score: numbers, or pairs of a sum and its divisor.

    Raises:
        ValueError: if there are too many metrics, if a name is too long, or if a value is not a
            finite number. A ValueError is also raised for a pair whose divisor is negative. If a
            pair's divisor is 0, the pair's sum must be 0 too.

    Example:
        >>> score({"metrics": '{"rate": [3, 4]}'}, Limits())
        {'rate': (3.0, 4.0)}
    """
    metrics = table(note, "metrics")
    limits.check_metrics(metrics)
    return {name: _value(name, value) for name, value in metrics.items()}


def whole(note: Note, name: str) -> int:
    """Return the whole number that a note stores as a string of digits in the field `name`."""
    value = _field(note, name)
    wrong = not isinstance(value, str) or not re.fullmatch(r"-?\d{1,20}", value, re.ASCII)
    reject_if(wrong, f"{name} to be a whole number", brief(value))
    return int(value)


def yes(note: Note, name: str) -> bool:
    """Return the boolean that a note stores in the field `name`; raise an error otherwise."""
    value = _field(note, name)
    reject_if(not isinstance(value, bool), f"{name} to be True or False", brief(value))
    return bool(value)


def table(note: Note, name: str) -> Mapping[str, Any]:
    """Return the dict that a note stores as JSON in the field `name`."""
    value = _field(note, name)
    try:
        parsed = json.loads(value) if isinstance(value, str) else None
    except (ValueError, RecursionError):
        parsed = None
    reject_if(not isinstance(parsed, dict), f"{name} to be a dict as JSON", brief(value))
    return dict(parsed or {})


def _field(note: Note, name: str) -> Any:
    reject_if(name not in note, f"the reply to tell {name}", "nothing of it")
    return note[name]


def _value(name: str, value: Any) -> Value:
    each = value if isinstance(value, list) else [value]
    wrong = not all(type(part) in (int, float) and abs(part) < 2.0**1023 for part in each)
    reject_if(wrong, f"{name} to be a finite number", brief(value))
    if not isinstance(value, list):
        return float(value)
    reject_if(len(value) != 2, f"{name} to be a sum and its count", brief(value))
    total, count = map(float, value)
    reject_if(count < 0 or (count == 0 and total), f"{name} to have a count above 0", f"{count:g}")
    return total, count
