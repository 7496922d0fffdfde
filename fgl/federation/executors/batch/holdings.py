"""Detection of changes in the Python objects that a loss can reach (the holdings of the loss).

A traced step repeats tensor operations and runs no Python code. So if a loss depends on an object
that is not an input of the step, this object must stay unchanged. Examples are a counter, a flag of
a module, and a tensor in a closure.
"""

import array
import collections
import contextvars
import functools
import operator
import random
import sys
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ....graph import Graph
from ....sparse import SparseMatrix
from ....sparse.pattern import Pattern

# The globals of these do not change.
LIBRARIES = {"torch", "fgl", "numpy", "scipy", "networkx", "torch_geometric"}
LIBRARIES |= sys.stdlib_module_names
EFFECTS = {
    *("print", "breakpoint", "open"),  # what a traced step would not do
    *("environ", "getenv", "perf_counter", "monotonic", "now"),  # read from outside of Python
    *("item", "tolist", "numpy", "float", "int", "bool"),  # numbers of tensors, which a trace keeps
}
STREAMS = (random.Random, np.random.Generator, np.random.RandomState, torch.Generator, Iterator)
# Contents that may change where nobody looks.
OPAQUE = (
    *(np.ndarray, collections.deque, bytearray, array.array, memoryview),
    contextvars.ContextVar,
)
LEAVES = (
    *(Graph, SparseMatrix, Pattern),
    *(bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device),
)
MOST = 10_000  # objects, which are compared before every step


class Holdings:
    """All objects within reach of given roots: containers, closures, attributes, globals, tensors.

    Args:
        roots: the objects from which the search starts, which are a loss and its model.

    Attributes:
        refused: the reason why a step of this loss cannot be replaced by its recorded tensor
            operations, or an empty string.

    Example:
        >>> count = {"calls": 0}
        >>> holdings = Holdings([count])
        >>> count["calls"] += 1
        >>> holdings.unchanged()
        False
    """

    def __init__(self, roots: Sequence[Any]) -> None:
        self.refused = ""
        self._seen: dict[int, Any] = {}
        self._of: list[Any] = []  # containers, one for each entry, with its key and its value
        self._keys: list[Any] = []
        self._values: list[Any] = []
        self._containers: list[Any] = []
        self._lengths: list[int] = []
        self._cells: list[tuple[types.CellType, Any]] = []
        self._sets: list[tuple[Any, frozenset[Any]]] = []
        self._versions: list[tuple[Tensor, int]] = []
        waiting = list(roots)
        while waiting and not self.refused:
            waiting += self._visited(waiting.pop())
            if len(self._values) > MOST:
                self.refused = f"its loss holds more than {MOST:,} objects"

    def unchanged(self) -> bool:
        """Whether no object has changed since the start."""
        try:
            return (
                all(map(operator.is_, map(operator.getitem, self._of, self._keys), self._values))
                and all(map(operator.eq, map(len, self._containers), self._lengths))
                and all(cell.cell_contents is value for cell, value in self._cells)
                and all(value == members for value, members in self._sets)
                and all(tensor._version == version for tensor, version in self._versions)
            )
        except (KeyError, IndexError, ValueError):  # a key or a cell's contents are gone
            return False

    def holds(self, value: Any) -> bool:
        """Whether the holdings include this object."""
        return self._seen.get(id(value)) is value

    def _visited(self, value: Any) -> list[Any]:
        """The objects to which a value refers; empty if the value has already been visited."""
        if id(value) in self._seen or isinstance(value, LEAVES):
            return []
        self._seen[id(value)] = value
        if isinstance(value, types.ModuleType):
            if not _of_library(value.__name__):
                self.refused = f"its loss reads the module {value.__name__}"
            return []
        if isinstance(value, STREAMS + OPAQUE) or _has_slots(type(value)):
            self.refused = f"its loss holds a {type(value).__name__}"
            return []
        if isinstance(value, Tensor):
            if not isinstance(value, nn.Parameter) and not value.is_inference():
                self._versions.append((value, value._version))
            return []
        if isinstance(value, Mapping):
            return self._contents(value, value)
        if isinstance(value, (list, tuple)):
            return self._contents(value, range(len(value)))
        if isinstance(value, (set, frozenset)):
            self._sets.append((value, frozenset(value)))
            return list(value)
        if isinstance(value, types.FunctionType):
            return self._of_function(value)
        if isinstance(value, type):
            if _of_library(value.__module__):
                return []
            return [*self._contents(vars(value), list(vars(value))), *value.__mro__]
        parts = ("func", "args", "keywords", "__func__", "__self__", "fget")  # of what is callable
        reached = [getattr(value, part) for part in parts if _is_part(value, part)]
        own = getattr(value, "__dict__", None)
        if own is not None:
            reached += self._contents(own, list(own))
        return [*reached, type(value)]

    def _contents(self, container: Any, keys: Any) -> list[Any]:
        self._containers.append(container)
        self._lengths.append(len(container))
        return [self._entry(container, key) for key in keys]

    def _entry(self, container: Any, key: Any) -> Any:
        self._of.append(container)
        self._keys.append(key)
        self._values.append(container[key])
        return self._values[-1]

    def _of_function(self, function: types.FunctionType) -> list[Any]:
        reached: list[Any] = [function.__defaults__, function.__kwdefaults__]
        wrapped = getattr(function, "__dict__", {})
        reached += list(wrapped.values())
        for cell in function.__closure__ or ():
            try:
                self._cells.append((cell, cell.cell_contents))
            except ValueError:  # empty as yet
                continue
            reached.append(cell.cell_contents)
        if _of_library(function.__module__):
            return reached
        names = set(_names(function.__code__))
        effects = sorted(names & EFFECTS - set(function.__globals__))
        if effects:
            self.refused = f"its loss calls {effects[0]}"
        for name in names & set(function.__globals__):
            reached.append(self._entry(function.__globals__, name))
        return reached


CALLABLES = (
    *(functools.partial, types.MethodType, types.BuiltinFunctionType, types.MethodWrapperType),
    *(staticmethod, classmethod, property),
)


def _is_part(value: Any, name: str) -> bool:
    return isinstance(value, CALLABLES) and hasattr(value, name)


def _has_slots(kind: type) -> bool:
    """Whether a class has slots.

    Values in slots are missing from an object's dict.
    """
    return any(
        "__slots__" in vars(each) for each in kind.__mro__ if not _of_library(each.__module__)
    )


def _of_library(module: str | None) -> bool:
    return (module or "").split(".")[0] in LIBRARIES


def _names(code: types.CodeType) -> Iterator[str]:
    """The names that a function looks up in its code, including the code of nested functions."""
    yield from code.co_names
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            yield from _names(const)
