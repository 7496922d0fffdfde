"""The server's checks of uploads: their form, size and distance, and the method's `accept`."""

import itertools
import json
import math
import statistics
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from operator import attrgetter
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import Parameter

from ...checks import Count, Natural, reject_if
from ...kinds import typed
from ..method.message import (
    STRIDE,
    Message,
    Params,
    State,
    check_message,
    first_not_finite,
    leaves,
    num_bytes,
    whole,
)
from ..method.method import Method

NOTHING: Message = {}
FEW = 2**17  # entries of tensors that are compared in one call


class Diverged(ValueError):
    """Error for values that are not finite, or whose size or change exceeds a bound.

    Example:
        >>> issubclass(Diverged, ValueError)
        True
    """


class Change(NamedTuple):
    """The size of an entry's change, and the size of the entry that the server sent.

    Args:
        moved: root mean square of the difference from the entry that the server sent.
        size: root mean square of the entry that the server sent; None if the server did not send
            this entry.

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
    """The distance of each uploaded entry from the entry that the server sent.

    All norms are copied from the device in one copy, since each copy waits until the device has
    finished.

    Args:
        uploads: dict from client to message; a message is a dict of tensors.
        sent: the server's messages by client; a missing entry counts as 0.
        forms: dict from client to the form of the client's upload. Two clients may have the
            identical object as form only if their uploads have equal names and shapes. The
            distances of these uploads are computed together. By default, the distances are computed
            for one upload at a time.

    Returns:
        Two dicts. The first dict contains a `Change` for each client and key. The key
        ``"num_examples"`` and keys without a floating-point tensor are left out. The second dict
        contains an error for each client whose upload is not finite.

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
            deltas = [norms.add(rows[name], old.get(name)) for name in new]
            before = [norms.add([tensor], None) for tensor in old.values()]
            if new:
                entries.append((clients, key, deltas, before, sum(map(Tensor.numel, new.values()))))
    lengths = norms.read()
    by_client: dict[int, dict[str, Change]] = {client: {} for client in uploads}
    wrong: dict[int, Diverged] = {}
    for clients, key, deltas, before, count in entries:
        root = math.sqrt(count) or 1.0  # if there is no entry, all lengths are 0
        size = math.hypot(*(lengths[place][0] for place in before)) / root if before else None
        columns = zip(*(lengths[place] for place in deltas), strict=True)
        for client, column in zip(clients, columns, strict=True):
            change = math.hypot(*column) / root
            bad = None if math.isfinite(change) else first_not_finite({key: uploads[client][key]})
            if bad is not None:
                wrong.setdefault(client, Diverged(f"{bad} is not finite"))
            elif key != "num_examples":
                by_client[client][key] = Change(change, size)
    return by_client, wrong


def _of_each(
    uploads: Mapping[int, Message], clients: Sequence[int], key: str, name: str
) -> list[Tensor]:
    """For each client, the stored values of one tensor."""
    values = [uploads[client][key] for client in clients]
    tensors = [value[name] for value in values] if isinstance(values[0], Mapping) else values
    strided = tensors[0].layout == torch.strided
    return tensors if strided else [values_of(tensor) for tensor in tensors]


def farthest(uploads: Mapping[int, Message], sent: Mapping[int, Message]) -> list[int]:
    """The clients in descending order of distance.

    For each tensor, the size of a client's change is its root mean square. The median is taken over
    the sizes that are not 0. A client's distance in this tensor is the size of the client's change
    divided by this median. Tensors of integers have distances too. If a client's tensor differs
    from most clients' tensors in dtype or shape, the client's distance in this tensor is infinite.
    A client's distance is the largest distance over all tensors.

    Args:
        uploads: dict from client to message.
        sent: the server's messages by client; a missing tensor counts as 0.

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
    """A tensor's numbers in double precision, whatever its dtype."""
    return values_of(tensor).to(torch.complex128)


def root_mean_square(tensors: Iterable[Tensor]) -> float:
    """``sqrt(sum_i x_i^2 / n)`` over all entries of the tensors; 0 if there are no entries.

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
    """Raise `Diverged` if a message or state is not finite, or is far larger than before.

    Args:
        new: dict whose values are tensors or dicts of tensors.
        old: the message or state that `new` replaces; a missing entry counts as an entry of size 1.
        name: the name of the message or state in errors.
        most: largest allowed ratio of the new root mean square to the old root mean square. If the
            old root mean square is below 1, the ratio is computed with 1 instead.

    Example:
        >>> check_jump({"w": torch.full((2,), 1e30)}, {"w": torch.ones(2)}, "state", 1e6)
        Traceback (most recent call last):
        fgl.federation.gate.uploads.Diverged: Expected state['w'] to grow by at most 1e+06, ...
    """
    for key, value in new.items():
        parts = floats(value)
        if not parts:
            continue
        size = root_mean_square(parts.values())
        if size <= most:
            continue
        bad = first_not_finite({key: value})
        reject_if(bad is not None, f"{name} to be finite", f"{bad} that is not", Diverged)
        last = root_mean_square(floats(old.get(key, {})).values())
        want, got = f"{name}[{key!r}] to grow by at most {most:g}", f"{size:.4g} after {last:.4g}"
        reject_if(size > most * max(last, 1.0), want, got, Diverged)


def floats(value: Any) -> Params:
    """The floating-point tensors of an entry, by name.

    Example:
        >>> floats({"w": torch.ones(1), "n": torch.tensor(3)})
        {'w': tensor([1.])}
    """
    inner = value if isinstance(value, Mapping) else {"": value}
    return {name: values_of(tensor) for name, tensor in inner.items() if tensor.is_floating_point()}


def values_of(tensor: Tensor) -> Tensor:
    """The entries of a dense tensor, or the stored values of a sparse tensor.

    Example:
        >>> values_of(torch.eye(2).to_sparse())
        tensor([1., 1.])
    """
    if tensor.layout == torch.strided:
        return tensor
    return tensor._values() if tensor.layout == torch.sparse_coo else tensor.values()


@dataclass
class _Norms:
    """Euclidean norms of tensors or differences, read from the device all at once."""

    sources: list[tuple[Sequence[Tensor], Tensor | None]] = field(default_factory=list)
    norms: list[list[Tensor]] = field(default_factory=list)

    def add(self, tensors: Sequence[Tensor], old: Tensor | None) -> int:
        """Add tensors to be measured; if `old` is given, their differences from `old` are measured.

        Return an index i: ``read()[i]`` will contain the norms of these tensors.
        """
        self.sources.append((tensors, old))
        self.norms.append(list(_norms(tensors, old)))
        return len(self.norms) - 1

    def read(self) -> list[list[float]]:
        """The norms of the added tensors, in the order of the calls of `add`."""
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
    """Norms ``[k]`` of tensors or of differences.

    The norms are computed in groups that fit into a cache.
    """
    first = tensors[0]
    turned = first.dim() == 2 and first.mT.is_contiguous() and not first.is_contiguous()
    if turned:  # transpose all to the order of memory
        tensors, old = [tensor.mT for tensor in tensors], None if old is None else old.mT
    old = None if old is None else old.to(first).contiguous()
    equal_forms = len({*map(attrgetter("shape", "dtype", "device"), tensors)}) == 1
    rows = whole(tensors) if equal_forms else tensors
    some = max(1, FEW // max(first.numel(), 1)) if equal_forms else 1
    for start in range(0, len(tensors), some):
        each = rows[start : start + some]
        if not isinstance(each, Tensor):
            with torch.autocast(first.device.type, enabled=False):  # it refuses float64 there
                each = torch.stack([*each])
        change = each if old is None else each - old.to(each)
        yield change.flatten(1).norm(dim=1) if change.dim() > 1 else change.abs()


def _long_norm(tensor: Tensor, old: Tensor | None) -> float:
    """The norm of a tensor or difference in double precision."""
    change = tensor.double() if old is None else tensor.double() - old.to(tensor).double()
    return float(torch.linalg.vector_norm(change))


TIMES = 16  # an upload may have 16 times the model's bytes
ROOM = 2**24  # further bytes of an upload
RAGGED = 2**30  # further bytes if the sizes of entries depend on a client's data
NOTE = 2**20  # bytes of the data that accompany a message


@typed
@dataclass(frozen=True)
class Limits:
    """Bounds on uploads and on empty rounds: ``fgl.run(..., limits=Limits(metrics=20))``.

    Args:
        upload_bytes: largest size of an upload. By default, 16 times the size of the model plus 16
            MiB. If the method has `ragged` keys, 1 GiB is added to the default, since the sizes of
            such entries depend on a client's data.
        note_bytes: largest size of the data that a remote client sends in addition to its message:
            numbers, losses, names, metrics. By default, 1 MiB plus 16 bytes for each character in
            the names of the model's tensors.
        metrics: largest number of metrics from remote clients. A client's score is ignored if it
            has more metrics than this limit. If the scores of a round contain more different names
            than this limit, the names that the fewest clients use are left out.
        metric_length: largest number of characters of a metric's name.
        empty_rounds: the run raises an error after this number of consecutive rounds in which no
            upload was accepted. The run also raises an error at the end if no upload was accepted
            in any round. If a method's exchanges have several rounds, as in a secure sum, the run
            also raises an error after this number of consecutive empty exchanges. An exchange is
            empty if at least one of its rounds had no accepted upload. None for no limit.

    Raises:
        TypeError, ValueError: if a number is not an integer or is out of range.

    Example:
        >>> method = fgl.fedavg(torch.nn.Linear(256, 256, bias=False))
        >>> Limits().of_upload(method) // 2**20, Limits(upload_bytes=1000).of_upload(method)
        (20, 1000)
    """

    upload_bytes: Count | None = None
    note_bytes: Count | None = None
    metrics: Natural = 100
    metric_length: Natural = 100
    empty_rounds: Count | None = 3

    def of_upload(self, method: Method) -> int:
        """The largest allowed size of an upload, in bytes."""
        if self.upload_bytes is not None:
            return self.upload_bytes
        return TIMES * num_bytes(method.common()) + ROOM + (RAGGED if method.rules.ragged else 0)

    def of_note(self, method: Method) -> int:
        """The largest allowed size of the data sent with a message, in bytes."""
        if self.note_bytes is not None:
            return self.note_bytes
        return NOTE + 16 * sum(map(len, method.common()))

    def check_bytes(self, method: Method, upload: int, note: int = 0) -> None:
        """Raise a ValueError if an upload, or the data sent with it, has too many bytes.

        Example:
            >>> Limits(upload_bytes=1000).check_bytes(fgl.fedavg(torch.nn.Linear(1, 1)), 1001)
            Traceback (most recent call last):
            ValueError: Expected the upload to have at most 1000 bytes, but got 1001
        """
        most, beside = self.of_upload(method), self.of_note(method) if note else 0
        reject_if(upload > most, f"the upload to have at most {most} bytes", upload)
        reject_if(note > beside, f"what stands beside it to have at most {beside} bytes", note)

    def check_metrics(self, names: Mapping[str, Any]) -> None:
        """Raise a ValueError if a score has too many metrics, or a metric with an unreadable name.

        Example:
            >>> Limits().check_metrics({"a" * 200: 1.0})
            Traceback (most recent call last):
            ValueError: Expected the names of metrics to have at most 100 letters, but got 200
        """
        want = f"a score to have at most {self.metrics} metrics"
        reject_if(len(names) > self.metrics, want, len(names))
        for name in names:
            want = f"the names of metrics to have at most {self.metric_length} letters"
            reject_if(len(name) > self.metric_length, want, len(name))
            reject_if(not name.isprintable(), "the names of metrics to be printable", f"{name!a}")

    def too_many(self, scores: Mapping[int, Mapping[str, Any]]) -> set[str]:
        """Names of the rarest metrics, which are left out so that at most `metrics` names remain.

        The set is empty if the limit is not exceeded.

        Example:
            >>> scores = {0: {"auc": 0.5}, 1: {"auc": 0.7, "spam": 1.0}}
            >>> Limits(metrics=1).too_many(scores), Limits().too_many(scores)
            ({'spam'}, set())
        """
        counts = Counter(name for score in scores.values() for name in score)
        return {name for name, _ in counts.most_common()[self.metrics :]}


NO_MORE = Limits()
AGREED = 3  # clients that must agree on a form before later rounds require it
LAYOUTS = (torch.strided, torch.sparse_coo, torch.sparse_csr, torch.sparse_csc)
DTYPES = {
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64),
    *(torch.complex128, torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
}
LOOK = attrgetter("shape", "dtype", "layout", "requires_grad", "is_meta", "is_nested")
Form = dict[str, Any]  # key to "torch.float32 [8, 6]", or to a dict of these


class Absent(ValueError):
    """Error that a client raises if it does not take part.

    The server ignores the client's message, and does not count this message as malformed.

    Example:
        >>> issubclass(Absent, ValueError)
        True
    """


class Sifted(NamedTuple):
    """A round's uploads after the server's checks, in the order of the clients.

    Args:
        taken: the accepted messages.
        refused: the errors of the messages that were not accepted.
        malformed: clients in `refused` whose message is not an upload of this method.
        form: the form of this run's uploads; empty until enough clients have sent the same form.
    """

    taken: dict[int, Message]
    refused: dict[int, Exception]
    malformed: list[int]
    form: Form


def sift(
    method: Method,
    uploads: Mapping[int, Any],
    sent: Mapping[int, Message],
    state: State,
    form: Form,
    limits: Limits = NO_MORE,
) -> Sifted:
    """Divide a round's uploads into accepted messages and errors for refused messages.

    The entry ``"model"`` must have the form of the method's model. All other entries must have the
    form that is most common among the uploads that pass `accept`. All later rounds also require
    this form, if at least three clients have sent it. In a federation with only one or two clients,
    later rounds require the most common form only after all clients have sent it.

    Args:
        method: the method, which provides the model and the function `accept`.
        uploads: the uploads by client; an upload can be any object.
        sent: the server's message to each client of the federation.
        state: the server's state.
        form: the form on which clients agreed in an earlier round, or an empty form.
        limits: bounds on the size of an upload.

    Example:
        >>> method = fgl.fedavg(torch.nn.Linear(1, 1, bias=False))
        >>> came = {k: {"model": {"weight": torch.full((1, 1), v)}}
        ...         for k, v in enumerate((1.0, 2.0, 1e38, float("nan")))}
        >>> sent = dict.fromkeys(came, {"model": {"weight": torch.zeros(1, 1)}})
        >>> found = sift(method, came, sent, {}, {})
        >>> list(found.taken), found.form
        ([0, 1], {'model': {'weight': 'torch.float32 [1, 1]'}})
        >>> print(*found.refused.values(), sep="; ")
        model changed by 1e+38, which is over 300 times the median, 2; model/weight is not finite
    """
    forms, malformed = _forms(method, uploads, limits)
    equal_forms = None if method.rules.ragged else forms
    change_of, infinite = changes({client: uploads[client] for client in forms}, sent, equal_forms)
    whole = {client: uploads[client] for client in sorted(forms.keys() - infinite)}
    refused = {**infinite, **_not_accepted(method, whole, state)}
    # Hostile clients cannot agree on a form that `accept` refuses.
    voters = {client: own for client, own in forms.items() if client not in refused}
    usual = form or _most_common(voters)
    of_form: dict[int, Message] = {}
    for client, own in voters.items():
        try:
            if own != usual:
                _check_form(own, usual)
            of_form[client] = _in_order(uploads[client], usual)
            _check_count(of_form[client], method.rules.max_examples)
        except Exception as error:
            (refused if client in of_form else malformed)[client] = error
    counted = {client: change_of[client] for client in of_form if client not in refused}
    refused |= malformed | _too_far(counted, method.rules.max_change)
    taken = {client: message for client, message in of_form.items() if client not in refused}
    agreed = len(of_form) >= min(AGREED, len(sent))
    refused = dict(sorted(refused.items()))
    return Sifted(taken, refused, sorted(malformed), usual if agreed else form)


def _not_accepted(
    method: Method, uploads: Mapping[int, Message], state: State
) -> dict[int, Exception]:
    """Errors for the uploads that the method's `accept` refuses."""
    refused: dict[int, Exception] = {}
    for client, message in uploads.items():
        try:
            method.accept(message, client, state)
        except Exception as error:
            refused[client] = error
    return refused


def _forms(
    method: Method, uploads: Mapping[int, Any], limits: Limits
) -> tuple[dict[int, Form], dict[int, Exception]]:
    """The uploads' forms, and errors for malformed uploads."""
    template = method.common()
    forms: dict[int, Form] = {}
    malformed: dict[int, Exception] = {}
    last: Form = {}
    look: Any = None
    for client in sorted(uploads):
        try:
            own_look = _look(uploads[client])
            if own_look is None or own_look != look:  # else as the last checked upload
                last, look = form_of(uploads[client], method.rules.ragged, template), None
                limits.check_bytes(method, num_bytes(uploads[client]))
                look = own_look
            forms[client] = last
        except Exception as error:  # an upload can be any object
            malformed[client] = error
    return forms, malformed


def _look(message: Any) -> Any:
    """The properties that decide whether an upload's form is valid; None for an unusual upload."""
    if type(message) is not dict:
        return None
    names: list[Any] = []
    sizes: list[int] = []
    tensors: list[Any] = []
    for key, value in message.items():
        inner = value if type(value) is dict else None
        names += [key, *(inner or ())]
        tensors += [value] if inner is None else inner.values()
        sizes.append(-1 if inner is None else len(inner))
    if {*map(type, names)} != {str} or {*map(type, tensors)} != {Tensor}:
        return None
    try:
        return names, sizes, [*map(LOOK, tensors)], [*map(STRIDE, tensors)]
    except RuntimeError:  # a sparse tensor has no strides
        return None


def form_of(
    message: Any, ragged: Collection[str] = (), model: Mapping[str, Tensor] | None = None
) -> Form:
    """The form of an upload: its names, shapes, dtypes and layouts.

    All uploads of a run have the same form.

    Args:
        message: the upload. It must be a dict whose values are tensors or dicts of tensors.
        ragged: keys whose entries may differ between clients; the form does not include them.
        model: see `check_message`.

    Raises:
        TypeError: if the message is not such a dict, or if the values of a tensor are not in
            memory.
        ValueError: if a tensor requires a gradient, or if two entries of a tensor share memory.

    Example:
        >>> form_of({"n": torch.tensor(3), "rows": torch.zeros(7, 2)}, ragged={"rows"})
        {'n': 'torch.int64 []'}
    """
    check_message(message, model=model, name="the upload")
    form: Form = {key: {} for key in message}  # in the message's order, with empty dicts
    for path, tensor in _entries(message):
        _check_numbers(path, tensor, path[0] in ragged)
        inner = form[path[0]] if len(path) > 1 else form
        inner[path[-1]] = _described(tensor.dtype, tensor.shape, tensor.layout)
    return {key: value for key, value in form.items() if key not in ragged}


def _entries(message: Mapping[Any, Any]) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """A message's tensors, each with its path.

    A path is a tuple, since a key may contain "/".
    """
    for key, value in message.items():
        if isinstance(value, Mapping):
            yield from (((key, name), tensor) for name, tensor in value.items())
        else:
            yield (key,), value


def _check_numbers(path: tuple[str, ...], tensor: Tensor, ragged: bool) -> None:
    """Raise an error if entries of a tensor share memory, or if they are not plain numbers.

    Expanded tensors are refused, since their entries share memory. Subclasses of Tensor are
    refused, since they could redefine addition.
    """
    layout, dtype = tensor.layout, tensor.dtype
    numbers = type(tensor) in (Tensor, Parameter) and dtype in DTYPES and layout in LAYOUTS
    in_memory = numbers and not tensor.is_meta and not tensor.is_nested
    if in_memory and layout == torch.strided and tensor.is_contiguous():
        return
    name = "/".join(path)
    if not in_memory:
        kind = "meta" if tensor.is_meta else f"{layout}, {dtype}"
        got = f"a {type(tensor).__name__}, {kind}"
        raise TypeError(f"Expected {name!r} to be a tensor of numbers in memory, but got {got}")
    strides = tensor.stride() if layout == torch.strided else tensor.shape
    reject_if(ragged and layout != torch.strided, f"{name!r} to be dense", layout)
    expanded = any(size > 1 and step == 0 for size, step in zip(tensor.shape, strides, strict=True))
    reject_if(expanded, f"{name!r} to be whole", "an expanded tensor")


@lru_cache(maxsize=1024)
def _described(dtype: torch.dtype, shape: torch.Size, layout: torch.layout = torch.strided) -> str:
    return f"{dtype} {list(shape)}" + ("" if layout == torch.strided else f" {layout}")


def _most_common(forms: Mapping[int, Form]) -> Form:
    """The form that is most common among the uploads.

    Uploads of this form can have their keys in different orders. The result has the order that is
    most common among these uploads.

    The result is empty if no form is more common than all others.
    """
    texts = [json.dumps(form, sort_keys=True) for form in forms.values()]
    best = Counter(texts).most_common(2)
    if not best or (len(best) > 1 and best[0][1] == best[1][1]):
        return {}
    same = [form for form, text in zip(forms.values(), texts, strict=True) if text == best[0][0]]
    return dict(json.loads(Counter(map(json.dumps, same)).most_common(1)[0][0]))


def _check_form(form: Form, usual: Form) -> None:
    """Raise an error if an upload's form is unusual; the error names the first difference."""
    reject_if(not usual, "one form of upload to have more clients than any other", "no majority")
    got, want = _flat(form), _flat(usual)
    for word, paths in (("missing", want.keys() - got), ("extra", got.keys() - want)):
        reject_if(
            paths,
            "the upload to have the entries that those of most clients have",
            f"{word} {['/'.join(path) for path in sorted(paths)]}",
        )
    path = next(path for path in want if got[path] != want[path])
    name = "/".join(path)
    raise ValueError(f"Expected {name} to be {want[path]} as most clients', but got {got[path]}")


def _flat(form: Form) -> dict[tuple[str, ...], str]:
    """Flatten an upload's form; each key of the result is a path such as ``("model", "w")``.

    The result has an entry for each tensor and for each inner dict.
    """
    dicts = {(key,): "a dict" for key, value in form.items() if isinstance(value, dict)}
    return dicts | dict(_entries(form))


def _in_order(message: Message, form: Form) -> Message:
    """Sort the message's entries into the order that most clients use."""
    inner = [key for key, value in form.items() if isinstance(value, dict)]
    if list(message) == list(form) and all(list(message[k]) == list(form[k]) for k in inner):
        return message
    keys = [*form, *(key for key in message if key not in form)]
    return {k: {n: message[k][n] for n in form[k]} if k in inner else message[k] for k in keys}


def _check_count(message: Message, most: float) -> None:
    """Raise an error unless `num_examples` can be a client's weight."""
    if "num_examples" not in message:
        return
    for value in message["num_examples"].flatten().tolist():
        got = f"{value:g}: replace(method.rules, max_examples=...) allows larger weights"
        reject_if(not 0 <= value <= most, f"num_examples to be from 0 to {most:g}", got)


def _too_far(change_of: Mapping[int, Mapping[str, Change]], most: float) -> dict[int, Diverged]:
    """Errors for clients whose change of an entry exceeds the first or the second bound.

    Let c be the number `most`. The first bound is c times the median of the round's nonzero
    changes. The first bound applies only to a change that is larger than the sent entry, or larger
    than 1 if no entry was sent. If the number of changes is even, the median is the larger of the
    two middle changes. If the median were the smaller of the two middle changes, half of the
    clients could make the median almost 0 by sending almost unchanged models. The server would then
    refuse the uploads of all other clients. The second bound is c times the size of the sent entry.
    A size below 1 is replaced by 1. The second bound also limits the growth of the server's own
    message.
    """
    diverged: dict[int, Diverged] = {}
    by_key: dict[str, dict[int, Change]] = {}
    for client, each in change_of.items():
        for key, change in each.items():
            by_key.setdefault(key, {})[client] = change
    for key, far in by_key.items():
        positive = [change.moved for change in far.values() if change.moved > 0]
        median = statistics.median_high(positive) if positive else 0.0
        for client, (delta, size) in far.items():
            if delta > most * median and delta > (1.0 if size is None else size):
                bound = f"over {most:g} times the median, {median:.4g}"
            elif size is not None and delta > most * max(size, 1.0):
                bound = f"over {most:g} times what was sent, {size:.4g}: try a lower learning rate"
            else:
                continue
            text = f"{key} changed by {delta:.4g}, which is {bound}"
            diverged.setdefault(client, Diverged(text))
    return diverged
