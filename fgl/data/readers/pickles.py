"""Safe reader of pickled arrays, SciPy's CSR matrices and dicts of lists.

Python's unpickler calls functions that are named in the file, and deeply nested tuples can crash
the process. This reader never calls functions that are named in a file. It supports only the
opcodes that dataset files contain.
"""

import pickletools
import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

DTYPE = re.compile(r"[biuf][1248]")
CONSTANTS: dict[str, Any] = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
EMPTY: dict[str, Callable[[], Any]] = {"EMPTY_TUPLE": tuple, "EMPTY_LIST": list, "EMPTY_DICT": dict}
TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
PUT = {"PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"}
GET = {"GET", "BINGET", "LONG_BINGET"}
IGNORED = {"PROTO", "FRAME"}
KINDS = ("INT", "LONG", "FLOAT", "STRING", "UNICODE", "BYTES")
VALUES = {
    *(f"{size}{kind}" for size in ("", "BIN", "SHORT_", "SHORT_BIN") for kind in KINDS),
    *("BININT1", "BININT2", "LONG1", "LONG4", "BINUNICODE8", "BINBYTES8"),
}


class _Type:
    """A numeric dtype; the pickled state sets the byte order."""

    def __init__(self, name: object, *_: object) -> None:
        if not isinstance(name, str) or not DTYPE.fullmatch(name):
            raise ValueError(f"an array of dtype {str(name)[:20]!r}")
        self.dtype: np.dtype[Any] = np.dtype(name)

    def build(self, state: Any) -> None:
        self.dtype = self.dtype.newbyteorder(state[1])


class _Array:
    """An array of numbers; the pickled state sets the shape, the dtype and the bytes."""

    def __init__(self, *_: object) -> None:
        self.value: NDArray[Any] | None = None

    def build(self, state: Any) -> None:
        _, shape, of, fortran, raw = state
        content = raw.encode("latin1") if isinstance(raw, str) else raw
        if not isinstance(of, _Type) or not isinstance(content, bytes):
            raise ValueError("an array of other than numbers")
        if len(content) != of.dtype.itemsize * _count(shape):
            raise ValueError(f"{len(content)} bytes for an array of another size")
        order: Any = "F" if fortran else "C"
        self.value = np.ndarray(shape, of.dtype, content, order=order).copy()


class _Bag(SimpleNamespace):
    """The fields of a `csr_matrix`."""

    def build(self, state: Any) -> None:
        vars(self).update(state)


def _count(shape: Any) -> int:
    """Number of entries of a shape."""
    if not isinstance(shape, tuple) or not all(type(n) is int and n >= 0 for n in shape):
        raise ValueError("an array without a shape")
    count = 1
    for n in shape:
        count *= n
    return count


def _matrix() -> _Bag:
    return _Bag()


def _lists(*_: object) -> dict[Any, Any]:
    return {}


def _encoded(text: str = "", *_: object) -> bytes:
    """The bytes that protocol 2 writes as text."""
    if not isinstance(text, str):
        raise ValueError("bytes of other than text")
    return text.encode("latin1")


GLOBALS: dict[tuple[str, str], Any] = {
    ("scipy.sparse.csr", "csr_matrix"): _matrix,
    ("scipy.sparse._csr", "csr_matrix"): _matrix,
    ("numpy", "ndarray"): None,  # class argument of `_reconstruct`
    ("numpy", "dtype"): _Type,
    ("numpy.core.multiarray", "_reconstruct"): _Array,
    ("numpy._core.multiarray", "_reconstruct"): _Array,
    ("collections", "defaultdict"): _lists,
    ("_codecs", "encode"): _encoded,
    ("__builtin__", "bytes"): _encoded,
    ("__builtin__", "list"): None,  # argument of a defaultdict
    ("builtins", "list"): None,
}


def read_pickle(content: bytes | IO[bytes]) -> Any:
    """Read a pickled array, matrix (as a `SimpleNamespace` of its fields), or dict of these.

    Values of a dict can also be lists.

    Args:
        content: a pickle of protocol 2, 3 or 4, written by Python 2 or 3, or an open file, of which
            one pickle is read.

    Raises:
        ValueError: if an opcode or a global is not supported, or if a dict key is neither an
            integer nor a string. A damaged file can raise exceptions of any kind.

    Example:
        >>> import pickle
        >>> read_pickle(pickle.dumps({0: [1, 2], 1: []}, protocol=4))
        {0: [1, 2], 1: []}

    Source: https://docs.python.org/3/library/pickletools.html
    """
    reader = _Reader()
    for opcode, argument, _ in pickletools.genops(content):
        reader.step(opcode.name, argument)
    return _plain(reader.stack.pop())


class _Reader:
    """State of the reader while it reads a pickle: the stack, the open marks and the memo."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}
        self.calls: dict[str, Callable[[], None]] = {
            "MARK": lambda: self.marks.append(len(self.stack)),
            "TUPLE": lambda: self.stack.append(tuple(self.since_mark())),
            "LIST": lambda: self.stack.append(self.since_mark()),
            "DICT": lambda: self.fill({}, self.since_mark()),
            "APPEND": lambda: self.extend([self.stack.pop()]),
            "APPENDS": lambda: self.extend(self.since_mark()),
            "SETITEM": lambda: self.set_items([self.stack.pop(-2), self.stack.pop()]),
            "SETITEMS": lambda: self.set_items(self.since_mark()),
            "STACK_GLOBAL": lambda: self.name(self.stack.pop(-2), self.stack.pop()),
            "REDUCE": self.call,
            "NEWOBJ": self.call,
            "BUILD": self.build,
            "STOP": lambda: None,
        }

    def step(self, name: str, argument: Any) -> None:
        """Run an opcode."""
        if name in VALUES:
            self.stack.append(argument)
        elif name in PUT:
            self.memo[len(self.memo) if argument is None else argument] = self.stack[-1]
        elif name in GET:
            self.stack.append(self.memo[argument])
        elif name in EMPTY:
            self.stack.append(EMPTY[name]())
        elif name in CONSTANTS:
            self.stack.append(CONSTANTS[name])
        elif name in TUPLES:
            self.stack[-TUPLES[name] :] = [tuple(self.stack[-TUPLES[name] :])]
        elif name == "GLOBAL":
            self.name(*argument.split(" ", 1))
        elif name in self.calls:
            self.calls[name]()
        elif name not in IGNORED:
            raise ValueError(f"the opcode {name}")

    def since_mark(self) -> list[Any]:
        start = self.marks.pop()
        values = self.stack[start:]
        del self.stack[start:]
        return values

    def extend(self, values: list[Any]) -> None:
        into = self.stack[-1]
        if not isinstance(into, list):
            raise ValueError(f"a {type(into).__name__} in the place of a list")
        into += values

    def set_items(self, items: list[Any]) -> None:
        into = self.stack[-1]
        if not isinstance(into, dict):
            raise ValueError(f"a {type(into).__name__} in the place of a dict")
        keys = items[::2]
        if not all(type(key) in (int, str) for key in keys):  # hashing a tuple hashes its items
            raise ValueError("a key that is no integer or string")
        into.update(zip(keys, items[1::2], strict=True))

    def fill(self, into: dict[Any, Any], items: list[Any]) -> None:
        self.stack.append(into)
        self.set_items(items)

    def name(self, module: object, name: object) -> None:
        key = (str(module), str(name))
        if key not in GLOBALS:
            raise ValueError(f"the global {key[0]}.{key[1]}")
        self.stack.append(GLOBALS[key])

    def call(self) -> None:
        arguments, function = self.stack.pop(), self.stack.pop()
        if function not in (_matrix, _lists, _encoded, _Type, _Array) or not isinstance(
            arguments, tuple
        ):
            raise ValueError("a call of what is no function")
        self.stack.append(function(*arguments))

    def build(self) -> None:
        state, value = self.stack.pop(), self.stack[-1]
        if not isinstance(value, (_Type, _Array, _Bag)):
            raise ValueError(f"a state of a {type(value).__name__}")
        value.build(state)


def _plain(value: Any) -> Any:
    """Convert a value to NumPy arrays."""
    if isinstance(value, dict):
        return {key: _plain(own) for key, own in value.items()}
    if isinstance(value, _Bag):
        return SimpleNamespace(**{key: _plain(own) for key, own in vars(value).items()})
    return value.value if isinstance(value, _Array) else value
