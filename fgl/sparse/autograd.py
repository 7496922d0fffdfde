"""Helpers of the sparse `autograd.Function` classes.

`Function.apply` takes more time than a small sparse product. So the helpers avoid this call, or
make the call faster.
"""

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch._C._functorch import TransformType, _add_batch_dim, _unwrap_batched, unwrap_if_dead
from torch._functorch.autograd_function import VmapInfo
from torch._functorch.pyfunctorch import retrieve_current_functorch_interpreter

T = TypeVar("T")


def call(function: Any, *args: Any) -> Any:
    """Call ``function.apply(*args)``, or only its `forward` if no gradient is needed."""
    pattern = args[-1]
    if pattern.stack is not None:
        return mapped(function, *pattern.owned(args))
    needs_grad = torch.is_grad_enabled() and any(
        isinstance(a, Tensor) and a.requires_grad for a in args
    )
    if needs_grad or torch._C._are_functorch_transforms_active():
        return function.apply(*args)
    return function.forward(*args)


def mapped(function: Any, *args: Any) -> Any:
    """Call ``function.apply(*args)``; inside `vmap`, call the function's `vmap` rule directly.

    Calling the rule directly saves the time for flattening the arguments.

    The arguments must be tensors or constants. The result must be a tensor or a tuple of tensors.
    """
    if not torch._C._are_functorch_transforms_active():
        return function.apply(*args)
    interpreter: Any = retrieve_current_functorch_interpreter()
    if interpreter.key() != TransformType.Vmap:
        return function.apply(*args)
    level = interpreter.level()
    pairs = [
        _unwrap_batched(unwrap_if_dead(arg), level) if isinstance(arg, Tensor) else (arg, None)
        for arg in args
    ]
    values, dims = zip(*pairs, strict=True)
    if all(dim is None for dim in dims):
        return function.apply(*args)
    with interpreter.lower():
        info = VmapInfo(interpreter.batch_size(), interpreter.randomness())
        out, dim = function.vmap(info, dims, *values)
    if isinstance(out, Tensor):
        return _add_batch_dim(out, dim, level)
    return tuple(_add_batch_dim(each, d, level) for each, d in zip(out, dim, strict=True))


def batched(tensor: Tensor, dim: int | None, size: int) -> Tensor:
    """Move a tensor's `vmap` dimension to dimension 0; add this dimension if `dim` is None."""
    if dim is None:
        return tensor.expand(size, *tensor.shape)
    return tensor.movedim(dim, 0) if dim else tensor


def one_by_one(function: Any, info: Any, in_dims: Any, args: tuple[Any, ...]) -> tuple[Tensor, int]:
    """Call a function once per element of an inner `vmap`, nested in the `vmap` over clients."""
    parts = [
        arg.unbind(dim) if dim is not None else [arg] * info.batch_size
        for arg, dim in zip(args, in_dims, strict=True)
    ]
    return torch.stack([call(function, *each) for each in zip(*parts, strict=True)]), 0


def positional(forward: Callable[..., T]) -> Callable[..., T]:
    """Give `forward` a trivial signature, which `apply` binds faster.

    Default arguments of `forward` are not supported.
    """
    forward.__signature__ = _Positional()  # type: ignore[attr-defined]
    return forward


class _Positional(inspect.Signature):
    def bind(self, *args: Any, **kwargs: Any) -> Any:
        return _Bound(args, kwargs)


class _Bound:
    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.args = args
        self.kwargs = kwargs

    def apply_defaults(self) -> None:
        """Do nothing, since there are no defaults."""
