"""Distances: how far uploads moved from the sent messages, how much the server's message grew."""

from __future__ import annotations

import itertools
import math
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..method.inbox import whole
from ..method.message import Message, Params, first_not_finite, leaves

NOTHING: Message = {}
FEW = 2**17  # entries of tensors that are compared in one call


class Diverged(ValueError):
    """Numbers that are not finite, or far larger than before.

    Example:
        >>> issubclass(Diverged, ValueError)
        True
    """


class Change(NamedTuple):
    """Two root mean squares of an entry: of its change, and of its value before.

    Args:
        moved: root mean square of the difference from the entry that was sent.
        size: root mean square of the entry that was sent; None if it was not sent.

    Example:
        >>> Change(2.0, None).moved
        2.0
    """

    moved: float
    size: float | None


def changes(
    uploads: Mapping[int, Message],
    sent: Mapping[int, Message],
    forms: Mapping[int, Any] | None = None,
) -> tuple[dict[int, dict[str, Change]], dict[int, Diverged]]:
    """The distance of each entry of every upload from the entry that was sent.

    All norms are read from the device together, since each read waits for it.

    Args:
        uploads: the messages by client, dicts of tensors.
        sent: the server's messages by client; an entry that they lack counts as 0.
        forms: an object for each client; uploads with one object have the same names and shapes,
            and are measured together. Default one for each client.

    Returns:
        The `Change` by client and key, without ``"num_examples"`` and keys that have no
        floating-point tensor; and the errors, by client, of uploads that are not finite.

    Example:
        >>> uploads = {3: {"model": {"w": torch.tensor([3.0])}}}
        >>> uploads[4] = {"w": torch.tensor(float("nan"))}
        >>> found, wrong = changes(uploads, {3: {"model": {"w": torch.ones(1)}}})
        >>> found[3], str(wrong[4])
        ({'model': Change(moved=2.0, size=1.0)}, 'w is not finite')
    """
    groups: dict[Any, list[int]] = {}
    for client in uploads:
        form = id(forms[client]) if forms else client
        groups.setdefault((form, id(sent.get(client, NOTHING))), []).append(client)
    norms, entries = _Norms(), []
    for clients in groups.values():
        first, was = uploads[clients[0]], sent.get(clients[0], NOTHING)
        for key, value in first.items():
            new, old = floats(value), floats(was.get(key, NOTHING))
            old = {name: t for name, t in old.items() if name in new and new[name].shape == t.shape}
            rows = {name: _of_each(uploads, clients, key, name) for name in new}
            moved = [norms.add(rows[name], old.get(name)) for name in new]
            before = [norms.add([tensor], None) for tensor in old.values()]
            if new:
                entries.append((clients, key, moved, before, sum(map(Tensor.numel, new.values()))))
    lengths = norms.read()
    by_client: dict[int, dict[str, Change]] = {client: {} for client in uploads}
    wrong: dict[int, Diverged] = {}
    for clients, key, moved, before, count in entries:
        root = math.sqrt(count)
        size = math.hypot(*(lengths[place][0] for place in before)) / root if before else None
        columns = zip(*(lengths[place] for place in moved), strict=True)
        for client, column in zip(clients, columns, strict=True):
            change = math.hypot(*column) / root if count else 0.0
            bad = None if math.isfinite(change) else first_not_finite({key: uploads[client][key]})
            if bad is not None:
                wrong.setdefault(client, Diverged(f"{bad} is not finite"))
            elif key != "num_examples":
                by_client[client][key] = Change(change, size)
    return by_client, wrong


def _of_each(
    uploads: Mapping[int, Message], clients: Sequence[int], key: str, name: str
) -> list[Tensor]:
    """The entries in memory of one tensor of each client."""
    values = [uploads[client][key] for client in clients]
    tensors = [value[name] for value in values] if isinstance(values[0], Mapping) else values
    strided = tensors[0].layout == torch.strided
    return tensors if strided else [values_of(tensor) for tensor in tensors]


def farthest(uploads: Mapping[int, Message], sent: Mapping[int, Message]) -> list[int]:
    """The clients in the order of their distances, the farthest first.

    A tensor's distance is the root mean square of its change, divided by the round's median for
    this tensor; whole numbers count too. A tensor is infinitely far if most clients have another
    dtype or shape there. A client's distance is the largest of its tensors'.

    Args:
        uploads: client to message.
        sent: the server's messages by client; a tensor that they lack counts as 0.

    Example:
        >>> uploads = {k: {"n": torch.tensor(n)} for k, n in enumerate((3, 2, 10**9, 4))}
        >>> farthest(uploads, {})
        [2, 3, 0, 1]
    """
    sizes_of: dict[str, dict[int, float]] = {}
    kinds: dict[tuple[str, str], dict[int, Any]] = {}
    for client, message in uploads.items():
        before = dict(leaves(sent.get(client, {})))
        for path, tensor in leaves(message):
            change, old = _in_double(tensor), before.get(path)
            if old is not None and _in_double(old).shape == change.shape:
                change = change - _in_double(old)
            size = float(change.abs().square().mean().sqrt()) if change.numel() else 0.0
            sizes_of.setdefault(path, {})[client] = size
            kinds.setdefault((path, "dtype"), {})[client] = tensor.dtype
            kinds.setdefault((path, "shape"), {})[client] = tensor.shape
    distance = dict.fromkeys(uploads, 0.0)
    for sizes in sizes_of.values():
        positive = [size for size in sizes.values() if size > 0]
        median = statistics.median_low(positive) if positive else 1.0
        for client, size in sizes.items():
            distance[client] = max(distance[client], size / median)
    for kind in kinds.values():
        usual, count = Counter(kind.values()).most_common(1)[0]
        odd = [client for client, own in kind.items() if own != usual and 2 * count > len(kind)]
        distance |= dict.fromkeys(odd, float("inf"))
    return sorted(uploads, key=lambda client: (-distance[client], client))


def _in_double(tensor: Tensor) -> Tensor:
    """The numbers of a tensor of any dtype, in double precision."""
    return values_of(tensor).to(torch.complex128)


def root_mean_square(tensors: Iterable[Tensor]) -> float:
    """``sqrt(sum_i x_i^2 / n)`` over all entries of the tensors; 0 if there are none.

    Example:
        >>> root_mean_square([torch.tensor([3.0]), torch.tensor([4.0, 0.0, 0.0])])
        2.5
    """
    norms, each = _Norms(), list(tensors)
    for tensor in each:
        norms.add([tensor], None)
    count = sum(tensor.numel() for tensor in each)
    return math.hypot(*(length for (length,) in norms.read())) / math.sqrt(count) if count else 0.0


def check_jump(new: Mapping[str, Any], old: Mapping[str, Any], name: str, most: float) -> None:
    """Raise `Diverged` if a message or a state is not finite, or far larger than before.

    Args:
        new: dict of tensors, at most one dict deep.
        old: the message or state that it replaces; entries that this lacks count as of size 1.
        name: its name in errors.
        most: factor by which a root mean square may grow, if it is larger than 1.

    Example:
        >>> check_jump({"w": torch.full((2,), 1e30)}, {"w": torch.ones(2)}, "state", 1e6)
        Traceback (most recent call last):
        fgl.federation.gate.distances.Diverged: Expected state['w'] to grow by at most 1e+06, ...
    """
    for key, value in new.items():
        parts = floats(value)
        if not parts:
            continue
        size = root_mean_square(parts.values())
        if size <= most:
            continue
        bad = first_not_finite({key: value})
        if bad is not None:
            raise Diverged(f"Expected {name} to be finite, but got {bad} that is not")
        last = root_mean_square(floats(old.get(key, {})).values())
        if size > most * max(last, 1.0):
            raise Diverged(
                f"Expected {name}[{key!r}] to grow by at most {most:g}, but got {size:.4g} "
                f"after {last:.4g}"
            )


def floats(value: Any) -> Params:
    """The floating-point tensors of an entry, by name.

    Example:
        >>> floats({"w": torch.ones(1), "n": torch.tensor(3)})
        {'w': tensor([1.])}
    """
    inner = value if isinstance(value, Mapping) else {"": value}
    return {name: values_of(tensor) for name, tensor in inner.items() if tensor.is_floating_point()}


def values_of(tensor: Tensor) -> Tensor:
    """The entries of a tensor that are in memory: the values of a sparse tensor.

    Example:
        >>> values_of(torch.eye(2).to_sparse())
        tensor([1., 1.])
    """
    if tensor.layout == torch.strided:
        return tensor
    return tensor._values() if tensor.layout == torch.sparse_coo else tensor.values()


class _Norms:
    """Euclidean norms of tensors, or of differences, that are read together."""

    def __init__(self) -> None:
        self.sources: list[tuple[Sequence[Tensor], Tensor | None]] = []
        self.norms: list[list[Tensor]] = []

    def add(self, tensors: Sequence[Tensor], old: Tensor | None) -> int:
        """Register tensors from which `old` is subtracted; returns their place in `read`."""
        self.sources.append((tensors, old))
        self.norms.append(list(_norms(tensors, old)))
        return len(self.norms) - 1

    def read(self) -> list[list[float]]:
        """The norms of the tensors that were added, in this order."""
        devices: dict[torch.device, list[Tensor]] = {}
        for norm in itertools.chain(*self.norms):
            devices.setdefault(norm.device, []).append(norm.double())
        read = {device: iter(torch.cat(some).tolist()) for device, some in devices.items()}
        out = []
        for (tensors, old), norms in zip(self.sources, self.norms, strict=True):
            lengths = [next(read[norm.device]) for norm in norms for _ in range(len(norm))]
            pairs = zip(lengths, tensors, strict=True)  # the squares may be too large for a dtype
            out.append([n if math.isfinite(n) else _long_norm(each, old) for n, each in pairs])
        return out


def _norms(tensors: Sequence[Tensor], old: Tensor | None) -> Iterator[Tensor]:
    """Norms of tensors or of differences, ``[k]`` each; as many at once as fit into a cache."""
    first = tensors[0]
    alike = len({*map(attrgetter("shape", "dtype", "device"), tensors)}) == 1
    rows = whole(tensors) if alike else tensors
    some = max(1, FEW // max(first.numel(), 1)) if alike else 1
    for start in range(0, len(tensors), some):
        each = rows[start : start + some]
        each = each if isinstance(each, Tensor) else torch.stack([*each])
        change = each if old is None else each - old.to(each)
        if change.dim() == 3 and change.mT.is_contiguous():
            change = change.mT  # in the order of memory
        yield change.flatten(1).norm(dim=1) if change.dim() > 1 else change.abs()


def _long_norm(tensor: Tensor, old: Tensor | None) -> float:
    """Norm of one pair in double precision."""
    change = tensor.double() if old is None else tensor.double() - old.to(tensor).double()
    return float(torch.linalg.vector_norm(change))
