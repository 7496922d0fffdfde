"""Uploads: which messages of a round the server takes, and why it refuses the others."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .checks import check_message, first_not_finite
from .message import Message, Params, leaves
from .method import Method, State

Form = dict[str, Any]  # key to "torch.float32 [8, 6]", or to a dict of these
LONGEST = 300  # characters of a reason that a history keeps
LAYOUTS = (torch.strided, torch.sparse_coo, torch.sparse_csr, torch.sparse_csc)


class Diverged(ValueError):
    """Numbers that are not finite, or far beyond what they were."""


class NoMajority(ValueError):
    """No form of upload has more clients than every other, so that nobody can be said to be wrong.

    Example:
        >>> issubclass(NoMajority, ValueError)
        True
    """


class Sifted(NamedTuple):
    """What came of a round's uploads, each in the order of the clients.

    Args:
        taken: the messages that count.
        refused: why others do not.
        malformed: those of them that are not even what most clients send.
        form: that of this run's uploads.
    """

    taken: dict[int, Message]
    refused: dict[int, Exception]
    malformed: set[int]
    form: Form


def sift(
    method: Method,
    uploads: Mapping[int, Any],
    sent: Mapping[int, Message],
    state: State,
    form: Form,
    votes: int = 0,
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

    Example:
        >>> method = fgl.fedavg(torch.nn.Linear(1, 1, bias=False))
        >>> came = {k: {"model": {"weight": torch.full((1, 1), v)}}
        ...         for k, v in enumerate((1.0, 2.0, 1e38, math.nan))}
        >>> sent = dict.fromkeys(came, {"model": {"weight": torch.zeros(1, 1)}})
        >>> found = sift(method, came, sent, {}, {})
        >>> list(found.taken), found.form
        ([0, 1], {'model': {'weight': 'torch.float32 [1, 1]'}})
        >>> print(*found.refused.values(), sep="; ")
        model changed by 1e+38, which is over 1000 times the median, 2; model/weight is not finite
    """
    template = method.model.state_dict()
    forms: dict[int, Form] = {}
    whole: dict[int, Message] = {}
    refused: dict[int, Exception] = {}
    for client in sorted(uploads):
        try:
            check_message(uploads[client], model=template, name="the upload")
            forms[client] = form_of(uploads[client], method.ragged)
        except Exception as error:  # whatever it is that somebody else sent
            refused[client] = error
    try:
        common = _most_common(forms, form, votes)
    except NoMajority as error:
        malformed = set(refused) | (set(forms) if _all_differ(forms) else set())
        refused |= dict.fromkeys(forms, error)
        return Sifted({}, dict(sorted(refused.items())), malformed, form)
    for client, own in forms.items():
        try:
            _check_form(own, common)
            whole[client] = _in_order(uploads[client], common)
        except (TypeError, ValueError) as error:
            refused[client] = error
    malformed = set(refused)
    taken: dict[int, Message] = {}
    moved: dict[int, dict[str, tuple[float, float | None]]] = {}
    for client, message in whole.items():
        try:
            moved[client] = changes(message, sent.get(client, {}))
            _check_count(message, method.max_examples)
            method.accept(message, client, state)
            taken[client] = message
        except Exception as error:
            refused[client] = error
    refused |= _too_far({client: moved[client] for client in taken}, method.max_change)
    taken = {client: message for client, message in taken.items() if client not in refused}
    return Sifted(taken, dict(sorted(refused.items())), malformed, common if taken else form)


def reason(error: Exception) -> str:
    """Why an upload is refused, as a history keeps it.

    Example:
        >>> reason(KeyError("w")), reason(ValueError("too large"))
        ("KeyError: 'w'", 'too large')
    """
    text = f"{type(error).__name__}: {error}" if isinstance(error, KeyError) else str(error)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


def form_of(message: Mapping[str, Any], ragged: Collection[str] = ()) -> Form:
    """What all uploads of a run have in common: names, shapes, dtypes and layouts.

    Args:
        message: dict of tensors, at most one dict deep.
        ragged: keys that differ from client to client and are left out.

    Raises:
        TypeError: for a tensor that is no memory of numbers.
        ValueError: for a ragged tensor whose rows are one and the same memory.

    Example:
        >>> form_of({"n": torch.tensor(3), "rows": torch.zeros(7, 2)}, ragged={"rows"})
        {'n': 'torch.int64 []'}
    """
    form: Form = {}
    for path, tensor in leaves(message):
        if tensor.layout not in LAYOUTS or tensor.is_meta or tensor.is_nested:
            got = "meta" if tensor.is_meta else str(tensor.layout)
            raise TypeError(f"Expected {path!r} to be a tensor of numbers in memory, but got {got}")
    for key, value in message.items():
        if key not in ragged:
            named = isinstance(value, Mapping)
            form[key] = {k: _said(t) for k, t in value.items()} if named else _said(value)
            continue
        for path, tensor in leaves({key: value}):
            size = tensor.numel() * tensor.element_size()
            if tensor.layout != torch.strided or size > tensor.untyped_storage().nbytes():
                raise ValueError(
                    f"Expected {path!r} to be dense and whole, but got an expanded one"
                )
    return form


def _said(tensor: Tensor) -> str:
    layout = "" if tensor.layout == torch.strided else f" {tensor.layout}"
    return f"{tensor.dtype} {list(tensor.shape)}{layout}"


def _most_common(forms: Mapping[int, Form], fixed: Form, votes: int) -> Form:
    """The form with the most votes, in the order in which most clients say it.

    Raises:
        NoMajority: if another one has as many.
    """
    spelled = {client: _spelled(form) for client, form in forms.items()}
    counts, known = Counter(spelled.values()), _spelled(fixed)
    agreed = len(counts) == 1 and len(forms) > 1  # as where a method changes what it sends
    if fixed:
        counts[known] = max(counts[known], votes)
    best = [said for said, number in counts.items() if number == max(counts.values())]
    if not best or (fixed and known in best and (agreed or len(best) == 1)):
        return fixed
    if len(best) > 1:
        raise NoMajority(_no_majority(json.loads(best[0]), json.loads(best[1])))
    orders = Counter(json.dumps(forms[k]) for k, said in spelled.items() if said == best[0])
    most: Form = json.loads(orders.most_common(1)[0][0])
    return most


def _spelled(form: Form) -> str:
    return json.dumps(form, sort_keys=True)


def _all_differ(forms: Mapping[int, Form]) -> bool:
    """Whether several clients have a form each: no hostile one does that, but a method may."""
    return len({_spelled(form) for form in forms.values()}) == len(forms) > 2


def _no_majority(one: Form, other: Form) -> str:
    """Why a round counts nobody."""
    got, wanted = _flat(one), _flat(other)
    paths = sorted(path for path in got.keys() | wanted if got.get(path) != wanted.get(path))
    return (
        "Expected one form of upload to have more clients than any other, but got no majority of "
        f"forms: two that differ in {paths[:3]} have the same number"
    )


def _check_form(form: Form, want: Form) -> None:
    """Raise an error that names the first thing in which an upload differs from the others."""
    if form == want:
        return
    got, wanted = _flat(form), _flat(want)
    for word, keys in (("missing", wanted.keys() - got), ("extra", got.keys() - wanted)):
        if keys:
            raise ValueError(
                f"Expected the upload to have the entries that those of most clients have, "
                f"but got {word} {sorted(keys)}"
            )
    path = next(path for path in wanted if got[path] != wanted[path])
    raise ValueError(f"Expected {path} to be {wanted[path]} as most clients', but got {got[path]}")


def _flat(form: Form) -> dict[str, str]:
    return {
        str(path): spec
        for key, value in form.items()
        for path, spec in (
            [(key, "a dict"), *((f"{key}/{name}", spec) for name, spec in value.items())]
            if isinstance(value, Mapping)
            else [(key, value)]
        )
    }


def _in_order(message: Message, form: Form) -> Message:
    """The message with its entries in the order that most clients have."""
    if list(message) == list(form) and all(
        list(message[key]) == list(inner) for key, inner in form.items() if isinstance(inner, dict)
    ):
        return message
    return {
        key: {name: message[key][name] for name in form[key]}
        if isinstance(form.get(key), dict)
        else message[key]
        for key in [*form, *(key for key in message if key not in form)]
    }


def _check_count(message: Message, most: float) -> None:
    """`num_examples` is a weight."""
    count: Any = message.get("num_examples", 0)
    for value in (float(count.min()), float(count.max())) if isinstance(count, Tensor) else ():
        if not 0 <= value <= most:
            raise ValueError(f"Expected num_examples to be from 0 to {most:g}, but got {value:g}")


def changes(message: Message, sent: Message) -> dict[str, tuple[float, float | None]]:
    """How far each entry of an upload is from what was sent: two root mean squares.

    Args:
        message: what came.
        sent: what went; where it lacks an entry, it counts as 0.

    Returns:
        Key to how far it is, and how large it was, None where nothing of it was sent. Keys without
        a floating-point tensor, and ``"num_examples"``, have none.

    Raises:
        Diverged: if a number is not finite.

    Example:
        >>> changes({"model": {"w": torch.tensor([3.0])}}, {"model": {"w": torch.ones(1)}})
        {'model': (2.0, 1.0)}
    """
    found: dict[str, tuple[float, float | None]] = {}
    for key, value in message.items():
        new = _floats(value)
        if not new:
            continue
        old = {
            name: tensor
            for name, tensor in _floats(sent.get(key, {})).items()
            if name in new and tensor.shape == new[name].shape
        }
        flat = torch.cat([tensor.reshape(-1) for tensor in new.values()])
        if old:
            like = [old[n] if n in old else torch.zeros_like(t) for n, t in new.items()]
            before = torch.cat([tensor.reshape(-1) for tensor in like]).to(flat.device)
            moved, size = _root_mean_square(flat - before), _root_mean_square(before)
        else:
            moved, size = _root_mean_square(flat), None
        if not math.isfinite(moved):
            bad = first_not_finite({key: value})
            if bad is not None:
                raise Diverged(f"{bad} is not finite")
        if key != "num_examples":
            found[key] = moved, size
    return found


def _floats(value: Any) -> Params:
    """The floating-point numbers of an entry, by name."""
    inner = value if isinstance(value, Mapping) else {"": value}
    return {
        name: tensor if tensor.layout == torch.strided else _values(tensor)
        for name, tensor in inner.items()
        if tensor.is_floating_point()
    }


def _values(tensor: Tensor) -> Tensor:
    return tensor._values() if tensor.layout == torch.sparse_coo else tensor.values()


def _root_mean_square(flat: Tensor) -> float:
    if not flat.numel():
        return 0.0
    length = float(torch.linalg.vector_norm(flat))
    if not math.isfinite(length):  # or the squares are too large for the dtype
        length = float(torch.linalg.vector_norm(flat, dtype=torch.float64))
    return length / math.sqrt(flat.numel())


def _too_far(
    moved: Mapping[int, Mapping[str, tuple[float, float | None]]], most: float
) -> dict[int, Diverged]:
    """Whose change is over `most` times the median of the round, and larger than what was sent.

    Of an even number the upper median is taken: half of the clients, who send next to nothing,
    cannot have the others refused. One of two is never refused; the server's bound remains.
    Of an entry that was not sent, such as a network's output, the bound is ``most ** 2``, and 1:
    what several layers make of a change is a product.
    """
    found: dict[int, Diverged] = {}
    for key in dict.fromkeys(key for each in moved.values() for key in each):
        far = {client: each[key][0] for client, each in moved.items() if key in each}
        some = sorted(value for value in far.values() if value > 0)
        if not some:
            continue
        median = some[len(some) // 2]
        for client, value in far.items():
            was = moved[client][key][1]
            times = most**2 if was is None else most
            if value > times * median and value > (1.0 if was is None else was):
                found.setdefault(
                    client,
                    Diverged(
                        f"{key} changed by {value:.4g}, which is over {times:g} times the median, "
                        f"{median:.4g}"
                    ),
                )
    return found


def check_jump(new: Mapping[str, Any], old: Mapping[str, Any], name: str, most: float) -> None:
    """Raise `Diverged` if a message or a state is not finite, or far larger than it was.

    Args:
        new: dict of tensors, at most one dict deep.
        old: what it replaces; what it lacks counts as of size 1.
        name: what an error calls it.
        most: by how much a root mean square may grow, beyond 1.

    Example:
        >>> check_jump({"w": torch.full((2,), 1e30)}, {"w": torch.ones(2)}, "state", 1e6)
        Traceback (most recent call last):
        fgl.federation.uploads.Diverged: Expected state['w'] to grow by at most 1e+06, but got ...
    """
    for key, value in new.items():
        parts = _floats(value)
        if not parts:
            continue
        size = _root_mean_square(torch.cat([tensor.reshape(-1) for tensor in parts.values()]))
        if size <= most:
            continue
        bad = first_not_finite({key: value})
        if bad is not None:
            raise Diverged(f"Expected {name} to be finite, but got {bad} that is not")
        before = [t.reshape(-1) for t in _floats(old.get(key, {})).values()]
        last = _root_mean_square(torch.cat(before)) if before else 0.0
        if size > most * max(last, 1.0):
            raise Diverged(
                f"Expected {name}[{key!r}] to grow by at most {most:g}, but got {size:.4g} "
                f"after {last:.4g}"
            )
