"""Rounds: who takes part, what is exchanged, what is recorded; resumed bit for bit."""

from __future__ import annotations

import json
import math
import operator
import os
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import torch

from ..graph import Graph
from . import checkpoint as files
from .evaluate import Evaluate, in_mode
from .executor import Executor, Sent, unchanged
from .message import Broadcast, Inbox, Message, check_message, compact, first_not_finite, num_bytes
from .method import Method, fold_in
from .result import Result, Round
from .stage import stage

Dropouts = float | Callable[[int, int], bool]


Callback = Callable[[Round, Result], bool | None]


def run(
    method: Method,
    clients: Sequence[Graph],
    *,
    num_rounds: int,
    seed: int = 0,
    participation: float = 1.0,
    dropouts: Dropouts = 0.0,
    clients_at_once: int | Literal["all"] = 1,
    evaluate: Evaluate | None = None,
    callbacks: Sequence[Callback] = (),
    checkpoint: str | os.PathLike[str] | None = None,
    config: Mapping[str, Any] | None = None,
) -> Result:
    """Run a method on a federation.

    Every party's randomness is ``fold_in(seed, round, client)``: the order of clients, an
    interruption or another process cannot change a run.

    Args:
        method: what to run.
        clients: one graph per client.
        num_rounds: rounds in all, those before a resume included.
        seed: of the whole run; the initial model is `method.model`'s own.
        participation: share of the clients that take part in a round, at least one.
        dropouts: probability that a participant fails after it has received, or a function
            ``(round, client) -> bool``; to inject faults.
        clients_at_once: how many clients train as one batch, ``"all"`` or 1, one after the other; a
            batch pads its clients to the largest and draws its randomness as one.
        evaluate: ``(outbox, client_states) -> metrics``, called after every round.
        callbacks: called with the round and the result so far; one that returns True (not 1)
            ends the run, for good where there is a checkpoint (its folder holds ``stopped`` then).
        checkpoint: folder; every round is saved there, and a run that finds one goes on from it.
        config: JSON-able values that a checkpoint must agree with to be resumed, besides the seed,
            the clients' graphs, the model's shapes, the optimiser and the names of the method's
            functions: name here what hides in them (a loss's weight), as the recipes do.

    Returns:
        The `Result`.

    Raises:
        ValueError: for an empty federation, an argument out of range, a message with a missing or
            extra key or a wrong shape, or a checkpoint of another run. An error inside a client is
            raised again with its round, client and stage.

    A message with a NaN or an infinity is dropped, counted in ``Round.dropped`` and warned of; when
    none is left the round keeps the old model.

    Example:
        >>> graph = fgl.data.split(fgl.data.load("synthetic"), "random")
        >>> clients = fgl.data.partition_graph(graph, fgl.data.louvain_partition(graph, 3))
        >>> model = fgl.nn.GCN(graph.num_features, 16, graph.num_classes)
        >>> evaluate = fgl.evaluate_on(model, graph)
        >>> result = run(Method(model), clients, num_rounds=2, evaluate=evaluate)
        >>> [r.round for r in result.history]
        [0, 1]
    """
    seed = operator.index(seed)
    _check(clients, num_rounds, participation, dropouts, config)
    executor = Executor(clients, clients_at_once)
    identity = files.identity(method, clients, seed, participation, dropouts, config)
    identity["clients_at_once"] = clients_at_once
    first: Message = {"model": method.initial()}
    result = Result(Broadcast(first, len(clients)), dict(first), {}, [])
    if checkpoint is not None:
        identity["clients' data"] = files.fingerprint(clients)
        Path(checkpoint).mkdir(parents=True, exist_ok=True)
        result = files.load(checkpoint, identity, clients[0].device) or result
        if len(result.history) > num_rounds:
            raise ValueError(
                f"Expected num_rounds to be at least the {len(result.history)} rounds of the "
                f"checkpoint in {checkpoint}, but got {num_rounds}"
            )
        if files.stopped_at(checkpoint) == len(result.history) > 0:
            return result  # a callback ended this run
    for index in range(len(result.history), num_rounds):
        with torch.random.fork_rng(_cuda(clients)), in_mode(method.model, False):
            who = _participants(len(clients), participation, fold_in(seed, index, "who"))
            record = _round(method, executor, result, index, who, seed, dropouts, evaluate)
        result.history.append(record)
        if checkpoint is not None:
            files.save(checkpoint, identity, result)
        if any([_is_true(callback(record, result)) for callback in callbacks]):
            if checkpoint is not None:
                files.stop(checkpoint, len(result.history))
            break
    return result


def _round(
    method: Method,
    executor: Executor,
    result: Result,
    index: int,
    who: list[int],
    seed: int,
    dropouts: Dropouts,
    evaluate: Evaluate | None,
) -> Round:
    start = time.perf_counter()
    record = Round(index, who)
    clients = executor.clients
    template = method.model.state_dict()
    ready = []
    for client in record.participants:
        record.bytes_down += num_bytes(result.outbox[client])
        if clients[client].num_train == 0:
            record.zero_weight.append(client)
        if _drops(dropouts, seed, index, client):
            record.dropped[client] = "dropped out"
        else:
            ready.append(client)
    uploads: dict[int, Message] = {}
    losses, sent = [], Sent()
    for group in executor.groups(ready, result):
        updates = executor.updates(method, group, result, index, seed, sent)
        for client, upload, state, local_losses in updates:
            with stage(seed, index, client, "send"):
                first = next(iter(uploads), client)
                peer = uploads.get(first)
                check_message(upload, like=peer, model=template, whose=f"client {first}'s")
            record.bytes_up += num_bytes(upload)
            refused = _refused(method, upload)
            if refused is not None:
                record.dropped[client] = refused
                warnings.warn(f"Round {index}, client {client}: {refused}", stacklevel=3)
                continue
            uploads[client] = upload
            if clients[client].num_train:
                losses.extend(local_losses)
            result.client_states[client] = compact(state)
    record.padding = executor.padding
    if uploads:
        with stage(seed, index, None, "aggregate"):
            inbox = Inbox(uploads, len(clients))
            with unchanged(*uploads.values(), result.server_state):
                outbox, state = method.aggregate(inbox, result.server_state)
            check_message(state, name="state")
            result.outbox = _merged(result.outbox, outbox, template)
        result.server_state = state
        record.loss = sum(losses) / len(losses) if losses else math.nan
    if evaluate is not None:
        with stage(seed, index, None, "evaluate"):
            metrics = evaluate(result.outbox, result.client_states)
            if not isinstance(metrics, Mapping):
                got = type(metrics).__name__
                raise TypeError(f"Expected evaluate to return a dict of metrics, but got {got}")
            record.metrics = {name: float(value) for name, value in metrics.items()}
    record.seconds = time.perf_counter() - start
    return record


def _is_true(value: Any) -> bool:
    """True, numpy's or torch's, but no number: what a file's `write` returns ends no run."""
    kind = str(getattr(value, "dtype", type(value).__name__))
    return kind in ("bool", "torch.bool") and bool(value)


def _refused(method: Method, upload: Message) -> str | None:
    """Why an upload does not count, if so."""
    bad = first_not_finite(upload)
    if bad is not None:
        return f"{bad} is not finite"
    try:
        method.accept(upload)
    except Exception as error:  # whatever it is that the server cannot make out
        return f"{type(error).__name__}: {error}" if isinstance(error, KeyError) else str(error)
    return None


def _merged(
    old: Mapping[int, Message], new: Mapping[int, Message], template: Mapping[str, torch.Tensor]
) -> Mapping[int, Message]:
    """A client that the new outbox does not name keeps its old message."""
    if not isinstance(new, Mapping):
        raise TypeError(f"Expected outbox to be a dict of messages, but got {type(new).__name__}")
    known = set(old)
    unknown = [client for client in new if client not in known]
    if unknown:
        raise ValueError(f"Expected outbox to name clients of {list(old)}, but got {unknown}")
    for client, message in {id(new[client]): (client, new[client]) for client in new}.values():
        check_message(message, model=template, name=f"outbox[{client}]")
        bad = first_not_finite(message)
        if bad is not None:
            raise ValueError(f"Expected outbox[{client}] to be finite, but got {bad} that is not")
    if len(new) == len(old):
        return new
    return {client: new.get(client, old[client]) for client in old}


def _participants(num_clients: int, participation: float, seed: int) -> list[int]:
    count = max(1, round(participation * num_clients))
    if count == num_clients:
        return list(range(num_clients))
    generator = torch.Generator().manual_seed(seed)
    return sorted(torch.randperm(num_clients, generator=generator)[:count].tolist())


def _drops(dropouts: Dropouts, seed: int, index: int, client: int) -> bool:
    if callable(dropouts):
        return dropouts(index, client)
    return fold_in(seed, index, client, "dropout") < dropouts * 2**63


def _cuda(clients: Sequence[Graph]) -> list[torch.device]:
    return list({graph.device for graph in clients if graph.device.type == "cuda"})


def _check(
    clients: Sequence[Graph],
    num_rounds: int,
    participation: float,
    dropouts: Dropouts,
    config: Mapping[str, Any] | None,
) -> None:
    if not clients:
        raise ValueError("Expected clients to be at least one graph, but got none")
    for client, graph in enumerate(clients):
        if not isinstance(graph, Graph):
            raise TypeError(
                f"Expected client {client} to be a Graph, but got {type(graph).__name__}"
            )
    if num_rounds < 0:
        raise ValueError(f"Expected num_rounds to be at least 0, but got {num_rounds}")
    if not 0 < participation <= 1:
        raise ValueError(f"Expected participation to be in (0, 1], but got {participation}")
    if not callable(dropouts) and not 0 <= dropouts <= 1:
        raise ValueError(f"Expected dropouts to be in [0, 1], but got {dropouts}")
    try:
        json.dumps(dict(config or {}))
    except (TypeError, ValueError) as error:
        raise TypeError(f"Expected config to hold JSON's types only, but got {config}") from error
