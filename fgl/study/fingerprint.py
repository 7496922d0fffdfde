"""Fingerprints: short texts, which are equal if two functions or values have equal content."""

import dis
import functools
import hashlib
import importlib.util
import random
import re
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

LENGTH = 12  # characters of a fingerprint
HIDDEN = {"__dict__", "__weakref__", "__module__", "__doc__", "__firstlineno__"}
HIDDEN |= {"__static_attributes__", "__annotations__", "__annotate_func__", "__dataclass_fields__"}
HIDDEN |= {"__annotations_cache__", "__abstractmethods__", "__slotnames__", "_abc_impl"}

GLOBALS = {"LOAD_GLOBAL", "LOAD_NAME"}  # names of Python's instructions
ATTRIBUTES = {"LOAD_ATTR", "LOAD_METHOD", "IMPORT_FROM"}
ANNOTATIONS = {"typing", "collections.abc", "dataclasses"}  # modules of the types of annotations
SEEDED = (random._inst, np.random.mtrand._rand, torch.default_generator)

Memo = dict[int, tuple[Any, str]]  # keeps the object, so that no other object gets its id


def fingerprint(value: Any) -> str:
    """A text that identifies a function or value by its content and by all objects that it uses.

    For functions from the user's own files and notebooks, the fingerprint depends on the code, the
    defaults and the values in the closure. The fingerprint also depends on the globals, the imports
    and the attributes of modules that the code uses. The fingerprint of a function from an
    installed package depends only on the function's name. Docstrings, file names and line numbers
    do not affect the fingerprint. The fingerprint of any other object depends on all values that
    pickle would store.

    Raises:
        TypeError: for a random generator, since the state of a generator depends on the order of
            the runs.

    Example:
        >>> fingerprint(lambda x: x + 1) == fingerprint(lambda x: x + 1)
        True
        >>> fingerprint(lambda x: x + 1) == fingerprint(lambda x: x + 2)
        False
    """
    return _digest(value, {})


def _digest(value: Any, memo: Memo) -> str:
    if id(value) in memo:
        return memo[id(value)][1]
    memo[id(value)] = value, "inside"  # placeholder, in case the value refers to itself
    kinds = (parts for kind, parts in PARTS if isinstance(value, kind))
    parts = EXACT.get(type(value)) or next(kinds, _object)
    text = "\n".join(parts(value, memo))
    digest = hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()[:LENGTH]
    memo[id(value)] = value, digest
    return digest


def _all(kind: str, values: Iterable[Any], memo: Memo) -> Iterator[str]:
    yield kind
    for value in values:
        yield _digest(value, memo)


def _source(module: types.ModuleType) -> str:
    """A digest of a module's source file if the module is the user's; "" if it is installed."""
    path = getattr(module, "__file__", None)
    if path is None or is_installed(module.__name__) or not Path(path).is_file():
        return ""
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def _array(value: Any, memo: Memo) -> Iterator[str]:
    if isinstance(value, torch.Tensor):
        dense = value.detach().cpu().to_dense().resolve_conj().contiguous()
        yield f"tensor {dense.dtype} {list(dense.shape)}"
        value = dense.reshape(-1).view(torch.uint8).numpy()
    yield f"array {value.dtype} {list(value.shape)}"
    if value.dtype.hasobject:  # the bytes of such an array are addresses
        yield _digest(value.tolist(), memo)
    else:
        yield hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()


def _function(function: types.FunctionType, memo: Memo) -> Iterator[str]:
    cells, home = _cells(function), function.__globals__.get("__name__")
    if is_installed(home) and function.__name__ != "<lambda>":
        inner = getattr(function, "__wrapped__", None)  # set by decorators such as `fgl.layer`
        name = f"function {home}.{function.__qualname__ if inner is None else 'decorated'}"
        local = "<locals>" in function.__qualname__ and inner is None
        yield from _all(name, [inner, *(cells if local else ())], memo)
        return
    code = function.__code__
    if function.__doc__ is not None and code.co_consts[:1] == (function.__doc__,):
        code = code.replace(co_consts=(None, *code.co_consts[1:]))
    used = sorted(_used(function).items())
    defaults = function.__defaults__, function.__kwdefaults__
    yield from _all("function", (code, defaults, cells, used), memo)


def _cells(function: types.FunctionType) -> list[Any]:
    """The values in a function's closure; None stands for a variable without a value."""
    values = []
    for cell in function.__closure__ or ():
        try:
            values.append(cell.cell_contents)
        except ValueError:
            values.append(None)
    return values


def _used(function: types.FunctionType) -> dict[str, Any]:
    """All globals and imports that a function's code uses, and attributes of the user's modules."""
    code, names = function.__code__, function.__globals__
    used = {name: names[name] for name in _names(code, GLOBALS) & set(names)}
    used |= {name: _imported(name) for name in _names(code, {"IMPORT_NAME"})}
    attributes = _names(code, ATTRIBUTES)
    values = [*used.values(), *_cells(function)]
    modules = [value for value in values if isinstance(value, types.ModuleType)]
    while modules:
        module = modules.pop()
        if not is_installed(module.__name__):
            own = {n: vars(module)[n] for n in attributes & set(vars(module))}
            modules += [value for value in own.values() if isinstance(value, types.ModuleType)]
            attributes -= set(own)
            used |= {f"{module.__name__}.{name}": value for name, value in own.items()}
    return used


def _imported(name: str) -> Any:
    """Import and return a module of the user.

    If the module belongs to an installed package or cannot be imported, return only its name.
    """
    try:
        return name if is_installed(name) else importlib.import_module(name)
    except ImportError:
        return name


def _names(code: types.CodeType, instructions: set[str]) -> set[str]:
    """Names that a code object and its nested functions use in the given bytecode instructions."""
    own = {each.argval for each in dis.get_instructions(code) if each.opname in instructions}
    inner = (each for each in code.co_consts if isinstance(each, types.CodeType))
    return own.union(*(_names(each, instructions) for each in inner))


def _class(kind: type, memo: Memo) -> Iterator[str]:
    if is_installed(kind.__module__):
        yield f"class {kind.__module__}.{kind.__qualname__}"
        return
    own = {n: getattr(item, "__func__", item) for n, item in vars(kind).items() if n not in HIDDEN}
    yield from _all(f"class {kind.__qualname__}", (kind.__bases__, own), memo)


def _object(value: Any, memo: Memo) -> Iterator[str]:
    if isinstance(value, types.BuiltinFunctionType):
        yield f"builtin {value.__module__}.{value.__qualname__}"
        if not isinstance(value.__self__, types.ModuleType | types.NoneType):
            yield _digest(value.__self__, memo)
        return
    if is_dataclass(value):
        own = [getattr(value, field.name) for field in fields(value)]
        yield from _all("dataclass", (type(value), *own), memo)
        return
    yield _digest(type(value), memo)
    try:
        stored = None if type(value).__module__ in ANNOTATIONS else value.__reduce_ex__(4)
    except Exception:  # pickle cannot store it
        stored = None
    if not isinstance(stored, tuple):
        state = getattr(value, "__dict__", None)
        yield _digest(state, memo) if state else re.sub(r" at 0x[0-9a-f]+", "", repr(value))
        return
    content = [list(each) if isinstance(each, Iterator) else each for each in stored]
    yield from _all("object", content, memo)


def _generator(value: Any, memo: Memo) -> Iterator[str]:
    """The name of a global generator; any other generator raises a TypeError.

    Every run seeds the global generators.
    """
    if not any(value is each for each in SEEDED):
        raise TypeError(
            "Expected methods and settings to make their own random generators, but got a "
            f"{type(value).__name__} from outside, whose numbers depend on the order of the runs: "
            "call torch.Generator().manual_seed(seed) inside of the function"
        )
    yield f"global {type(value).__name__}"


def _mapping(value: Mapping[Any, Any], memo: Memo) -> Iterator[str]:
    yield from ("mapping", *sorted(" ".join(_all("", each, memo)) for each in value.items()))


def _set(value: Set[Any], memo: Memo) -> Iterator[str]:
    yield from ("set", *sorted(_digest(each, memo) for each in value))


def _sequence(value: Iterable[Any], memo: Memo) -> Iterator[str]:
    yield from _all(type(value).__name__, value, memo)


# A value's exact type, or the first matching type, determines its parts; other values are objects.
EXACT: dict[type, Callable[[Any, Memo], Iterable[str]]] = {
    dict: _mapping, types.MappingProxyType: _mapping, set: _set, frozenset: _set,
    list: _sequence, tuple: _sequence,
}  # fmt: skip
PARTS: list[tuple[Any, Callable[[Any, Memo], Iterable[str]]]] = [
    (types.NoneType | bool | int | float | complex | str | bytes,
     lambda value, memo: [f"{type(value).__name__} {value!r}"]),
    (torch.Tensor | np.ndarray, _array),
    (torch.Generator | random.Random | np.random.Generator | np.random.RandomState, _generator),
    (types.ModuleType, lambda value, memo: [f"module {value.__name__} {_source(value)}"]),
    (functools.partial,
     lambda value, memo: _all("partial", (value.func, value.args, value.keywords), memo)),
    (types.MethodType, lambda value, memo: _all("method", (value.__func__, value.__self__), memo)),
    (property, lambda value, memo: _all("property", (value.fget, value.fset, value.fdel), memo)),
    (types.CodeType,
     lambda value, memo: _all("code", (value.co_code, value.co_names, value.co_consts), memo)),
    (types.FunctionType, _function),
    (type, _class),
]  # fmt: skip


@functools.cache
def is_installed(module: str | None) -> bool:
    """Return whether a module is part of Python, of this library or of an installed package."""
    if not module or module == "__main__":
        return False
    top = module.split(".")[0]
    if top == "fgl" or top in sys.stdlib_module_names:
        return True
    spec = None if module in sys.modules else importlib.util.find_spec(top)
    file = spec.origin if spec else getattr(sys.modules.get(module), "__file__", None)
    return file is not None and bool({"site-packages", "dist-packages"} & set(Path(file).parts))
