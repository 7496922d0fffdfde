"""Uploads: the server's checks of their form and size, by `accept`, and of their distance."""

from __future__ import annotations

import json
import statistics
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter, methodcaller
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import Parameter

from ...checks import check_number
from ..method.message import Message, State, check_message, num_bytes
from ..method.method import Method
from .distances import Change, Diverged, changes

TIMES = 16  # the model, at most, in one upload
ROOM = 2**24  # bytes of an upload beside that
RAGGED = 2**30  # bytes more where the sizes of entries depend on a client's data
NOTE = 2**20  # bytes of the data beside a message


@dataclass(frozen=True)
class Limits:
    """Bounds on uploads and on empty rounds: ``fgl.run(..., limits=Limits(metrics=20))``.

    Args:
        upload_bytes: largest size of an upload. Default 16 times the model plus 16 MiB, and 1 GiB
            more if the method has `ragged` keys, whose sizes depend on a client's data.
        note_bytes: largest size of the data that a remote client sends beside its message: numbers,
            losses, names, metrics. Default 1 MiB plus 16 times the length of the model's names.
        metrics: largest number of metrics of a client's own score, and of all clients' scores
            together. If there are more, the metrics that most clients have are kept.
        metric_length: largest number of characters of a metric's name.
        empty_rounds: the run raises after this number of consecutive rounds in which no upload
            counts, and at its end if no upload counted in any round. An exchange with such a round,
            as of a secure sum, counts as one. None for no limit.

    Raises:
        TypeError, ValueError: for a number that is no whole number, or out of range.

    Example:
        >>> method = fgl.fedavg(torch.nn.Linear(256, 256, bias=False))
        >>> Limits().of_upload(method) // 2**20, Limits(upload_bytes=1000).of_upload(method)
        (20, 1000)
    """

    upload_bytes: int | None = None
    note_bytes: int | None = None
    metrics: int = 100
    metric_length: int = 100
    empty_rounds: int | None = 3

    def __post_init__(self) -> None:
        for name in ("metrics", "metric_length"):
            check_number(name, getattr(self, name), at_least=0, integer=True)
        for name in ("upload_bytes", "note_bytes", "empty_rounds"):
            value = getattr(self, name)
            if value is not None:
                check_number(name, value, at_least=1, integer=True)

    def of_upload(self, method: Method) -> int:
        """The largest size of an upload in bytes."""
        if self.upload_bytes is not None:
            return self.upload_bytes
        return TIMES * num_bytes(method.common()) + ROOM + (RAGGED if method.rules.ragged else 0)

    def of_note(self, method: Method) -> int:
        """The largest size of the data beside a message in bytes."""
        if self.note_bytes is not None:
            return self.note_bytes
        return NOTE + 16 * sum(map(len, method.common()))

    def check_bytes(self, method: Method, upload: int, note: int = 0) -> None:
        """Raise a ValueError if an upload, or the data beside it, is too large.

        Example:
            >>> Limits(upload_bytes=1000).check_bytes(fgl.fedavg(torch.nn.Linear(1, 1)), 1001)
            Traceback (most recent call last):
            ValueError: Expected the upload to have at most 1000 bytes, but got 1001
        """
        for name, most, got in (
            ("the upload", self.of_upload, upload),
            ("what stands beside it", self.of_note, note),
        ):
            if got and got > most(method):
                raise ValueError(
                    f"Expected {name} to have at most {most(method)} bytes, but got {got}"
                )

    def check_metrics(self, names: Mapping[str, Any]) -> None:
        """Raise a ValueError if a score has too many metrics or an unreadable name.

        Example:
            >>> Limits().check_metrics({"a" * 200: 1.0})
            Traceback (most recent call last):
            ValueError: Expected the names of metrics to have at most 100 letters, but got 200
        """
        if len(names) > self.metrics:
            raise ValueError(
                f"Expected a score to have at most {self.metrics} metrics, but got {len(names)}"
            )
        for name in names:
            if len(name) > self.metric_length:
                raise ValueError(
                    f"Expected the names of metrics to have at most {self.metric_length} letters, "
                    f"but got {len(name)}"
                )
            if not name.isprintable():
                raise ValueError(f"Expected the names of metrics to be printable, but got {name!a}")

    def too_many(self, scores: Mapping[int, Mapping[str, Any]]) -> set[str]:
        """Names of the metrics to leave out, the rarest ones; empty if all fit.

        Example:
            >>> scores = {0: {"auc": 0.5}, 1: {"auc": 0.7, "spam": 1.0}}
            >>> Limits(metrics=1).too_many(scores), Limits().too_many(scores)
            ({'spam'}, set())
        """
        counts = Counter(name for score in scores.values() for name in score)
        return {name for name, _ in counts.most_common()[self.metrics :]}


LONGEST = 300  # characters of a reason that a history keeps
NO_MORE = Limits()
AGREED = 3  # clients that must agree on a form before later rounds require it
LAYOUTS = (torch.strided, torch.sparse_coo, torch.sparse_csr, torch.sparse_csc)
DTYPES = {
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64),
    *(torch.complex128, torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
}
LOOK = attrgetter("shape", "dtype", "layout", "requires_grad", "is_meta", "is_nested")
STRIDE = methodcaller("stride")
Form = dict[str, Any]  # key to "torch.float32 [8, 6]", or to a dict of these


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
        malformed: clients of `refused` whose message is no upload of this method.
        form: the form of this run's uploads; empty as long as too few clients have shared one.
    """

    taken: dict[int, Message]
    refused: dict[int, Exception]
    malformed: list[int]
    form: Form


def sift(
    method: Method,
    uploads: Mapping[int, Any],
    sent: Mapping[int, Message],
    state: State,
    form: Form,
    limits: Limits = NO_MORE,
) -> Sifted:
    """Divide the uploads of a round into messages that count and errors of the others.

    The entry ``"model"`` must have the model's form. The other entries must have the most common
    form among the uploads that `accept` takes. Once three clients have agreed on a form, or all
    clients if there are fewer, later rounds require it.

    Args:
        method: the method with the model and `accept`.
        uploads: the uploads by client, which may be anything.
        sent: the server's message to each client of the federation.
        state: the server's state.
        form: the form on which clients agreed in an earlier round, or an empty one.
        limits: the largest upload.

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
    forms, malformed = _forms(method, uploads, limits)
    alike = None if method.rules.ragged else forms
    change_of, infinite = changes({client: uploads[client] for client in forms}, sent, alike)
    whole = {client: uploads[client] for client in sorted(forms.keys() - infinite)}
    refused = {**infinite, **_not_accepted(method, whole, state)}
    # Hostile clients cannot agree on a form that `accept` refuses.
    voters = {client: own for client, own in forms.items() if client not in refused}
    usual = form or _most_common(voters)
    of_form: dict[int, Message] = {}
    for client, own in voters.items():
        try:
            if own != usual:
                _check_form(own, usual)
            of_form[client] = _in_order(uploads[client], usual)
            _check_count(of_form[client], method.rules.max_examples)
        except Exception as error:
            (refused if client in of_form else malformed)[client] = error
    counted = {client: change_of[client] for client in of_form if client not in refused}
    refused |= malformed | _too_far(counted, method.rules.max_change)
    taken = {client: message for client, message in of_form.items() if client not in refused}
    agreed = len(of_form) >= min(AGREED, len(sent))
    refused = dict(sorted(refused.items()))
    return Sifted(taken, refused, sorted(malformed), usual if agreed else form)


def _not_accepted(
    method: Method, uploads: Mapping[int, Message], state: State
) -> dict[int, Exception]:
    """The errors of the uploads that the method's `accept` refuses."""
    refused: dict[int, Exception] = {}
    for client, message in uploads.items():
        try:
            method.accept(message, client, state)
        except Exception as error:
            refused[client] = error
    return refused


def _forms(
    method: Method, uploads: Mapping[int, Any], limits: Limits
) -> tuple[dict[int, Form], dict[int, Exception]]:
    """The forms of the uploads, and the errors of the malformed ones."""
    template = method.common()
    forms: dict[int, Form] = {}
    malformed: dict[int, Exception] = {}
    last: Form = {}
    look: Any = None
    for client in sorted(uploads):
        try:
            own_look = _look(uploads[client])
            if own_look is None or own_look != look:  # else it looks like the last, checked one
                last, look = form_of(uploads[client], method.rules.ragged), None
                check_message(uploads[client], model=template, name="the upload")
                limits.check_bytes(method, num_bytes(uploads[client]))
                look = own_look
            forms[client] = last
        except Exception as error:  # an upload may be anything
            malformed[client] = error
    return forms, malformed


def _look(message: Any) -> Any:
    """Everything on which the checks of an upload's form depend; None if it is no usual upload."""
    if type(message) is not dict:
        return None
    names: list[Any] = []
    sizes: list[int] = []
    tensors: list[Any] = []
    for key, value in message.items():
        inner = value if type(value) is dict else None
        names += [key, *(inner or ())]
        tensors += [value] if inner is None else inner.values()
        sizes.append(-1 if inner is None else len(inner))
    if {*map(type, names)} != {str} or {*map(type, tensors)} != {Tensor}:
        return None
    try:
        return names, sizes, [*map(LOOK, tensors)], [*map(STRIDE, tensors)]
    except RuntimeError:  # a sparse tensor has no strides
        return None


def form_of(message: Any, ragged: Collection[str] = ()) -> Form:
    """Form of an upload, which all uploads of a run share: names, shapes, dtypes and layouts.

    Args:
        message: the upload; it must be a dict of tensors, at most one dict deep.
        ragged: keys that may differ between clients, which are left out.

    Raises:
        TypeError: for something else, and for a tensor whose numbers are not in memory.
        ValueError: for a tensor that requires a gradient, and for one whose entries share memory.

    Example:
        >>> form_of({"n": torch.tensor(3), "rows": torch.zeros(7, 2)}, ragged={"rows"})
        {'n': 'torch.int64 []'}
    """
    if not isinstance(message, Mapping):
        check_message(message, name="the upload")  # raises
    form: Form = {key: {} for key in message}  # in its order; an empty dict counts too
    for path, tensor in _entries(message):
        names = {*map(type, path)} == {str}
        if not names or not isinstance(tensor, Tensor) or tensor.requires_grad:
            check_message(message, name="the upload")  # raises, and says what is wrong
        _check_numbers(path, tensor, path[0] in ragged)
        inner = form[path[0]] if len(path) > 1 else form
        inner[path[-1]] = _described(tensor.dtype, tensor.shape, tensor.layout)
    return {key: value for key, value in form.items() if key not in ragged}


def _entries(message: Mapping[Any, Any]) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """The tensors of a message by their paths; a path is a tuple, since a key may contain "/"."""
    for key, value in message.items():
        if isinstance(value, Mapping):
            yield from (((key, name), tensor) for name, tensor in value.items())
        else:
            yield (key,), value


def _check_numbers(path: tuple[str, ...], tensor: Tensor, ragged: bool) -> None:
    """Refuse subclasses of Tensor, which can redefine addition, and entries that share memory."""
    layout, dtype = tensor.layout, tensor.dtype
    numbers = type(tensor) in (Tensor, Parameter) and dtype in DTYPES and layout in LAYOUTS
    in_memory = numbers and not tensor.is_meta and not tensor.is_nested
    if in_memory and layout == torch.strided and tensor.is_contiguous():
        return
    name = "/".join(path)
    if not in_memory:
        kind = "meta" if tensor.is_meta else f"{layout}, {dtype}"
        got = f"a {type(tensor).__name__}, {kind}"
        raise TypeError(f"Expected {name!r} to be a tensor of numbers in memory, but got {got}")
    if layout != torch.strided:
        if ragged:
            raise ValueError(f"Expected {name!r} to be dense, but got {layout}")
    elif _is_expanded(tensor):
        raise ValueError(f"Expected {name!r} to be whole, but got an expanded tensor")


def _is_expanded(tensor: Tensor) -> bool:
    """Whether entries of a tensor share memory."""
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    return any(size > 1 and step == 0 for size, step in steps)


@lru_cache(maxsize=1024)
def _described(dtype: torch.dtype, shape: torch.Size, layout: torch.layout = torch.strided) -> str:
    return f"{dtype} {list(shape)}" + ("" if layout == torch.strided else f" {layout}")


def _most_common(forms: Mapping[int, Form]) -> Form:
    """The most common form, with its keys in order; empty if two forms tie."""
    texts = [json.dumps(form, sort_keys=True) for form in forms.values()]
    best = Counter(texts).most_common(2)
    if not best or (len(best) > 1 and best[0][1] == best[1][1]):
        return {}
    same = [form for form, text in zip(forms.values(), texts, strict=True) if text == best[0][0]]
    most: Form = json.loads(Counter(map(json.dumps, same)).most_common(1)[0][0])
    return most


def _check_form(form: Form, usual: Form) -> None:
    """Raise an error that names the first difference between an upload and the others."""
    if not usual:
        raise ValueError(
            "Expected one form of upload to have more clients than any other, but got no majority"
        )
    got, want = _flat(form), _flat(usual)
    for word, paths in (("missing", want.keys() - got), ("extra", got.keys() - want)):
        if paths:
            raise ValueError(
                "Expected the upload to have the entries that those of most clients have, "
                f"but got {word} {['/'.join(path) for path in sorted(paths)]}"
            )
    path = next(path for path in want if got[path] != want[path])
    name = "/".join(path)
    raise ValueError(f"Expected {name} to be {want[path]} as most clients', but got {got[path]}")


def _flat(form: Form) -> dict[tuple[str, ...], str]:
    """The entries by path; a dict has an entry of its own."""
    dicts = {(key,): "a dict" for key, value in form.items() if isinstance(value, dict)}
    return dicts | dict(_entries(form))


def _in_order(message: Message, form: Form) -> Message:
    """The message with its entries in the order that most clients use."""
    inner = [key for key, value in form.items() if isinstance(value, dict)]
    if list(message) == list(form) and all(list(message[k]) == list(form[k]) for k in inner):
        return message
    keys = [*form, *(key for key in message if key not in form)]
    return {k: {n: message[k][n] for n in form[k]} if k in inner else message[k] for k in keys}


def _check_count(message: Message, most: float) -> None:
    """Raise unless `num_examples` is a weight that a client can have."""
    if "num_examples" not in message:
        return
    for value in message["num_examples"].flatten().tolist():
        if not 0 <= value <= most:
            raise ValueError(f"Expected num_examples to be from 0 to {most:g}, but got {value:g}")


def _too_far(change_of: Mapping[int, Mapping[str, Change]], most: float) -> dict[int, Diverged]:
    """Errors of clients with a change over `most` times the round's median, or the sent size.

    A change over the median counts only if it is larger than the entry that was sent, or than 1
    where none was sent. For an even number of clients the upper median is used, so that half of the
    clients cannot get the others refused by changing almost nothing. The second bound is `most`
    times the sent entry, or `most` if that is smaller than 1, since the server's message may not
    grow by more either.
    """
    diverged: dict[int, Diverged] = {}
    by_key: dict[str, dict[int, Change]] = {}
    for client, each in change_of.items():
        for key, change in each.items():
            by_key.setdefault(key, {})[client] = change
    for key, far in by_key.items():
        positive = [change.moved for change in far.values() if change.moved > 0]
        median = statistics.median_high(positive) if positive else 0.0
        for client, (delta, size) in far.items():
            if delta > most * median and delta > (1.0 if size is None else size):
                bound = f"over {most:g} times the median, {median:.4g}"
            elif size is not None and delta > most * max(size, 1.0):
                bound = f"over {most:g} times what was sent, {size:.4g}: try a lower learning rate"
            else:
                continue
            text = f"{key} changed by {delta:.4g}, which is {bound}"
            diverged.setdefault(client, Diverged(text))
    return diverged


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
    by_reason: dict[str, list[int]] = {}
    for client, text in sorted(whys.items()):
        by_reason.setdefault(text, []).append(client)
    return "; ".join(
        f"client{'s' if len(clients) > 1 else ''} {_spans(clients)}: {text}"
        for text, clients in by_reason.items()
    )


def _spans(numbers: Sequence[int]) -> str:
    """Whole numbers in order as text, consecutive numbers as ``first-last``."""
    ends: list[list[int]] = []
    for number in numbers:
        if ends and number == ends[-1][1] + 1:
            ends[-1][1] = number
        else:
            ends.append([number, number])
    return ", ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in ends)
