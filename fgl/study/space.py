"""Search spaces of hyper-parameters: ranges, choices, and the points of the trials."""

import functools
import inspect
import math
import numbers
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..checks import check_number, did_you_mean, reject_if

LOCAL_DIMS, OWN_DIMS = 8, 24  # dimensions of a Sobol sequence; all methods share the local part
WIDE, NEAR = 7, 11  # seeds of the sequences for wide trials and for trials near the best
DIGITS = 4  # significant digits of a sampled value

Values = Mapping[str, Any]


@functools.cache
def _sobol(seed: int, count: int) -> np.ndarray[Any, Any]:
    from scipy.stats import qmc

    return np.asarray(qmc.Sobol(LOCAL_DIMS + OWN_DIMS, scramble=True, seed=seed).random(count))


def sobol_point(seed: int, index: int | None) -> tuple[Sequence[float], Sequence[float]]:
    """Point `index` of a scrambled Sobol sequence: values for local training and for the method.

    A point depends only on a seed and an index, so adding trials does not change earlier trials. If
    `index` is None, all values are 0. Then scipy.stats is not imported, which saves half a second.

    Example:
        >>> local, own = sobol_point(7, 0)
        >>> len(local), len(own), bool(0 <= local[0] < 1)
        (8, 24, True)
    """
    if index is None:
        return [0.0] * LOCAL_DIMS, [0.0] * OWN_DIMS
    count = 1 << max(5, (index + 1).bit_length())  # a power of two keeps the sequence balanced
    point = _sobol(seed, count)[index].tolist()
    return point[:LOCAL_DIMS], point[LOCAL_DIMS:]


@dataclass(frozen=True)
class Uniform:
    """A range of numbers, sampled uniformly; trials near the best value may exceed the range.

    Args:
        low, high: the ends of the range.
        bounds: hard bounds for all trials; by default there are none. If the value is a fraction,
            pass ``(0, 1)``.

    Raises:
        ValueError: if ``low < high`` is false, or if an end of the range is outside `bounds`.

    Example:
        >>> Uniform(0, 1, bounds=(0, 1)).at(0.25)
        0.25
    """

    low: float
    high: float
    bounds: tuple[float, float] = (-math.inf, math.inf)

    def __post_init__(self) -> None:
        check_number("low", self.low)
        check_number("high", self.high, above=self.low)
        least, most = self.bounds
        want = f"bounds to hold the range {self.low} to {self.high}"
        reject_if(not least <= self.low < self.high <= most, want, self.bounds)

    def _scaled(self, value: float) -> float:
        return float(value)

    def _unscaled(self, value: float) -> float:
        return float(value)

    def _inside(self, scaled: float) -> float:
        value = float(f"{self._unscaled(scaled):.{DIGITS}g}")
        return min(max(value, self.bounds[0]), self.bounds[1])

    def at(self, share: float) -> float:
        """The value at a given fraction of the range, between 0 (low end) and 1 (high end)."""
        low, high = self._scaled(self.low), self._scaled(self.high)
        return self._inside(low + share * (high - low))

    def around(self, share: float, best: float, tried: Sequence[float], trials: int) -> float:
        """A value near the best value.

        Let ``s = (high - low) / max(trials, 5)``. The new value is between ``best - 1.5 s`` and
        ``best + 1.5 s``. If `best` is the smallest tried value, the range is from ``best - 2.5 s``
        to ``best + 0.5 s``. If `best` is the largest tried value, the range is from
        ``best - 0.5 s`` to ``best + 2.5 s``.
        """
        spacing = (self._scaled(self.high) - self._scaled(self.low)) / max(trials, 5)
        down = up = 1.5
        if len(set(tried)) > 1 and best in (min(tried), max(tried)):
            down, up = (2.5, 0.5) if best == min(tried) else (0.5, 2.5)
        center = self._scaled(best)
        low, high = center - down * spacing, center + up * spacing
        return self._inside(low + share * (high - low))


@dataclass(frozen=True)
class LogUniform(Uniform):
    """A range of positive numbers, such as learning rates, sampled uniformly on a log scale.

    Args:
        low, high: the ends of the range.
        bounds: hard bounds for all trials; by default all positive numbers.

    Raises:
        ValueError: if ``0 < low < high`` is false, or if an end of the range is outside `bounds`.

    Example:
        >>> LogUniform(1e-3, 1e-1).at(0.5)
        0.01
    """

    def __post_init__(self) -> None:
        check_number("low", self.low, above=0)
        super().__post_init__()

    def _scaled(self, value: float) -> float:
        return math.log(value)

    def _unscaled(self, value: float) -> float:
        return math.exp(value)


class Tuned:
    """A method, and a search space for the hyper-parameters of this method.

    Args:
        build: function that returns the method. The function is called as ``build(fedavg,
            **values)``, or as ``build(task, **values)`` if its first parameter has the name `task`.
        space: keyword arguments of `build`. The value of a keyword is a range (`Uniform` or
            `LogUniform`), a list of choices, or a fixed value.

    Raises:
        TypeError: if `build` does not accept the keywords in `space`.

    Example:
        >>> Tuned(fgl.methods.fedprox, mu=LogUniform(1e-3, 1)).space
        {'mu': LogUniform(low=0.001, high=1, bounds=(-inf, inf))}
    """

    def __init__(self, build: Callable[..., Any], **space: Any) -> None:
        reject_if(not callable(build), "build to be a function", type(build).__name__, TypeError)
        _check_takes(build, space)
        check_space("space", space, OWN_DIMS)
        self.build, self.space = build, space


def _check_takes(build: Callable[..., Any], space: Values) -> None:
    """Raise an error unless a function takes FedAvg, or a task, and the keywords of a space."""
    name = getattr(build, "__name__", repr(build))
    try:
        signature = inspect.signature(build)
    except ValueError as error:
        raise TypeError(f"Expected build to be a function of Python, but got {name}") from error
    others = [*signature.parameters.values()][1:]
    names = [each.name for each in others]
    open_ended = any(each.kind is each.VAR_KEYWORD for each in others)
    for key in () if open_ended else space:
        got = f"{key}{did_you_mean(key, names)}"
        reject_if(key not in names, f"build {name} to take one of {names}", got, TypeError)
    try:
        signature.bind(None, **space)
    except TypeError as error:
        keywords = ", ".join(space) or "nothing else"
        raise TypeError(
            f"Expected build to take FedAvg, or a task, and {keywords}, but got {name}: {error}: "
            "lambda fedavg: fgl.methods.fedprox(fedavg, mu=0.1) sets further arguments"
        ) from None


def check_space(name: str, space: Values, most: int) -> None:
    """Raise an error if a space has too many names, or a list that is empty or contains a range.

    The largest allowed number of names is `most`.
    """
    reject_if(len(space) > most, f"{name} to have at most {most} names", len(space))
    for key, kind in space.items():
        reject_if(isinstance(kind, list) and not kind, f"{name} to have a choice for {key}", "[]")
        if isinstance(kind, list) and any(isinstance(each, Uniform) for each in kind):
            raise TypeError(f"Expected {key} to be a range or a list of values, but got {kind}")


def is_free(space: Values) -> bool:
    """Return whether a space has more than one point."""
    return any(
        isinstance(k, Uniform) or (isinstance(k, list) and len(k) > 1) for k in space.values()
    )


def wide_values(space: Values, shares: Sequence[float]) -> dict[str, Any]:
    """The values of a space at one point of the unit cube.

    Example:
        >>> wide_values({"lr": LogUniform(0.01, 1), "steps": [1, 3], "mu": 2}, (0.5, 0.9, 0.1))
        {'lr': 0.1, 'steps': 3, 'mu': 2}
    """

    def value(kind: Any, share: float) -> Any:
        if isinstance(kind, Uniform):
            return kind.at(share)
        return kind[int(share * len(kind))] if isinstance(kind, list) else kind

    pairs = zip(space.items(), shares, strict=False)  # there may be more coordinates than names
    return {name: value(kind, share) for (name, kind), share in pairs}


def near_values(
    space: Values, best: Values, tried: Sequence[Values], shares: Sequence[float]
) -> dict[str, Any]:
    """Values near the values of the best point.

    If the choices for a name are a list of numbers, the new value is the best value, or the next
    smaller or next larger number in the list. For any other list, such as a list of strings, the
    new value is the best value.

    Args:
        space: the space.
        best: values of the best trial.
        tried: values of the trials that are spread over the whole space. Trials near an earlier
            best trial are left out.
        shares: coordinates in the unit cube.

    Example:
        >>> space, best = {"steps": [10, 1, 3], "rule": ["a", "b"]}, {"steps": 3, "rule": "b"}
        >>> [[*near_values(space, best, [best], (u, u)).values()] for u in (0.1, 0.5, 0.9)]
        [[1, 'b'], [3, 'b'], [10, 'b']]
        >>> near_values({"steps": [1, 3]}, {"steps": 3}, [], (0.9,))
        {'steps': 3}
    """

    def value(name: str, share: float) -> Any:
        kind = space[name]
        if isinstance(kind, Uniform):
            return kind.around(share, best[name], [values[name] for values in tried], len(tried))
        return _next_to(kind, best[name], share) if _has_order(kind) else best[name]

    return {name: value(name, share) for name, share in zip(space, shares, strict=False)}


def _next_to(choices: Sequence[Any], best: Any, share: float) -> Any:
    """The best number, or one of its two neighbours in the sorted list of choices.

    `share` is between 0 and 1. If `share` is below 1/3, the result is the next smaller number. If
    `share` is at least 2/3, the result is the next larger number. Otherwise the result is the best
    number. The result is also the best number if the list has no smaller or larger number.
    """
    ordered = sorted(set(choices))
    place = ordered.index(best) + int(3 * share) - 1
    return ordered[min(max(place, 0), len(ordered) - 1)]


def _has_order(kind: Any) -> bool:
    return isinstance(kind, list) and all(map(_is_number, kind))


def edges(space: Values, best: Values, tried: Sequence[Values]) -> list[str]:
    """Describe each chosen number that is the smallest or the largest tried value.

    An even smaller or larger value, which was not tried, may be better than such a number. If a
    number was chosen from a list, the function assumes that all values in this list were tried.

    The result does not include a number that is equal to a hard bound. A list is ignored if it has
    words, or fewer than three numbers.

    Example:
        >>> edges({"lr": LogUniform(0.01, 1)}, {"lr": 0.1}, [{"lr": 0.1}, {"lr": 0.02}])
        ['lr 0.1 of 0.02 to 0.1']
    """
    notes = []
    for name, kind in space.items():
        values = kind if isinstance(kind, list) else [each[name] for each in tried]
        if isinstance(kind, Uniform):
            ordered = best[name] not in kind.bounds
        else:
            ordered = len(values) > 2 and _has_order(kind)
        if ordered and min(values) < max(values) and best[name] in (min(values), max(values)):
            notes.append(f"{name} {best[name]:g} of {min(values):g} to {max(values):g}")
    return notes


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)  # also of numpy
