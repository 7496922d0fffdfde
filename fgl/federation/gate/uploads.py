"""Uploads: the messages of a round that the server accepts, and why it refuses the others."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..method.checks import check_message
from ..method.message import Message, num_bytes
from ..method.method import Method, State
from .copies import copies
from .distances import Change, Diverged, changes
from .forms import Form, NoMajority, all_differ, check_form, form_of, in_order, most_common
from .limits import Limits

LONGEST = 300  # characters of a reason that a history keeps
NO_MORE = Limits()


class Absent(ValueError):
    """A client that declines to take part: its message does not count, and is not an error.

    Example:
        >>> issubclass(Absent, ValueError)
        True
    """


class Sifted(NamedTuple):
    """The uploads of a round after the server's checks, in the order of the clients.

    Args:
        taken: the messages that count.
        refused: the errors of the other messages.
        malformed: refused clients whose message has another form than most clients'.
        form: the form of this run's uploads.
        copied: clients whose upload is visibly a copy, and of what.
    """

    taken: dict[int, Message]
    refused: dict[int, Exception]
    malformed: set[int]
    form: Form
    copied: dict[int, str]


def sift(
    method: Method,
    uploads: Mapping[int, Any],
    sent: Mapping[int, Message],
    state: State,
    form: Form,
    votes: int = 0,
    limits: Limits = NO_MORE,
) -> Sifted:
    """Check the uploads of a round: which count, why others do not, and the form of this run.

    The form of a round is the one that most clients have. The form of earlier rounds has `votes`
    votes too, or the number of clients that have it now if this is larger. So a form stays until
    more clients share another one. A form that a single client set is replaced as soon as two
    clients share another. If two forms tie, no client counts and none is called wrong.

    Args:
        method: the method with the model and `accept`.
        uploads: the uploads by client, which may be anything.
        sent: the server's message to each client.
        state: the server's state.
        form: the form of earlier rounds; empty if no upload has counted yet.
        votes: largest number of clients that counted in an earlier round.
        limits: the largest upload, and whether copies are refused.

    Example:
        >>> method = fgl.fedavg(torch.nn.Linear(1, 1, bias=False))
        >>> came = {k: {"model": {"weight": torch.full((1, 1), v)}}
        ...         for k, v in enumerate((1.0, 2.0, 1e38, float("nan")))}
        >>> sent = dict.fromkeys(came, {"model": {"weight": torch.zeros(1, 1)}})
        >>> found = sift(method, came, sent, {}, {})
        >>> list(found.taken), found.form
        ([0, 1], {'model': {'weight': 'torch.float32 [1, 1]'}})
        >>> print(*found.refused.values(), sep="; ")
        model changed by 1e+38, which is over 300 times the median, 2; model/weight is not finite
    """
    template = method.common()
    forms: dict[int, Form] = {}
    whole: dict[int, Message] = {}
    refused: dict[int, Exception] = {}
    last: Form | None = None
    for client in sorted(uploads):
        try:
            own = form_of(uploads[client], method.ragged)
            if own != last or "model" in method.ragged:  # else as the one before, which was whole
                check_message(uploads[client], model=template, name="the upload")
            if own != last or method.ragged:
                limits.check_bytes(method, num_bytes(uploads[client]))
            forms[client] = last = own
        except Exception as error:  # whatever it is that somebody else sent
            refused[client] = error
    try:
        common = most_common(_voters(method, forms, uploads, state), form, votes)
    except NoMajority as error:
        malformed = set(refused) | (set(forms) if all_differ(forms) else set())
        refused |= dict.fromkeys(forms, error)
        return Sifted({}, dict(sorted(refused.items())), malformed, form, {})
    for client, own in forms.items():
        try:
            check_form(own, common)
            whole[client] = in_order(uploads[client], common)
        except (TypeError, ValueError) as error:
            refused[client] = error
    malformed = set(refused)
    taken: dict[int, Message] = {}
    moved, wrong = _changes(whole, sent)
    refused |= wrong
    counts = _counts(whole)
    for client, message in whole.items():
        if client in wrong:
            continue
        try:
            _check_count(message, counts.get(client), method.max_examples)
            method.accept(message, client, state)
            taken[client] = message
        except Exception as error:
            refused[client] = error
    alike = {key for key, value in common.items() if _is_update(value, template)}
    refused |= _too_far({client: moved[client] for client in taken}, method.max_change, alike)
    taken = {client: message for client, message in taken.items() if client not in refused}
    copied = copies(taken, moved, counts)
    if limits.refuse_copies:
        refused |= {
            k: ValueError(f"Expected a work of its own, but got {copied[k]}") for k in copied
        }
        taken = {client: message for client, message in taken.items() if client not in copied}
    form = common if taken else form
    return Sifted(taken, dict(sorted(refused.items())), malformed, form, copied)


def _voters(
    method: Method, forms: Mapping[int, Form], uploads: Mapping[int, Any], state: Message
) -> Mapping[int, Form]:
    """The forms of uploads that the method accepts: others may agree on what no client sends."""
    each = list(forms.values())
    if all(form == each[0] for form in each):
        return forms
    accepted = {}
    for client, form in forms.items():
        with suppress(Exception):  # whatever it is that somebody else sent
            method.accept(uploads[client], client, state)
            accepted[client] = form
    return accepted or forms


def _is_update(form: Any, template: Mapping[str, Tensor]) -> bool:
    """Whether an entry has the model's names, as SCAFFOLD's shift and codes of changes have."""
    return isinstance(form, Mapping) and all(name in template for name in form)


def reason(error: Exception) -> str:
    """The reason why an upload was refused, as text for the history.

    Example:
        >>> reason(KeyError("w")), reason(ValueError("too large"))
        ("KeyError: 'w'", 'too large')
    """
    text = f"{type(error).__name__}: {error}" if isinstance(error, KeyError) else str(error)
    return shortened(text)


def shortened(text: str) -> str:
    """A text from a client, shortened and made printable for the history.

    Example:
        >>> shortened("a\x1b[2Jb"), len(shortened("a" * 1000))
        ('a?[2Jb', 300)
    """
    text = text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."
    return "".join(
        letter if letter.isprintable() else " " if letter.isspace() else "?" for letter in text
    )


def of_whom(whys: Mapping[int, str]) -> str:
    """The clients' reasons as text; equal reasons are joined.

    Example:
        >>> of_whom({0: "late", 1: "late", 2: "late", 3: "gone", 5: "late"})
        'clients 0-2, 5: late; client 3: gone'
    """
    alike: dict[str, list[int]] = {}
    for client, why in sorted(whys.items()):
        alike.setdefault(why, []).append(client)
    return "; ".join(
        f"client{'s' if len(clients) > 1 else ''} {_spans(clients)}: {why}"
        for why, clients in alike.items()
    )


def _spans(numbers: Sequence[int]) -> str:
    """Whole numbers in order, those that follow each other as ``first-last``."""
    ends: list[list[int]] = []
    for number in numbers:
        if ends and number == ends[-1][1] + 1:
            ends[-1][1] = number
        else:
            ends.append([number, number])
    return ", ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in ends)


def _changes(
    uploads: Mapping[int, Message], sent: Mapping[int, Message]
) -> tuple[dict[int, dict[str, Change]], dict[int, Exception]]:
    """How far each upload is from what was sent, and which are not finite or cannot be compared."""
    wrong: dict[int, Exception] = {}
    try:
        moved, diverged = changes(uploads, sent)
        return moved, {**diverged}
    except Exception as error:  # of one of them: which?
        if len(uploads) == 1:
            return {}, dict.fromkeys(uploads, error)
    moved = {}
    for client, message in uploads.items():
        own, other = _changes({client: message}, sent)
        moved |= own
        wrong |= other
    return moved, wrong


def _counts(uploads: Mapping[int, Message]) -> dict[int, list[float]]:
    """The numbers in each client's `num_examples`, read at once; of nobody where that fails."""
    counts: dict[int, Any] = {
        client: message["num_examples"]
        for client, message in uploads.items()
        if "num_examples" in message
    }
    try:
        rows = torch.stack(list(counts.values())).flatten(1).tolist() if counts else []
    except Exception:  # of one of them, which then is refused alone
        return {}
    return dict(zip(counts, rows, strict=True))


def _check_count(message: Message, counts: list[float] | None, most: float) -> None:
    """`num_examples` is a weight."""
    count = message.get("num_examples")
    if not isinstance(count, Tensor):
        return
    for value in count.flatten().tolist() if counts is None else counts:
        if not 0 <= value <= most:
            raise ValueError(f"Expected num_examples to be from 0 to {most:g}, but got {value:g}")


def _too_far(
    moved: Mapping[int, Mapping[str, Change]],
    most: float,
    alike: Collection[str],
) -> dict[int, Diverged]:
    """Clients whose change is over `most` times the round's median and larger than the sent entry.

    For an even number of clients the upper median is used, so that half of the clients cannot get
    the others refused by changing almost nothing. In any case a change may not be over `most` times
    the sent entry, or `most` if that is smaller than 1, since the server may not grow by more
    either. For an entry that was not sent, such as a network's output, the first bound is `most`
    squared times the median, and at least 1, since several layers multiply a change; there is no
    second bound. For an entry that is `alike` the model, the bound stays `most`.
    """
    diverged: dict[int, Diverged] = {}
    for key in dict.fromkeys(key for each in moved.values() for key in each):
        far = {client: each[key].moved for client, each in moved.items() if key in each}
        some = sorted(value for value in far.values() if value > 0)
        if not some:
            continue
        median = some[len(some) // 2]
        for client, value in far.items():
            was = moved[client][key].size
            times = most if was is not None or key in alike else most**2
            why = ""
            if value > times * median and value > (1.0 if was is None else was):
                why = f"over {times:g} times the median, {median:.4g}"
            elif was is not None and value > most * max(was, 1.0):
                why = f"over {most:g} times what was sent, {was:.4g}: try a lower learning rate"
            if why:
                diverged.setdefault(
                    client, Diverged(f"{key} changed by {value:.4g}, which is {why}")
                )
    return diverged
