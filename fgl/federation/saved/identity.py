"""Identity of a run: what a checkpoint must agree with before a run goes on from it."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from ...graph import Graph
from ...sparse import SparseMatrix
from ..history import Result
from ..method.message import Message, leaves
from ..method.method import Method, OptimizerFactory

STAGES = ("loss", "receive", "send", "aggregate", "deploy", "accept")  # of a method


def identity(
    method: Method,
    clients: Sequence[Graph],
    seed: int,
    participation: float,
    dropouts: float | Callable[[int, int], bool],
    config: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """What a checkpoint must agree with before a run goes on from it, JSON-able.

    A function counts by its name, not by what it closes over; an optimiser's factory also by the
    settings of the optimiser that it makes, and the method's model by the numbers it starts from.
    """
    return {
        "seed": seed,
        "participation": participation,
        "dropouts": _short_name(dropouts) if callable(dropouts) else dropouts,
        "clients": [[graph.num_nodes, graph.num_edges, graph.num_train] for graph in clients],
        "model": {name: list(t.shape) for name, t in method.model.state_dict().items()},
        "initial_model": _digest([{"model": method.initial(), "personal": dict(method.personal)}]),
        "threads": torch.get_num_threads(),
        "num_steps": method.train.num_steps,
        "exchange": method.exchange,
        "bounds": [method.max_examples, method.max_change],
        "adjust": method.train.adjust and _full_name(method.train.adjust),
        "settle": method.train.settle and _full_name(method.train.settle),
        "batches": method.train.batches and _full_name(method.train.batches),
        "max_grad_norm": method.train.max_grad_norm,
        "keep_optimizer": method.train.keep_optimizer,
        "optimizer": _full_name(method.train.optimizer),
        "optimizer_settings": optimizer_settings(method.train.optimizer),
        "config": with_transforms(method, config),
        "functions": {stage: _short_name(getattr(method, stage)) for stage in STAGES},
    }


def with_transforms(method: Method, config: Mapping[str, Any] | None) -> dict[str, Any]:
    """The config of a run, and under ``"transforms"`` what those of its method are set to.

    Example:
        >>> method = fgl.transforms.clipped(fgl.fedavg(torch.nn.Linear(1, 1)), length=0.5)
        >>> with_transforms(method, {"dataset": "cora"})
        {'dataset': 'cora', 'transforms': [{'name': 'clipped', 'length': 0.5}]}
    """
    told = dict(config or {})
    if method.settings:
        told["transforms"] = [dict(each) for each in method.settings]
    return told


def fingerprint(graphs: Sequence[Graph]) -> str:
    """A digest of everything that the graphs hold, in their order.

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
                digest.update(_bytes(part))
    return digest.hexdigest()


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
    """Of every tensor, with its name, in order; a message that many share counts once."""
    found = hashlib.blake2b(digest_size=8)
    for message in {id(message): message for message in messages}.values():
        for path, tensor in leaves(message):
            found.update(f"{path} {tensor.dtype} {list(tensor.shape)}".encode())
            found.update(_bytes(tensor))
    return found.hexdigest()


def _bytes(tensor: Tensor) -> bytes:
    flat = tensor.detach().cpu().contiguous().flatten()
    content: bytes = flat.view(torch.uint8).numpy().tobytes()
    return content


def optimizer_settings(factory: OptimizerFactory) -> list[dict[str, Any]]:
    """What an optimiser is set to, whatever its factory hides: asked of one that is never used.

    Args:
        factory: makes a `torch.optim` optimiser of a list of tensors.

    Returns:
        For each group of parameters the settings that JSON can hold; a tensor of one number is that
        number. Empty where the factory does not take a list of one small tensor.

    Example:
        >>> settings = optimizer_settings(lambda tensors: torch.optim.SGD(tensors, lr=0.25))
        >>> settings[0]["lr"], settings[0]["momentum"]
        (0.25, 0)
    """
    try:
        groups = factory([torch.zeros(1, requires_grad=True)]).param_groups
    except Exception:  # a factory of one's own may want more; local training says what is wrong
        return []
    return [
        {key: plain for key, value in group.items() if (plain := _plain(value)) is not _UNKNOWN}
        for group in groups
    ]


_UNKNOWN = object()


def _plain(value: Any) -> Any:
    """A value as JSON has it."""
    if isinstance(value, Tensor) and value.numel() == 1:
        value = value.item()
    try:
        return json.loads(json.dumps(value))
    except (TypeError, ValueError):
        return _UNKNOWN


def _full_name(function: Any) -> str:
    """A function by its name, with what `functools.partial` fixed."""
    if isinstance(function, functools.partial):
        return f"{_full_name(function.func)}{function.args}{sorted(function.keywords.items())}"
    named = function if hasattr(function, "__qualname__") else type(function)
    return f"{named.__module__}.{named.__qualname__}"  # never an address: those change


def spelled(function: Any) -> str:
    """A function by its name, with the numbers and functions that it closes over.

    Example:
        >>> def times(factor):
        ...     return lambda value: factor * value
        >>> spelled(times(3)).endswith("{'factor': 3}")
        True
    """
    if isinstance(function, functools.partial):
        given = {name: _said(value) for name, value in sorted(function.keywords.items())}
        return f"{spelled(function.func)}({[*map(_said, function.args)]}, {given})"
    names = getattr(getattr(function, "__code__", None), "co_freevars", ())
    cells = getattr(function, "__closure__", None) or ()
    known = {name: _said(cell.cell_contents) for name, cell in zip(names, cells, strict=True)}
    return f"{_full_name(function)}{known or ''}"


def _said(value: Any) -> Any:
    """A value as JSON has it, a function spelled, all else by its type."""
    if callable(value):
        return spelled(value)
    plain = _plain(value)
    return type(value).__name__ if plain is _UNKNOWN else plain


def _short_name(function: Any) -> str:
    """A function by its name alone: a script's module is another one where it is imported."""
    function = getattr(function, "func", function)  # of a `functools.partial`
    return str(getattr(function, "__qualname__", type(function).__qualname__))
