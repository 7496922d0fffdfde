"""Uploads: which messages of a round the server takes, and why it refuses the others."""

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
from .forms import Form, NoMajority, all_differ, check_form, form_of, in_order, most_common, said
from .limits import Limits

LONGEST = 300  # characters of a reason that a history keeps
NO_MORE = Limits()


class Absent(ValueError):
    """A client that says of itself that it takes no part: its message does not count, and is right.

    Example:
        >>> issubclass(Absent, ValueError)
        True
    """


class Sifted(NamedTuple):
    """What came of a round's uploads, each in the order of the clients.

    Args:
        taken: the messages that count.
        refused: why others do not.
        malformed: those of them that are not even what most clients send.
        form: that of this run's uploads.
        copied: clients whose upload is detectably a copy, and of what.
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
    """The uploads that count, why others do not, and the form that uploads of this run have.

    The form of a round is the one that more clients have than any other. The form of earlier rounds
    has as many votes as clients counted in one of them, or as have it now. So a form stays until
    more clients share another one, and one that a single client set does not outlive the next
    two. If two forms have the most votes, no client counts and none is called wrong.

    Args:
        method: says what travels and what is accepted.
        uploads: client to what came of it, which may be anything.
        sent: what each client was sent.
        state: the server's.
        form: of the uploads of earlier rounds; empty where none has counted yet.
        votes: the most clients that counted in one of those rounds.
        limits: how large an upload may be, and whether copies are refused.

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
    """Whether an entry has tensors of the model, as SCAFFOLD's shift has."""
    return isinstance(form, Mapping) and all(
        name in template and spec == said(template[name]) for name, spec in form.items()
    )


def reason(error: Exception) -> str:
    """Why an upload is refused, as a history keeps it.

    Example:
        >>> reason(KeyError("w")), reason(ValueError("too large"))
        ("KeyError: 'w'", 'too large')
    """
    text = f"{type(error).__name__}: {error}" if isinstance(error, KeyError) else str(error)
    return shortened(text)


def shortened(text: str) -> str:
    """A text of somebody else's as a history keeps it: of some length, and printable.

    Example:
        >>> shortened("a\x1b[2Jb"), len(shortened("a" * 1000))
        ('a?[2Jb', 300)
    """
    text = text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."
    return "".join(
        letter if letter.isprintable() else " " if letter.isspace() else "?" for letter in text
    )


def of_whom(whys: Mapping[int, str]) -> str:
    """Each client's reason, said once for all who have the same.

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


def _check_count(message: Message, known: list[float] | None, most: float) -> None:
    """`num_examples` is a weight."""
    count = message.get("num_examples")
    if not isinstance(count, Tensor):
        return
    for value in count.flatten().tolist() if known is None else known:
        if not 0 <= value <= most:
            raise ValueError(f"Expected num_examples to be from 0 to {most:g}, but got {value:g}")


def _too_far(
    moved: Mapping[int, Mapping[str, Change]],
    most: float,
    alike: Collection[str],
) -> dict[int, Diverged]:
    """Whose change is over `most` times the median of the round, and larger than what was sent.

    Of an even number the upper median is taken: half of the clients, who send next to nothing,
    cannot have the others refused. Whoever the others are, a change may not be over `most` times
    what was sent, or than 1: the server may not grow by more either. Of an entry that was not sent,
    such as a network's output, the first bound is ``most ** 2``, and 1: what several layers make
    of a change is a product; the second is none. An entry that is `alike` the model is no product.
    """
    found: dict[int, Diverged] = {}
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
                why = f"over {most:g} times what was sent, {was:.4g}"
            if why:
                found.setdefault(client, Diverged(f"{key} changed by {value:.4g}, which is {why}"))
    return found
