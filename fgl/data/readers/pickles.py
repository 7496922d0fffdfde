"""Safe reader of pickled arrays, SciPy's CSR matrices and dicts of lists.

Python's unpickler calls any function that the file names. This reader calls only the functions and
classes in `GLOBALS`. The hash of a deeply nested tuple can crash the process, so the tuples of this
reader have no hash.
"""

import io
import pickle
import re
from collections.abc import Callable
from math import prod
from types import SimpleNamespace
from typing import IO, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

DTYPE = re.compile(r"[biuf][1248]")


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
        if not all(type(n) is int and n >= 0 for n in shape):
            raise ValueError("an array without a shape")
        if len(content) != of.dtype.itemsize * prod(shape):
            raise ValueError(f"{len(content)} bytes for an array of another size")
        order: Any = "F" if fortran else "C"
        self.value = np.ndarray(shape, of.dtype, content, order=order).copy()


class _Bag(SimpleNamespace):
    """The fields of a `csr_matrix`."""

    def build(self, state: Any) -> None:
        vars(self).update(state)


class _Lists(dict[Any, Any]):
    """A dict in place of a pickled defaultdict; the default factory is ignored."""

    def __init__(self, *_: object) -> None:
        super().__init__()


def _encoded(text: str = "", *_: object) -> bytes:
    """Convert text to bytes; pickle's protocol 2 stores bytes as text."""
    return text.encode("latin1")


GLOBALS: dict[tuple[str, str], Any] = {
    ("scipy.sparse.csr", "csr_matrix"): _Bag,
    ("scipy.sparse._csr", "csr_matrix"): _Bag,
    ("numpy", "ndarray"): None,  # class argument of `_reconstruct`
    ("numpy", "dtype"): _Type,
    ("numpy.core.multiarray", "_reconstruct"): _Array,
    ("numpy._core.multiarray", "_reconstruct"): _Array,
    ("collections", "defaultdict"): _Lists,
    ("_codecs", "encode"): _encoded,
    ("__builtin__", "bytes"): _encoded,
    ("__builtin__", "list"): None,  # argument of a defaultdict
    ("builtins", "list"): None,
}


def read_pickle(content: bytes | IO[bytes]) -> Any:
    """Read a pickle of an array, of a SciPy CSR matrix, or of a dict of arrays, matrices or lists.

    A matrix is returned as a `SimpleNamespace` of the matrix's fields.

    Args:
        content: a pickle of protocol 2, 3 or 4, written by Python 2 or 3; or a file with such a
            pickle.

    Raises:
        ValueError: if the pickle names a function or a class that is not in `GLOBALS`. A damaged
            file can raise exceptions of any kind.

    Example:
        >>> import pickle
        >>> read_pickle(pickle.dumps({0: [1, 2], 1: []}, protocol=4))
        {0: [1, 2], 1: []}
    """
    file = io.BytesIO(content) if isinstance(content, bytes) else content
    return _plain(_Reader(file, encoding="latin1").load())


class _Tuple(tuple[Any, ...]):
    """A tuple that cannot be hashed, since hashing nested tuples can take hours or crash Python."""

    __hash__ = None  # type: ignore[assignment]


def _without_hash(load: Callable[[Any], None]) -> Callable[[Any], None]:
    """Wrap the handler of an opcode that pushes a tuple, so that the pushed tuple has no hash."""

    def step(reader: Any) -> None:
        load(reader)
        reader.stack[-1] = _Tuple(reader.stack[-1])

    return step


def _build(reader: Any) -> None:
    """Handle the opcode BUILD, which sets a state; Python's own handler could change a class."""
    state = reader.stack.pop()
    reader.stack[-1].build(state)


class _Reader(pickle._Unpickler):
    """Unpickler in pure Python: its memo is a dict, so a large memo index takes no extra memory."""

    dispatch: ClassVar[dict[int, Any]] = {
        **pickle._Unpickler.dispatch,
        **{code: _without_hash(pickle._Unpickler.dispatch[code]) for code in b"t\x85\x86\x87"},
        pickle.BUILD[0]: _build,
        pickle.BYTEARRAY8[0]: None,  # it would allocate any size
    }

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in GLOBALS:
            raise ValueError(f"the global {module}.{name}")
        return GLOBALS[module, name]


def _plain(value: Any) -> Any:
    """Convert a value to NumPy arrays."""
    if isinstance(value, dict):
        return {key: _plain(own) for key, own in value.items()}
    if isinstance(value, _Bag):
        return SimpleNamespace(**{key: _plain(own) for key, own in vars(value).items()})
    return value.value if isinstance(value, _Array) else value
