"""A command line from a `main`: its flags, presets and help; the one file that imports tyro."""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import inspect
import re
import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NoReturn

from ..federation import run
from .flags import REQUIRED, Flag, Main, Preset, build, flags_of, option, preset_for, presets_of
from .run import Run
from .words import choose, first_line, plain

# What a report names outside its config, or what says only where a run is.
NOT_CONFIG = ("recipe", "dataset", "clients", "rounds", "seed", "json", "checkpoint", "device")


def cli(
    main: Main | Mapping[str, Main],
    *,
    presets: Mapping[str, Any] | None = None,
    argv: Sequence[str] | None = None,
    words: Sequence[str] = (),
) -> Any:
    """Call `main` with what the command line says.

    Flags are made from the types of its parameters: a dataclass is taken apart, whatever it is
    nested in, and ``weight_decay`` is ``--weight-decay``. What the flags mean is read from the
    docstrings: those below a dataclass' fields, the ``Args`` of a function. A dataset's preset
    gives the defaults of the flags that are not on the command line. A `Run` learns the recipe's
    name (of the file of `main`), the dataset and the other flags, for its report.

    Args:
        main: a function with types; or several by name, of which the first word chooses one
            (``task`` in the report's config). A parameter that one of them documents need not be
            documented by the others.
        presets: dataset to name of a flag to value; where `main` is several, by their names.
        argv: the command line, by default the program's.
        words: words of the command before `argv`, for the help.

    Returns:
        What `main` returns.

    Raises:
        SystemExit: after ``--help``, and with code 2 for flags that make no sense.
        ImportError: where tyro is not installed.
        ValueError: for a preset that names what is no flag.

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
    config: dict[str, Any] = {}
    mains = [*main.values()] if isinstance(main, Mapping) else [main]
    if isinstance(main, Mapping):
        about = inspect.getdoc(inspect.getmodule(next(iter(main.values())))) or ""
        (word,), argv = choose(about, argv, task=main)
        unknown = [name for name in presets or {} if name not in main]
        if unknown:
            said = ", ".join(main)
            raise ValueError(f"Expected presets to be those of {said}, but got {unknown[0]}")
        main, presets = main[word], (presets or {}).get(word)
        config, words = {"task": word}, (*words, word)
    if importlib.util.find_spec("tyro") is None:
        raise ImportError(
            "Expected tyro to be installed for a command line, but got none: "
            "pip install 'torch-fgl[examples]'"
        )
    flags = flags_of(main, functools.partial(_help_texts, siblings=tuple(mains)))
    table = presets_of(main, presets)
    dataset = _dataset(argv, flags)
    program = " ".join([Path(sys.argv[0]).name, *words])
    values = _parse(flags, preset_for(dataset, table), argv, program, _about(main), _epilog(table))
    try:
        arguments = build(main, values)
    except (TypeError, ValueError) as error:
        _refuse(program, str(error), values)
    config |= {name: value for name, value in values.items() if name not in NOT_CONFIG}
    for name, value in arguments.items():
        if isinstance(value, Run):
            arguments[name] = dataclasses.replace(
                value,
                recipe=value.recipe or _name(main),
                dataset=values.get("dataset", value.dataset),
                config={**value.config, **config},
            )
    try:
        return main(**arguments)
    except (OSError, TypeError, ValueError) as error:
        if not _is_the_commands(error):
            raise
        _refuse(program, str(error), values)


def _parse(
    flags: Sequence[Flag],
    preset: Preset,
    argv: Sequence[str],
    program: str,
    about: str,
    epilog: str,
) -> dict[str, Any]:
    """Name of a flag to its value, by tyro: one dataclass a group, all names flat."""
    import tyro

    annotated: Any = Annotated

    def structure(name: str, members: Sequence[tuple[str, Any, Any]]) -> type:
        made = dataclasses.make_dataclass(name, members, kw_only=True)
        made.__doc__ = ""
        return made

    groups: dict[str, list[tuple[str, Any, Any]]] = {"": []}
    for flag in flags:
        kind = annotated[flag.type, tyro.conf.arg(help=flag.help or None)]
        default = _field(preset.get(flag.name, flag.default))
        group = flag.path[-2] if len(flag.path) > 1 else ""
        groups.setdefault(group, []).append((flag.name, kind, default))
    own = groups.pop("")
    nested = [
        (
            f"_{name}",
            annotated[structure(name, members), tyro.conf.arg(name=name)],
            _field(REQUIRED),
        )
        for name, members in groups.items()
    ]
    form: Any = structure("Flags", [*own, *nested])
    try:
        found: Any = tyro.cli(
            form,
            prog=program,
            description=about,
            args=list(argv),
            config=(tyro.conf.OmitArgPrefixes,),
            registry=_numbers(),
        )
    except SystemExit as stopped:
        if stopped.code in (0, None) and epilog:
            print(epilog)
        raise
    values = dict(vars(found))
    for name, *_ in nested:
        values |= vars(values.pop(name))
    return {flag.name: values[flag.name] for flag in flags}


def _numbers() -> Any:
    """Rules of tyro: what is no number is refused in the words of this library."""
    from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

    registry = ConstructorRegistry()
    names = {int: "an integer", float: "a number"}

    @registry.primitive_rule
    def rule(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
        kind: Any = info.type
        if kind not in names:
            return None

        def read(words: list[str]) -> Any:
            try:
                return kind(words[0])
            except ValueError:
                raise ValueError(f"Expected {names[kind]}, but got {words[0]}") from None

        return PrimitiveConstructorSpec(
            nargs=1,
            metavar=kind.__name__.upper(),
            instance_from_str=read,
            is_instance=lambda value: isinstance(value, (int, kind)),
            str_from_instance=lambda value: [str(value)],
        )

    return registry


def _field(default: Any) -> Any:
    """A dataclass' field, whose default may be anything."""
    if default is REQUIRED:
        return dataclasses.field()
    return dataclasses.field(default_factory=lambda: default)


@functools.cache
def _help_texts(documented: Any, siblings: tuple[Main, ...] = ()) -> dict[str, str]:
    """What each parameter of a function, or each field of a dataclass, is for: sentences.

    What a main does not say of itself, its siblings may.
    """
    import docstring_parser  # comes with tyro

    texts: dict[str, str] = {}
    sources = [documented]
    if isinstance(documented, type):
        sources = [*reversed(documented.__mro__[:-1])]
    elif documented in siblings:
        sources = [*siblings, documented]
    for source in sources:
        for parameter in docstring_parser.parse_from_object(source).params:
            text = plain(" ".join((parameter.description or "").split()))
            texts |= {name: text[:1].upper() + text[1:] for name in parameter.arg_name.split(", ")}
    return texts


def _dataset(argv: Sequence[str], flags: Sequence[Flag]) -> str:
    """The dataset that the command line names, or the default one; flags are not yet read."""
    found = next((str(flag.default) for flag in flags if flag.name == "dataset"), "")
    for place, word in enumerate(argv):
        if word == "--dataset":
            found = argv[place + 1] if place + 1 < len(argv) else ""
        elif word.startswith("--dataset="):
            found = word.removeprefix("--dataset=")
    return found


def _epilog(presets: Mapping[str, Preset]) -> str:
    """The presets, as a table for ``--help``."""
    if not any(presets.values()):
        return ""
    width = max(len(name) for name in presets)
    lines = [
        f"  {name:{width}}  {' '.join(_written(flag, value) for flag, value in preset.items())}"
        for name, preset in presets.items()
    ]
    said = "Presets: what --dataset NAME sets by itself; a flag that you give overrides it."
    return "\n".join([said, *lines])


def _written(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return option(name if value else f"no_{name}")
    if isinstance(value, list | tuple):
        return " ".join([option(name), *map(str, value)])
    return f"{option(name)} {value}"


def _about(main: Main) -> str:
    """What a main does: the first line about it, about its method, or about its file."""
    sources = (main, main.__dict__.get("options_of"), inspect.getmodule(main))
    return next((line for line in map(first_line, sources) if line), "")


def _name(main: Main) -> str:
    return Path(inspect.getfile(inspect.unwrap(main))).stem


def _is_the_commands(error: Exception) -> bool:
    """Whether the command asked for what there is not; an error of the rounds is one's own bug."""
    said = str(error)
    if not (said.startswith("Expected ") and "but got" in said):
        return False
    inside = any(f.f_code is run.__code__ for f, _ in traceback.walk_tb(error.__traceback__))
    return not inside or said.startswith("Expected checkpoint ")


def _refuse(program: str, message: str, values: Mapping[str, Any]) -> NoReturn:
    """Say what is wrong with which flag, and end with the code of a wrong command."""
    found = re.match(r"Expected ([\w-]+)", message)
    name = found[1] if found else ""
    if name == "name" and repr(values.get("dataset")) in message:
        name = "dataset"  # that nobody knows
    said = f"{option(name)}: {message}" if name in values else message
    print(f"{program}: error: {said}\nFor all flags, run {program} --help", file=sys.stderr)
    raise SystemExit(2)
