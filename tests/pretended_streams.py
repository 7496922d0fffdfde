"""Streams, events and graphs of the pretended device.

Streams run in the order of the calls. A graph records what is called on the device, refuses what
CUDA refuses in a capture (to wait, to copy what is not pinned), and repeats it on the same tensors:
what the host computed meanwhile stays as it was. A graph owns what it made, and reads other tensors
without owning them. Not emulated: that intermediate results share memory, and what runs at the same
time.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._pytree import tree_leaves, tree_map


class NotCaptured(RuntimeError):
    """What CUDA refuses while a graph is captured."""


class Stream:
    """A stream; what is called in it is done at once."""

    def __init__(self, gpu: Any, *_: Any, **__: Any) -> None:
        self.gpu = gpu

    def wait_stream(self, other: Any) -> None: ...
    def wait_event(self, event: Any) -> None: ...
    def record_event(self, event: Any = None) -> Any:
        return event or Event(self.gpu)

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        self.gpu.wait("synchronize")

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: Any) -> None: ...


class Event(Stream):
    """An event; it says no times."""

    def record(self, *_: Any) -> None: ...
    def wait(self, *_: Any) -> None: ...
    def elapsed_time(self, _: Any) -> float:
        return 0.0


class Address:
    """A tensor that a graph reads and does not own."""

    def __init__(self, tensor: Tensor) -> None:
        self.storage, self.dtype = StorageWeakRef(tensor.untyped_storage()), tensor.dtype
        self.form = tensor.storage_offset(), tensor.shape, tensor.stride()

    def read(self) -> Tensor:
        storage: Any = torch.UntypedStorage._new_with_weak_ptr(self.storage.cdata)
        assert storage is not None, "A graph reads memory that was freed"
        return torch.empty(0, dtype=self.dtype).set_(storage, *self.form)


def _read(value: Any) -> Any:
    return value.read() if isinstance(value, Address) else value


class Graph:
    """A graph: the calls that were captured, in their order."""

    def __init__(self, gpu: Any, *_: Any, **__: Any) -> None:
        self.gpu = gpu
        self.calls: list[tuple[Any, Any, Any]] = []
        self.owned: set[int] = set()
        self.before: dict[int, tuple[Tensor, Tensor]] = {}

    def add(self, func: Any, args: Any, kwargs: Any, made: Any) -> None:
        """Keep a call. Its results are the graph's if their memory is not that of an argument."""
        given = {_place(value) for value in tree_leaves((args, kwargs))}
        self.owned |= {_place(value) for value in tree_leaves(made)} - given
        call = tree_map(self._address, (args, kwargs, made))
        self.calls.append((func, call[:2], call[2]))

    def _address(self, value: Any) -> Any:
        place = _place(value)
        return value if place is None or place in self.owned else Address(value)

    def remember(self, tensors: Iterable[Tensor]) -> None:
        """Keep what a call of the capture is about to write over."""
        for tensor in tensors:
            flat = flat_storage(tensor)
            if flat is not None:
                self.before.setdefault(flat.data_ptr(), (flat, flat.clone()))

    def put_back(self) -> None:
        """Undo the capture's own calls: on CUDA nothing runs in it."""
        for flat, old in self.before.values():
            flat.copy_(old)
        self.before.clear()

    def replay(self) -> None:
        """Do the same again, results in the tensors of the capture."""
        with torch._C._DisableTorchDispatch(), torch._C._AutoDispatchBelowAutograd():
            for func, call, made in self.calls:
                args, kwargs = tree_map(_read, call)
                with self.gpu._drawing(func, args, kwargs):
                    again = func(*args, **kwargs)
                for place, new in zip(tree_leaves(made), tree_leaves(again), strict=True):
                    old = _read(place)
                    if isinstance(old, Tensor) and old.numel():
                        _put_into(old, new)

    def reset(self) -> None:
        self.calls.clear()


def _place(value: Any) -> int | None:
    """The address of a dense tensor's memory; None if it has none."""
    if not isinstance(value, Tensor) or value.layout != torch.strided:
        return None
    return value.untyped_storage().data_ptr() or None


def _put_into(old: Tensor, new: Tensor) -> None:
    """Numbers of a repeated call, where they are not there already."""
    if old.layout != torch.strided:  # of a pattern that stays
        old, new = old.values(), new.values()
    if old.data_ptr() != new.data_ptr():
        old.copy_(new)


def flat_storage(tensor: Tensor) -> Tensor | None:
    """All bytes of a dense tensor's storage."""
    if tensor.layout != torch.strided or not tensor.untyped_storage().nbytes():
        return None
    return torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage())


class Capture:
    """``with torch.cuda.graph(graph)``."""

    def __init__(self, gpu: Any, graph: Graph, *_: Any, **__: Any) -> None:
        self.gpu, self.graph = gpu, graph

    def __enter__(self) -> None:
        self.gpu.capturing = self.graph
        self.drawn = self.gpu.generator.get_state()

    def __exit__(self, kind: Any, *_: Any) -> None:
        self.gpu.capturing = None
        self.gpu.spoiled |= kind is not None  # torch's generator stays in the capture
        with torch._C._DisableTorchDispatch(), torch.no_grad():
            self.graph.put_back()
        self.gpu.generator.set_state(self.drawn)
