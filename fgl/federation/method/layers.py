"""Layers of a method: which builders made it, one around the other, and what each was set to."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

FUNCTIONS = ("loss", "receive", "send", "aggregate", "deploy", "accept")  # of a method
HOOKS = ("batches", "adjust", "settle")  # of its training


@dataclass(frozen=True)
class Layer:
    """A builder that made a method, or made one of another.

    Args:
        name: of the builder.
        settings: its arguments by name, defaults included, but for the method that it was given.
        call: the arguments that were given, as they are written.
        sealed: fields of the method that nobody around may change.
        left: functions and training of the method as the builder left them.
        inner: layers that the builder used inside.

    Example:
        >>> fgl.methods.fedprox(fgl.fedavg(torch.nn.Linear(1, 1)), mu=0.5).layers[-1].settings["mu"]
        0.5
    """

    name: str
    settings: Mapping[str, Any]
    call: Sequence[str] = ()
    sealed: frozenset[str] = frozenset()
    left: Mapping[str, Any] = field(default_factory=dict)
    inner: Sequence[Layer] = ()

    @property
    def all(self) -> Iterator[Layer]:
        """Itself and the layers that it used inside, the outer ones first."""
        yield self
        for layer in reversed(self.inner):
            yield from layer.all


def written(layers: Sequence[Layer]) -> str:
    """The call that makes a method.

    Example:
        >>> written([Layer("fedavg", {}, ["GCN(...)"]), Layer("fedprox", {"mu": 0.1}, ["mu=0.1"])])
        'fedprox(fedavg(GCN(...)), mu=0.1)'
    """
    text = ""
    for layer in layers:
        text = f"{layer.name}({', '.join([*filter(None, [text]), *layer.call])})"
    return text


def short(value: Any) -> str:
    """A value as it is written in a call, without what is inside of a large one.

    Example:
        >>> short(0.1), short(torch.nn.Linear(1, 1)), short(torch.nn.functional.relu)
        ('0.1', 'Linear(...)', 'relu')
    """
    if isinstance(value, functools.partial):
        return f"{short(value.func)}(...)"
    if callable(value) and hasattr(value, "__name__"):
        return str(value.__name__)
    plain = value is None or isinstance(value, bool | int | float | str)
    few = isinstance(value, list | tuple | set | frozenset) and len(repr(value)) <= 40
    return repr(value) if plain or few else f"{type(value).__name__}(...)"
