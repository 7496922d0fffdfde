"""Forms of uploads: names, shapes, dtypes and layouts, and the form that most clients have."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from ..method.checks import check_message
from ..method.message import Message

Form = dict[str, Any]  # key to "torch.float32 [8, 6]", or to a dict of these
LAYOUTS = (torch.strided, torch.sparse_coo, torch.sparse_csr, torch.sparse_csc)


class NoMajority(ValueError):
    """No form of upload has more clients than every other, so no client can be called wrong.

    Example:
        >>> issubclass(NoMajority, ValueError)
        True
    """


def form_of(message: Any, ragged: Collection[str] = ()) -> Form:
    """The form of an upload, which all uploads of a run share: names, shapes, dtypes and layouts.

    Args:
        message: the upload; it must be a dict of tensors, at most one dict deep.
        ragged: keys that may differ between clients, which are left out.

    Raises:
        TypeError: for something else, and for a tensor that is no memory of numbers.
        ValueError: for a tensor that requires a gradient, and for one whose rows are one and the
            same memory.

    Example:
        >>> form_of({"n": torch.tensor(3), "rows": torch.zeros(7, 2)}, ragged={"rows"})
        {'n': 'torch.int64 []'}
    """
    if not _is_plain(message):
        check_message(message, name="the upload")  # raises, and says what is wrong
    form: Form = {}
    for key, value in message.items():
        named = isinstance(value, Mapping)
        for name, tensor in value.items() if named else (("", value),):
            if not _is_usual(tensor):
                _check_numbers(key, name, tensor)
                _check_whole(key, name, tensor, sparse=key not in ragged)
        if key not in ragged:
            form[key] = {k: said(t) for k, t in value.items()} if named else said(value)
    return form


def _is_plain(message: Any) -> bool:
    """Whether `check_message` would find nothing; it is asked about every upload."""
    if not isinstance(message, Mapping):
        return False
    for key, value in message.items():
        each = value.items() if isinstance(value, Mapping) else ((key, value),)
        for name, tensor in each:
            if not isinstance(tensor, Tensor) or tensor.requires_grad or type(name) is not str:
                return False
        if type(key) is not str:
            return False
    return True


def _check_numbers(key: str, name: str, tensor: Tensor) -> None:
    """A kind of one's own decides what adding it up means."""
    own = type(tensor) not in (Tensor, Parameter)
    if own or tensor.layout not in LAYOUTS or tensor.is_meta or tensor.is_nested:
        plain = "meta" if tensor.is_meta else str(tensor.layout)
        got = f"a {type(tensor).__name__}" if own else plain
        path = f"{key}/{name}" if name else key
        raise TypeError(f"Expected {path!r} to be a tensor of numbers in memory, but got {got}")


def _is_usual(tensor: Tensor) -> bool:
    """Whether nothing below can be wrong: numbers that lie side by side in memory."""
    return (
        type(tensor) in (Tensor, Parameter)
        and tensor.layout == torch.strided
        and not tensor.is_nested
        and not tensor.is_meta
        and tensor.is_contiguous()
    )


def _check_whole(key: str, name: str, tensor: Tensor, *, sparse: bool) -> None:
    """Raise for an expanded tensor, whose entries share memory."""
    if tensor.layout != torch.strided:
        whole = sparse
    else:
        steps = zip(tensor.stride(), tensor.shape, strict=True)
        whole = not any(step == 0 and size > 1 for step, size in steps)
    if not whole:
        path = f"{key}/{name}" if name else key
        raise ValueError(f"Expected {path!r} to be dense and whole, but got an expanded one")


def said(tensor: Tensor) -> str:
    """The form of one tensor, as text.

    Example:
        >>> said(torch.zeros(2, 3))
        'torch.float32 [2, 3]'
    """
    return _said(tensor.dtype, tensor.shape, tensor.layout)


@lru_cache(maxsize=1024)
def _said(dtype: torch.dtype, shape: torch.Size, layout: torch.layout) -> str:
    return f"{dtype} {list(shape)}" + ("" if layout == torch.strided else f" {layout}")


def most_common(forms: Mapping[int, Form], fixed: Form, votes: int) -> Form:
    """The form with the most votes; its keys have the order that most clients use.

    Raises:
        NoMajority: if another one has as many.
    """
    spelled = _all_spelled(forms)
    counts, fixed_text = Counter(spelled.values()), _spelled(fixed)
    agreed = len(counts) == 1 and len(forms) > 1  # as where a method changes what it sends
    if fixed:
        counts[fixed_text] = max(counts[fixed_text], votes)
    best = [said for said, number in counts.items() if number == max(counts.values())]
    if not best or (fixed and fixed_text in best and (agreed or len(best) == 1)):
        return fixed
    if len(best) > 1:
        raise NoMajority(_no_majority(json.loads(best[0]), json.loads(best[1])))
    orders = Counter(json.dumps(forms[k]) for k, said in spelled.items() if said == best[0])
    most: Form = json.loads(orders.most_common(1)[0][0])
    return most


def _spelled(form: Form) -> str:
    return json.dumps(form, sort_keys=True)


def _all_spelled(forms: Mapping[int, Form]) -> dict[int, str]:
    """Each client's form as a string; the string of an equal client before is used again."""
    out: dict[int, str] = {}
    last, spelled = None, ""
    for client, form in forms.items():
        if form != last:
            last, spelled = form, _spelled(form)
        out[client] = spelled
    return out


def all_differ(forms: Mapping[int, Form]) -> bool:
    """Whether all clients' forms differ. A hostile client cannot cause this, but a method can."""
    return len(set(_all_spelled(forms).values())) == len(forms) > 2


def _no_majority(one: Form, other: Form) -> str:
    """Why a round counts nobody."""
    got, wanted = _flat(one), _flat(other)
    paths = [p for p in sorted(got.keys() | wanted) if got.get(p) != wanted.get(p)]
    return (
        "Expected one form of upload to have more clients than any other, but got no majority of "
        f"forms: two that differ in {_said_paths(paths[:3])} have the same number"
    )


def check_form(form: Form, want: Form) -> None:
    """Raise an error that names the first difference between an upload and the others."""
    if form == want:
        return
    got, wanted = _flat(form), _flat(want)
    for word, keys in (("missing", wanted.keys() - got), ("extra", got.keys() - wanted)):
        if keys:
            raise ValueError(
                f"Expected the upload to have the entries that those of most clients have, "
                f"but got {word} {_said_paths(sorted(keys))}"
            )
    path = next(path for path in wanted if got[path] != wanted[path])
    name = "/".join(path)
    raise ValueError(f"Expected {name} to be {wanted[path]} as most clients', but got {got[path]}")


def _flat(form: Form) -> dict[tuple[str, ...], str]:
    """The entries by path; paths are tuples, since a key may contain "/"."""
    return {
        path: spec
        for key, value in form.items()
        for path, spec in (
            [((key,), "a dict"), *(((key, name), spec) for name, spec in value.items())]
            if isinstance(value, Mapping)
            else [((key,), value)]
        )
    }


def _said_paths(paths: Iterable[tuple[str, ...]]) -> list[str]:
    return ["/".join(path) for path in paths]


def in_order(message: Message, form: Form) -> Message:
    """The message with its entries in the order that most clients use."""
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
