"""Checks of a call's arguments: their names, types and bounds, from the function's signature."""

import difflib
import functools
import inspect
import numbers
import re
import sys
import typing
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import FunctionType, ModuleType, NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from .checks import check_choice, reject_if

Function = TypeVar("Function", bound=Callable[..., Any])
Check = Callable[[str, Any], None]
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
    "VGAE": "a fgl.nn.VGAE",
    "float": "a number",
    "int": "an integer",
    "str": "a string",
}
# Expected type and actual type, to a call that works. `value` is the value as text.
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
    ("Graph", "list"): "fgl.Graph.join(graphs), or fgl.Graph.from_pyg(Batch.from_data_list(data))",
    ("several Graph", "Graph"): "[graph]",
    ("several Graph", "DataLoader"): "[fgl.Graph.from_pyg(data), ...], one graph per client",
    ("several Graph", "Task"): "task.clients",
    (
        "several Graph",
        "Tensor",
    ): "fgl.data.partitions.partition_graph(graph, parts) makes the clients",
    ("several Tensor", "Tensor"): "[(parts == k).nonzero()[:, 0] for k in range(parts.max() + 1)]",
    ("several Tensor", "int"): "fgl.data.partitions.louvain_partition(graph, {value})",
    ("several str", "str"): "[{value!r}]",
    ("several int", "int"): "[{value}], or range({value})",
    ("several EdgeSplit", "Graph"): "fgl.data.splits.edge_split(graph) makes one",
    ("several EdgeSplit", "EdgeSplit"): "[split]",
    ("Inbox", "dict"): "inbox.with_messages(messages)",
    ("dict", "Result"): "result.server_state, or the model's result.model.state_dict()",
    ("Tensor", "Graph"): "graph.y",
    ("int", "Tensor"): "tensor.item()",
    ("float", "Tensor"): "tensor.item()",
    ("Training", "Optimizer"): "fgl.Training(partial(torch.optim.{value}, lr=0.01), num_steps=3)",
    ("Training", "partial"): "fgl.Training(partial(...), num_steps=3)",
    ("Training", "function"): "fgl.Training({value})",
    ("Callable", "Optimizer"): "partial(torch.optim.{value}, lr=0.01)",
    ("optimizer", "object"): "partial(torch.optim.Adam, lr=0.01)",
    ("batches", "object"): "a function of (graph, context), see fgl.federation.node_minibatches",
    ("methods", "list"): '{{"FedAvg": lambda task: task.fedavg, "SCAFFOLD": fgl.methods.scaffold}}',
    ("VGAE", "Module"): "fgl.tasks.node_task and fgl.tasks.pair_task take any model",
}


# Another library's name for an argument, to the names here with the same meaning.
MEANT = {
    "lr": ("local", "optimizer", "train"),
    "learning_rate": ("lr", "local", "optimizer", "train"),
    "rounds": ("num_rounds",),
    "epochs": ("steps", "num_steps"),
    "local_epochs": ("num_steps", "epochs", "local"),
    "steps": ("num_steps", "local"),
    "fraction_fit": ("participation",),
    "client_fraction": ("participation",),
    "num_clients": ("clients", "num_parts"),
    "on": ("clients",),
    "proximal_mu": ("mu",),
    "label": ("y",),
    "labels": ("y",),
    "target": ("y",),
    "features": ("x",),
    "edges": ("edge_index",),
    "adj": ("edge_index",),
    "random_state": ("seed",),
    "n_jobs": ("clients_at_once",),
    "batch_size": ("batches", "clients_at_once"),
    "in_features": ("in_channels",),
    "out_features": ("out_channels",),
    "num_features": ("in_channels",),
    "num_classes": ("out_channels",),
    "hidden": ("hidden_channels",),
}
# Names of other libraries -> what they are here.
ELSEWHERE = {
    "fedavg": "task.fedavg, or fgl.fedavg(model)",
    "fedbn": "fgl.methods.fedper(fedavg, shared=[...]) with all modules but the norms",
}
# Arguments of local training: if a function takes none of them, these two do.
LOCAL = ("lr", "learning_rate", "optimizer", "momentum", "weight_decay", "epochs", "local_epochs")
TRAINS = "fgl.Training(...) or fgl.tasks.Local(...) of the task sets it: "
# Conversions of a value for an argument of another type.
OF_LOCAL = {"learning_rate": "lr", "local_epochs": "steps", "epochs": "steps"}  # names in `local`
GIVEN = {
    "local": "fgl.tasks.Local({key}={value})",
    "optimizer": "partial(torch.optim.SGD, lr={value})",
    "train": "fgl.Training(partial(torch.optim.SGD, lr={value}))",
    "batches": "fgl.federation.node_minibatches(...)",
}


def typed(function: Function) -> Function:
    """Check the arguments of a function (or class) against its annotations at each call.

    Raises:
        TypeError: when called with an argument of an invalid type. The error names the argument,
            the expected type, the value, and an example of a valid call.
        ValueError: when called with a number outside the bounds of its annotation (for example,
            `fgl.checks.Share`), or with a value that the parameter's Literal does not list.

    Example:
        >>> @typed
        ... def size(graph: fgl.Graph) -> int:
        ...     return graph.num_nodes
        >>> size([1, 2])
        Traceback (most recent call last):
        TypeError: Expected graph to be a fgl.Graph, but got list: fgl.Graph.join(graphs), or ...
    """
    if isinstance(function, type):
        init: Any = vars(function)["__init__"]
        setattr(function, "__init__", typed(init))  # noqa: B010  # mypy
        return function
    bind = binder(function)

    @functools.wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        bind(*args, **kwargs)
        return function(*map(_number, args), **{key: _number(own) for key, own in kwargs.items()})

    return checked  # type: ignore[return-value]  # the same signature


def explained(function: Function) -> Function:
    """If a call fails because of its arguments, explain the failure in one sentence.

    A successful call costs no extra time: names and types are checked only after an error.

    Raises:
        TypeError: when called with an unknown argument, or without a required argument. The error
            suggests the most similar argument. If the function fails, its arguments' types are
            checked too. A type that does not fit the argument's annotation raises a TypeError.

    Example:
        >>> @explained
        ... def size(graph, *, num_layers=2):
        ...     return num_layers * graph.num_nodes
        >>> size(None, layers=3)
        Traceback (most recent call last):
        TypeError: Expected an argument of size, but got layers=3: did you mean num_layers=3? ...
    """
    signature = inspect.signature(function)

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            if str(error).startswith("Expected ") and ", but got " in str(error):
                raise
            inherited = function.__name__ == "forward" and args  # GCN's forward is Stack's
            name = f"{type(args[0]).__name__}.forward" if inherited else _short(function)
            cause = _misnamed(name, signature, args, kwargs, function.__doc__ or "")
            if cause is not None:
                raise cause from None
            binder(function)(*args, **kwargs)  # raises if an argument has another type
            raise

    called.__dict__["__explained__"] = True
    return called  # type: ignore[return-value]  # the same signature


def plain(function: Any) -> Any:
    """Undo `explained`: return the original function. Return a function without wrapper unchanged.

    Example:
        >>> plain(explained(len)) is len, plain(len) is len
        (True, True)
    """
    while "__explained__" in getattr(function, "__dict__", {}):
        function = function.__wrapped__
    return function


def _number(value: Any) -> Any:
    """Convert a NumPy number to a Python number, since some functions of torch require it."""
    return value.item() if isinstance(value, np.integer | np.floating) else value


# Packages whose public functions and classes check the arguments of every call.
CHECKED = ("fgl.data.", "fgl.methods.", "fgl.tasks.", "fgl.transforms.")


def explain_public(package: str) -> None:
    """Improve a package's error messages for wrong calls and for unknown names.

    Public functions and the methods of classes are wrapped by `explained`. In the packages that
    `CHECKED` lists, public functions and the constructors of public classes are wrapped by `typed`
    instead. In every module of the package, the wrapped function replaces the original function. A
    function that was stored elsewhere at import, for example as a default value, is not replaced.
    Such a function must be decorated in its source code instead.

    Example:
        >>> explain_public("fgl")
        >>> fgl.nn.GCN(4, 8, 2, layers=3)
        Traceback (most recent call last):
        TypeError: Expected an argument of GCN, but got layers=3: did you mean num_layers=3? ...
        >>> getattr(fgl.data, "louvain_partition")
        Traceback (most recent call last):
        AttributeError: module 'fgl.data' has no ...: did you mean ...louvain_partition?
    """
    modules = [m for name, m in sys.modules.items() if name.split(".")[0] == package]
    named = (each for module in modules for each in _functions(module))
    public = {each for each in named if isinstance(each, FunctionType | type)}
    functions = {each: _wrapper(each)(each) for each in public if _bare(each)}
    for module in modules:
        own = vars(module)
        bare = {key: value for key, value in own.items() if isinstance(value, FunctionType)}
        own |= {key: functions[value] for key, value in bare.items() if value in functions}
    for kind in {each for m in modules for each in vars(m).values() if isinstance(each, type)}:
        _explain_methods(kind, package, kind in public)
    rooms = [module.__name__ for module in modules if hasattr(module, "__all__")]
    for room in rooms:
        own = vars(sys.modules[room])
        own["__getattr__"] = _finder(room, rooms, own.get("__getattr__"))


def _wrapper(value: Any) -> Callable[[Any], Any]:
    return typed if value.__module__.startswith(CHECKED) else explained


def _functions(module: ModuleType) -> list[Any]:
    """The public functions of a package, or of a module that is itself public, as fgl.augment."""
    names = getattr(module, "__all__", None)
    if names is not None:
        return [getattr(module, name) for name in names]
    outer, _, inner = module.__name__.rpartition(".")
    room = sys.modules.get(outer)
    if inner not in getattr(room, "__all__", ()) or getattr(room, inner) is not module:
        return []
    own = [each for name, each in vars(module).items() if not name.startswith("_")]
    return [each for each in own if getattr(each, "__module__", "") == module.__name__]


def _explain_methods(kind: type, package: str, public: bool) -> None:
    inside = kind.__module__.split(".")[0] == package and not kind.__name__.startswith("_")
    if not inside or getattr(kind, "_is_protocol", False) or issubclass(kind, NOT_NAMED):
        return
    constructor = _wrapper(kind) if public else explained
    for key, value in list(vars(kind).items()):
        function = getattr(value, "__func__", value)  # of a class method or a static method
        called = key in ("__init__", "__call__", "__matmul__") or not key.startswith("_")
        if called and _bare(function):
            new = (constructor if key == "__init__" else explained)(function)
            setattr(kind, key, new if function is value else type(value)(new))


def _finder(
    room: str, rooms: list[str], other: Callable[[str], Any] | None
) -> Callable[[str], Any]:
    def find(name: str) -> Any:
        if other is not None:
            return other(name)
        paths = {
            each.lower(): f"{place}.{each}"
            for place in (*rooms, "fgl.methods", "fgl", room)
            for each in sys.modules[place].__all__
        }
        nearest = difflib.get_close_matches(name.lower(), paths, n=1, cutoff=0.7)
        path = ELSEWHERE.get(name.lower(), paths[nearest[0]] if nearest else "")
        meant = f": did you mean {path}?" if path else ""
        raise AttributeError(f"module {room!r} has no attribute {name!r}{meant}")

    return find


def _bare(function: Any) -> bool:
    """Whether a value is a function that no decorator, such as `typed`, has wrapped."""
    return isinstance(function, FunctionType) and not hasattr(function, "__wrapped__")


NOT_NAMED = (torch.autograd.Function, BaseException)


def _short(function: Any) -> str:
    """The name with which users call a function; for `__init__`, the name of the class."""
    name: str = function.__qualname__.removesuffix(".__init__")
    return name.rsplit("<locals>.", 1)[-1]


def _about(document: str, key: str) -> str:
    """The first sentence on an argument in a docstring's section Args; "" if there is none."""
    match = re.search(rf"^ +{key}: (.+?)(?:[.;:]\s|\n\n|\n +\w+: |$)", document, re.M | re.S)
    return " ".join(match[1].replace("``", "").split()) if match else ""


def _misnamed(
    name: str,
    signature: inspect.Signature,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    document: str = "",
) -> TypeError | None:
    """The error for a call that does not fit a signature, or None if the call fits."""
    try:
        signature.bind(*args, **kwargs)
        return None
    except TypeError as error:
        sentence = str(error)
    own = {k: each for k, each in signature.parameters.items() if k not in ("self", "cls")}
    kinds = {each.kind for each in own.values()}
    usage, me = _usage(name, signature), len(signature.parameters) - len(own)
    unknown = [key for key in kwargs if key not in own]
    if unknown and inspect.Parameter.VAR_KEYWORD not in kinds:
        key = unknown[0]
        unfit = [*kwargs, *["num_steps"] * ("batches" in kwargs)]  # which go with epochs
        free = [each for each in own if each not in unfit]
        meant = _meant(key, kwargs[key], free) or _meant(key, kwargs[key], list(own))
        values = [getattr(each, "__name__", each) for each in (*args, *kwargs.values())]
        words = {each.lower() for each in values if isinstance(each, str)}
        kind = next((each for each in dir(torch.optim) if each.lower() in words), "SGD")
        meant = meant.replace("torch.optim.SGD", f"torch.optim.{kind}")
        elsewhere = TRAINS if key in LOCAL and "optimizer" not in own else ""
        hint = f"did you mean {meant}? " if meant else elsewhere
        value = shown(kwargs[key])
        return TypeError(f"Expected an argument of {name}, but got {key}={value}: {hint}{usage}")
    places = [key for key, each in own.items() if each.kind in POSITIONAL]
    if len(args) - me > len(places) and inspect.Parameter.VAR_POSITIONAL not in kinds:
        return TypeError(
            f"Expected at most {len(places)} of {name}'s arguments without their names, but got "
            f"{len(args) - me}: {usage}"
        )
    required = [k for k, each in own.items() if each.default is EMPTY and each.kind not in VARIADIC]
    absent = [key for key in required if key not in {*places[: len(args) - me], *kwargs}]
    if absent:
        instead = next((k for k in unknown if absent[0] in _meant(k, kwargs[k], absent[:1])), None)
        got = "none" if instead is None else f"{instead}={shown(kwargs[instead])}"
        about = "".join(f"; {key}: {text}" for key in absent if (text := _about(document, key)))
        return TypeError(f"Expected {', '.join(absent)} to be given, but got {got}: {usage}{about}")
    return TypeError(f"Expected arguments that fit {usage}, but got {sentence}")


def check_options(
    outer: Callable[..., Any],
    options: Mapping[str, Any],
    inner: Callable[..., Any],
    *,
    taken: Collection[str] = (),
) -> None:
    """Raise an error if `outer` passes an option that `inner` does not take.

    Args:
        outer, inner: the function that received the options, and the function that it calls.
        options: arguments by name.
        taken: arguments of `inner` that only `outer` may set.

    Example:
        >>> check_options(fgl.compare, {"rounds": 3}, fgl.run)
        Traceback (most recent call last):
        TypeError: Expected an argument of compare, but got rounds=3: did you mean num_rounds=3? ...
    """
    own, passed = (inspect.signature(each).parameters.values() for each in (outer, inner))
    first = [each for each in own if each.kind is not each.VAR_KEYWORD]
    names = {each.name for each in first} | set(taken)
    more = [each for each in passed if each.kind is each.KEYWORD_ONLY and each.name not in names]
    signature = inspect.Signature([*first, *more])
    error = _misnamed(_short(outer), signature, (), options)
    if error is not None and not signature.parameters.keys() >= options.keys():
        raise error


def _meant(key: str, value: Any, names: Sequence[str]) -> str:
    """Text that suggests a similar argument; "" if there is no similar argument."""
    words = set(key.lower().split("_"))
    choices = [name for name in MEANT.get(key.lower(), ()) if name in names]
    choices += [name for name in names if words <= set(name.split("_"))]
    choices += difflib.get_close_matches(key, names, n=1, cutoff=0.7)
    choices += [name for name in names if set(name.split("_")) <= words]
    if not choices:
        return ""
    way = GIVEN.get(choices[0], "{value}") if choices[0] in MEANT.get(key, ()) else "{value}"
    text = repr(value) if isinstance(value, NoneType | bool | int | float | str) else "..."
    return f"{choices[0]}={way.format(key=OF_LOCAL.get(key, key), value=text)}"


def binder(function: Callable[..., Any], **first: type) -> Callable[..., dict[str, Any]]:
    """Build a function that names the arguments of a call and checks their types and bounds.

    Args:
        function: the function that is called; its annotations are read at the first call.
        first: expected types of parameters without annotations, as keywords ``parameter=type``.

    Example:
        >>> binder(fgl.fedavg)(torch.nn.Linear(1, 1))
        {'model': Linear(in_features=1, out_features=1, bias=True)}
    """
    signature, name = inspect.signature(function), _short(function)
    names = [key for key, each in signature.parameters.items() if each.kind not in VARIADIC]

    def bind(*args: Any, **kwargs: Any) -> dict[str, Any]:
        error: TypeError | None = None
        try:
            arguments = dict(signature.bind(*args, **kwargs).arguments)
        except TypeError:
            error = _misnamed(name, signature, args, kwargs, function.__doc__ or "")
            arguments = _bound_partly(signature, args, kwargs)
        hints = _hints(function)
        checks = {k: hints.get(k, (first.get(k, Any), [])) for k in names if k in arguments}
        for key, (hint, _) in checks.items():
            if not fits(arguments[key], hint):
                raise TypeError(_sentence(key, arguments[key], hint, name, _needed(signature)))
        if error is not None:  # after the check of types: an invalid type is reported first
            raise error from None
        for key, (_, bounds) in checks.items():
            for check in bounds if arguments[key] is not None else ():
                check(key, arguments[key])
        return arguments

    return bind


_known: WeakKeyDictionary[Any, dict[str, tuple[Any, list[Check]]]] = WeakKeyDictionary()


def _hints(function: Callable[..., Any]) -> dict[str, tuple[Any, list[Check]]]:
    """The type and the bounds of each annotated parameter; annotations are read only once."""
    if function not in _known:
        inner = inspect.unwrap(function)
        try:
            own, bounded = (typing.get_type_hints(inner, include_extras=x) for x in (False, True))
        except NameError:  # annotations that only a type checker can resolve
            own = bounded = {}
        _known[function] = {name: (own[name], bounds_of(bounded[name])) for name in own}
    return _known[function]


def bounds_of(hint: Any) -> list[Check]:
    """Functions ``(name, value)`` that raise an error if a value is outside an annotation's bounds.

    Example:
        >>> for check in bounds_of(Literal["sgd", "adam"] | None):
        ...     check("optimizer", "lion")
        Traceback (most recent call last):
        ValueError: Expected optimizer to be one of 'sgd', 'adam', but got 'lion'
    """
    kind, inner = typing.get_origin(hint), typing.get_args(hint)
    if kind is Annotated:
        return list(inner[1:])
    if kind is Literal:
        return [functools.partial(check_choice, choices=inner)]
    if kind in (Union, UnionType) and inner[1:] == (NoneType,):
        return bounds_of(inner[0])
    return []


def _bound_partly(
    signature: inspect.Signature, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """Arguments of an incomplete call, by name; empty if the call does not fit the signature."""
    try:
        return dict(signature.bind_partial(*args, **kwargs).arguments)
    except TypeError:
        return {}


EMPTY = inspect.Parameter.empty
POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


ALLOWED: dict[Any, Any] = {
    **{int: numbers.Integral, float: numbers.Real},
    **{str: (str, torch.device)},  # a device is allowed for its name
    **{bool: (bool, np.bool_)},  # comparisons in NumPy return np.bool_
}


def fits(value: Any, hint: Any) -> bool:
    """Whether a value has an annotation's type; an unknown annotation allows all values.

    Example:
        >>> fits(3, float), fits([3, "a"], Sequence[int]), fits("a", Sequence[str])
        (True, False, False)
    """
    kind, inner = typing.get_origin(hint) or hint, typing.get_args(hint)
    if kind in (Union, UnionType):
        return any(fits(value, each) for each in inner)
    if kind is Literal:
        return isinstance(value, tuple(map(type, inner)))
    if kind in ALLOWED:
        return isinstance(value, ALLOWED[kind]) and (kind is bool or not isinstance(value, bool))
    if kind is Callable or (getattr(kind, "_is_protocol", False) and "__call__" in vars(kind)):
        return callable(value)
    if kind is Any or not isinstance(kind, type) or getattr(kind, "_is_protocol", False):
        return True
    if kind not in SEVERAL:
        return isinstance(value, kind)
    if isinstance(value, str | bytes | Mapping | Tensor) or getattr(value, "shape", None) == ():
        return False  # as an array without dimensions, which has no entries
    kind = Collection if kind is Sequence else kind  # a set or an array is also allowed
    entries = _kinds(value, inner[0]) if inner and isinstance(value, Collection) else ()
    return isinstance(value, kind) and all(fits(own, inner[0]) for own in entries)


def _kinds(values: Collection[Any], hint: Any) -> Iterable[Any]:
    """The values to check: if only types matter, one value per type; otherwise all values.

    The check therefore costs nanoseconds per element of a list, and constant time for an array.
    """
    if isinstance(values, np.ndarray) and values.dtype != object:
        return values[:1]
    return values if typing.get_args(hint) else {type(own): own for own in values}.values()


def _sentence(key: str, value: Any, hint: Any, name: str, rest: str) -> str:
    """Text of the error for an argument of an invalid type."""
    kind, inner = typing.get_origin(hint) or hint, typing.get_args(hint)
    if kind in SEVERAL and inner and isinstance(value, list | tuple):
        place = next((k for k, own in enumerate(value) if not fits(own, inner[0])), None)
        if place is not None:
            key, value, of = f"{key}[{place}]", value[place], inner[0]
            one = _called(of)
            way = _way(one, value, name, rest) or _way(f"several {one}", value, name, rest)
            return f"Expected {key} to be {in_words(of)}, but got {shown(value, of)}{way}"
    expected = f"several {_called(inner[0])}" if kind in SEVERAL and inner else _first_kind(hint)
    way = _way(expected, value, name, rest) or _way(key, value, name, rest)
    return f"Expected {key} to be {in_words(hint)}, but got {shown(value, hint)}{way}"


def check_kind(name: str, value: Any, kind: Any, call: str = "", rest: str = "") -> None:
    """Raise a TypeError unless a value has the given type.

    `call` names the function that received the value, and `rest` holds the other arguments of this
    function.

    Example:
        >>> check_kind("model", fgl.nn.GCN, torch.nn.Module)
        Traceback (most recent call last):
        TypeError: Expected model to be a torch.nn.Module, but got the class GCN: GCN(...)
    """
    if not fits(value, kind):
        raise TypeError(_sentence(name, value, kind, call, rest))


def check_takes(name: str, function: Any, arguments: Collection[str]) -> None:
    """Raise a TypeError unless the function can be called with these positional arguments.

    Example:
        >>> check_takes("score", lambda params, graph: 0.0, ["params", "graph"])
        >>> check_takes("score", torch.relu, ["params", "graph"])
        Traceback (most recent call last):
        TypeError: Expected score to be a function of (params, graph), but got torch's relu
    """
    call = f"a function of ({', '.join(arguments)})"
    reject_if(not callable(function), f"{name} to be {call}", f"{function!r}", TypeError)
    of_torch = str(getattr(function, "__module__", None) or type(function).__module__)
    if of_torch.split(".")[0] in ("torch", "builtins") and not isinstance(function, type):
        named = getattr(function, "__name__", type(function).__name__)
        if of_torch.startswith("torch") or hasattr(torch, named):
            raise TypeError(f"Expected {name} to be {call}, but got torch's {named}")
    try:
        signature = inspect.signature(function)
    except ValueError:  # a builtin without a signature
        return
    try:
        signature.bind(*arguments)
    except TypeError as error:
        raise TypeError(f"Expected {name} to be {call}, but got {function!r}: {error}") from None


def _first_kind(hint: Any) -> str:
    options = typing.get_args(hint) if typing.get_origin(hint) in (Union, UnionType) else (hint,)
    return next(_called(each) for each in options if each is not NoneType)


def _called(hint: Any) -> str:
    return str(getattr(typing.get_origin(hint) or hint, "__name__", hint))


def in_words(hint: Any) -> str:
    """A description of an annotation in words.

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


def shown(value: Any, hint: Any = None) -> str:
    """Text that describes a value in an error.

    Numbers, strings and None are shown in full, and classes and functions by their names. Any other
    value is shown by the name of its type. If this name equals the name of the expected type, the
    text also names the type's package.

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
    package = type(value).__module__.split(".")[0]
    other = hint is not None and _first_kind(hint) == type(value).__name__
    return f"{package}'s " * other + type(value).__name__


def _way(expected: str, value: Any, name: str, rest: str) -> str:
    """An example of a correct call, if `WAYS` has an entry for the value's type or a base class."""
    own = [base.__name__ for base in type(value).__mro__]
    own += [{"tuple": "list", "Batch": "Data"}.get(kind, kind) for kind in own]
    stepper = value if isinstance(value, type) else type(value)
    own += ["Optimizer"] * issubclass(stepper, torch.optim.Optimizer)
    plain = isinstance(value, str | int)
    written = str(value) if plain else getattr(value, "__name__", stepper.__name__)
    named = expected == "Method" and isinstance(value, str)
    builder: Any = getattr(sys.modules.get("fgl.methods"), value, None) if named else value
    asks = inspect.signature(builder) if inspect.isfunction(builder) else inspect.Signature()
    of_model = next(iter(asks.parameters), "") == "model"  # fgl.fedavg, which other builders wrap
    if expected == "Method" and (of_model or (named and not asks.parameters)):
        own = ["object"]
    settings = _needed(asks)
    for kind in own:
        way = WAYS.get((expected, kind), "")
        if way and ("{value" not in way or written.isidentifier() or kind == "int"):
            return ": " + way.format(call=name, rest=rest, value=written, own=settings)
    return f": {value.__name__}(...)" if isinstance(value, type) else ""


# Text for an argument in a call that begins with task.fedavg.
OF_TASK = {"graph": "task.whole", "clients": "task.clients"}


def _needed(signature: inspect.Signature) -> str:
    """A call's required arguments as text, without the first argument."""
    needed = ""
    for key, parameter in [*signature.parameters.items()][1:]:
        if parameter.default is EMPTY and parameter.kind not in VARIADIC:
            place = parameter.kind in POSITIONAL
            needed += f", {OF_TASK.get(key, key)}" if place else f", {key}=..."
    return needed


def _usage(name: str, signature: inspect.Signature) -> str:
    """Text for an error: a call of the function, with the names of the function's settings."""
    kinds = {k: v.kind for k, v in signature.parameters.items() if k not in ("self", "cls")}
    settings = [k for k, kind in kinds.items() if kind is inspect.Parameter.KEYWORD_ONLY]
    first = [k for k, kind in kinds.items() if kind in POSITIONAL]
    more = ["..."] * any(kind in VARIADIC for kind in kinds.values())
    return f"{name}({', '.join([*first, *(f'{k}=...' for k in settings), *more])})"
