"""Descriptions of a method: its builders, and its settings as JSON values."""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, is_dataclass
from types import ModuleType, NoneType
from typing import Any, Protocol, runtime_checkable

import numpy
import torch
from torch import Tensor, nn

from ...kinds import plain

FUNCTIONS = ("loss", "receive", "send", "aggregate", "deploy", "accept")  # of a method
HOOKS = ("batches", "adjust", "settle")  # of a method's training


@dataclass(frozen=True)
class Layer:
    """A builder that created or wrapped a method, and the builder's arguments.

    Args:
        name: name of the builder.
        settings: the builder's arguments by name, including defaults; the wrapped method is left
            out.
        call: the arguments given by the caller, as text for ``repr``.
        sealed: fields of the method that no outer builder may change.
        left: fields of the method that the builder returned: a dict from a field's name, such as
            ``"send"``, to the field's value.
        inner: layers of other builders that this builder called.

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
    def all(self) -> Iterator[Layer]:
        """This layer and all layers inside it, from the outermost to the innermost."""
        yield self
        for layer in reversed(self.inner):
            yield from layer.all


def written(layers: Sequence[Layer]) -> str:
    """The nested function calls that build a method, as text.

    Example:
        >>> written([Layer("fedavg", {}, ["GCN(...)"]), Layer("fedprox", {"mu": 0.1}, ["mu=0.1"])])
        'fedprox(fedavg(GCN(...)), mu=0.1)'
    """
    text = ""
    for layer in layers:
        text = f"{layer.name}({', '.join([*filter(None, [text]), *layer.call])})"
    return text


@functools.singledispatch
def short(value: Any) -> str:
    """Text of a value as it is written in a call, for the ``repr`` of a method.

    A large value is shortened to ``Name(...)``.

    Example:
        >>> short(0.1), short(torch.nn.Linear(1, 1)), short(torch.nn.functional.relu)
        ('0.1', 'Linear(...)', 'relu')
        >>> short(fgl.Training(functools.partial(torch.optim.Adam, lr=0.01), num_steps=3))
        'Training(Adam(lr=0.01), num_steps=3)'
    """
    if isinstance(value, functools.partial):
        options = [f"{name}={short(own)}" for name, own in value.keywords.items()]
        return f"{short(value.func)}({', '.join([*map(short, value.args), *options])})"
    if callable(value) and hasattr(value, "__name__"):
        return str(value.__name__)
    plain = value is None or isinstance(value, bool | int | float | str)
    few = isinstance(value, list | tuple | set | frozenset) and len(repr(value)) <= 40
    return repr(value) if plain or few else f"{type(value).__name__}(...)"


LONGEST = 200  # characters of a printed value
DEPTH = 8  # levels of a value that are described


def described(value: Any, depth: int = DEPTH) -> Any:
    """A value's description as JSON.

    Values that are equal have equal descriptions, even in different processes.

    A function is described by its name, its defaults, the values in its closure, and the arguments
    that `functools.partial` fixed. A lambda is also described by its constants. A list or dict in a
    closure is described only by its type, since the function may add entries to it. A tensor or
    array is described by a digest of its entries, and a module by `architecture`. Any other value
    is described by its ``repr``.

    Args:
        value: any value.
        depth: number of nested levels that are described.

    Example:
        >>> described({"mu": 0.1, "shared": {"b", "a"}})
        {'mu': 0.1, 'shared': ['a', 'b']}
        >>> described(torch.zeros(2))
        'torch.float32 [2] #ca08ea5bca49cc18'
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if depth == 0:
        return type(value).__name__
    for kind, describe in WAYS:
        if isinstance(value, kind):
            return describe(value, depth - 1)
    if is_dataclass(value) and not isinstance(value, type):
        parts = {each.name: getattr(value, each.name) for each in fields(value)}
        return {"type": type(value).__name__, **_mapping(parts, depth - 1)}
    return spelled(value, depth - 1) if callable(value) else _printed(value, depth - 1)


@runtime_checkable
class Methodlike(Protocol):
    """An object that is described by its layers."""

    layers: Any


def _tensor(value: Tensor, depth: int) -> str:
    return f"{value.dtype} {list(value.shape)} #{_digest_of(value)}"


def _mapping(value: Mapping[Any, Any], depth: int) -> dict[str, Any]:
    return {str(key): described(each, depth) for key, each in value.items()}


def _sequence(value: Iterable[Any], depth: int) -> list[Any]:
    return [described(each, depth) for each in value]


def _set(value: Iterable[Any], depth: int) -> list[Any]:
    return sorted(_sequence(value, depth), key=str)


def _array(value: Any, depth: int) -> Any:
    """Describe a NumPy array or number."""
    if isinstance(value, numpy.generic) and not value.dtype.hasobject:
        return described(value.item(), 1)
    if value.dtype.hasobject:
        return repr(value)
    data = numpy.ascontiguousarray(value).tobytes()
    return f"{value.dtype} {list(value.shape)} #{_digest(data)}"


def _printed(value: Any, depth: int) -> Any:
    """An object's ``repr`` without addresses; or the attributes if there is no ``repr``."""
    says_nothing: Any = object.__repr__
    if type(value).__repr__ is says_nothing:
        return {"type": type(value).__name__, **described(getattr(value, "__dict__", {}), depth)}
    text = re.sub(r" at 0x[0-9a-fA-F]+", "", repr(value))
    return text if len(text) <= LONGEST else f"{type(value).__name__} #{_digest(text.encode())}"


def architecture(model: nn.Module, depth: int = DEPTH) -> dict[str, str]:
    """For each module of a model, by path: the module's type and attributes.

    The attributes exclude tensors, modules, and names that begin with ``_``. The names of
    parameters that are not trained are listed too.

    Example:
        >>> architecture(torch.nn.Dropout(0.1))
        {'': 'Dropout(p=0.1, inplace=False)'}
    """
    out = {}
    for path, module in model.named_modules():
        words = [
            f"{name}={described(value, depth)!r}"
            for name, value in vars(module).items()
            if name[0] != "_" and name != "training" and not isinstance(value, Tensor | nn.Module)
        ]
        still = [n for n, p in module.named_parameters(recurse=False) if not p.requires_grad]
        words += [f"{name} is not trained" for name in still]
        out[path] = f"{type(module).__name__}({', '.join(words)})"
    return out


WAYS: tuple[tuple[Any, Callable[[Any, int], Any]], ...] = (
    (Tensor, _tensor),
    (numpy.ndarray | numpy.generic, _array),
    (Mapping, _mapping),
    (list | tuple, _sequence),
    (set | frozenset, _set),
    (nn.Module, architecture),
    (Methodlike, lambda method, depth: repr(method)),
)


def spelled(function: Any, depth: int = DEPTH) -> str:
    """A function as text: its name, its fixed arguments, and the values in its closure.

    Example:
        >>> def times(factor):
        ...     return lambda value: factor * value
        >>> spelled(times(3)).endswith("{'factor': 3}")
        True
    """
    function = plain(function)
    if depth <= 0:
        return short_name(function)
    if isinstance(function, functools.partial):
        options = _mapping(dict(sorted(function.keywords.items())), depth)
        return f"{spelled(function.func, depth)}({_sequence(function.args, depth)}, {options})"
    owner = getattr(function, "__self__", None)  # of a bound method
    if owner is not None and not isinstance(owner, type | ModuleType):
        return f"{short_name(function)} of {described(owner, depth - 1)}"
    if not hasattr(function, "__code__"):  # a callable object, a class or a builtin
        own = None if isinstance(function, type) else getattr(function, "__dict__", None)
        return f"{short_name(function)}{described(own, depth - 1) if own else ''}"
    return f"{short_name(function)}{_settings(function, depth) or ''}"


def _settings(function: Any, depth: int) -> dict[str, Any]:
    """The closure values and defaults of a plain function; for a lambda also the constants."""
    code, settings = function.__code__, {}
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):  # an empty cell
            value = cell.cell_contents
            fills = isinstance(value, list | dict | nn.Module)
            settings[name] = type(value).__name__ if fills else described(value, depth - 1)
    if function.__defaults__ or function.__kwdefaults__:
        values = [function.__defaults__, function.__kwdefaults__]
        settings["defaults"] = described(values, depth - 1)
    if function.__name__ == "<lambda>":
        consts = [value for value in code.co_consts if isinstance(value, bool | int | float | str)]
        settings |= {"constants": consts} if consts else {}
    return settings


def hides(function: Any) -> bool:
    """Whether a function may have settings that its name does not show.

    Example:
        >>> hides(torch.relu), hides(lambda value: 2 * value)
        (False, True)
    """
    function = plain(function)
    if isinstance(function, functools.partial):  # its fixed arguments are described
        return hides(function.func)
    if callable(serve := getattr(function, "serve", None)):  # of an `OfMeans` or an `OfSums`
        return hides(serve)
    return bool(
        getattr(function, "__closure__", None)
        or getattr(function, "__name__", "<lambda>") == "<lambda>"
        or not isinstance(getattr(function, "__self__", None), NoneType | ModuleType)
    )


def short_name(function: Any) -> str:
    """Return a function's name without its module.

    The module is left out, since its name can change: a script that is run is the module
    ``__main__``, but an imported script is a module with the script's name.

    Example:
        >>> short_name(functools.partial(torch.nn.functional.dropout, p=0.1))
        'dropout'
    """
    function = getattr(function, "func", function)  # of a `functools.partial`
    return str(getattr(function, "__qualname__", type(function).__qualname__))


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=8).hexdigest()


def _digest_of(tensor: Tensor) -> str:
    """A digest of a tensor's entries; on the meta device, a digest of its shape."""
    if tensor.is_meta:
        return _digest(str(list(tensor.shape)).encode())
    return _digest(bytes_of(tensor if tensor.layout == torch.strided else tensor.to_dense()))


def bytes_of(tensor: Tensor) -> bytes:
    """The entries of a dense tensor in order, as bytes.

    Example:
        >>> bytes_of(torch.tensor([1, 2], dtype=torch.uint8))
        b'\\x01\\x02'
    """
    flat = tensor.detach().cpu().contiguous().flatten()
    return bytes(flat.view(torch.uint8).numpy().tobytes())
