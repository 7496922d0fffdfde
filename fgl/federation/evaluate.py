"""Metrics of a round: scores of the clients' deployed models, on one graph or several."""

import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any, TypeVar

import torch
from torch import nn

from ..checks import SPLIT, reject_if
from ..graph import Graph
from ..graph.windows import asked, by_answer, horizons
from ..kinds import typed
from ..metrics.classes import on_host
from ..predict import predict, standing_in
from ..seeds import stage
from ..targets import (
    CLASSES,
    Target,
    checked_y,
    kind_of,
    less_is_better,
    of_clients,
    scored_alone,
    warn_undefined,
)
from ..warn import warn
from .executors import Executor, Value
from .executors.loop import Score
from .gate.guard import check_whole, unchanged
from .history import Result, Round
from .method.message import Message, Params, State, as_number, check_names
from .method.method import Evaluate, Method
from .round import Plan, kept
from .training.train import in_mode

Key = TypeVar("Key")
POOLED = "; fgl.tasks.evaluate_pooled(method, clients, target=...) scores all answers together"
OF_A_PART = "A method that sends a part of the model needs its own receive and deploy"
_RUNNING: ContextVar[Method | None] = ContextVar("running", default=None)


@contextmanager
def running(method: Method) -> Iterator[None]:
    """A context in which `deployed` warns if a client's scored and deployed models differ."""
    token = _RUNNING.set(method)
    try:
        yield
    finally:
        _RUNNING.reset(token)


def deployed(
    method: Method, clients: Sequence[Graph]
) -> Callable[[Mapping[int, Message], Mapping[int, State]], dict[int, Params]]:
    """A function that returns each client's deployed model.

    Args:
        method: the method with `deploy`.
        clients: the clients' graphs.

    Returns:
        A function ``(outbox, states) -> models``. The dict `models` maps each client in the outbox
        to the parameters of the client's model.

    Raises:
        ValueError: if a client's model lacks some tensors. The returned function raises this error.

    Warns:
        UserWarning: if the returned function is called during the run of a second method, and the
            second method deploys models other than `method` does. The warning is given only once.

    Example:
        >>> model = torch.nn.Linear(1, 1)
        >>> outbox = {0: {"model": dict(model.state_dict())}}
        >>> deployed(fgl.fedavg(model), [None])(outbox, {})[0] is outbox[0]["model"]
        True
    """

    warned = {""}

    def models(outbox: Mapping[int, Message], states: Mapping[int, State]) -> dict[int, Params]:
        used = _whole_models(method, clients, outbox, states)
        first = next(iter(used), None)  # only one client, since the check is slow
        if first is not None:
            arguments = outbox[first], states.get(first, {}), clients[first], used[first]
            other = _deploys_otherwise(method, *arguments)
            if other not in warned:
                warned.add(other)
                warn(f"{other}. {_cause(method)}")
        return used

    return models


def _whole_models(
    method: Method,
    clients: Sequence[Graph],
    outbox: Mapping[int, Message],
    states: Mapping[int, State],
) -> dict[int, Params]:
    """All parameters of the model that each client deploys.

    Parameters that several clients share are checked once.
    """
    used: dict[int, Params] = {}
    whole, common = set(), method.common()
    for client, message in outbox.items():
        graph = clients[client]
        params: Params = {}
        try:
            with method.at(graph):
                params = method.deploy(message, states.get(client, {}), graph)
            if id(params) not in whole:
                check_whole(method, params, graph, f"client {client}'s model", common)
        except (KeyError, ValueError) as error:
            lacking = common.keys() - set(params)
            own = f". {OF_A_PART}" if 0 < len(lacking) < len(common) else ""
            raise ValueError(f"{error}{own}. {_cause(method)}") from error
        whole.add(id(params))
        used[client] = params
    return used


def _deploys_otherwise(
    method: Method, message: Message, state: State, graph: Graph, params: Params
) -> str:
    """Warning text if the running method does not deploy the model `params`; otherwise ""."""
    runs = _RUNNING.get()
    if runs is None or runs.deploy is method.deploy:
        return ""
    with runs.at(graph):
        theirs = runs.deploy(message, state, graph)
    pairs = [
        (theirs[name].nan_to_num(), params[name].nan_to_num()) for name in params if name in theirs
    ]
    if theirs.keys() == params.keys() and all(torch.equal(a, b) for a, b in pairs):
        return ""
    return f"The clients of {runs!r} deploy other models than those that are scored"


def _cause(method: Method) -> str:
    """Text for an error message: it explains why a model is incomplete.

    The text names the usual cause and the remedy.
    """
    return (
        f"This score asks {method!r} for the clients' models. If another method runs, score with "
        "that one: fgl.evaluate_on(method, graph, clients), or task.evaluate(method)"
    )


def scored(
    model: nn.Module,
    score: Score,
    pairs: Mapping[Key, tuple[Params, Graph]],
    own: Mapping[Key, nn.Module] | None = None,
) -> dict[Key, dict[str, float]]:
    """Score each pair of a model and a graph; the model is given by its parameters.

    Args:
        model: the architecture; the call puts it into evaluation mode.
        score: ``(params, graph) -> metrics``; see `evaluate_on`.
        pairs: dict from any key to a pair (parameters, graph). A pair that occurs twice is scored
            once.
        own: dict from the keys of `pairs` to models, if clients have their own models. The pair
            ``pairs[key]`` is then scored with the model ``own[key]`` instead of `model`.

    Returns:
        The metrics of each pair as Python numbers. All metrics are copied from the device at the
        same time.

    Example:
        >>> model = torch.nn.Linear(1, 1)
        >>> pairs = {"a": ({"weight": torch.ones(1, 1)}, None)}
        >>> scored(model, lambda params, graph: {"hits": torch.tensor([3, 4])}, pairs)
        {'a': {'hits': 0.75}}
    """
    metrics: dict[tuple[int, int], dict[str, Any]] = {}
    with in_mode(model, False), torch.no_grad():
        for key, (params, graph) in pairs.items():
            if (id(params), id(graph)) not in metrics:
                used = standing_in(model, model if own is None else own[key])
                with used, unchanged(params, getattr(graph, "all_tensors", {})):
                    metrics[id(params), id(graph)] = dict(score(params, graph))
    numbers = dict(zip(metrics, on_host(*metrics.values()), strict=True))
    return {key: numbers[id(params), id(graph)] for key, (params, graph) in pairs.items()}


@typed
def evaluate_on(
    method: Method,
    graph: Graph | Sequence[Graph],
    clients: Sequence[Graph],
    *,
    score: Score | None = None,
    logits_of: Callable[..., Any] = predict,
    target: Target = CLASSES,
    each: bool = False,
) -> Evaluate:
    """Score the models that clients deploy, on one graph or on each client's own graph.

    No warning is given if scored examples are also training examples. The tasks of `fgl.tasks`,
    such as `node_task`, warn about scored training examples.

    Args:
        method: the method; its model is called as ``model(*graph.inputs)``.
        graph: a single graph, or a list of one graph per client. Each graph has labels and a test
            mask. A single graph may also have a validation mask. Usually the single graph is the
            undivided graph, of which each client has a part. With one graph per client, each client
            is scored on its own data. A centralized run has only one client. This client's model is
            scored on all graphs.
        clients: the clients' graphs.
        score: ``(params, graph) -> metrics``. A metric is a number, or a tensor such as the results
            of `hit_counts` and `class_counts` in `fgl.metrics.classes`. The metrics of the default
            score are listed under "Returns".
        logits_of: ``(model, params, graph) -> logits``, used by the default score. By default the
            logits are the model's output on the whole graph.
        target: how the default score interprets ``graph.y``; by default as class labels. The target
            also names the metrics for which smaller values are better.
        each: whether to add two kinds of metrics: those of each client, such as ``test_accuracy/3``
            of client 3, and the worst value over all clients, such as ``worst_test_accuracy``.

    Returns:
        ``(outbox, states) -> metrics``. Each metric is the mean over the clients that have it.
        For class labels, the metrics on a single graph are ``val_accuracy``, ``val_loss``,
        ``test_accuracy`` and ``test_macro_f1``. On the clients' own graphs, the only metric is
        ``"local_accuracy"``. With `fgl.targets.REGRESSION`, the metrics on a single graph are
        ``{"val_rmse", "val_loss", "test_rmse", "test_mae", "test_r2"}``. On the clients' own
        graphs, the metrics are ``{"local_rmse", "local_mae", "local_r2"}``. Clients are left out if
        they lack test nodes or known values. Without validation nodes, only the test nodes are
        scored. Undefined metrics, such as the AUC if all labels are equal, are left out.

    Raises:
        TypeError: if the default score is used, ``y`` has a floating dtype, and no target is given.
        ValueError: if there are several clients and `graph` is a list with a different number of
            graphs. With the default score, the error is also raised if a single graph lacks labels
            or test nodes, if a client that has test nodes lacks labels, or if no client has a test
            node. The returned function raises a ValueError if a model lacks tensors.

    Warns:
        UserWarning: if the default score is used, and the labels of some clients do not define a
            metric. The warning names these clients and the reason. With `each`, one warning names
            all clients that lack a metric.

    Example:
        >>> graph = fgl.data.splits.split(fgl.data.load("synthetic"), "random")
        >>> model = fgl.nn.GCN(graph.num_features, 8, graph.num_classes)
        >>> outbox = fgl.federation.Broadcast({"model": model.state_dict()}, num_clients=3)
        >>> sorted(evaluate_on(fgl.fedavg(model), graph, [graph] * 3)(outbox, {}))
        ['test_accuracy', 'test_macro_f1', 'val_accuracy', 'val_loss']
        >>> list(evaluate_on(fgl.fedavg(model), [graph] * 3, [graph] * 3)(outbox, {}))
        ['local_accuracy']
    """
    if not isinstance(graph, Graph) and len(clients) > 1 and len(graph) != len(clients):
        raise ValueError(
            f"Expected graph to be one for each of {len(clients)} clients, but got {len(graph)}"
        )
    model, models = method.model, deployed(method, clients)
    usual = _whole_score if isinstance(graph, Graph) else _local_score
    scores = usual(model, graph, logits_of, target) if score is None else score
    local = score is None and not isinstance(graph, Graph)
    merge = merging(each, None if isinstance(graph, Graph) else graph, target.lower)

    def evaluate(outbox: Mapping[int, Message], states: Mapping[int, State]) -> dict[str, float]:
        used: Any = models(outbox, states)
        graphs = dict.fromkeys(used, graph) if isinstance(graph, Graph) else dict(enumerate(graph))
        pairs = {k: (used[k if k in used else 0], own) for k, own in graphs.items()}
        own_models = {k: method.model_of(clients[k if k in used else 0]) for k in pairs}
        metrics = scored(model, scores, pairs, own_models)
        return merge({k: scored_alone(v) if local else v for k, v in metrics.items()})

    return evaluate


def _whole_score(
    model: nn.Module, graph: Any, logits_of: Callable[..., Any], target: Target
) -> Score:
    """A score function that evaluates all clients' models on one shared graph."""
    missing = [n for n in ("y", "test_mask") if getattr(graph, n) is None]
    reject_if(missing, "graph to have y and test_mask", f"no {missing}{SPLIT}")
    reject_if(not graph.test_mask.any(), "test_mask to have a node", f"none{SPLIT}")
    checked_y(target, graph.y)
    validated = graph.val_mask is not None and bool(graph.val_mask.any())
    without = {f"{of}{name}" for of in ("val_", "test_") for name in _undefined(target, graph, of)}

    target = target.at(horizons(graph))

    def score(params: Params, graph: Any) -> dict[str, Any]:
        of = asked(graph, lambda own: logits_of(model, params, own))
        metrics = {}
        if validated:
            answers = of(graph.val_mask)
            metrics[f"val_{target.first}"] = target.metrics[target.first](*answers)
            metrics["val_loss"] = target.loss(*answers)
        metrics |= target.measure("test_", *of(graph.test_mask))
        return {name: value for name, value in metrics.items() if name not in without}

    return score


def _undefined(target: Target, graph: Graph, prefix: str) -> list[str]:
    answers = by_answer(graph, getattr(graph, f"{prefix}mask"))[1:]
    return warn_undefined(target, [answers], prefix).get(0, [])


def _local_score(
    model: nn.Module, graphs: Any, logits_of: Callable[..., Any], target: Target
) -> Score:
    """A score function that evaluates a model on one client's test nodes.

    Without test nodes the function returns no metrics.
    """
    tested = [own for own in graphs if own.test_mask is not None and bool(own.test_mask.any())]
    want = "clients to have labels and test nodes"
    reject_if(not tested or any(own.y is None for own in tested), want, f"none{SPLIT}")
    for own in tested:
        checked_y(target, own.y)
    answers = [by_answer(own, own.test_mask)[1:] for own in graphs]
    warn_undefined(target, answers, "local_", instead=POOLED)
    scored_graphs = set(tested)  # graphs are compared by identity

    def score(params: Params, graph: Any) -> dict[str, Any]:
        if graph not in scored_graphs:
            return {}
        of = asked(graph, lambda own: logits_of(model, params, own))
        return of_clients(target).at(horizons(graph)).measure("local_", *of(graph.test_mask))

    return score


def together(*evaluates: Evaluate) -> Evaluate:
    """Join several `evaluate` functions into one function that returns all their metrics.

    Example:
        >>> together(lambda outbox, states: {"a": 1.0}, lambda outbox, states: {"b": 2.0})({}, {})
        {'a': 1.0, 'b': 2.0}
    """

    def evaluate(outbox: Mapping[int, Message], states: Mapping[int, State]) -> dict[str, float]:
        return {k: v for each in evaluates for k, v in each(outbox, states).items()}

    return evaluate


def score_round(executor: Executor, result: Result, record: Round, plan: Plan) -> None:
    """Add a round's metrics to its record.

    The metrics come from three sources: the clients' scores, `evaluate` and `watch`.
    """
    start, index = time.perf_counter(), record.round
    scores, merge = executor.score(index, result.outbox), merging(plan.each)
    taken = {} if executor.elsewhere else merge(scores)
    own: dict[str, float] = {}
    if plan.evaluate is not None:
        states = MappingProxyType(executor.states)
        with stage(plan.seed, index, None, "evaluate"), unchanged(*kept(result)):
            own |= _numbers("evaluate", plan.evaluate(result.outbox, states), taken)
    if plan.watch is not None:
        with stage(plan.seed, index, None, "watch"), unchanged(result.server_state):
            own |= _numbers("watch", plan.watch(result.server_state), taken | own)
    taken = merge(_without(own, scores, index)) if executor.elsewhere else taken
    record.metrics = taken | own
    record.seconds += time.perf_counter() - start


def _without(
    taken: Collection[str], scores: Mapping[int, Mapping[str, Value]], index: int
) -> dict[int, Mapping[str, Value]]:
    """Return the scores of clients whose metrics have no name in `taken`.

    A warning is given for each client that is left out.
    """
    out: dict[int, Mapping[str, Value]] = {}
    for client, score in scores.items():
        if both := sorted(set(score) & set(taken)):
            warn(
                f"Round {index}, client {client}, score: Expected metrics that nothing else has, "
                f"but got {both[0]!r} again"
            )
        else:
            out[client] = score
    return out


def _numbers(name: str, metrics: Any, others: Collection[str]) -> dict[str, float]:
    """Convert the metrics to numbers.

    Raise an error if a metric's name is already in use.
    """
    check_names(name, metrics)
    again = [key for key in metrics if key in others]
    got = " and ".join(map(repr, again))
    reject_if(again, f"{name} to return metrics that nothing else has", f"{got} again")
    return {key: as_number(f"{name}'s {key!r}", value) for key, value in metrics.items()}


def means(scores: Iterable[Mapping[str, Value]]) -> dict[str, float]:
    """Each metric's mean over the clients that have the metric.

    A client's value is either a number or a fraction, given as a pair (numerator, divisor). For
    example, an accuracy is the pair (correct predictions, all predictions). The mean of such pairs
    is the sum of the numerators divided by the sum of the divisors. Pairs with divisor 0 are
    ignored.

    Example:
        >>> means([{"auc": 0.5}, {}, {"auc": 1.0}])
        {'auc': 0.75}
        >>> means([{"accuracy": (1, 2)}, {"accuracy": (8, 8)}])
        {'accuracy': 0.9}
        >>> means([{"accuracy": (1, 2)}, {"accuracy": (5, 0)}])
        {'accuracy': 0.5}
    """
    pairs: dict[str, list[tuple[float, float]]] = {}
    for score in scores:
        for name, value in score.items():
            pairs.setdefault(name, []).append(value if isinstance(value, tuple) else (value, 1))
    return {name: _rate([pair for pair in each if pair[1]]) for name, each in pairs.items()}


def merging(
    each: bool, graphs: Sequence[Graph] | None = None, lower: Collection[str] = ()
) -> Callable[[Mapping[int, Mapping[str, Value]]], dict[str, float]]:
    """A function that returns the means of the clients' metrics.

    If `each` is True, the function also returns each client's metrics and the worst values. For
    example, ``accuracy/3`` is the accuracy of client 3, and ``worst_accuracy`` is the worst
    accuracy of all clients. A client that lacks a metric does not count in this metric's mean and
    worst value. If `graphs` are also given, a warning names the clients that lack a metric. The
    warning explains only why the first of these clients lacks the metric.

    Args:
        each: whether to return every client's metrics, and each metric's worst value, in addition
            to the means.
        graphs: the graphs on which clients are scored, one graph per client. The reason in the
            warning is found in these graphs, such as missing test nodes.
        lower: names of metrics for which smaller values are better, without a prefix such as
            ``test_``.

    Example:
        >>> merging(True)({0: {"auc": 0.5}, 2: {"auc": 1.0}})
        {'auc': 0.75, 'worst_auc': 0.5, 'auc/0': 0.5, 'auc/2': 1.0}
    """
    warned: set[str] = set()

    def merge(scores: Mapping[int, Mapping[str, Value]]) -> dict[str, float]:
        merged = means(scores.values())
        if not each:
            return merged
        own: dict[str, dict[int, float]] = {name: {} for name in merged}
        for client, score in scores.items():
            for name, value in means([score]).items():
                own[name][client] = value
        for name in sorted(own.keys() - warned if graphs is not None else ()):
            if lacking := [client for client in scores if client not in own[name]]:
                warned.add(name)
                warn(f"Clients {lacking} have no {name}: {_why_none(graphs, lacking[0], name)}")
        worst = {f"worst_{name}": _worst(name, [*v.values()], lower) for name, v in own.items()}
        of_clients = {f"{name}/{k}": v for name, values in own.items() for k, v in values.items()}
        both = merged.keys() & (worst | of_clients).keys() - warned
        if both:  # an error of a remote client must not end the run
            warned.update(both)
            warn(f"Expected no metric of a client to be called {min(both)!r}, but got it")
        return {**merged, **worst, **of_clients}

    return merge


def _worst(name: str, values: Sequence[float], lower: Collection[str]) -> float:
    """The worst value: the largest value if smaller values are better, otherwise the smallest.

    The result is NaN if any value is NaN.
    """
    if any(map(math.isnan, values)):
        return math.nan
    return max(values) if less_is_better(name, lower=lower) else min(values)


def _why_none(graphs: Any, client: int, name: str) -> str:
    """Explain why a client lacks a metric; the client's mask and labels show the reason."""
    mask_name = "val_mask" if name.startswith("val_") else "test_mask"
    mask, y = getattr(graphs[client], mask_name), graphs[client].y
    if mask is not None and not bool(mask.any()):
        return f"client {client} has no example in {mask_name}"
    if mask is None or y is None or not y.is_floating_point():
        return f"its score returns none for client {client}"
    return f"client {client}'s {kind_of(y, mask)}"


def _rate(pairs: Sequence[tuple[float, float]]) -> float:
    """For pairs of numbers, divide the sum of the first numbers by the sum of the second numbers.

    Without pairs the result is NaN.
    """
    if not pairs:
        return math.nan
    total, count = (sum(map(float, part)) for part in zip(*pairs, strict=True))
    return total / count if count else math.nan
