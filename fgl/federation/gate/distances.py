"""Distances: how far uploads moved from the sent messages, how much the server's message grew."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

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


Pair = tuple[Tensor, Tensor | None]  # a tensor, and the tensor that is subtracted from it


def changes(
    uploads: Mapping[int, Message], sent: Mapping[int, Message]
) -> tuple[dict[int, dict[str, Change]], dict[int, Diverged]]:
    """The distance of each entry of every upload from the entry that was sent.

    All norms are read from the device together, since each read waits for it.

    Args:
        uploads: the messages by client, dicts of tensors.
        sent: the server's messages by client; an entry that they lack counts as 0.

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
    norms = _Norms()
    places: list[tuple[int, str, range, range | None, int]] = []
    for client, message in uploads.items():
        was = sent.get(client, {})
        for key, value in message.items():
            new, old = floats(value), floats(was.get(key, NOTHING))
            old = {n: t for n, t in old.items() if n in new and new[n].shape == t.shape}
            if not new:
                continue
            sizes = norms.add((tensor, old.get(name)) for name, tensor in new.items())
            before = norms.add_once(list(old.values())) if old else None
            count = sum(tensor.numel() for tensor in new.values())
            places.append((client, key, sizes, before, count))
    lengths = norms.read()
    by_client: dict[int, dict[str, Change]] = {client: {} for client in uploads}
    wrong: dict[int, Diverged] = {}
    for client, key, sizes, before, count in places:
        change = _mean(lengths, sizes, count)
        bad = None if math.isfinite(change) else first_not_finite({key: uploads[client][key]})
        if bad is not None:
            wrong.setdefault(client, Diverged(f"{bad} is not finite"))
        elif key != "num_examples":
            size = None if before is None else _mean(lengths, before, count)
            by_client[client][key] = Change(change, size)
    return by_client, wrong


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
    places = norms.add((tensor, None) for tensor in each)
    count = sum(tensor.numel() for tensor in each)
    return _mean(norms.read(), places, count)


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


def _mean(lengths: Sequence[float], places: Sequence[int], count: int) -> float:
    return math.hypot(*(lengths[place] for place in places)) / math.sqrt(count) if count else 0.0


class _Norms:
    """Euclidean norms of tensors, or of differences, that are read together."""

    def __init__(self) -> None:
        self.pairs: list[Pair] = []
        self._once: dict[tuple[int, ...], range] = {}

    def add(self, pairs: Iterable[Pair]) -> range:
        """Register pairs; returns the positions of their norms in what `read` returns."""
        start = len(self.pairs)
        self.pairs += pairs
        return range(start, len(self.pairs))

    def add_once(self, tensors: Sequence[Tensor]) -> range:
        """Like `add` for tensors, which may be added again: all clients may be sent the same."""
        key = tuple(map(id, tensors))
        if key not in self._once:
            self._once[key] = self.add((tensor, None) for tensor in tensors)
        return self._once[key]

    def read(self) -> list[float]:
        """All norms, in the order in which they were added."""
        kinds: dict[Any, list[int]] = {}
        for place, (tensor, old) in enumerate(self.pairs):
            kinds.setdefault((tensor.device, tensor.dtype, old is None), []).append(place)
        out = [0.0] * len(self.pairs)
        for places in kinds.values():
            read = _norms([self.pairs[place] for place in places])
            if read[0].dtype == torch.float16:  # autocast cannot stack these
                read = [norm.float() for norm in read]
            norms = torch.stack(read).tolist()
            for place, norm in zip(places, norms, strict=True):
                finite = math.isfinite(norm)  # else the squares may be too large for the dtype
                out[place] = norm if finite else _long_norm(*self.pairs[place])
        return out


def _norms(pairs: Sequence[Pair]) -> list[Tensor]:
    """The norms of pairs with the same shapes; each call takes as many as fit into a cache."""
    out: list[Tensor] = []
    for some in _split(pairs):
        values = [tensor for tensor, _ in some]
        olds = [old.to(tensor) for tensor, old in some if old is not None]
        out += torch._foreach_norm(torch._foreach_sub(values, olds) if olds else values)
    return out


def _split(pairs: Sequence[Pair]) -> Iterator[list[Pair]]:
    """Consecutive pairs that have few entries together, or one alone."""
    some: list[Pair] = []
    entries = 0
    for pair in pairs:
        entries += pair[0].numel()
        if some and entries > FEW:
            yield some
            some, entries = [], pair[0].numel()
        some.append(pair)
    yield some


def _long_norm(tensor: Tensor, old: Tensor | None) -> float:
    """Norm of one pair in double precision."""
    change = tensor.double() if old is None else tensor.double() - old.to(tensor).double()
    return float(torch.linalg.vector_norm(change))
