"""Problems of a client: what it tells of an error to its server, and how that reads there."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ...gate.uploads import shortened

LOG = logging.getLogger("fgl")


class Refusal(ValueError):
    """Why a client does not answer, in words that its server may read: no data are in them.

    Of any other error only the type crosses the wire, since its words may quote the data.

    Example:
        >>> told(Refusal("Expected round 3, but got 2"), "train")["text"]
        'Expected round 3, but got 2'
    """


@contextmanager
def refusing() -> Iterator[None]:
    """Make what is raised a `Refusal`, where all of its words are the library's own.

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
    """Note in an error the stage in which it was raised, unless one inside did.

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
    """What a client tells its server of an error: a code, the stage, the type of the error.

    Args:
        error: what was raised.
        stage: what the client was asked for; the error may know better, such as ``"loss"``.
        full: whether the error's words go along. A `Refusal`'s always do.

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
    """Write the whole error to the log of the site, which is where its operator looks."""
    where = vars(error).get("stage", stage)
    LOG.error("The client's %s failed; its server is told the type", where, exc_info=error)


def said(note: Mapping[str, Any], site: str) -> str:
    """A client's problem as a history tells it; "" where the note tells of none.

    Args:
        note: of a reply, which may hold anything.
        site: who sent it.

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
