"""Runs: rounds in sequence, with checkpoints from which a run resumes bit for bit."""

from __future__ import annotations

import json
import operator
import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, Literal

import torch

from ..checks import check_number, check_share
from ..graph import Graph
from ..kinds import check_kind, check_takes, explained
from ..seeds import one_thread
from ..warn import warn
from .callbacks import Callback, heard
from .carried import carried, counted_on, unprotected
from .evaluate import running
from .executors.here import Here, Place, TaskLike
from .executors.loop import Score
from .gate.guard import checked, unchanged
from .gate.limits import Limits
from .gate.uploads import NO_MORE
from .history import Result, Round
from .method.inbox import Broadcast
from .method.layers import short
from .method.message import Message
from .method.method import Evaluate, Method, State, Watch, without_noise
from .participants import num_participants
from .process import memory_kept, young_only
from .round import (
    Dropouts,
    Plan,
    check_exchanges,
    check_goes_on,
    kept,
    play,
)
from .saved.checkpoint import Folder, opened
from .saved.identity import digest, identity, with_layers
from .scores import score_round
from .training.train import in_mode


@explained
def run(
    method: Method,
    clients: Sequence[Graph] | TaskLike | None = None,
    *,
    num_rounds: int,
    on: Place | None = None,
    seed: int = 0,
    participation: float = 1.0,
    dropouts: Dropouts = 0.0,
    clients_at_once: int | Literal["all", "auto"] = "auto",
    evaluate: Evaluate | None = None,
    score: Score | None = None,
    watch: Watch | None = None,
    callbacks: Sequence[Callback] = (),
    checkpoint: str | os.PathLike[str] | None = None,
    config: Mapping[str, Any] | None = None,
    start: Result | None = None,
    strict: bool = False,
    limits: Limits = NO_MORE,
    go_back: int = 0,
) -> Result:
    """Run a method on a federation.

    The random numbers of each client and round come from ``fold_in(seed, round, client)``. So
    neither the order of clients, nor an interruption, nor another process changes a run. Another
    number of torch threads can, since sums are then added in another order.

    Args:
        method: the method to run.
        clients: one graph per client, or a task, which also scores the method; None with `on`.
        num_rounds: total number of rounds, including the rounds before a resume.
        on: the place of the clients, if they are not in this process, such as
            ``fgl.federation.Flower(grid, num_clients=4)``. These clients bring their own `score`,
            and their states stay with them: `evaluate` does not see them.
        seed: seed of the whole run; it does not change the initial model, which is `method.model`.
        participation: share of the clients that take part in each round; at least one client does.
        dropouts: to simulate faults: the probability that a participant drops out after it has
            received its message, or a function ``(round, client) -> bool``.
        clients_at_once: number of clients that train as one batch, or ``"all"``; with 1, clients
            train one at a time. A batch pads its clients to the largest one and shares its random
            numbers. By default `fgl.federation.choose` decides, equally on every machine; if
            clients cannot train as a batch, a warning is given and they train one at a time, see
            `Round.one_by_one`.
        evaluate: ``(outbox, client_states) -> metrics``, called after every round; default the
            task's.
        score: ``(params, graph) -> metrics``, each client's own score of the model that it deploys;
            the means over clients are added to the round's metrics.
        watch: ``(server_state) -> metrics``, called after each round; its metrics are added to the
            round's too.
        callbacks: functions ``(round, result)``, called after each round. One that returns True
            ends the run; with a checkpoint the run has then ended for good (the folder holds
            ``stopped``). A callback may have ``begin(result)`` and ``end(result)``, which are
            called before the first round and after the last.
        checkpoint: folder in which every round is saved, for one run at a time. If it holds a
            checkpoint, the run resumes from it.
        config: values, as JSON can hold them, that must be equal when a checkpoint is resumed.
            Always compared are the seed, the clients' graphs, the initial model, the optimiser and
            its settings, the number of torch threads, the bounds of uploads, the arguments of the
            method's builders and the names of its functions. List here the settings that are hidden
            in functions of your own, such as a loss's weight.
        start: the result of another run; this run starts from its outbox and states, with rounds
            from 0, and goes on counting the clients' privacy costs, see
            `fgl.transforms.privacy_spent`. Default the initial model.
        strict: whether to raise at the first refused upload, for development.
        limits: bounds on uploads, and on rounds without any; see `fgl.federation.Limits`.
        go_back: number of rounds by which the server goes back if most uploads of a round diverged
            from the model that it had sent; default never. It keeps as many older outboxes and
            states, also in checkpoints. The clients' own states stay as they are.

    Returns:
        The `Result`.

    Raises:
        ValueError: for an empty federation, an argument out of range, too few participants, a
            message with a missing or extra key or a wrong shape, a checkpoint of another run or
            another format, or a folder that another run uses. An error inside a client is raised
            again with its round, client and stage.
        TypeError: for features of another floating type than the model, a model in the place of the
            method, and the like.
        RuntimeError: if no upload counted in three rounds in a row, in a round of three exchanges
            in a row, or in the whole run, with each client's reason. These rounds are not saved.
        OSError: if a round cannot be saved; checked before the first round, as far as possible.

    An upload that is not finite, far out or refused by `accept` costs its client the round:
    ``Round.dropped`` has the reason, and a warning is given. A malformed upload and an error of
    `aggregate` raise if clients are in this process. If they are elsewhere, a malformed upload
    costs its client the round; if `aggregate` raises, the server tries again without the uploads
    that moved farthest, up to half of them. A round without an upload keeps the old model.

    Example:
        >>> graph = fgl.data.split(fgl.data.load("synthetic"), "random")
        >>> clients = fgl.data.partition_graph(graph, fgl.data.louvain_partition(graph, 3))
        >>> model = fgl.nn.GCN(graph.num_features, 16, graph.num_classes)
        >>> method = fgl.fedavg(model)
        >>> evaluate = fgl.evaluate_on(method, graph, clients)
        >>> result = run(method, clients, num_rounds=2, evaluate=evaluate)
        >>> [r.round for r in result.history]
        [0, 1]
    """
    check_kinds(method, start, callbacks, evaluate=evaluate, score=score, watch=watch)
    check_kind("strict", strict, bool)
    check_kind("checkpoint", checkpoint, str | os.PathLike | None)
    check_number("seed", seed, integer=True)
    seed = operator.index(seed)
    check_numbers(num_rounds, participation, dropouts, config)
    place = _place(on, clients, clients_at_once, score, start)
    place.check(method)
    evaluate = evaluate or place.evaluate(method)
    _check_participants(method, place.num_clients, participation)
    if not isinstance(limits, Limits):
        raise TypeError(f"Expected limits to be fgl.federation.Limits(...), but got {limits!r}")
    guarded = checked(method)
    result = _first(method, place.num_clients, start)
    _check_go_back(method, go_back, result.server_state)
    values: dict[str, Any] = {}
    if checkpoint is not None:
        values = identity(method, seed, participation, dropouts, config)
        values |= {**place.identity(method), "start": start and digest(start)}
        values |= {"go_back": go_back} if go_back else {}
    with ExitStack() as stack:
        stack.enter_context(one_thread())
        folder = stack.enter_context(opened(checkpoint, values))
        stack.enter_context(memory_kept())
        stack.enter_context(running(method))
        if folder is not None:
            saved = folder.load(_device(method, place))
            if saved is not None and method.unknown:
                _warn_of_unknown(method)
            before = result.unprotected
            result = saved or result
            result.unprotected = before
        result.config = with_layers(method, config)
        result.method, result.clients = method, getattr(place, "graphs", ())
        result.select = getattr(getattr(place, "clients", None), "select", "")
        if folder is not None and not _goes_on(folder, result, num_rounds):
            return result
        guarded = counted_on(guarded, result.server_state)
        states = result.client_states
        executor = place(method, seed=seed, states=states, config=config or {})
        whys = [record.one_by_one for record in result.history if record.one_by_one]
        executor.one_by_one = whys[0] if whys else executor.one_by_one
        executor.limits = limits
        result.client_states = executor.states
        plan = Plan(seed, participation, dropouts, evaluate, watch, strict, limits, go_back)
        cuda = [device for device in place.devices if device.type == "cuda"]
        stack.enter_context(heard(callbacks, result))
        while len(result.history) < num_rounds:
            rng = torch.random.fork_rng(cuda)
            with rng, in_mode(method.model, False), young_only():
                record = folder.unscored if folder is not None else None
                if record is None:
                    record = play(guarded, executor, result, plan)
                    if folder is not None and method.account is not None and not record.is_empty:
                        folder.save(result, unscored=record)
                score_round(executor, result, record, plan)
            result.history.append(record)
            if limits.empty_rounds is not None and len(result.history) == num_rounds:
                _check_counted(result.history, method.exchange)
            if folder is not None and (not record.is_empty or len(result.history) == num_rounds):
                folder.save(result)
            rounds = tuple(result.history)
            with unchanged(*kept(result)):
                ends = any([callback(record, result) is True for callback in callbacks])
            _check_history(result, rounds)
            if ends:
                if folder is not None:
                    if record.is_empty:
                        folder.save(result)
                    folder.stop(len(result.history))
                break
    return result


def _check_counted(history: Sequence[Round], exchange: int) -> None:
    """Raise at the end of a run in which no round, or no whole exchange, counted."""
    check_goes_on(history, len(history))
    if whole := len(history) // exchange:
        check_exchanges(history[: whole * exchange], whole, exchange)


def _check_participants(method: Method, num_clients: int, participation: float) -> None:
    """Raise if a round has fewer participants than the method needs."""
    count = num_participants(num_clients, participation)
    if count < method.participants:
        raise ValueError(
            f"Expected participation to give at least {method.participants} participants, as "
            f"{method.layers[-1].name if method.layers else 'the method'} needs them, but got "
            f"{count} of {num_clients} clients"
        )


def _check_go_back(method: Method, go_back: int, state: State) -> None:
    """An older state would forget what clients have paid for noise, or stand inside an exchange."""
    check_number("go_back", go_back, at_least=0, integer=True)
    noisy = method.account is not None or method.costs is not without_noise
    noisy = noisy or counted_on(method, state) is not method  # after a start with noise
    if go_back and (noisy or method.exchange > 1):
        cause = "counts noise in its state" if noisy else "has exchanges of several rounds"
        raise ValueError(f"Expected go_back to be 0, since {method} {cause}, but got {go_back}")


def _check_history(result: Result, rounds: Sequence[Round]) -> None:
    """Raise if a callback changed the list of rounds, on which the run's position depends."""
    now = result.history
    same = isinstance(now, list) and len(now) == len(rounds)
    if not same or any(a is not b for a, b in zip(now, rounds, strict=True)):
        raise ValueError(
            f"Round {rounds[-1].round}, a callback: the rounds of result.history were changed, but "
            "must stay as they are"
        )


def _place(
    on: Place | None,
    clients: Sequence[Graph] | TaskLike | None,
    at_once: int | Literal["all", "auto"],
    score: Score | None,
    start: Result | None,
) -> Place:
    """The place of the clients: this process, unless `on` is another place."""
    if on is None:
        return Here(clients, at_once, score)
    if isinstance(on, type) or not all(hasattr(on, name) for name in ("num_clients", "identity")):
        raise TypeError(
            "Expected on to be a place, such as fgl.federation.Here(clients) or Flower(grid, "
            f"num_clients=4), but got {short(on)}"
        )
    if isinstance(on, Here) and at_once != "auto":
        raise ValueError(
            f"Expected clients_at_once to be said to Here, as at_once, but got {at_once} beside it"
        )
    if clients is not None or at_once not in ("auto", 1) or score is not None:
        raise ValueError(
            "Expected clients, clients_at_once and score to be left out with on, whose clients "
            "have their own, but got one of them"
        )
    if start is not None and start.client_states and not isinstance(on, Here):
        raise ValueError("Expected start to hold no client's state with on, but got some")
    return on


def _device(method: Method, place: Place) -> torch.device:
    """The device for a checkpoint's tensors: the clients' device, or else the model's."""
    tensors = method.model.state_dict().values()
    return next(iter([*place.devices, *(t.device for t in tensors)]), torch.device("cpu"))


def _warn_of_unknown(method: Method) -> None:
    names = " and ".join(method.unknown)
    warn(
        f"Expected the checkpoint to know all settings of {method}, but got {names} of a builder "
        "without fgl.layer: make sure that its settings are unchanged",
    )


def _first(method: Method, num_clients: int, start: Result | None) -> Result:
    """The start of a run: all clients are sent the initial model, or the outbox of `start`."""
    if start is None:
        message: Message = {"model": {n: t.clone() for n, t in method.common().items()}}
        start = Result(Broadcast(message, num_clients), dict(message), {}, [])
    if len(start.outbox) != num_clients:
        raise ValueError(
            f"Expected start to be a run of {num_clients} clients, but got {len(start.outbox)}"
        )
    _check_whole_exchange(start)
    state, before = carried(method, start, start.server_state), unprotected(method, start)
    return replace(start, server_state=state, history=[], form={}, older=[], unprotected=before)


def _check_whole_exchange(start: Result) -> None:
    """Raise if a start ended inside an exchange of several rounds, which a new run begins anew."""
    exchange = 1 if start.method is None else start.method.exchange
    if len(start.history) % exchange:
        raise ValueError(
            f"Expected start to be a run of whole exchanges, each of {exchange} rounds of "
            f"{start.method}, but got {len(start.history)} rounds: "
            f"num_rounds={-(-len(start.history) // exchange) * exchange} ends the last exchange"
        )


def _goes_on(folder: Folder, result: Result, num_rounds: int) -> bool:
    """Whether another round follows, which can be saved; False if a callback ended the run."""
    unscored = folder.unscored is not None
    rounds = len(result.history) + unscored
    if rounds > num_rounds:
        raise ValueError(
            f"Expected num_rounds to be at least the {rounds} rounds of the checkpoint in "
            f"{folder.path}, but got {num_rounds}"
        )
    if not unscored and (rounds == num_rounds or folder.has_stopped(rounds)):
        return False
    folder.check_room(result)
    return True


# The arguments of each function that a run is given.
TAKES = {
    "evaluate": ["outbox", "client_states"],
    "watch": ["server_state"],
    "score": ["params", "graph"],
}


def check_kinds(method: Any, start: Any, callbacks: Any, **functions: Any) -> None:
    """Raise a TypeError for arguments of a wrong kind, such as a model instead of a method.

    Example:
        >>> check_kinds(torch.nn.Linear(1, 1), None, [])
        Traceback (most recent call last):
        TypeError: Expected method to be a Method, such as task.fedavg or ..., but got Linear: ...
    """
    check_kind("method", method, Method, "fgl.run", ", task, num_rounds=...")
    if start is not None and not isinstance(start, Result):
        raise TypeError(f"Expected start to be a run's Result, but got {type(start).__name__}")
    if not isinstance(callbacks, Sequence) or not all(map(callable, callbacks)):
        raise TypeError(f"Expected callbacks to be a list of functions, but got {callbacks!r}")
    for number, callback in enumerate(callbacks):
        check_takes(f"callbacks[{number}]", callback, ["record", "result"])
    for name, function in functions.items():
        if function is not None:
            check_takes(name, function, TAKES[name])


def check_numbers(
    num_rounds: int, participation: float, dropouts: Dropouts, config: Mapping[str, Any] | None
) -> None:
    """Raise for numbers out of range, and for a config that JSON cannot hold.

    Example:
        >>> check_numbers(3, 0.0, 0.0, None)
        Traceback (most recent call last):
        ValueError: Expected participation to be a number > 0 and <= 1, but got 0.0
    """
    check_number("num_rounds", num_rounds, at_least=0, integer=True)
    check_number("participation", participation, above=0, at_most=1)
    if callable(dropouts):
        check_takes("dropouts", dropouts, ["round", "client"])
    else:
        check_share(dropouts=dropouts)
    try:
        json.dumps(dict(config or {}))
    except (TypeError, ValueError) as error:
        raise TypeError(f"Expected config to hold JSON's types only, but got {config}") from error
