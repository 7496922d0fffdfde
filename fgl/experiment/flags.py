"""Flags of a recipe: which values its `main` takes, and those that a dataset's table was made with.

A value that is a dataclass (a task's setting, its local training, the run) is taken apart: each of
its fields is a flag, whatever it is nested in, and no two fields may have the same name. A field
whose metadata say ``{"flag": False}`` is none.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import functools
import inspect
import itertools
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Main = Callable[..., Any]
Preset = Mapping[str, Any]
HelpTexts = Callable[[Any], Mapping[str, str]]

REQUIRED: Any = inspect.Parameter.empty


@dataclass(frozen=True)
class Flag:
    """One value of a command line.

    Args:
        name: as in Python; ``weight_decay`` is ``--weight-decay``.
        type: of the value.
        default: where the flag is not given; `REQUIRED` where it must be.
        help: a sentence.
        path: the parameter of `main` and the fields that lead to the value, itself included.
    """

    name: str
    type: Any
    default: Any
    help: str
    path: tuple[str, ...]


def takes_options_of(builder: Main) -> Callable[[Main], Main]:
    """A decorator: the ``**options`` of a `main` are the keyword-only parameters of `builder`.

    Args:
        builder: of a method, such as `fgl.methods.fedprox`; its docstring's ``Args`` are the help.
            What a `functools.partial` has decided is no option, nor is what is a function.

    Returns:
        What marks a `main` for `cli`.

    Example:
        >>> def damped(fedavg, *, rate: float = 0.5):
        ...     '''FedAvg whose server goes half way.'''
        >>> @takes_options_of(damped)
        ... def main(seed: int = 0, **options): ...
        >>> [flag.name for flag in flags_of(main)]
        ['seed', 'rate']
    """

    def mark(main: Main) -> Main:
        main.__dict__["options_of"] = builder
        return main

    return mark


def flags_of(main: Main, help_texts: HelpTexts = lambda documented: {}) -> list[Flag]:
    """The flags of a `main`, in the order of its parameters.

    Args:
        main: a function with types.
        help_texts: of a function or a dataclass: name of a parameter or a field to a sentence.

    Returns:
        One flag per value.

    Raises:
        TypeError: where two values have the same name, or one has neither type nor default.

    Example:
        >>> def main(run: fgl.experiment.Run = fgl.experiment.Run(), mu: float = 0.1): ...
        >>> [flag.name for flag in flags_of(main)][-3:]
        ['checkpoint', 'json', 'mu']
    """
    flags = []
    for each in _parameters(main):
        if dataclasses.is_dataclass(each.default):
            flags += _of_dataclass(each.default, (each.name,), help_texts)
        else:
            text = help_texts(each.source).get(each.name, "")
            flags.append(Flag(each.name, each.type, each.default, text, (each.name,)))
    first: dict[str, Flag] = {}
    for flag in flags:
        other = first.setdefault(flag.name, flag)
        if other is not flag:
            paths = " and ".join(".".join(each.path) for each in (other, flag))
            raise TypeError(f"Expected each flag to have one meaning, but got {paths}")
    return flags


def build(main: Main, values: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a `main` from the values of its flags.

    Args:
        main: see `flags_of`.
        values: name of a flag to its value; one that is not named has its default.

    Returns:
        Name of a parameter to its argument; fields that are no flags have their defaults.

    Raises:
        TypeError, ValueError: as the dataclasses do.

    Example:
        >>> def main(run: fgl.experiment.Run = fgl.experiment.Run(rounds=9), mu: float = 0.1): ...
        >>> build(main, {"seed": 3})["run"].seed, build(main, {"mu": 1.0})["mu"]
        (3, 1.0)
    """
    arguments = {}
    for each in _parameters(main):
        if dataclasses.is_dataclass(each.default):
            arguments[each.name] = _with(each.default, values)
        elif each.name in values or each.default is not REQUIRED:
            arguments[each.name] = values.get(each.name, each.default)
    return arguments


def presets_of(main: Main, own: Mapping[str, Preset] | None = None) -> dict[str, dict[str, Any]]:
    """The values that the published tables use, per dataset.

    A setting's are in its class variable ``published``; a recipe's own go before them.

    Args:
        main: see `flags_of`.
        own: dataset to name of a flag to value.

    Returns:
        Dataset to name of a flag to value. Names of datasets that differ in case are one.

    Raises:
        ValueError: where a preset names what is no flag, or gives a value out of bounds.

    Example:
        >>> def main(mu: float = 0.1): ...
        >>> presets_of(main, {"cora": {"mu": 0.01}})
        {'cora': {'mu': 0.01}}
    """
    known = {flag.name for flag in flags_of(main)}
    found: dict[str, dict[str, Any]] = {}
    tables = [getattr(each, "published", {}) for each in _settings(main)]
    for table in [*tables, own or {}]:
        for dataset, preset in table.items():
            unknown = [name for name in preset if name not in known or name == "dataset"]
            if unknown:
                raise ValueError(
                    f"Expected the preset of {dataset} to name flags, but got {', '.join(unknown)}"
                )
            same = next((name for name in found if name.lower() == dataset.lower()), dataset)
            found[same] = found.get(same, {}) | dict(preset)
    for dataset, preset in found.items():
        try:
            build(main, preset)
        except (TypeError, ValueError) as error:
            raise type(error)(f"{error} in the preset of {dataset}") from error
    return found


def preset_for(dataset: str, presets: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """The preset of a dataset, found without regard to case; empty where there is none.

    Example:
        >>> preset_for("Cora", {"cora": {"mu": 0.01}})
        {'mu': 0.01}
    """
    same = (preset for name, preset in presets.items() if name.lower() == dataset.lower())
    return dict(next(same, {}))


def option(name: str) -> str:
    """A flag as it is written.

    Example:
        >>> option("weight_decay")
        '--weight-decay'
    """
    return "--" + name.replace("_", "-")


@dataclass(frozen=True)
class _Parameter:
    """One argument of a main; `source` is the function that documents it."""

    source: Main
    name: str
    type: Any
    default: Any


def _parameters(main: Main) -> list[_Parameter]:
    """The parameters of a main, and those of the builder whose options it takes."""
    found = []
    for parameter in inspect.signature(main).parameters.values():
        if parameter.kind is not parameter.VAR_KEYWORD:
            found.append(_parameter(main, parameter))
            continue
        builder: Any = main.__dict__.get("options_of")
        if builder is None:
            raise TypeError(
                f"Expected {main.__qualname__} to be marked by takes_options_of, "
                f"but got **{parameter.name} alone"
            )
        decided: Mapping[str, Any] = {}
        if isinstance(builder, functools.partial):
            builder, decided = builder.func, builder.keywords
        source = inspect.unwrap(builder)
        options = inspect.signature(source).parameters.values()
        found += [
            _parameter(source, each)
            for each in options
            if each.kind is each.KEYWORD_ONLY and each.name not in decided
        ]
    return [each for each in found if each.default is REQUIRED or not _is_function(each.type)]


def _is_function(kind: Any) -> bool:
    """Whether values of a type are functions, or may be."""
    inner = typing.get_args(kind) if isinstance(kind, types.UnionType) else ()
    if kind is types.FunctionType:  # the type of a default
        return True
    return typing.get_origin(kind) is collections.abc.Callable or any(map(_is_function, inner))


def _parameter(source: Main, parameter: inspect.Parameter) -> _Parameter:
    name, default = parameter.name, parameter.default
    kind = typing.get_type_hints(source, include_extras=True).get(name)
    if kind is None:
        if default is REQUIRED or default is None:
            raise TypeError(
                f"Expected parameter {name} of {source.__qualname__} to have a type, but got none"
            )
        kind = type(default)
    if default is REQUIRED and dataclasses.is_dataclass(kind):
        default = kind()
    return _Parameter(source, name, kind, default)


def _of_dataclass(value: Any, path: tuple[str, ...], help_texts: HelpTexts) -> list[Flag]:
    hints = typing.get_type_hints(type(value), include_extras=True)
    texts = help_texts(type(value))
    flags = []
    for field in _fields(value):
        default = getattr(value, field.name)
        inner = (*path, field.name)
        if dataclasses.is_dataclass(default):
            flags += _of_dataclass(default, inner, help_texts)
        else:
            text = texts.get(field.name, "")
            flags.append(Flag(field.name, hints[field.name], default, text, inner))
    return flags


def _fields(value: Any) -> list[dataclasses.Field[Any]]:
    """The fields of a dataclass that are flags, or that hold some."""
    return [f for f in dataclasses.fields(value) if f.init and f.metadata.get("flag", True)]


def _with(default: Any, values: Mapping[str, Any]) -> Any:
    """A dataclass with the values of its flags, at whatever depth."""
    changes = {}
    for field in _fields(default):
        inner = getattr(default, field.name)
        if dataclasses.is_dataclass(inner):
            changes[field.name] = _with(inner, values)
        elif field.name in values:
            changes[field.name] = values[field.name]
    return dataclasses.replace(default, **changes)


def _settings(main: Main) -> list[Any]:
    """The dataclasses among the defaults of a main, those inside before those around them."""

    def inside(value: Any) -> list[Any]:
        nested = [getattr(value, field.name) for field in _fields(value)]
        deeper = [inside(inner) for inner in nested if dataclasses.is_dataclass(inner)]
        return [*itertools.chain(*deeper), value]

    defaults = [each.default for each in _parameters(main)]
    return [*itertools.chain(*(inside(e) for e in defaults if dataclasses.is_dataclass(e)))]
