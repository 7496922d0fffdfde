"""Recordings of a function's operations; a new function repeats the recorded operations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import wraps
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

ATEN = torch.ops.aten
MASKS = (torch.bool, torch.uint8)
READS = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
CPU = torch.device("cpu")
Tensors = tuple[Tensor, ...]
_active: list[Recorder] = []


class Name(str):
    """The name of a tensor in a recording."""


class Call(NamedTuple):
    """A recorded operation: its source text, and the names of its results and of its inputs."""

    function: Any
    args: Sequence[Any]
    kwargs: dict[str, Any]
    out: Any
    results: list[str]
    reads: list[str]
    source: str


class Recorder(TorchDispatchMode):
    """A context that records the operations inside it, after `vmap` and autograd are applied.

    A tensor is a constant of the recording, unless it is an input or the result of an operation.

    Args:
        inputs: tensors that are replaced by other tensors when the operations are repeated.

    Attributes:
        varies_on_cpu: whether a result on the CPU depends on an input or on random numbers.

    Raises:
        RuntimeError: inside the context, if a number is read from an input or a result, or if a
            constant is changed in place. Otherwise each repetition of the recorded operations
            would change this constant again.

    Example:
        >>> x = torch.ones(2)
        >>> with Recorder([x]) as recorder:
        ...     y = (x + 1) * x
        >>> recorder.function([y])(torch.tensor([2.0, 3.0]))
        [tensor([ 6., 12.])]
    """

    def __init__(self, inputs: Sequence[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._paused = False
        self._inputs = [f"input_{place}" for place in range(len(inputs))]
        self._names = {id(each): name for each, name in zip(inputs, self._inputs, strict=True)}
        self._views: dict[tuple[Any, ...], str] = {}  # names of tensors by base and form
        self._bases: dict[str, str] = {}  # the names of views, with those of what they view
        self._varying = set(self._names)  # results that depend on inputs or on random numbers
        self._constants: set[int] = set()  # memory of the constants
        self._mixed = False  # whether a tensor changed in place may share memory
        self._kept: list[Any] = list(inputs)  # an id is unique while its tensor lives
        self.calls: list[Call] = []
        self._globals: dict[str, Any] = {}  # operations and constants, by their names
        self.varies_on_cpu = False

    def __enter__(self) -> Recorder:
        _active.append(self)
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: Any) -> None:
        _active.remove(self)
        super().__exit__(*error)  # type: ignore[no-untyped-call]

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if self._paused:
            return func(*args, **kwargs)
        leaves = tree_leaves((args, kwargs))
        self._constants.update(memory(each) for each in leaves if id(each) not in self._names)
        changed = {memory(each) for each in _written(func, args, kwargs)}
        if not self._constants.isdisjoint(changed - {0}):
            raise RuntimeError(f"{func} changes a tensor that the loss keeps")
        varies = any(id(each) in self._varying for each in leaves)
        if not READS.isdisjoint(func.tags):
            read = leaves
            if func is ATEN.index.Tensor:  # integers always read the same number of rows
                read = [i for i in args[1] if i is not None and i.dtype in MASKS]
            if any(id(each) in self._varying or self._mixed for each in read):
                raise RuntimeError(f"{func} reads a number or a size from a tensor")
            if torch.Tag.data_dependent_output in func.tags:
                return func(*args, **kwargs)
        if func is ATEN.lift_fresh.default:  # `torch.tensor`: the constant itself must not change
            func = ATEN.lift_fresh_copy.default
        if torch.Tag.inplace_view in func.tags and self.name(
            args[0]
        ):  # equal views keep their form
            to = [f"value_{len(self.calls)}_0"]
            self.calls.append(self.call_of(ATEN.alias.default, args[:1], {}, args[0], to))
            self._names[id(args[0])] = to[0]
        out = func(*args, **kwargs)
        if varies or torch.Tag.nondeterministic_seeded in func.tags:
            self._vary(out if isinstance(out, (tuple, list)) else [out])
            self._mixed |= func._schema.is_mutable
        view = self._view(func, args, out)
        if view in self._views:
            self._names[id(out)] = self._views[view]
            self._kept.append(out)
            return out
        self._add(func, args, kwargs, out)
        if view:
            self._views[view], self._bases[self.name(out)] = self.name(out), view[0]
        return out

    def _view(self, func: Any, args: Sequence[Any], out: Any) -> tuple[Any, ...]:
        """Describe a view by its base tensor and its form, which together determine its values."""
        own = self.name(args[0]) if args else ""
        if not own or func._schema.is_mutable or func is ATEN.as_strided.default:
            return ()
        if not isinstance(out, Tensor) or not 0 != memory(out) == memory(args[0]):
            return ()
        base = self._bases.get(own, own)
        self._views.setdefault((base, *_form(args[0])), own)
        return base, *_form(out)

    def call(self, function: Callable[..., Tensors], args: Sequence[Any]) -> Tensors:
        """Call a function, and record the whole call as one operation."""
        with self.paused():
            out = function(*args)
        self._vary(out)
        self._add(function, args, {}, out)
        return out

    @contextmanager
    def paused(self) -> Iterator[None]:
        """A context whose operations are not recorded."""
        before, self._paused = self._paused, True
        try:
            yield
        finally:
            self._paused = before

    def _vary(self, results: Sequence[Any]) -> None:
        self._varying.update(map(id, results))
        self.varies_on_cpu |= any(isinstance(t, Tensor) and t.device == CPU for t in results)

    def name(self, tensor: Any) -> str:
        """The name of an input or a result; empty for a constant."""
        return tensor if isinstance(tensor, Name) else self._names.get(id(tensor), "")

    def call_of(
        self, function: Any, args: Sequence[Any], kwargs: dict[str, Any], out: Any, to: list[str]
    ) -> Call:
        """Describe a call as source text.

        The text assigns the operation's results to variables, whose names are in the list `to`.
        """
        reads: list[str] = []
        words = [self._text(arg, reads) for arg in args]
        words += [f"{name}={self._text(arg, reads)}" for name, arg in kwargs.items()]
        source = f"{self._constant(getattr(function, '_op', function))}({', '.join(words)})"
        if to:
            several = isinstance(out, (tuple, list))
            target = f"[{', '.join(to)}]" if several else to[0]
            source = f"{target} = {source}"
        return Call(function, args, kwargs, out, to, reads, source)

    def _add(self, function: Any, args: Sequence[Any], kwargs: dict[str, Any], out: Any) -> None:
        results = list(out) if isinstance(out, (tuple, list)) else [out]
        names: list[str] = []
        if not all(id(each) in self._names for each in results):  # else changed in place
            names = [f"value_{len(self.calls)}_{place}" for place in range(len(results))]
        self.calls.append(self.call_of(function, args, kwargs, out, names))
        self._names |= dict(zip(map(id, results), names, strict=False))

    def _text(self, arg: Any, reads: list[str]) -> str:
        """An argument's source text."""
        name = self.name(arg) if isinstance(arg, (Tensor, Name)) else ""
        if name:
            reads.append(name)
            return name
        if isinstance(arg, (list, tuple)):
            return f"[{', '.join(self._text(each, reads) for each in arg)}]"
        return self._constant(arg)

    def _constant(self, value: Any) -> str:
        name = f"constant_{len(self._globals)}"
        self._globals[name] = value
        return name

    def needed(self, outputs: Sequence[Tensor | Name | None]) -> list[Call]:
        """The recorded operations, without unused views.

        A view is used if the view is an output, or if a returned operation reads the view.
        """
        reads = {self.name(each) for each in outputs}
        calls = []
        for call in reversed(self.calls):
            if not self._bases.keys() & call.results or not reads.isdisjoint(call.results):
                reads.update(call.reads)
                calls.append(call)
        return calls[::-1]

    def function(
        self, outputs: Sequence[Tensor | Name | None], calls: Sequence[Call] | None = None
    ) -> Callable[..., list[Tensor | None]]:
        """Build a function that repeats the operations and frees each tensor after its last use.

        Args:
            outputs: the outputs to return. Each output is a result of a recorded operation, the
                name of a result, or None.
            calls: the operations; by default `needed`.

        Returns:
            ``(*inputs) -> outputs``.
        """
        reads: list[str] = []
        last = f"return [{', '.join(self._text(each, reads) for each in outputs)}]"
        lines, needed = [last], {*reads, *self._inputs}
        for call in reversed(self.needed(outputs) if calls is None else calls):
            names = dict.fromkeys([*call.results, *call.reads])
            freed = [name for name in names if name not in needed]
            needed.update(freed)
            lines.append(call.source + "".join(f"; {name} = None" for name in freed))
        head = f"def repeat({', '.join(self._inputs)}):"
        source = "\n    ".join([head, *reversed(lines)])
        namespace = dict(self._globals)
        exec(compile(source, "<recording>", "exec"), namespace)
        repeat: Callable[..., list[Tensor | None]] = namespace["repeat"]
        return repeat


def memory(value: Any) -> int:
    """The address of a tensor's memory, or 0 if the value is not a tensor."""
    if not isinstance(value, Tensor) or value.layout != torch.strided:
        return 0
    return value.untyped_storage().data_ptr()


def _form(tensor: Tensor) -> tuple[Any, ...]:
    """A key for a view: it identifies the elements of the base that the view shows."""
    signs = tensor.is_conj(), tensor.is_neg()
    return tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype, *signs


def _written(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
    """The arguments that an operation changes in place."""
    if not func._schema.is_mutable:
        return []
    values = dict(zip((each.name for each in func._schema.arguments), args, strict=False)) | kwargs
    infos = {each.name: each.alias_info for each in func._schema.arguments}
    return tree_leaves([v for name, v in values.items() if infos[name] and infos[name].is_write])


def recorded() -> bool:
    """Whether operations are being recorded; during a recording no tensor's numbers may be read."""
    return bool(_active)


def unrecorded() -> AbstractContextManager[None]:
    """A context that a `Recorder` skips; tensors created in it become constants of the recording.

    So these tensors must not depend on the inputs of the recording.
    """
    return _active[-1].paused() if _active else nullcontext()


def in_one(function: Callable[..., Tensors]) -> Callable[..., Tensors]:
    """Wrap a function of tensors and integers, so that a recording treats it as one operation.

    The function must return new tensors and draw no random numbers. The function is not
    differentiated.

    Example:
        >>> @in_one
        ... def largest(x):
        ...     return (x[: int(x.argmax()) + 1].clone(),)
        >>> largest(torch.tensor([1.0, 3.0, 2.0]))
        (tensor([1., 3.]),)
    """

    @wraps(function)
    def called(*args: Any) -> Tensors:
        return _active[-1].call(function, args) if _active else function(*args)

    return called
