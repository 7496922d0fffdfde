"""Command line of a `main` function: flags, presets and help. Only this file imports tyro."""

import collections.abc
import dataclasses
import functools
import inspect
import itertools
import sys
import types
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from ..checks import imported, install, reject_if
from .fields import changed, flat, leaves, members
from .run import NOT_CONFIG, Run, command
from .words import choose_names, first_line, option, preset_table, sentence

Main = Callable[..., Any]
Presets = Mapping[str, Mapping[str, Any]]
REQUIRED: Any = inspect.Parameter.empty  # the default of a flag that a command must give


def cli(
    main: Main | Mapping[str, Main],
    *,
    presets: Mapping[str, Any] | None = None,
    argv: Sequence[str] | None = None,
    words: Sequence[str] = (),
) -> Any:
    """Call `main` with arguments from the command line.

    The flags are derived from the types of `main`'s parameters. There is one flag for each field of
    a dataclass, and for each field of a nested dataclass. For example, ``weight_decay`` becomes
    ``--weight-decay``. The help texts come from two places: the strings below a dataclass's fields,
    and the ``Args`` section of a function's docstring. The preset of a dataset provides defaults
    for flags that are not on the command line. If an argument is a `Run`, the run's report contains
    the recipe (the name of the file that defines `main`), the dataset, and the command's other
    flags.

    Args:
        main: a function with type hints, or a dict from names to functions with type hints. If
            `main` is a dict, the first word of the command selects the function. The report's
            config contains the command's first word as ``task``. If several functions have the same
            parameter, only one function needs to document it.
        presets: for each dataset, a dict from flags to values. If `main` is a dict, `presets` is a
            dict with the same names. Each value is then a dict of datasets.
        argv: the command line; by default the program's arguments.
        words: the words of the command before `argv`, for the help.

    Returns:
        The result of `main`.

    Raises:
        SystemExit: after ``--help``, an invalid command or an interrupt. The exit code is 2 if a
            flag is invalid, if a ValueError occurs before the first round, or if an OSError occurs.
            The exit code is 130 after an interrupt.
        ImportError: if tyro is not installed.
        TypeError: if two flags have the same name, or if a flag has neither a type nor a default.
        ValueError: if a preset has an unknown flag, or if a preset's value is invalid.

    Example:
        >>> def main(run: fgl.experiment.Run = fgl.experiment.Run(), mu: float = 0.1):
        ...     '''Train with a proximal term.
        ...
        ...     Args:
        ...         mu: The weight of the proximal term.
        ...     '''
        ...     return run.rounds, mu
        >>> cli(main, argv=["--rounds", "3"])
        (3, 0.1)
    """
    argv = sys.argv[1:] if argv is None else list(argv)
    presets, config = presets or {}, {}
    siblings: list[Main] = []
    if isinstance(main, Mapping):
        siblings = [*main.values()]
        about = inspect.getdoc(inspect.getmodule(siblings[0])) or ""
        (word,), argv = choose_names(about, argv, task=main)
        others = [name for name in presets if name not in main]
        reject_if(others, f"presets to be those of {', '.join(main)}", ", ".join(others))
        main, presets = main[word], presets.get(word)
        config, words = {"task": word}, (*words, word)
    program = " ".join([Path(sys.argv[0]).name, *words])
    arguments = _parse(main, presets, argv, program, siblings)
    flags = flat(arguments)
    origin = _origin(main, arguments, flags, config)
    try:
        with command(origin):
            return main(**arguments)
    except (OSError, TypeError, ValueError) as error:
        own = isinstance(error, TypeError) and "argument" not in vars(error)  # not about a flag
        if own or (origin.get("began") and not isinstance(error, OSError)):
            raise
        _refuse(program, error, flags)


def _origin(
    main: Main, arguments: Mapping[str, Any], flags: Mapping[str, Any], config: Mapping[str, Any]
) -> dict[str, Any]:
    """A command's recipe, dataset and further flags; empty if no argument is a `Run`."""
    if not any(isinstance(value, Run) for value in arguments.values()):
        return {}
    recipe = Path(inspect.getfile(inspect.unwrap(main))).stem
    others = {name: value for name, value in flags.items() if name not in NOT_CONFIG}
    return {"recipe": recipe, "dataset": flags.get("dataset", ""), "config": {**config, **others}}


def takes_options_of(builder: Main) -> Callable[[Main], Main]:
    """Return a decorator that turns the keyword-only parameters of `builder` into flags.

    The decorated `main` receives the values of these flags in its ``**options``.

    Args:
        builder: function that builds a method, such as `fgl.methods.fedprox`. The ``Args`` section
            of the builder's docstring contains the help texts. An argument does not become an
            option if the argument is a function, or if `functools.partial` fixed its value.

    Returns:
        A decorator that marks a `main` for `cli`.

    Example:
        >>> def damped(fedavg, *, rate: float = 0.5):
        ...     '''FedAvg whose server goes half way.'''
        >>> @takes_options_of(damped)
        ... def main(seed: int = 0, **options):
        ...     return options
        >>> cli(main, argv=["--rate", "0.1"])
        {'rate': 0.1}
    """
    partial = builder if isinstance(builder, functools.partial) else functools.partial(builder)

    def mark(main: Main) -> Main:
        main.__dict__["options_of"] = inspect.unwrap(partial.func), partial.keywords
        return main

    return mark


def defaults_of(main: Main, presets: Presets | None, dataset: str) -> dict[str, Any]:
    """The value of each flag for a command that sets no flag except the dataset."""
    return flat(_usual(_parameters(main)[1], presets, dataset)[0])


def _parse(
    main: Main, presets: Any, argv: Sequence[str], program: str, siblings: Sequence[Main]
) -> dict[str, Any]:
    """Parse the arguments of a `main` function with tyro."""
    imported("tyro", "for a command line", install("examples"))
    import tyro
    from tyro.constructors import ConstructorRegistry, StructConstructorSpec, StructFieldSpec

    words = " ".join(argv).replace("--dataset=", "--dataset ").split()
    named = [name for word, name in itertools.pairwise(words) if word == "--dataset"]
    types_of_main, defaults = _parameters(main)
    defaults, table = _usual(defaults, presets, named[-1] if named else None)
    registry = ConstructorRegistry()
    registry.primitive_rule(_number)

    @registry.struct_rule
    def rule(info: Any) -> StructConstructorSpec | None:
        """Define how tyro builds a dataclass, or the arguments of `main`, from flags."""

        def build(**values: Any) -> Any:
            try:
                return info.type(**values)
            except (TypeError, ValueError) as error:
                _refuse(program, error, flat(defaults))

        make: Any
        if info.type is main:
            kinds, sources, make = types_of_main, (main, _builder(main)[0], *siblings), dict
            values = {n: tyro.MISSING if v is REQUIRED else v for n, v in defaults.items()}
        elif dataclasses.is_dataclass(info.default) and info.type is type(info.default):
            kinds, sources = typing.get_type_hints(info.type, include_extras=True), (info.type,)
            values, make = members(info.default), build
        else:
            return None
        fields = []
        for name, value in values.items():
            documented = () if dataclasses.is_dataclass(value) else sources
            text = functools.partial(sentence, name, documented)
            fields.append(StructFieldSpec(name, kinds[name], value, text))
        return StructConstructorSpec(make, tuple(fields))

    how: Any = {"prog": program, "config": (tyro.conf.OmitArgPrefixes,), "registry": registry}
    try:
        arguments: dict[str, Any] = tyro.cli(main, description=_about(main), args=argv, **how)
    except SystemExit as stopped:
        if stopped.code in (0, None):
            print(preset_table(table), end="")
        raise
    return arguments


def _number(info: Any) -> Any:
    """Define how tyro reads a number: an invalid number gets this library's error message."""
    from tyro.constructors import PrimitiveConstructorSpec

    if info.type not in (int, float):
        return None
    kind, described = (int, "an integer") if info.type is int else (float, "a number")

    def read(words: list[str]) -> float:
        try:
            return kind(words[0])
        except ValueError:
            raise ValueError(f"Expected {described}, but got {words[0]}") from None

    return PrimitiveConstructorSpec(
        nargs=1,
        metavar=kind.__name__.upper(),
        instance_from_str=read,
        is_instance=lambda value: isinstance(value, (int, kind)),
        str_from_instance=lambda value: [str(value)],
    )


def _builder(main: Main) -> tuple[Any, Mapping[str, Any]]:
    """Return the builder given to `takes_options_of`, and a dict of the builder's fixed arguments.

    Without this decorator on `main`, the builder is None and the dict is empty.
    """
    return main.__dict__.get("options_of", (None, {}))  # type: ignore[no-any-return]


def _parameters(main: Main) -> tuple[dict[str, Any], dict[str, Any]]:
    """The type and default of each parameter of `main`, and of each option of its builder."""
    parameters = _sources(main)
    hints = {source: typing.get_type_hints(source, include_extras=True) for source, _ in parameters}
    kinds: dict[str, Any] = {}
    defaults: dict[str, Any] = {}
    for source, parameter in parameters:
        name, default = parameter.name, parameter.default
        kind = hints[source].get(name, type(default))
        untyped = name not in hints[source] and (default is REQUIRED or default is None)
        expected = f"parameter {name} of {source.__qualname__} to have a type"
        reject_if(untyped, expected, "none", TypeError)
        reject_if(name in kinds, "each flag to have one meaning", f"{name} and {name}", TypeError)
        if default is REQUIRED and isinstance(kind, type) and dataclasses.is_dataclass(kind):
            default = kind()
        if default is REQUIRED or not _is_function(kind):
            kinds[name], defaults[name] = kind, default
    return kinds, defaults


def _sources(main: Main) -> list[tuple[Main, inspect.Parameter]]:
    """Parameters of `main` and options of its builder.

    Each parameter or option is paired with the function that declares it.
    """
    parameters = list(inspect.signature(main).parameters.values())
    own = [(main, each) for each in parameters if each.kind is not each.VAR_KEYWORD]
    if len(own) == len(parameters):
        return own
    builder, decided = _builder(main)
    expected = f"{main.__qualname__} to be marked by takes_options_of"
    reject_if(builder is None, expected, f"**{parameters[-1].name} alone", TypeError)
    options = inspect.signature(builder).parameters.values()
    free = [each for each in options if each.kind is each.KEYWORD_ONLY and each.name not in decided]
    return [*own, *((builder, option) for option in free)]


def _is_function(kind: Any) -> bool:
    """Whether a value of this type can be a function."""
    kinds = typing.get_args(kind) if isinstance(kind, types.UnionType) else (kind,)
    functions = (types.FunctionType, collections.abc.Callable)  # of a default, of a hint
    return any(each in functions or typing.get_origin(each) in functions for each in kinds)


def _published(settings: Any) -> Iterator[Presets]:
    """Yield the preset table of each dataclass in `settings`, inner dataclasses first."""
    for value in members(settings).values():
        if dataclasses.is_dataclass(value):
            yield from _published(value)
            yield getattr(value, "published", {})


def _usual(
    defaults: dict[str, Any], presets: Presets | None, dataset: str | None
) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Return the default arguments of `main` for one dataset, and the presets of each dataset.

    Presets are the values used for published tables. Presets of a recipe override presets of a
    setting.
    """
    places: dict[str, str] = {}
    for name, place, _ in leaves(defaults):
        if (first := places.setdefault(name, place)) != place:
            raise TypeError(f"Expected each flag to have one meaning, but got {first} and {place}")
    table = _joined([*_published(defaults), presets or {}], places.keys() - {"dataset"})
    for name, preset in table.items():
        try:
            changed(defaults, preset)
        except (TypeError, ValueError) as error:
            raise type(error)(f"{error} in the preset of {name}") from error
    named = str(flat(defaults).get("dataset", "")) if dataset is None else dataset
    return changed(defaults, table.get(_spelled(named, table), {})), table


def _joined(tables: Iterable[Presets], flags: Collection[str]) -> dict[str, dict[str, Any]]:
    """Merge preset tables; flags of later tables override flags of earlier tables."""
    table: dict[str, dict[str, Any]] = {}
    for name, preset in itertools.chain.from_iterable(some.items() for some in tables):
        unknown = [flag for flag in preset if flag not in flags]
        reject_if(unknown, f"the preset of {name} to name flags", ", ".join(unknown))
        name = _spelled(name, table)
        table[name] = table.get(name, {}) | dict(preset)
    return table


def _spelled(dataset: str, table: Presets) -> str:
    """Return a dataset's name as the table spells it; upper and lower case are treated alike."""
    return next((name for name in table if name.lower() == dataset.lower()), dataset)


def _about(main: Main) -> str:
    """A description of `main`.

    The text is the first line of the docstring of `main`. If `main` has no docstring, the docstring
    of the method or of the module is used.
    """
    sources = (main, _builder(main)[0], inspect.getmodule(main))
    return next((line for line in map(first_line, sources) if line), "")


def _refuse(program: str, error: Exception, flags: Mapping[str, Any]) -> NoReturn:
    """Print the invalid flag and the reason, and exit with the code for invalid commands."""
    name = vars(error).get("argument", "")
    text = f"{option(name)}: {error}" if name in flags else str(error)
    print(f"{program}: error: {text}\nFor all flags, run {program} --help", file=sys.stderr)
    raise SystemExit(2) from error
