"""Checks of the methods, settings, spaces and seeds of a study or a comparison."""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ..checks import check_number, reject_if
from ..experiment.fields import flat
from ..federation import Method
from ..tasks import Task
from .plan import Plan
from .space import LOCAL_DIMS, Tuned, Values, check_space

Methods = Mapping[str, Tuned | Callable[..., Method | Task]]
Spaces = Values | Sequence[Values] | None
SAME = ", whose data are the same for every seed: lambda seed: task says that this is meant"


def tuned(methods: Methods) -> dict[str, Tuned]:
    """The methods, each with its search space."""
    want = 'methods to be functions by name, {"SCAFFOLD": fgl.methods.scaffold}'
    reject_if(not methods, want, "none")
    for name, build in methods.items():
        if not isinstance(build, Tuned) and not callable(build):
            raise TypeError(
                f"Expected {name} to be a function that makes a method of a task or its FedAvg, or "
                f"fgl.Tuned(function, ...), but got a {type(build).__name__}"
            )
    return {n: each if isinstance(each, Tuned) else Tuned(each) for n, each in methods.items()}


def spaces_of(local: Spaces) -> list[dict[str, Any]]:
    """List the search spaces of local training; each trial uses one space of the list."""
    spaces = [dict(local or {})] if isinstance(local, Mapping | None) else [*map(dict, local)]
    reject_if(not spaces, "local to be a space or several", "[]")
    for space in spaces:
        check_space("local", space, LOCAL_DIMS)
    return spaces


def check_settings(plan: Plan) -> None:
    """Raise an error unless each setting loads tasks and has the fields of local training."""
    for name, setting in plan.settings.items():
        label = f"setting {name}".rstrip()
        if isinstance(setting, Task) or not (hasattr(setting, "load") or callable(setting)):
            raise TypeError(
                f"Expected {label} to load a task for each seed, such as "
                f"fgl.tasks.Nodes(clients=5), or to be a function of a seed, but got a "
                f"{type(setting).__name__}" + SAME * isinstance(setting, Task)
            )
        keys = sorted({key for m in plan.methods for key in plan.local_of(m)}.union(*plan.local))
        if callable(setting):
            _check_function(label, setting, keys)
            continue
        fields = [*flat(setting)] if keys else []
        unknown = [key for key in keys if key not in fields]
        expected = f"local to name fields of {label}, such as {', '.join(fields)}"
        reject_if(unknown, expected, ", ".join(unknown))


def _check_function(label: str, setting: Callable[..., Task], keys: list[str]) -> None:
    """Raise an error unless a function accepts a seed and the given keyword arguments.

    The keyword arguments are fields of local training, such as ``lr``.
    """
    try:
        inspect.signature(setting).bind(0, **dict.fromkeys(keys))
    except TypeError as error:
        raise TypeError(
            f"Expected {label} to be a function of the seed and of the values of local training, "
            f"lambda {', '.join(['seed', *keys])}: ..., but got {setting!r}: {error}"
        ) from None


def check_seeds(seeds: Iterable[int], argument: str = "seeds") -> list[int]:
    """The seeds as a list.

    Raise an error unless there is at least one seed and all seeds are distinct integers.
    """
    numbers = list(seeds)
    wrong = not numbers or len(set(numbers)) < len(numbers)
    reject_if(wrong, f"{argument} to be different numbers, at least one", numbers)
    for seed in numbers:
        check_number("seed", seed, at_least=0, below=2**63, integer=True)
    return [int(seed) for seed in numbers]
