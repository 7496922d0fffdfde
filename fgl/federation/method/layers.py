"""Layers of a method: which builders made it, one around the other, and what each was set to."""

from __future__ import annotations

import functools
import hashlib
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

import numpy
import torch
from torch import Tensor, nn

FUNCTIONS = ("loss", "receive", "send", "aggregate", "deploy", "accept")  # of a method
LONGEST = 200  # characters of a value as it is printed


@dataclass(frozen=True)
class Layer:
    """A builder that made a method, or made one of another.

    Args:
        name: of the builder.
        settings: its arguments by name, defaults included, but for the method that it was given.
        call: the arguments that were given, as they are written.
        sealed: fields of the method that nobody around may change.
        left: fields of the method as the builder left them.
        inner: layers that the builder used inside.

    Example:
        >>> fgl.methods.fedprox(fgl.fedavg(torch.nn.Linear(1, 1)), mu=0.5).layers[-1].settings["mu"]
        0.5
    """

    name: str
    settings: Mapping[str, Any]
    call: Sequence[str] = ()
    sealed: frozenset[str] = frozenset()
    left: Mapping[str, Any] = field(default_factory=dict)
    inner: Sequence[Layer] = ()

    @property
    def names(self) -> Iterator[str]:
        """Its own name, and those of the layers that it used inside."""
        yield self.name
        for layer in self.inner:
            yield from layer.names


def written(layers: Sequence[Layer], others: Sequence[str]) -> str:
    """The call that makes a method; `others` are fields that some other code replaced.

    Example:
        >>> prox = Layer("fedprox", {"mu": 0.1}, ["mu=0.1"])
        >>> written([Layer("fedavg", {}, ["GCN(...)"]), prox], ["send"])
        'replace(fedprox(fedavg(GCN(...)), mu=0.1), send=...)'
    """
    text = ""
    for layer in layers:
        text = f"{layer.name}({', '.join([*filter(None, [text]), *layer.call])})"
    if not others:
        return text or "Method(...)"
    return f"replace({', '.join([text or '...', *(f'{name}=...' for name in others)])})"


def short(value: Any) -> str:
    """A value as it is written in a call, without what is inside of a large one.

    Example:
        >>> short(0.1), short(torch.nn.Linear(1, 1)), short(torch.nn.functional.relu)
        ('0.1', 'Linear(...)', 'relu')
    """
    if isinstance(value, functools.partial):
        return f"{short(value.func)}(...)"
    if callable(value) and hasattr(value, "__name__"):
        return str(value.__name__)
    plain = value is None or isinstance(value, bool | int | float | str)
    few = isinstance(value, list | tuple | set | frozenset) and len(repr(value)) <= 40
    return repr(value) if plain or few else f"{type(value).__name__}(...)"


def described(value: Any) -> Any:
    """A value as JSON can hold it: equal for equal values, in any process.

    Functions count by their name, what `functools.partial` fixed, and the numbers and functions
    that they close over; tensors and arrays by their entries, modules by `architecture`, all else
    by how it is printed.

    Example:
        >>> described({"mu": 0.1, "shared": {"b", "a"}})
        {'mu': 0.1, 'shared': ['a', 'b']}
        >>> described(torch.zeros(2))
        'torch.float32 [2] ca08ea5bca49cc18'
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Tensor):
        return f"{value.dtype} {list(value.shape)} {digest_of([value])}"
    if isinstance(value, numpy.ndarray | numpy.generic):
        return described(torch.as_tensor(value)) if value.ndim else described(value.item())
    if isinstance(value, Mapping):
        return {str(key): described(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [described(each) for each in value]
    if isinstance(value, set | frozenset):
        return sorted((described(each) for each in value), key=str)
    if isinstance(value, nn.Module):
        return f"{type(value).__name__} {_digest(json.dumps(architecture(value)).encode())}"
    if callable(value) and not is_dataclass(value):
        return spelled(value)
    if is_dataclass(value) and not isinstance(value, type) and hasattr(value, "__dict__"):
        inside = {each.name: getattr(value, each.name) for each in fields(value) if each.repr}
        return {"type": type(value).__name__, **described(inside)}
    plain = jsonable(value)
    if plain is not UNKNOWN:
        return plain
    text = re.sub(r" at 0x[0-9a-f]+", "", repr(value))  # an address is another one each time
    return text if len(text) <= LONGEST else f"{type(value).__name__} {_digest(text.encode())}"


def architecture(model: nn.Module) -> dict[str, str]:
    """The modules of a model by their path: each one's type, and its attributes that are plain.

    Example:
        >>> architecture(torch.nn.Dropout(0.1))
        {'': 'Dropout(p=0.1, inplace=False)'}
    """
    out = {}
    for path, module in model.named_modules():
        plain = {
            name: value
            for name, value in vars(module).items()
            if isinstance(value, bool | int | float | str) and name != "training" and name[0] != "_"
        }
        said = ", ".join(f"{name}={value!r}" for name, value in plain.items())
        out[path] = f"{type(module).__name__}({said})"
    return out


def spelled(function: Any) -> str:
    """A function by its name, with the numbers and functions that it closes over.

    Example:
        >>> def times(factor):
        ...     return lambda value: factor * value
        >>> spelled(times(3)).endswith("{'factor': 3}")
        True
    """
    if isinstance(function, functools.partial):
        given = {name: described(value) for name, value in sorted(function.keywords.items())}
        return f"{spelled(function.func)}({[*map(described, function.args)]}, {given})"
    names = getattr(getattr(function, "__code__", None), "co_freevars", ())
    cells = getattr(function, "__closure__", None) or ()
    closed = {name: cell.cell_contents for name, cell in zip(names, cells, strict=True)}
    closed = {  # a list or a dict may be something that the function fills
        name: type(value).__name__ if isinstance(value, list | dict) else _inside(value)
        for name, value in closed.items()
    }
    return f"{short_name(function)}{closed or ''}"


def _inside(value: Any) -> Any:
    """A value as JSON has it, a function spelled, all else by its type."""
    if callable(value):
        return spelled(value)
    plain = jsonable(value)
    return type(value).__name__ if plain is UNKNOWN else plain


def short_name(function: Any) -> str:
    """A function by its name alone: a script's module is another one where it is imported.

    Example:
        >>> short_name(functools.partial(torch.nn.functional.dropout, p=0.1))
        'dropout'
    """
    function = getattr(function, "func", function)  # of a `functools.partial`
    return str(getattr(function, "__qualname__", type(function).__qualname__))


UNKNOWN = object()


def jsonable(value: Any) -> Any:
    """A value as JSON has it, a tensor of one number as that number; else `UNKNOWN`.

    Example:
        >>> jsonable((1, torch.tensor(2))) is UNKNOWN, jsonable(torch.tensor(2))
        (True, 2)
    """
    if isinstance(value, Tensor) and value.numel() == 1:
        value = value.item()
    try:
        return json.loads(json.dumps(value))
    except (TypeError, ValueError):
        return UNKNOWN


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=8).hexdigest()


def digest_of(tensors: Collection[Tensor]) -> str:
    """A digest of the bytes of some tensors.

    Example:
        >>> digest_of([torch.zeros(1)]) == digest_of([torch.zeros(2)])
        False
    """
    digest = hashlib.blake2b(digest_size=8)
    for tensor in tensors:
        flat = tensor.detach().cpu().contiguous().flatten()
        digest.update(flat.view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
