"""Streams, events and graphs of the pretended device.

Streams run in the order of the calls. A graph records what is called on the device, refuses what
CUDA refuses in a capture (to wait, to copy what is not pinned), and repeats it on the same tensors:
what the host computed meanwhile stays as it was. Not emulated: that intermediate results share
memory, and what runs at the same time.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves


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


class Graph:
    """A graph: the calls that were captured, in their order."""

    def __init__(self, gpu: Any, *_: Any, **__: Any) -> None:
        self.gpu = gpu
        self.calls: list[tuple[Any, Any, Any, Any, Any]] = []
        self.before: dict[int, tuple[Tensor, Tensor]] = {}

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
            for func, args, kwargs, made, drawing in self.calls:
                with drawing():
                    again = func(*args, **kwargs)
                for old, new in zip(tree_leaves(made), tree_leaves(again), strict=True):
                    if isinstance(old, Tensor) and old.numel():
                        _put_into(old, new)

    def reset(self) -> None:
        self.calls.clear()


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
