"""Layers of a method: the builders that made it, from inside to outside, with their arguments."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

FUNCTIONS = ("loss", "receive", "send", "aggregate", "deploy", "accept")  # of a method
HOOKS = ("batches", "adjust", "settle")  # of its training


@dataclass(frozen=True)
class Layer:
    """A builder that made a method, or wrapped one, and its arguments.

    Args:
        name: name of the builder.
        settings: its arguments by name, with defaults, without the method that it was given.
        call: the arguments that were given, as text for ``repr``.
        sealed: fields of the method that no builder around this one may change.
        left: the method's functions and training at the end of the builder.
        inner: layers that the builder applied itself.

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
        """This layer and its inner layers, from outside to inside."""
        yield self
        for layer in reversed(self.inner):
            yield from layer.all


def written(layers: Sequence[Layer]) -> str:
    """The nested calls that make a method, as text.

    Example:
        >>> written([Layer("fedavg", {}, ["GCN(...)"]), Layer("fedprox", {"mu": 0.1}, ["mu=0.1"])])
        'fedprox(fedavg(GCN(...)), mu=0.1)'
    """
    text = ""
    for layer in layers:
        text = f"{layer.name}({', '.join([*filter(None, [text]), *layer.call])})"
    return text


@functools.singledispatch
def short(value: Any) -> str:
    """A value as text for a call; a large value is shortened to ``Name(...)``.

    Example:
        >>> short(0.1), short(torch.nn.Linear(1, 1)), short(torch.nn.functional.relu)
        ('0.1', 'Linear(...)', 'relu')
        >>> short(fgl.Training(functools.partial(torch.optim.Adam, lr=0.01), num_steps=3))
        'Training(Adam(lr=0.01), num_steps=3)'
    """
    if isinstance(value, functools.partial):
        options = [f"{name}={short(own)}" for name, own in value.keywords.items()]
        return f"{short(value.func)}({', '.join([*map(short, value.args), *options])})"
    if callable(value) and hasattr(value, "__name__"):
        return str(value.__name__)
    plain = value is None or isinstance(value, bool | int | float | str)
    few = isinstance(value, list | tuple | set | frozenset) and len(repr(value)) <= 40
    return repr(value) if plain or few else f"{type(value).__name__}(...)"
