"""Operations that a trace records as one: inside, what is done may depend on numbers in tensors."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from typing import Any

import torch
from torch import Tensor

Tensors = tuple[Tensor, ...]
_libraries: list[Any] = []  # an operation lives as long as its library


def recorded() -> bool:
    """Whether `torch.fx` records the operations: no number may be read from a tensor then."""
    return torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.PROXY) is not None


def in_one(function: Callable[..., Tensors]) -> Callable[..., Tensors]:
    """The same function of tensors and then integers; a trace records it as one operation.

    It must return new tensors, draw nothing, and is not differentiated.

    Example:
        >>> @in_one
        ... def largest(x):
        ...     return (x[: int(x.argmax()) + 1].clone(),)
        >>> largest(torch.tensor([1.0, 3.0, 2.0]))
        (tensor([1., 3.]),)
    """
    name = function.__name__.strip("_")

    @cache
    def operation() -> Any:
        def kernel(tensors: list[Tensor], numbers: list[int]) -> list[Tensor]:
            return list(function(*tensors, *numbers))

        library = torch.library.Library("fgl", "FRAGMENT")
        library.define(f"{name}(Tensor[] tensors, int[] numbers) -> Tensor[]")
        library.impl(name, kernel, "CompositeExplicitAutograd")
        _libraries.append(library)
        return getattr(torch.ops.fgl, name).default

    @wraps(function)
    def called(*args: Any) -> Tensors:
        if not recorded():
            return function(*args)
        tensors = [arg for arg in args if isinstance(arg, Tensor)]
        return tuple(operation()(tensors, [int(number) for number in args[len(tensors) :]]))

    return called
