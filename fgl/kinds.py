"""Kinds of arguments: the annotations of a public function, checked when it is called."""

from __future__ import annotations

import functools
import inspect
import numbers
import sys
import typing
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union

import numpy as np
import torch
from torch import Tensor

Function = TypeVar("Function", bound=Callable[..., Any])
SEVERAL = (Sequence, Collection, Iterable, list, tuple)
NAMES = {
    "Callable": "a function",
    "Graph": "a fgl.Graph",
    "Mapping": "a dict",
    "Method": "a Method, such as task.fedavg or fgl.fedavg(model)",
    "Module": "a torch.nn.Module",
    "NoneType": "None",
    "Target": "a Target, such as fgl.targets.CLASSES",
    "Task": "a Task, such as fgl.tasks.Nodes(clients=5).load(seed=0)",
    "Tensor": "a tensor",
    "Training": "a fgl.Training",
    "float": "a number",
    "int": "an integer",
    "str": "a string",
}
# Expected kind and type of the value, to the call that works. `value` is the written value.
WAYS = {
    ("Method", "Task"): "{call}(task.fedavg{rest})",
    ("Method", "Setting"): "{call}(setting.load(seed=0).fedavg{rest})",
    ("Method", "Module"): "{call}(fgl.fedavg(model){rest})",
    ("Method", "Result"): "{call}(result.method{rest})",
    ("Method", "function"): "{call}({value}(task.fedavg{own}){rest})",
    ("Method", "str"): "{call}(fgl.methods.{value}(task.fedavg{own}){rest})",
    ("Method", "type"): "{call}(fgl.fedavg({value}(...)){rest})",
    ("Method", "object"): "{call}(task.fedavg{rest})",
    ("Task", "Setting"): "setting.load(seed=0)",
    ("Task", "Method"): "the task that has this method as its task.fedavg",
    ("Module", "Method"): "method.model",
    ("Module", "Task"): "task.fedavg.model",
    ("Graph", "Data"): "fgl.Graph.from_pyg(data)",
    ("Graph", "HeteroData"): "fgl.data.from_hetero(data)",
    ("Graph", "Task"): "task.whole, or one of task.clients",
    ("Graph", "list"): "one graph of the list, or fgl.Graph.join of small ones",
    ("several Graph", "Graph"): "[graph]",
    ("several Graph", "Task"): "task.clients",
    ("several Graph", "Tensor"): "fgl.data.partition_graph(graph, parts) makes the clients",
    ("several Tensor", "Tensor"): "[(parts == k).nonzero()[:, 0] for k in parts.unique()]",
    ("several Tensor", "int"): "fgl.data.louvain_partition(graph, {value})",
    ("several str", "str"): "[{value!r}]",
    ("several int", "int"): "[{value}], or range({value})",
    ("several EdgeSplit", "Graph"): "fgl.data.edge_split(graph) makes one",
    ("several EdgeSplit", "EdgeSplit"): "[split]",
    ("Tensor", "Graph"): "graph.y",
    ("int", "Tensor"): "tensor.item()",
    ("float", "Tensor"): "tensor.item()",
    ("Training", "Optimizer"): "fgl.Training(lambda params: torch.optim.SGD(params, lr=0.1))",
    ("Training", "function"): "fgl.Training({value})",
    ("Callable", "Optimizer"): "lambda params: torch.optim.SGD(params, lr=0.1)",
    ("VGAE", "Module"): "fgl.tasks.node_task and fgl.tasks.pair_task take any model",
}


def typed(function: Function) -> Function:
    """Check the arguments of a function, or of a class, against its annotations at each call.

    Raises:
        TypeError: when called, naming the argument, the expected kind, the value, and the call that
            works.

    Example:
        >>> @typed
        ... def size(graph: fgl.Graph) -> int:
        ...     return graph.num_nodes
        >>> size([1, 2])
        Traceback (most recent call last):
        TypeError: Expected graph to be a fgl.Graph, but got list: one graph of the list, or ...
    """
    if isinstance(function, type):
        init: Any = vars(function)["__init__"]
        setattr(function, "__init__", typed(init))  # noqa: B010  # mypy
        return function
    bind = binder(function)

    @functools.wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        bind(*args, **kwargs)
        return function(*args, **kwargs)

    return checked  # type: ignore[return-value]  # the same signature


def binder(function: Callable[..., Any], **first: type) -> Callable[..., dict[str, Any]]:
    """A function that binds a call's arguments to their names, and checks their kinds.

    Args:
        function: the function that is called; its annotations are read at the first call.
        first: kinds of parameters that have no annotation, if there are such parameters.

    Example:
        >>> binder(fgl.fedavg)(torch.nn.Linear(1, 1))
        {'model': Linear(in_features=1, out_features=1, bias=True)}
    """
    signature = inspect.signature(function)
    name = function.__qualname__.removesuffix(".__init__").rsplit(".", 1)[-1]

    hints = _Hints(function, first, tuple(signature.parameters))

    def bound(way: Callable[..., inspect.BoundArguments], args: Any, kwargs: Any) -> dict[str, Any]:
        try:
            return dict(way(*args, **kwargs).arguments)
        except TypeError as error:
            raise TypeError(f"{name}: {error}; {_usage(name, signature)}") from None

    def bind(*args: Any, **kwargs: Any) -> dict[str, Any]:
        arguments = bound(signature.bind_partial, args, kwargs)
        for key, value in arguments.items():
            plain = signature.parameters[key].kind not in VARIADIC
            if plain and not fits(value, hints()[key]):
                raise TypeError(_sentence(key, value, hints()[key], name, _needed(signature)))
        return bound(signature.bind, args, kwargs)  # a missing argument is named last

    return bind


class _Hints:
    """The kinds of a function's parameters, read at the first call.

    It can be pickled with a function of a script, and is then as before the first call.
    """

    __slots__ = ("_first", "_function", "_kinds", "_names")

    def __init__(self, function: Callable[..., Any], first: Any, names: tuple[str, ...]) -> None:
        self._function, self._first, self._names = function, first, names
        self._kinds: dict[str, Any] | None = None

    def __call__(self) -> dict[str, Any]:
        if self._kinds is None:
            try:
                own = typing.get_type_hints(inspect.unwrap(self._function))
            except NameError:  # annotations for a type checker alone
                own = {}
            self._kinds = {n: own[n] if n in own else self._first.get(n, Any) for n in self._names}
        return self._kinds

    def __reduce__(self) -> tuple[Any, ...]:
        return _Hints, (self._function, self._first, self._names)


VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def fits(value: Any, hint: Any) -> bool:
    """Whether a value is of the kind of an annotation; every value fits an unknown annotation.

    Example:
        >>> fits(3, float), fits([3, "a"], Sequence[int]), fits("a", Sequence[str])
        (True, False, False)
    """
    kind, inner = typing.get_origin(hint) or hint, typing.get_args(hint)
    if kind in (Union, UnionType):
        return any(fits(value, each) for each in inner)
    if kind is Literal:
        return isinstance(value, tuple(map(type, inner)))
    if kind in (int, float):
        number = numbers.Integral if kind is int else numbers.Real
        return isinstance(value, number) and not isinstance(value, bool)
    if kind is str:  # a device's name may be the device
        return isinstance(value, str | torch.device)
    if kind is Callable or (getattr(kind, "_is_protocol", False) and "__call__" in vars(kind)):
        return callable(value)
    if kind is Any or not isinstance(kind, type) or getattr(kind, "_is_protocol", False):
        return True
    if kind in SEVERAL and isinstance(value, str | bytes | Mapping | Tensor):
        return False
    if kind is bool:  # as comparisons of numpy are
        return isinstance(value, bool | np.bool_)
    kind = Collection if kind is Sequence else kind  # a set or an array has a length too
    if kind in SEVERAL and inner and isinstance(value, Collection):
        return isinstance(value, kind) and all(fits(own, inner[0]) for own in value)
    return isinstance(value, kind)


def _sentence(key: str, value: Any, hint: Any, name: str, rest: str) -> str:
    """The error for an argument of another kind."""
    kind, inner = typing.get_origin(hint) or hint, typing.get_args(hint)
    if kind in SEVERAL and inner and isinstance(value, list | tuple):
        place = next((k for k, own in enumerate(value) if not fits(own, inner[0])), None)
        if place is not None:
            key, value, of = f"{key}[{place}]", value[place], inner[0]
            way = _way(f"several {_called(of)}", value, name, rest)
            return f"Expected {key} to be {in_words(of)}, but got {shown(value)}{way}"
    expected = f"several {_called(inner[0])}" if kind in SEVERAL and inner else _first_kind(hint)
    way = _way(expected, value, name, rest)
    return f"Expected {key} to be {in_words(hint)}, but got {shown(value)}{way}"


def check_kind(name: str, value: Any, kind: Any, call: str = "", rest: str = "") -> None:
    """Raise a TypeError unless a value is of a kind; `call` was given it, and then the `rest`.

    Example:
        >>> check_kind("model", fgl.nn.GCN, torch.nn.Module)
        Traceback (most recent call last):
        TypeError: Expected model to be a torch.nn.Module, but got the class GCN: GCN(...)
    """
    if not fits(value, kind):
        raise TypeError(_sentence(name, value, kind, call, rest))


def _first_kind(hint: Any) -> str:
    options = typing.get_args(hint) if typing.get_origin(hint) in (Union, UnionType) else (hint,)
    return next(_called(each) for each in options if each is not NoneType)


def _called(hint: Any) -> str:
    return str(getattr(typing.get_origin(hint) or hint, "__name__", hint))


def in_words(hint: Any) -> str:
    """An annotation in words.

    Example:
        >>> in_words(Sequence[fgl.Graph]), in_words(int | None)
        ('a sequence, each a fgl.Graph', 'an integer or None')
    """
    kind, inner = typing.get_origin(hint) or hint, typing.get_args(hint)
    if kind in (Union, UnionType):
        return " or ".join(in_words(each) for each in inner)
    if kind is Literal:
        return "one of " + ", ".join(map(repr, inner))
    if kind in SEVERAL and inner:
        return f"a sequence, each {in_words(inner[0])}"
    name = _called(hint)
    return NAMES.get(name, f"{'an' if name[0] in 'AEIO' else 'a'} {name}")


def shown(value: Any) -> str:
    """A value as an error shows it: a class and a plain value as such, others by their type.

    Example:
        >>> shown(torch.nn.Linear), shown("a"), shown(torch.ones(1))
        ('the class Linear', "'a'", 'Tensor')
    """
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if value is None or isinstance(value, bool | numbers.Number | str):
        return repr(value)[:200]
    if type(value).__name__ == "function":
        return f"the function {value.__name__}"
    return type(value).__name__


def _way(expected: str, value: Any, name: str, rest: str) -> str:
    """The call that works, if `WAYS` knows one for the value's type or a base of it."""
    own = [base.__name__ for base in type(value).__mro__]
    own += ["list"] if "tuple" in own else ["Data"] if "Batch" in own else []
    plain = isinstance(value, str | int)
    written = str(value) if plain else getattr(value, "__name__", "")
    builder: Any = value
    if expected == "Method" and isinstance(value, str):
        builder = getattr(sys.modules.get("fgl.methods"), value, None)
        own = own if inspect.isfunction(builder) else ["object"]
    asks = inspect.signature(builder) if inspect.isfunction(builder) else inspect.Signature()
    if expected == "Method" and next(iter(asks.parameters), "") == "model":
        own = ["object"]  # fgl.fedavg makes the method that other builders take
    settings = _needed(asks)
    for kind in own:
        way = WAYS.get((expected, kind), "")
        if way and ("{value" not in way or written.isidentifier() or kind == "int"):
            return ": " + way.format(call=name, rest=rest, value=written, own=settings)
    return f": {value.__name__}(...)" if isinstance(value, type) else ""


def _needed(signature: inspect.Signature) -> str:
    """The settings that a call has to give."""
    needed = [
        key
        for key, parameter in signature.parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY and parameter.default is parameter.empty
    ]
    return "".join(f", {key}=..." for key in needed)


def _usage(name: str, signature: inspect.Signature) -> str:
    """The call of a function with its settings' names, for an error."""
    kinds = {key: parameter.kind for key, parameter in signature.parameters.items()}
    settings = [k for k, kind in kinds.items() if kind is inspect.Parameter.KEYWORD_ONLY]
    first = [k for k in kinds if k not in settings and k != "self"]
    call = ", ".join([*first, *(f"{k}=..." for k in settings)])
    return f"its settings have names: {name}({call})"
