"""Composition of methods: a record of each method's builders, and checks that builders fit."""

import functools
import inspect
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from operator import attrgetter
from typing import Any, ParamSpec, overload

from torch import nn

from ...checks import reject_if
from ...kinds import binder, check_kind
from .describe import FUNCTIONS, Layer, described, short, short_name
from .method import Method, Training

P = ParamSpec("P")
Check = Callable[[Method, str], None]  # raises unless the builder works with the method


@overload
def layer(builder: Callable[P, Method], /) -> Callable[P, Method]: ...


@overload
def layer(
    *, sealed: Collection[str] = (), checks: Collection[Check] = ()
) -> Callable[[Callable[P, Method]], Callable[P, Method]]: ...


def layer(
    builder: Any = None, /, *, sealed: Collection[str] = (), checks: Collection[Check] = ()
) -> Any:
    """A decorator for builders of methods.

    The decorated builder returns a method that records the builder and the builder's arguments.

    The arguments of the builder are stored as part of a run. A run cannot be resumed from a
    checkpoint if an argument differs from the stored argument. ``repr(method)`` shows the
    arguments. The function `refuse` can find the builder by its name.

    Args:
        builder: a function that returns a method.
        sealed: fields of the method, such as ``"send"`` or ``"rules.silent"``, that no outer
            builder may change. The builder guarantees a property, such as privacy, only for its own
            functions. A run raises an error if a sealed field was replaced.
        checks: functions ``(method, name) -> None``, such as `check_averages`. Each check gets the
            builder's name, and raises an error if the builder does not work with the method.

    Returns:
        The decorated builder. The builder's input is the first argument that is a method or a task;
        a task stands for the task's method. The returned method has the input's layers and one more
        layer. The decorated builder raises a TypeError if `builder` does not return a method.

    Example:
        >>> @layer
        ... def halved(fedavg, *, share=0.5):
        ...     most = share * fedavg.rules.max_change
        ...     return replace(fedavg, rules=replace(fedavg.rules, max_change=most))
        >>> halved(fgl.fedavg(torch.nn.Linear(1, 1)), share=0.25)
        halved(fedavg(Linear(...)), share=0.25)
    """
    check_kind("builder", builder, Callable[..., Any] | None)
    noting = functools.partial(_noting, sealed=frozenset(sealed), checks=checks)
    return noting if builder is None else noting(builder)


def _noting(
    builder: Callable[P, Method], sealed: frozenset[str], checks: Collection[Check]
) -> Callable[P, Method]:
    signature = inspect.signature(builder)
    name = short_name(builder).rsplit(".", 1)[-1]
    bind = binder(builder, fedavg=Method, method=Method)

    @functools.wraps(builder)
    def build(*args: P.args, **kwargs: P.kwargs) -> Method:
        arguments = bind(*args, **kwargs)
        methods = [(key, _method_of(value)) for key, value in arguments.items()]
        place, method = next((pair for pair in methods if pair[1]), ("", None))
        rest = {key: value for key, value in arguments.items() if key != place}
        settings, call = _settings(signature, rest, place), _call(signature, rest)
        if method is not None:
            for check in checks:
                check(method, name)
        try:
            built = builder(*args, **kwargs)
        except AttributeError as error:
            if not isinstance(error.obj, nn.Module):
                raise
            want = f"a method whose model has {error.name!r}, but got {type(error.obj).__name__}"
            raise TypeError(f"Expected {name} to be given {want}") from error
        got = type(built).__name__
        reject_if(not isinstance(built, Method), f"{name} to return a Method", got, TypeError)
        if sealed and method:
            check_seals(method)
        fields = {*FUNCTIONS, "train", "model", *sealed}
        left = {field: attrgetter(field)(built) for field in fields}
        outer, inner = _layers(built, method)
        return replace(built, layers=(*outer, Layer(name, settings, call, sealed, left, inner)))

    return build


def _layers(built: Method, method: Method | None) -> tuple[tuple[Layer, ...], tuple[Layer, ...]]:
    """Two lists: layers of the method that a builder received, and the builder's own layers."""
    if method is None:
        return (), built.layers
    both = method.made_of, method.layers
    outer = next((each for each in both if built.layers[: len(each)] == each), ())
    return method.made_of, built.layers[len(outer) :]


def _method_of(value: Any) -> Method | None:
    """The method that a builder received, either directly or inside a task."""
    value = getattr(value, "fedavg", value)
    return value if isinstance(value, Method) else None


def _settings(signature: inspect.Signature, values: Mapping[str, Any], but: str) -> dict[str, Any]:
    """The arguments except the method, by name, as JSON values."""
    settings: dict[str, Any] = {}
    for name, parameter in signature.parameters.items():
        if name == but:
            continue
        if parameter.kind is parameter.VAR_KEYWORD:
            settings |= values.get(name, {})
        else:
            nothing = () if parameter.kind is parameter.VAR_POSITIONAL else parameter.default
            settings[name] = values.get(name, nothing)
    return {name: described(value) for name, value in settings.items()}


def _call(signature: inspect.Signature, values: Mapping[str, Any]) -> list[str]:
    """The arguments of a call as text; most defaults are left out.

    Defaults that are numbers or a `Training` are included.
    """
    words = []
    defaults = {name: each.default for name, each in signature.parameters.items()}
    shown = {n: own for n, own in defaults.items() if type(own) in (int, float, Training)}
    for name, value in {**values, **{n: shown[n] for n in shown if n not in values}}.items():
        parameter = signature.parameters[name]
        if parameter.kind is parameter.VAR_POSITIONAL:
            words += [short(each) for each in value]
        elif parameter.kind is parameter.VAR_KEYWORD:
            words += [f"{key}={short(each)}" for key, each in value.items()]
        elif parameter.default is parameter.empty and parameter.kind is not parameter.KEYWORD_ONLY:
            words.append(short(value))
        else:
            words.append(f"{name}={short(value)}")
    return words


def refuse(method: Method, inner: str | Collection[str], outer: str, why: str) -> None:
    """Raise an error if a layer of the method does not work inside the builder `outer`.

    Args:
        method: the method that is passed to `outer`.
        inner: the name of the builder to refuse, or several names.
        outer: the name of the builder that calls this function.
        why: the reason for the error. The error's text ends with this reason.

    Raises:
        ValueError: if a builder in `inner` is among the method's layers.

    Example:
        >>> from fgl.methods import scaffold
        >>> refuse(scaffold(fgl.fedavg(torch.nn.Linear(1, 1))), "scaffold", "gcfl", "it is so")
        Traceback (most recent call last):
        ValueError: Expected gcfl to be given a method without scaffold, but got scaffold(fedavg...
    """
    names = [inner] if isinstance(inner, str) else inner
    for name in (layer.name for each in method.layers for layer in each.all):
        reject_if(name in names, f"{outer} to be given a method without {name}", f"{method}: {why}")


def check_model_alone(method: Method, outer: str) -> None:
    """Raise an error if clients also train tensors outside the model, since `outer` drops them.

    Args:
        method: the method that is passed to `outer`.
        outer: the name of the builder that calls this function.

    Raises:
        ValueError: if the method has personal tensors.

    Example:
        >>> own = fgl.federation.Own(personal={"mask": torch.ones(1)})
        >>> method = replace(fgl.fedavg(torch.nn.Linear(1, 1)), own=own)
        >>> check_model_alone(method, "local")
        Traceback (most recent call last):
        ValueError: Expected local to be given a method that trains the model alone, but got ...
    """
    want = f"{outer} to be given a method that trains the model alone"
    first = [*method.own.personal][:1]
    reject_if(first, want, f"{first} and its like besides: put that method around {outer}")


def check_no_joining(method: Method, outer: str, why: str) -> None:
    """Raise an error if clients send a message before the first round (`Method.rules.joining`).

    Args:
        method: the method that is passed to `outer`.
        outer: the name of the builder that calls this function.
        why: the reason for the error. The error's text ends with this reason.

    Raises:
        ValueError: if the method has a `joining`.

    Example:
        >>> check_no_joining(fgl.fedavg(torch.nn.Linear(1, 1)), "local", "nobody would answer")
    """
    want = f"{outer} to be given a method whose clients say nothing when they join"
    reject_if(method.rules.joining is not None, want, f"{method}: {why}")


def check_one_architecture(method: Method, outer: str) -> None:
    """Raise an error if clients have different models, since `outer` needs equal models.

    Args:
        method: the method that is passed to `outer`.
        outer: the name of the builder that calls this function.

    Raises:
        ValueError: if the method has `models`.

    Example:
        >>> check_one_architecture(fgl.fedavg(torch.nn.Linear(1, 1)), "moon")
    """
    want = f"{outer} to be given a method whose clients have one architecture"
    got = f"{method}, whose clients have models of their own"
    reject_if(method.own.models is not None, want, got)


def unsealed(method: Method) -> Method:
    """A copy of the method in which all functions may be replaced, for simulated attacks and tests.

    Example:
        >>> method = fgl.transforms.clipped(fgl.fedavg(torch.nn.Linear(1, 1)), length=1.0)
        >>> check_seals(replace(unsealed(method), send=fgl.federation.send_model))
    """
    return replace(method, layers=tuple(map(_unsealed, method.layers)))


def _unsealed(layer: Layer) -> Layer:
    return replace(layer, sealed=frozenset(), inner=tuple(map(_unsealed, layer.inner)))


def check_seals(method: Method) -> None:
    """Raise an error if a builder replaced a function that an inner transform had sealed.

    A transform seals the functions that no later builder may replace. Several transforms can seal
    the same function, since each transform wraps the function of the method inside it. The method
    must then still have the function that the outermost of these transforms made.

    Raises:
        ValueError: if a sealed function was replaced; the error names the transform and all such
            functions.

    Example:
        >>> from fgl.methods import fedopt
        >>> from fgl.transforms import clipped
        >>> check_seals(fedopt(clipped(fgl.fedavg(torch.nn.Linear(1, 1)), length=1.0)))
        Traceback (most recent call last):
        ValueError: Expected clipped to be the outermost wrapper, but got a method around it whose
            aggregate is another, and would undo or bypass what it does: write ...
    """
    sealed: set[str] = set()
    for each in (inner for layer in reversed(method.layers) for inner in layer.all):
        new = sorted(each.sealed - sealed)
        names = [name for name in new if attrgetter(name)(method) is not each.left[name]]
        if names:
            verb = "is another" if len(names) == 1 else "are others"
            raise ValueError(
                f"Expected {each.name} to be the outermost wrapper, but got a method around it "
                f"whose {' and '.join(names)} {verb}, and would undo or bypass what it does: write "
                f"{each.name}(method(...)) instead"
            )
        sealed |= each.sealed


def check_averages(method: Method, outer: str) -> None:
    """Raise an error unless the server averages like FedAvg, since `outer` replaces the averaging.

    Args:
        method: the method that is passed to `outer`.
        outer: the name of the builder that replaces the server's function.

    Raises:
        ValueError: if `aggregate` is not an `OfMeans` with ``averages=True``.

    Example:
        >>> from fgl.methods import fedopt
        >>> check_averages(fedopt(fgl.fedavg(torch.nn.Linear(1, 1))), "fedamp")
        Traceback (most recent call last):
        ValueError: Expected fedamp to be given a method whose server sends the clients' mean, ...
    """
    want = f"{outer} to be given a method whose server sends the clients' mean, as FedAvg's does"
    way = "If it averages, write replace(method, aggregate=fgl.federation.average)"
    got = f"another, whose work would be lost: {outer} has a server of its own. {way}"
    reject_if(not getattr(method.aggregate, "averages", False), want, got)
