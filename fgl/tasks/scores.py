"""Scores of clients' models: on their nodes, held-out edges, graphs and ego-graphs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from ..data import EdgeSplit
from ..data.partitions.major_label import unseen_nodes
from ..federation import (
    Cohort,
    Evaluate,
    Inbox,
    Message,
    Method,
    Params,
    Score,
    State,
    check_one_architecture,
    check_whole,
    deployed,
    in_mode,
    means,
    predict,
    scored,
)
from ..graph import Graph
from ..losses import pair_scores, soft_cross_entropy
from ..metrics import auc_and_average_precision, hit_counts, hit_rows, share
from ..sparse import Member
from ..transfer import to_host


def node_scores(
    model: nn.Module, *, test: bool = True, logits_of: Callable[..., Any] = predict
) -> Score:
    """How well a model classifies a client's own nodes, or the graphs of its collection.

    Args:
        model: called as ``model(*graph.inputs)``, returns logits.
        test: whether to score the test nodes too; a method that validates has no business there.
        logits_of: ``(model, params, graph) -> logits``; default the model's forward on all of it.

    Returns:
        ``(params, graph) -> {"val_accuracy", "test_accuracy"}``; without the name of a mask that is
        missing or empty.

    Example:
        >>> mask = torch.tensor([True, False])
        >>> graph = fgl.Graph(torch.eye(2), torch.tensor([[0], [1]]), y=torch.tensor([0, 1]))
        >>> model = fgl.nn.GCN(2, 8, 2)
        >>> list(node_scores(model)(model.state_dict(), graph.replace(test_mask=mask)))
        ['test_accuracy']
    """

    @torch.no_grad()
    def score(params: Params, graph: Graph) -> dict[str, float]:
        if graph.y is None:
            raise ValueError("Expected graph.y to be a tensor of labels, but got None")
        with in_mode(model, False):
            logits = logits_of(model, params, graph)
        masks = {"val_accuracy": graph.val_mask, "test_accuracy": graph.test_mask if test else None}
        names = [name for name, mask in masks.items() if mask is not None]
        counts = to_host(*(hit_counts(logits, graph.y, masks[name]) for name in names))
        shares = zip(names, map(share, counts), strict=True)
        return {name: value for name, value in shares if not math.isnan(value)}

    return score


def link_scores(model: nn.Module, splits: Sequence[EdgeSplit], *, test: bool = True) -> Score:
    """How well a model tells a client's held-out edges from pairs without an edge.

    Args:
        model: called as ``model(graph.x, graph.adj)``, returns embeddings; inner products decode.
        splits: one per client; the client is known by its ``split.graph``.
        test: whether to score the test pairs too.

    Returns:
        ``(params, graph) -> {"val_auc", "val_ap", "auc", "ap"}``, the last two on the test pairs;
        without the names of pairs that lack edges or negatives, so none for a client that only
        trains; NaN where a model's scores are, as those of one that has diverged.

    Raises:
        ValueError: when called, if the graph is that of no split.

    Example:
        >>> split = fgl.data.edge_split(fgl.data.load("synthetic"))
        >>> model = fgl.nn.VGAE(1433, 8, 4)
        >>> list(link_scores(model, [split])(model.state_dict(), split.graph))
        ['val_auc', 'val_ap', 'auc', 'ap']
    """
    of = {split.graph: split for split in splits}

    @torch.no_grad()
    def score(params: Params, graph: Graph) -> dict[str, float]:
        split = of.get(graph) or _split_like(graph, splits)
        if split.trains_only:
            return {}
        with in_mode(model, False):
            z = predict(model, params, graph)
        held_out = {"val_": (split.val_edges, split.val_negatives)}
        if test:
            held_out[""] = (split.test_edges, split.test_negatives)
        held_out = {k: pairs for k, pairs in held_out.items() if all(p.shape[1] for p in pairs)}
        scores = {prefix: pair_scores(z, torch.cat(pairs, 1)) for prefix, pairs in held_out.items()}
        diverged = to_host(*(own.isnan().any() for own in scores.values()))
        metrics = {}
        for (prefix, own), bad in zip(scores.items(), diverged, strict=True):
            positive = torch.arange(len(own), device=own.device) < held_out[prefix][0].shape[1]
            both = (math.nan, math.nan) if bad else auc_and_average_precision(own, positive)
            metrics[f"{prefix}auc"], metrics[f"{prefix}ap"] = both
        return metrics

    return score


def _split_like(graph: Graph, splits: Sequence[EdgeSplit]) -> EdgeSplit:
    """The split whose graph has the same nodes and edges: a copy's."""
    for split in splits:
        own = split.graph
        ids = (
            own.node_id is None or graph.node_id is None or torch.equal(own.node_id, graph.node_id)
        )
        if (
            own.num_nodes == graph.num_nodes
            and torch.equal(own.edge_index, graph.edge_index)
            and ids
        ):
            return split
    raise ValueError("Expected graph to be the graph of a split, but got another")


def validation(score: Score, metric: str) -> Callable[[Params, Graph], float]:
    """A client's own validation: one metric of its score, NaN where it has nothing to score on."""

    def validate(params: Params, graph: Graph) -> float:
        metrics: Mapping[str, Any] = score(params, graph)
        return float(metrics.get(metric, math.nan))

    return validate


def evaluate_own(score: Score, method: Method, clients: Sequence[Graph]) -> Evaluate:
    """Score each client with the model that it deploys, and with what its last round started from.

    A method may keep the latter in its clients' states, as ``"adopted"``.

    Args:
        score: ``(params, graph) -> metrics``, such as `link_scores` or `node_scores`.
        method: what deploys.
        clients: the clients' graphs.

    Returns:
        ``(outbox, states) ->`` every metric as a mean over the clients that have it, then, where
        clients keep it, the same with ``_before`` at the end, and ``scored_clients``, how many have
        all of them. A mean over a client with NaN is NaN.

    Raises:
        ValueError: when called, if no client has a metric, or a model is not whole.

    Example:
        >>> graph = fgl.data.split(fgl.data.load("synthetic"), "random")
        >>> model = fgl.nn.GCN(graph.num_features, 8, graph.num_classes)
        >>> evaluate = evaluate_own(node_scores(model), fgl.fedavg(model), [graph])
        >>> sorted(evaluate({0: {"model": model.state_dict()}}, {}))
        ['scored_clients', 'test_accuracy', 'val_accuracy']
    """
    model, models = method.model, deployed(method, clients)

    def evaluate(outbox: Mapping[int, Message], states: Mapping[int, State]) -> dict[str, float]:
        used = models(outbox, states)
        pairs = {(k, ""): (used[k], graph) for k, graph in enumerate(clients)}
        if any("adopted" in state for state in states.values()):
            for k, graph in enumerate(clients):
                started = states.get(k, {}).get("adopted", used[k])
                check_whole(method, started, graph, f"client {k}'s adopted model")
                pairs[k, "_before"] = started, graph
        metrics: list[dict[str, float]] = [{} for _ in clients]
        asked = {key: method.model_of(clients[key[0]]) for key in pairs}
        for (k, ending), own in scored(model, score, pairs, asked).items():
            metrics[k] |= {f"{name}{ending}": value for name, value in own.items()}
        names = {name for own in metrics for name in own}
        if not names:
            raise ValueError("Expected a client to have something to test on, but got none")
        whole = sum(len(own) == len(names) for own in metrics)
        return {**means(metrics), "scored_clients": float(whole)}

    return evaluate


def evaluate_graphs(method: Method, tests: Sequence[Graph], clients: Sequence[Graph]) -> Evaluate:
    """Score each client's model on its own test graphs, all clients at once.

    The control answers everything with the class that most of a client's training graphs have, of
    equals the smallest.

    Args:
        method: its model is called as ``model(*graph.inputs)`` and returns logits.
        tests: a collection with labels per client; with a test mask only the graphs in it.
        clients: the clients' graphs, what they train on.

    Returns:
        ``(outbox, states) -> {"test_accuracy", "majority_accuracy"}``, means over clients; the
        second, the control's, is constant.

    Raises:
        ValueError: if a collection lacks labels or a `batch`, a mask is empty or `clients` are
            not as many as `tests`; and, when called, if a model is not whole.

    Example:
        >>> none = torch.zeros(2, 0, dtype=torch.int64)
        >>> y = torch.tensor([0, 0, 1])
        >>> graph = fgl.Graph(torch.ones(3, 4), none, y=y, batch=torch.arange(3))
        >>> model = fgl.nn.GIN(4, 8, 2)
        >>> outbox = fgl.federation.Broadcast({"model": model.state_dict()}, num_clients=1)
        >>> evaluate_graphs(fgl.fedavg(model), [graph], [graph])(outbox, {})
        {'test_accuracy': 0..., 'majority_accuracy': 0.6...}
    """
    if any(graph.y is None for graph in (*tests, *clients)):
        raise ValueError("Expected tests and clients to have labels, but got none")
    if any(graph.batch is None for graph in (*tests, *clients)):
        raise ValueError("Expected tests and clients to be collections, but got no batch")
    if len(clients) != len(tests):
        raise ValueError(f"Expected clients to be {len(tests)} as tests, but got {len(clients)}")
    model, models = method.model, deployed(method, clients)
    tests = [_masked(graph, "test_mask", k) for k, graph in enumerate(tests)]
    train = [_masked(graph, "train_mask", k) for k, graph in enumerate(clients)]
    pairs: Any = zip(train, tests, strict=True)
    hits = [(test.y == own.y.bincount().argmax()).double().mean() for own, test in pairs]
    majority = float(torch.stack(hits).mean())
    if method.models is not None:
        return _graphs_one_by_one(method, tests, clients, majority)
    cohort = Cohort(tests)

    def hit_share(index: Tensor, params: Any) -> Tensor:
        graph = cohort.graph(Member(index))
        logits = predict(model, params, graph)
        y: Any = graph.y
        hit = hit_rows(logits, y) & graph.example_mask
        correct: Tensor = hit.sum().double() / graph.num_graphs
        return correct

    @torch.no_grad()
    def evaluate(outbox: Mapping[int, Message], states: Mapping[int, State]) -> dict[str, float]:
        used: Any = models(outbox, states)
        with in_mode(model, False):
            stack = Inbox({k: {"model": used[k]} for k in range(len(tests))}, len(tests))
            shares = vmap(hit_share)(cohort.index, stack.stack("model"))
        return {"test_accuracy": float(shares.double().mean()), "majority_accuracy": majority}

    return evaluate


def _graphs_one_by_one(
    method: Method, tests: Sequence[Graph], clients: Sequence[Graph], majority: float
) -> Evaluate:
    """`evaluate_graphs` of clients whose models differ, which no batch can hold."""
    models = deployed(method, clients)

    def score(params: Params, graph: Graph) -> dict[str, Any]:
        y: Any = graph.y
        return {"test_accuracy": hit_counts(predict(method.model, params, graph), y)}

    def evaluate(outbox: Mapping[int, Message], states: Mapping[int, State]) -> dict[str, float]:
        used = models(outbox, states)
        pairs = {k: (used[k], test) for k, test in enumerate(tests)}
        asked = {k: method.model_of(graph) for k, graph in enumerate(clients)}
        each = scored(method.model, score, pairs, asked).values()
        return {**means(each), "majority_accuracy": majority}

    return evaluate


def _masked(graph: Graph, name: str, client: int) -> Graph:
    """The graphs of a collection that are in its mask, or all where it has none."""
    mask: Tensor | None = getattr(graph, name)
    if mask is not None:
        if not mask.any():
            raise ValueError(f"Expected client {client}'s {name} to have a graph, but got none")
        graph = graph.select(mask.nonzero().squeeze(1))
    return graph.replace(train_mask=None, val_mask=None, test_mask=None)


def evaluate_ego(method: Method, clients: Sequence[Graph], test: Graph) -> Evaluate:
    """Score each client's model on its own test nodes and on a graph that nobody trained on.

    Micro-F1, which is accuracy where a node has one label. A client that has never taken part has
    no model of its own yet, and is not scored.

    Args:
        method: its model is called as ``model(graph.x, graph.adj)``.
        clients: the clients' graphs, with labels and masks.
        test: the common test graph; all its nodes count.

    Returns:
        ``(outbox, states) -> {"local_f1", "global_f1", "val_f1", "val_loss"}``, means over the
        ``scored_clients``; ``local_unseen_f1``, on the own test nodes that nobody else trains on
        (`unseen_nodes`), a mean over the ``unseen_clients`` that have some, and left out where
        there are none; each client's ``local_f1/0``, ``global_f1/0``, ``local_unseen_f1/0``, ...;
        empty where nobody has taken part.

    Example:
        >>> test, clients = fgl.data.major_label_partition(fgl.data.load("synthetic"), 2)
        >>> model = fgl.nn.EgoSAGE(test.num_features, 8, test.num_classes)
        >>> outbox = {0: {"model": model.state_dict()}}
        >>> list(evaluate_ego(fgl.fedavg(model), clients, test)(outbox, {0: {}}))
        ['local_f1', 'global_f1', 'val_f1', 'val_loss', 'local_unseen_f1', 'scored_clients',
         'unseen_clients', 'local_f1/0', 'global_f1/0', 'local_unseen_f1/0']
    """
    check_one_architecture(method, "evaluate_ego")
    model, models = method.model, deployed(method, clients)
    named = all(graph.node_id is not None for graph in clients)
    masks = zip(clients, unseen_nodes(clients) if named else [], strict=named)
    unseen = {graph: mask for graph, mask in masks if mask.any()}

    def score(params: Params, graph: Any) -> dict[str, Any]:
        own, common = (functional_call(model, params, (each.x, each.adj)) for each in (graph, test))
        metrics = {
            "local_f1": hit_counts(own, graph.y, graph.test_mask),
            "global_f1": hit_counts(common, test.y),  # type: ignore[arg-type]  # checked
            "val_f1": hit_counts(own, graph.y, graph.val_mask),
            "val_loss": soft_cross_entropy(own, one_hot(graph), graph.val_mask),
        }
        if graph in unseen:
            metrics["local_unseen_f1"] = hit_counts(own, graph.y, unseen[graph])
        return metrics

    def evaluate(outbox: Mapping[int, Message], states: Mapping[int, State]) -> dict[str, float]:
        used = models({client: outbox[client] for client in sorted(states)}, states)
        metrics = scored(model, score, {k: (params, clients[k]) for k, params in used.items()})
        if not metrics:
            return {}
        counts = {"scored_clients": float(len(metrics))}
        if named:
            unseen_clients = sum("local_unseen_f1" in own for own in metrics.values())
            counts["unseen_clients"] = float(unseen_clients)
        of_clients = {
            f"{name}/{client}": own[name]
            for client, own in metrics.items()
            for name in ("local_f1", "global_f1", "local_unseen_f1")
            if name in own
        }
        return {**means(metrics.values()), **counts, **of_clients}

    return evaluate


def one_hot(graph: Graph) -> Tensor:
    """Labels as rows ``[num_nodes, C]`` of zeros and a one."""
    if graph.y is None or graph.num_classes is None:
        raise ValueError("Expected graph.y to be a tensor of labels, but got None")
    return torch.eye(graph.num_classes, dtype=graph.x.dtype, device=graph.device)[graph.y]
