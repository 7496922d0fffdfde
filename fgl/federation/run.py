"""Runs: sequences of rounds. A run that resumes from a checkpoint gives bit-identical results."""

import json
import operator
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any, Literal, cast

import torch

from ..checks import check_number, check_share, reject_if
from ..graph import Graph
from ..kinds import check_kind, check_takes
from ..seeds import one_thread
from ..warn import warn
from .carried import carried, counted_on, unprotected
from .evaluate import running, score_round
from .executors import Executor
from .executors.here import Here, Place, TaskLike
from .executors.loop import Score
from .gate.guard import checked, unchanged
from .gate.uploads import NO_MORE, Limits
from .history import Result, Round
from .method.describe import short
from .method.message import Broadcast, Message, State
from .method.method import Evaluate, Method, Watch
from .method.rules import without_noise
from .process import memory_kept, young_only
from .round import Dropouts, Plan, check_exchanges, check_goes_on, kept, num_participants, play
from .saved.checkpoint import Folder, opened
from .saved.identity import digest, identity, scoring, with_layers
from .training.train import in_mode

Callback = Callable[[Round, Result], bool | None]


def run(
    method: Method,
    clients: Sequence[Graph] | TaskLike | Place | None = None,
    *,
    num_rounds: int,
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
    each: bool = False,
) -> Result:
    """Run a method on a federation.

    The random numbers of a client in a round come from ``fold_in(seed, round, client)``. So the
    results of a run do not depend on the order of clients, on interruptions or on the process in
    which a client runs. The results can depend on the number of torch threads, which changes the
    order of summation.

    Args:
        method: the method to run.
        clients: one graph per client, or a task, which contains the graphs and the metrics. For
            remote clients, pass an object that reaches the clients, such as
            ``fgl.federation.Flower(grid, num_clients=4)``. Each remote client computes its own
            score and keeps its state, so `evaluate` does not receive the clients' states.
        num_rounds: total number of rounds, including the rounds before a resume.
        seed: seed of the whole run; it does not change the initial model, which is `method.model`.
        participation: fraction of the clients that take part in each round; at least one client
            takes part.
        dropouts: simulated faults, in which a participant drops out after it has received its
            message. Give the probability of a fault, or a function ``(round, client) -> bool``.
        clients_at_once: number of clients that train as one batch, or ``"all"``. With 1, clients
            train one at a time. In a batch, all clients are padded to the size of the largest
            client and share random numbers. By default `fgl.federation.choose` computes this number
            from the sizes of the graphs and the model, so every computer uses the same number. If
            clients cannot train as a batch, a warning is given and clients train one at a time, see
            `Round.one_by_one`.
        evaluate: ``(outbox, client_states) -> metrics``, called after every round; by default the
            task's function.
        score: ``(params, graph) -> metrics``, called for each client with the model that the client
            deploys and with the client's graph. The means over clients are added to the round's
            metrics.
        watch: ``(server_state) -> metrics``, called after each round. The returned metrics are
            added to the round's metrics.
        callbacks: functions ``(round, result)``, called after each round. If a callback returns
            True, the run ends. The checkpoint folder then contains a file ``stopped``, which
            prevents a resume. A callback may have two methods: ``begin(result)`` is called before
            the first round, and ``end(result)`` after the last round.
        checkpoint: folder in which every round is saved; only one run at a time can use a folder.
            If the folder contains a checkpoint, the run resumes from this checkpoint.
        config: JSON values. When a run resumes, these values must equal the checkpoint's values.
            The following values are always compared: the seed, the clients' graphs, the initial
            model, the optimiser and its settings, the number of torch threads, the bounds on
            uploads, the names of the method's functions, and the arguments of the method's
            builders. Use `config` for settings inside your own functions, such as a loss's weight.
        start: the result of an earlier run. The new run starts from the outbox and states of this
            result. Rounds are numbered from 0 again. The privacy costs of the new run are added to
            the earlier costs, see `fgl.transforms.privacy_spent`. By default a run starts from the
            initial model.
        strict: whether to raise at the first refused upload, for development.
        limits: bounds on uploads, and on rounds without uploads; see `fgl.federation.Limits`.
        go_back: number of rounds by which the server goes back after it sent a bad model. A model
            is bad if most clients of a round diverged when they trained this model. By default the
            server never returns to an earlier round. The server and the checkpoints keep the
            outboxes and states of the last `go_back` rounds. The clients' own states do not change.
        each: whether a round also records the metrics of every client, and the worst client's value
            of each metric. For example, ``test_accuracy/3`` is the accuracy of client 3, and
            ``worst_test_accuracy`` is the lowest accuracy of all clients. The clients' values and
            the worst value are recorded for the metrics of the task and of `score`. For the metrics
            of a function that is passed as `evaluate`, these values are not recorded. See also
            `fgl.experiment.spread`.

    Returns:
        The `Result`.

    Raises:
        ValueError: if there are no clients, if an argument is out of range, if a round has too few
            participants, or if a message has a missing key, an extra key or an invalid shape. A
            ValueError is also raised if the checkpoint belongs to a different run or has a
            different format, or if a second run uses the folder. An error inside a client is raised
            again. The new error names the round, the client and the stage.
        TypeError: if an argument has an invalid type, such as a model in place of the method, or if
            the features and the model have different floating types.
        RuntimeError: if three consecutive rounds used no upload (see `Limits.empty_rounds`), or if
            no round of the run used an upload. If the method's exchanges have several rounds, the
            error is also raised after three consecutive empty exchanges. An exchange is empty if
            one of its rounds used no upload. The error gives each client's reason. These rounds are
            not saved.
        OSError: if a round cannot be saved. As far as possible, the folder is checked before the
            first round.

    The server does not use an upload that is not finite, that is too far from the round's other
    uploads, or that `accept` refuses. ``Round.dropped`` records the reason, and a warning is given.
    If clients are in this process, a malformed upload or an error in `aggregate` ends the run. If
    clients are in other processes, the server ignores a malformed upload. After an error in
    `aggregate`, the server calls `aggregate` again without the uploads that have the largest
    changes. If the result of `aggregate` is far too large, the server repeats the call in the same
    way, also for clients in this process. At most half of the uploads are left out. If a round uses
    no upload, the server keeps the old model.

    Example:
        >>> graph = fgl.data.splits.split(fgl.data.load("synthetic"), "random")
        >>> parts = fgl.data.partitions.louvain_partition(graph, 3)
        >>> clients = fgl.data.partitions.partition_graph(graph, parts)
        >>> model = fgl.nn.GCN(graph.num_features, 16, graph.num_classes)
        >>> method = fgl.fedavg(model)
        >>> evaluate = fgl.evaluate_on(method, graph, clients)
        >>> result = run(method, clients, num_rounds=2, evaluate=evaluate)
        >>> [r.round for r in result.history]
        [0, 1]
    """
    check_kinds(method, start, callbacks, limits, evaluate=evaluate, score=score, watch=watch)
    check_kind("strict", strict, bool)
    check_kind("each", each, bool)
    check_kind("checkpoint", checkpoint, str | os.PathLike | None)
    check_number("seed", seed, integer=True)
    seed = operator.index(seed)
    check_numbers(num_rounds, participation, dropouts, config)
    place = _place(clients, clients_at_once, score, start)
    place.check(method)
    _check_participants(method, place.num_clients, participation)
    if checkpoint is None:  # a run in a folder may continue with more rounds
        _check_rounds(method, place, num_rounds, start)
    guarded, scores = checked(method), evaluate or place.evaluate(method, each=each)
    result = _first(method, place.num_clients, start)
    _check_go_back(method, go_back, result.server_state)
    plan = Plan(seed, participation, dropouts, scores, watch, strict, limits, go_back, each)
    values = {} if checkpoint is None else _identity(method, place, plan, config, start, evaluate)
    with ExitStack() as stack:
        stack.enter_context(one_thread())
        folder = stack.enter_context(opened(checkpoint, values))
        stack.enter_context(memory_kept())
        stack.enter_context(running(method))
        before = result.unprotected
        result = _resumed(folder, method, place) or result
        result.unprotected = result.unprotected or before  # missing in older checkpoints
        result.config = with_layers(method, config)
        result.method, result.clients = method, getattr(place, "graphs", ())
        result.select = getattr(getattr(place, "clients", None), "select", "")
        if checkpoint is not None and not _goes_on(folder, result, num_rounds):
            return result
        guarded = counted_on(guarded, result.server_state)
        executor = _executor(place, method, result, plan, config)
        cuda = [device for device in place.devices if device.type == "cuda"]
        stack.enter_context(heard(callbacks, result))
        stopped = False
        while len(result.history) < num_rounds and not stopped:
            if len(result.history) == getattr(place, "first_rounds", 0) > 0:
                executor = _executor(place, method, result, plan, config)
            with torch.random.fork_rng(cuda), in_mode(method.model, False), young_only():
                result.history.append(_next_round(guarded, executor, result, plan, folder))
            last = len(result.history) == num_rounds
            if last:
                _check_counted(result.history, method.rules.exchange, limits)
            whole = last or not result.history[-1].is_empty
            if whole:
                folder.save(result)
            stopped = _ended(callbacks, result, folder, saved=whole)
    return result


def _identity(
    method: Method,
    place: Place,
    plan: Plan,
    config: Mapping[str, Any] | None,
    start: Result | None,
    evaluate: Evaluate | None,
) -> dict[str, Any]:
    """Values that a checkpoint stores; a run with other values cannot resume from it."""
    values = identity(method, plan.seed, plan.participation, plan.dropouts, config)
    values |= {**place.identity(method), "start": start and digest(start)}
    task = getattr(place, "clients", None)
    scores = evaluate or getattr(task, "scores", None)
    if scores is not None:
        graphs = [*getattr(place, "graphs", ()), getattr(task, "whole", None)]
        values["evaluate"] = scoring(scores, graphs)
    return values | ({"go_back": plan.go_back} if plan.go_back else {})


def _next_round(
    method: Method, executor: Executor, result: Result, plan: Plan, folder: Folder
) -> Round:
    """Play and score the next round.

    If the checkpoint has an unscored round, only score that round.
    """
    record = folder.unscored
    if record is None:
        record = play(method, executor, result, plan)
        assert result.method is not None
        if result.method.privacy.account is not None and not record.is_empty:
            folder.save(result, unscored=record)
    score_round(executor, result, record, plan)
    return record


def _ended(callbacks: Sequence[Callback], result: Result, folder: Folder, *, saved: bool) -> bool:
    """Call the callbacks at the end of a round.

    Return whether a callback ended the run.
    """
    rounds = tuple(result.history)
    with unchanged(*kept(result)):
        ends = any([callback(rounds[-1], result) is True for callback in callbacks])
    _check_history(result, rounds)
    if ends:
        if not saved:
            folder.save(result)
        folder.stop(len(rounds))
    return ends


def _executor(
    place: Place, method: Method, result: Result, plan: Plan, config: Mapping[str, Any] | None
) -> Executor:
    """The executor of a run that continues from a result, with the client states of the result.

    If clients are in this process, the clients' graphs may change between rounds. The executor gets
    the graphs of the next round.
    """
    how: dict[str, Any] = {"states": result.client_states, "config": config or {}}
    place = place.in_round(len(result.history)) if isinstance(place, Here) else place
    executor = place(method, seed=plan.seed, **how)
    reasons = (record.one_by_one for record in result.history if record.one_by_one)
    executor.one_by_one = next(reasons, executor.one_by_one)
    executor.limits = plan.limits
    result.client_states = executor.states
    return executor


def _resumed(folder: Folder, method: Method, place: Place) -> Result | None:
    """Load a run from its folder to the clients' device, or else to the model's device."""
    tensors = method.model.state_dict().values()
    devices = [*place.devices, *(tensor.device for tensor in tensors), torch.device("cpu")]
    saved = folder.load(devices[0])
    if saved is not None and method.unknown:
        warn(
            f"Expected the checkpoint to know all settings of {method}, but got "
            f"{' and '.join(method.unknown)} of a builder without fgl.layer: make sure that its "
            "settings are unchanged"
        )
    return saved


def _check_counted(history: Sequence[Round], exchange: int, limits: Limits) -> None:
    """Raise an error if a run ends without any used upload, or without any completed exchange."""
    if limits.empty_rounds is None:
        return
    check_goes_on(history, len(history))
    if whole := len(history) // exchange:
        check_exchanges(history[: whole * exchange], whole, exchange)


def _check_participants(method: Method, num_clients: int, participation: float) -> None:
    """Raise an error if a round has fewer participants than the method needs."""
    count = num_participants(num_clients, participation)
    least = method.rules.participants
    name = method.layers[-1].name if method.layers else "the method"
    want = f"participation to give at least {least} participants, as {name} needs them"
    reject_if(count < least, want, f"{count} of {num_clients} clients")


def _check_rounds(method: Method, place: Place, num_rounds: int, start: Result | None) -> None:
    """Raise an error if a run ends within an exchange, before unlearning, or before joining."""
    least, first = method.rules.rounds, getattr(place, "first_rounds", 0)
    if start is not None and start.method is not None and start.method.rules.rounds == least:
        least -= len(start.history)
    exchange = method.rules.exchange
    name = method.layers[-1].name if method.layers else "the method"
    want = f"num_rounds to be a multiple of {exchange}, the rounds of one exchange of {name}"
    reject_if(num_rounds % exchange, want, num_rounds)
    reject_if(0 < num_rounds < least, f"num_rounds to be at least {least} for {method}", num_rounds)
    want = f"num_rounds to be above {first}, the rounds before late clients and classes appear"
    reject_if(0 < num_rounds <= first, want, num_rounds)


def _check_go_back(method: Method, go_back: int, state: State) -> None:
    """Raise an error if the method does not allow a return to an older state.

    An older state may lack the privacy costs of later rounds, or may be in the middle of an
    exchange.
    """
    check_number("go_back", go_back, at_least=0, integer=True)
    noisy = method.privacy.account is not None or method.privacy.costs is not without_noise
    noisy = noisy or counted_on(method, state) is not method  # if `start` had noise
    if go_back and (noisy or method.rules.exchange > 1):
        cause = "counts noise in its state" if noisy else "has exchanges of several rounds"
        raise ValueError(f"Expected go_back to be 0, since {method} {cause}, but got {go_back}")


def _check_history(result: Result, rounds: Sequence[Round]) -> None:
    """Raise an error if a callback changed the list of rounds."""
    now = result.history
    if not isinstance(now, list) or [*map(id, now)] != [*map(id, rounds)]:
        raise ValueError(
            f"Round {rounds[-1].round}, a callback: the rounds of result.history were changed, but "
            "must stay as they are"
        )


def _place(
    clients: Sequence[Graph] | TaskLike | Place | None,
    at_once: int | Literal["all", "auto"],
    score: Score | None,
    start: Result | None,
) -> Place:
    """Return `clients` unchanged if this object is a `Place`, and a new `Here` otherwise."""
    place: Any = clients
    if isinstance(place, type) or not hasattr(place, "identity"):
        return Here(place, at_once, score)
    way = "which has its own, as Here(task, at_once=1, score=score)"
    want = f"clients_at_once and score to be left out beside a place, {way}"
    reject_if(at_once != "auto" or score is not None, want, f"{at_once!r} and {short(score)}")
    if start is not None and start.client_states and not isinstance(place, Here):
        raise ValueError(
            f"Expected start to hold no client's state with clients elsewhere, but got "
            f"{len(start.client_states)}: dataclasses.replace(start, client_states={{}}) drops them"
        )
    return cast(Place, place)


def _first(method: Method, num_clients: int, start: Result | None) -> Result:
    """The result with which a run starts: `start` without its history, or the initial model."""
    if start is None:
        message: Message = {"model": {n: t.clone() for n, t in method.common().items()}}
        start = Result(Broadcast(message, num_clients), dict(message), {}, [])
    before = len(start.outbox)
    reject_if(before != num_clients, f"start to be a run of {num_clients} clients", before)
    _check_whole_exchange(start)
    _check_same_optimizer(method, start)
    new: Any = {"history": [], "form": {}, "older": [], "unprotected": unprotected(method, start)}
    return replace(start, server_state=carried(method, start, start.server_state), **new)


def _check_whole_exchange(start: Result) -> None:
    """Raise an error if `start` ended within an exchange; a run must begin a new exchange."""
    exchange = 1 if start.method is None else start.method.rules.exchange
    rounds = len(start.history)
    want = f"start to be a run of whole exchanges, each of {exchange} rounds of {start.method}"
    way = f"num_rounds={-(-rounds // exchange) * exchange} ends the last exchange"
    reject_if(rounds % exchange, want, f"{rounds} rounds: {way}")


def _check_same_optimizer(method: Method, start: Result) -> None:
    """Raise an error if `start` has kept states of an optimiser other than this run's optimiser."""
    methods = [start.method, method] if start.method and any(start.client_states.values()) else []
    if not methods or not all(each.train.keep_optimizer for each in methods):
        return
    leaf = [torch.zeros(1, requires_grad=True)]
    before, now = (type(each.train.optimizer(leaf)) for each in methods)
    want = f"the optimizer of start, {before.__name__}, whose state clients kept"
    got = f"{now.__name__}: use {before.__name__} or keep_optimizer=False"
    reject_if(before is not now, want, got)


def _goes_on(folder: Folder, result: Result, num_rounds: int) -> bool:
    """Whether another round follows; False if a callback ended the run."""
    unscored = folder.unscored is not None
    rounds = len(result.history) + unscored
    want = f"num_rounds to be at least the {rounds} rounds of the checkpoint in {folder.path}"
    reject_if(rounds > num_rounds, want, num_rounds)
    if not unscored and rounds == num_rounds:
        return False
    if not unscored and folder.has_stopped(rounds):
        warn(
            f"A callback ended the run in {folder.path} after {rounds} of {num_rounds} rounds, so "
            f"these rounds are returned; delete {folder.path / 'stopped'} to go on"
        )
        return False
    folder.check_room(result)
    return True


# The arguments of each function that is passed to `run`.
TAKES = {
    "evaluate": ["outbox", "client_states"],
    "watch": ["server_state"],
    "score": ["params", "graph"],
}


def check_kinds(
    method: Any, start: Any, callbacks: Any, limits: Any = NO_MORE, **functions: Any
) -> None:
    """Raise a TypeError if an argument has an invalid type, such as a model instead of a method.

    Example:
        >>> check_kinds(torch.nn.Linear(1, 1), None, [])
        Traceback (most recent call last):
        TypeError: Expected method to be a Method, such as task.fedavg or ..., but got Linear: ...
    """
    check_kind("method", method, Method, "fgl.run", ", task, num_rounds=...")
    check_kind("start", start, Result | None)
    check_kind("callbacks", callbacks, Sequence[Callback])
    for number, callback in enumerate(callbacks):
        check_takes(f"callbacks[{number}]", callback, ["record", "result"])
    check_kind("limits", limits, Limits)
    for name, function in functions.items():
        if function is not None:
            check_takes(name, function, TAKES[name])


def check_numbers(
    num_rounds: int, participation: float, dropouts: Dropouts, config: Mapping[str, Any] | None
) -> None:
    """Raise an error if a number is out of range, or if the config cannot be written as JSON.

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


@contextmanager
def heard(callbacks: Sequence[Callback], result: Result) -> Iterator[None]:
    """Call each callback's ``begin(result)``, and ``end(result)`` at the end of the context.

    A callback may lack `begin`, `end` or both. ``end`` is called even if a round raised an error,
    so that a file or a progress bar can be closed.
    """
    with ExitStack() as stack:
        for callback in callbacks:
            with unchanged(*kept(result)):
                getattr(callback, "begin", _nothing)(result)
            stack.callback(getattr(callback, "end", _nothing), result)
        yield


def _nothing(result: Result) -> None:
    """Do nothing; this function replaces a missing ``begin`` or ``end``."""
