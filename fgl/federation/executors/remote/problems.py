"""Problems of a client: what its server learns of an error, and how a history shows it."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ...gate.uploads import shortened

LOG = logging.getLogger("fgl")


class Refusal(ValueError):
    """The reason why a client does not answer, without any data, so that its server may read it.

    For any other error only the type crosses the wire, since the message may quote the data.

    Example:
        >>> told(Refusal("Expected round 3, but got 2"), "train")["text"]
        'Expected round 3, but got 2'
    """


@contextmanager
def refusing() -> Iterator[None]:
    """A context that turns errors into a `Refusal`, for code whose messages quote no data.

    Example:
        >>> with refusing():
        ...     raise ValueError("Expected client to be an integer, but got '1'")
        Traceback (most recent call last):
        fgl.federation.executors.remote.problems.Refusal: Expected client to be an integer, ...
    """
    try:
        yield
    except (TypeError, ValueError) as error:
        raise Refusal(str(error)) from error


@contextmanager
def during(stage: str) -> Iterator[None]:
    """A context that notes its stage in an error, unless an inner one did.

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
    """The record of an error for the server: a code, the stage and the type of the error.

    Args:
        error: the error.
        stage: the client's task; a stage noted in the error comes first, such as ``"loss"``.
        full: whether to send the error's message. A `Refusal`'s is always sent.

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
    """A client's problem as text for the history; "" if the note has none.

    Args:
        note: the note of a reply, which may hold anything.
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
