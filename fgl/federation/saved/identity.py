"""Identity of a run: values that must not change when the run resumes from a checkpoint."""

import functools
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from types import CellType
from typing import Any

import torch
from torch import Tensor, nn

from ...graph import Graph
from ...sparse import SparseMatrix
from ..history import Result
from ..method.describe import DEPTH, architecture, bytes_of, described, hides, short_name
from ..method.fedavg import OfSums, average
from ..method.message import Message, leaves
from ..method.method import Method, OptimizerFactory
from ..method.old_names import GROUPS
from ..method.rules import without_noise

# Fields of `Method` and of its rules that have their own comparison.
NOT_FIELDS = ("model", "train", "layers", *GROUPS, "participants", "rounds", "joining")


def identity(
    method: Method,
    seed: int,
    participation: float,
    dropouts: float | Callable[[int, int], bool],
    config: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """The JSON values that must not change when a run resumes from a checkpoint.

    The values describe the method's fields, the fields of `method.train`, and the arguments of the
    method's layers. Functions are compared by name. For an optimiser's factory, the settings of its
    optimiser are compared too. For the model, the initial tensors are compared too.
    """
    model, rules, privacy, own = method.model, method.rules, method.privacy, method.own
    initial, saved = {"model": method.common(), "personal": dict(own.personal)}, model.state_dict()
    return {
        **({"own": described(own.modules)} if own.modules else {}),
        **({"costs": _full_name(privacy.costs)} if privacy.costs is not without_noise else {}),
        **({"onward": described(privacy.onward)} if privacy.onward else {}),
        **({"account": _full_name(privacy.account)} if privacy.account is not None else {}),
        **({"joining": _full_name(rules.joining.say)} if rules.joining is not None else {}),
        **({"participants": rules.participants} if rules.participants > 1 else {}),
        "layers": [layer.name for layer in method.layers],
        "seed": seed,
        "participation": participation,
        "dropouts": short_name(dropouts) if callable(dropouts) else dropouts,
        "model": {name: list(t.shape) for name, t in method.common().items()},
        "initial_model": _digest([initial]),
        "architecture": _architecture(method),
        "buffers": {name: described(b) for name, b in model.named_buffers() if name not in saved},
        "threads": torch.get_num_threads(),
        **_fields(method.train),
        "optimizer_settings": optimizer_settings(method.train.optimizer),
        **_fields(method, but=NOT_FIELDS),
        **_fields(rules, but=NOT_FIELDS),
        "config": dict(config or {}),
        **_settings(method),
    }


def _architecture(method: Method) -> Any:
    """The model's architecture, as recorded when FedAvg was built.

    The recorded architecture is used, since attributes such as a counter of calls may change later.
    If clients have their own parts of the model, only the modules that all clients share are
    included.
    """
    if method.own.modules:
        common = method.common()
        holders = {name.rpartition(".")[0] for name in common}
        return {path: text for path, text in architecture(method.model).items() if path in holders}
    for layer in method.layers:
        if layer.left.get("model") is method.model and "model" in layer.settings:
            return layer.settings["model"]
    return architecture(method.model)


def _fields(value: Any, but: Sequence[str] = ()) -> dict[str, Any]:
    """The fields of a dataclass.

    A function is represented by its name only, since the values in the function's closure may
    change during a run.
    """
    out = {}
    for each in fields(value):
        field = getattr(value, each.name)
        if each.name not in but:
            out[each.name] = _full_name(field) if callable(field) else described(field)
    return out


def _settings(method: Method) -> dict[str, Any]:
    """The settings of each builder that built a method.

    The settings of a builder `fedavg` are at the key ``"settings of fedavg"``. If a builder occurs
    several times, a number is appended to the key: 2 at the second occurrence, 3 at the third, and
    so on.
    """
    out: dict[str, Any] = {}
    for each in (inner for layer in method.layers for inner in layer.all):
        name, number = f"settings of {each.name}", 1
        while name in out:
            number += 1
            name = f"settings of {each.name} {number}"
        out[name] = {key: value for key, value in each.settings.items() if key != "model"}
    return out


def with_layers(method: Method, config: Mapping[str, Any] | None) -> dict[str, Any]:
    """The config of a run, with an entry ``"layers"`` for the arguments of the method's builders.

    A user can give a method new functions with ``dataclasses.replace``. An entry named
    ``"replace"`` then lists the new functions whose settings are unknown, since no builder recorded
    these settings.

    Example:
        >>> method = fgl.transforms.clipped(fgl.fedavg(torch.nn.Linear(1, 1)), length=0.5)
        >>> with_layers(method, {"dataset": "cora"})["layers"][1:]
        [{'name': 'clipped', 'length': 0.5}]
    """
    layers = [{"name": each.name, **each.settings} | {"name": each.name} for each in method.made_of]
    return {**(config or {}), "layers": layers}


def fingerprint(graphs: Sequence[Graph]) -> str:
    """A digest of the tensors of all graphs, in the graphs' order.

    Example:
        >>> one, two = (fgl.Graph(torch.eye(n), torch.zeros(2, 0).long()) for n in (1, 2))
        >>> fingerprint([one, two]) == fingerprint([two, one])
        False
    """
    digest = hashlib.blake2b(digest_size=8)
    for graph in graphs:
        for field in fields(graph):
            value = getattr(graph, field.name)
            digest.update(f"{field.name} {getattr(value, 'shape', value)}".encode())
            parts = [value]
            if isinstance(value, SparseMatrix):
                parts = [value.pattern.row, value.pattern.col, value.value]
            for part in (part for part in parts if isinstance(part, torch.Tensor)):
                digest.update(bytes_of(part))
    return digest.hexdigest()


def scoring(evaluate: Any, known: Sequence[Graph]) -> list[str]:
    """The name of an `evaluate` function, and a digest of the graphs that the function uses.

    Args:
        evaluate: the function. The digest covers all graphs in the closures of this function and of
            the functions that it calls. If held-out pairs of nodes are stored together with a
            graph, the digest also covers these pairs.
        known: graphs that the digest leaves out, since a resumed run compares these graphs
            separately.

    Example:
        >>> scoring(lambda outbox, states: {}, [])[0]
        '<lambda>'
    """
    left_out = {id(graph) for graph in known}
    return [_full_name(evaluate), fingerprint([*_graphs_in(evaluate, left_out)])]


def _graphs_in(value: Any, visited: set[int], depth: int = DEPTH) -> Iterator[Any]:
    """All graphs, and all dataclasses with a graph, that a function can reach."""
    if isinstance(value, str | int | float) or id(value) in visited or depth == 0:
        return
    visited.add(id(value))
    inner = () if isinstance(value, Graph) else _parts(value)
    if isinstance(value, Graph) or (
        is_dataclass(value) and inner and all(isinstance(each, Graph | Tensor) for each in inner)
    ):
        yield value
    for each in inner:
        yield from _graphs_in(each, visited, depth - 1)


def _parts(value: Any) -> Sequence[Any]:
    """The values inside a container, a function, or a dataclass that has a graph as a field."""
    if is_dataclass(value) and isinstance(getattr(value, "graph", None), Graph):
        return [getattr(value, each.name) for each in fields(value)]
    if isinstance(value, functools.partial):
        return [value.func, *value.args, *value.keywords.values()]
    if isinstance(value, Mapping):
        return [*value, *value.values()]
    if isinstance(value, list | tuple):
        return value
    if not callable(value) or isinstance(value, type | nn.Module):
        return ()
    cells = getattr(value, "__closure__", None) or ()
    inner = [each.cell_contents for each in cells if each != CellType()]
    inner += [getattr(value, "__self__", None), *(getattr(value, "__defaults__", None) or ())]
    inner += (getattr(value, "__kwdefaults__", None) or {}).values()
    return [*inner, *getattr(value, "__dict__", {}).values()]


def digest(result: Result) -> str:
    """A digest of the outbox and the states of a run.

    Example:
        >>> one, two = (Result({0: {"w": torch.full((1,), v)}}, {}, {}, []) for v in (1.0, 2.0))
        >>> digest(one) == digest(two)
        False
    """
    states = [result.client_states[client] for client in sorted(result.client_states)]
    return _digest([*result.outbox.values(), result.server_state, *states])


def _digest(messages: Sequence[Message]) -> str:
    """A digest of every tensor and its name, in order.

    A message that several clients share is read once.
    """
    digest_so_far = hashlib.blake2b(digest_size=8)
    for message in {id(message): message for message in messages}.values():
        for path, tensor in leaves(message):
            digest_so_far.update(f"{path} {tensor.dtype} {list(tensor.shape)}".encode())
            digest_so_far.update(bytes_of(tensor))
    return digest_so_far.hexdigest()


def optimizer_settings(factory: OptimizerFactory) -> list[dict[str, Any]]:
    """The settings of a factory's optimiser, read from an optimiser that the factory creates.

    Args:
        factory: function that returns a `torch.optim` optimiser for a list of tensors.

    Returns:
        A list with one dict per parameter group: the settings that JSON can represent. A tensor
        with one entry becomes a number. This function calls the factory with one small tensor. If
        the factory raises an error for this tensor, the returned list is empty.

    Example:
        >>> settings = optimizer_settings(lambda tensors: torch.optim.SGD(tensors, lr=0.25))
        >>> settings[0]["lr"], settings[0]["momentum"]
        (0.25, 0)
    """
    try:
        groups = factory([torch.zeros(1, requires_grad=True)]).param_groups
    except Exception:  # a user's factory may need other tensors; training raises its error
        return []
    return [
        {key: _plain(value) for key, value in group.items() if key != "params"} for group in groups
    ]


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, Tensor) and value.numel() == 1 else described(value)


def _full_name(function: Any) -> str:
    """A function's name, with the arguments that `functools.partial` has fixed."""
    if isinstance(function, functools.partial):
        words = [str(described(value)) for value in function.args]
        words += [f"{key}={described(value)}" for key, value in sorted(function.keywords.items())]
        arguments = f"({', '.join(words)})" if words else ""
        return f"{short_name(function)}{arguments}"
    if isinstance(function, OfSums):
        return f"{short_name(function)}({function.key!r}, {short_name(function.serve)})"
    serve = getattr(function, "serve", None)
    if serve not in (None, getattr(average, "serve", None)) and not hides(serve):
        return f"{short_name(function)}({short_name(serve)})"
    return short_name(function)
