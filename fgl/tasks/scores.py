"""Scores of clients' models: on their nodes, held-out edges and ego-graphs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from .. import federation as fed
from ..data.partitions.major_label import unseen_nodes
from ..data.splits import EdgeSplit
from ..federation import Evaluate, Method, Outbox, Params, Score, State
from ..graph import Graph
from ..kinds import typed
from ..losses import pair_scores, soft_cross_entropy
from ..metrics.classes import hit_counts
from ..metrics.host import on_host
from ..metrics.ranking import auc_and_average_precision
from ..targets import CLASSES, Target, checked_y, of_clients, scored_alone, selected
from ..transfer import to_host


@typed
def node_scores(
    model: nn.Module,
    *,
    test: bool = True,
    logits_of: Callable[..., Any] = fed.predict,
    target: Target = CLASSES,
) -> Score:
    """A score of a model on a client's own nodes, or on the graphs of its collection.

    Args:
        model: called as ``model(*graph.inputs)``, returns logits, or the output that the target
            needs.
        test: whether to score the test nodes too; False for a method that only validates.
        logits_of: ``(model, params, graph) -> logits``; default the model's forward on all of it.
        target: meaning of the values of ``graph.y``; default class labels.

    Returns:
        ``(params, graph) -> {"val_accuracy", "test_accuracy"}``, with `fgl.targets.REGRESSION`
        ``{"val_rmse", "test_rmse", "test_mae", "test_r2"}``. A metric is left out if its mask is
        missing or empty, or if no answer is known.

    Example:
        >>> mask = torch.tensor([True, False])
        >>> graph = fgl.Graph(torch.eye(2), torch.tensor([[0], [1]]), y=torch.tensor([0, 1]))
        >>> model = fgl.nn.GCN(2, 8, 2)
        >>> list(node_scores(model)(model.state_dict(), graph.replace(test_mask=mask)))
        ['test_accuracy']
    """

    @torch.no_grad()
    def score(params: Params, graph: Graph) -> dict[str, float]:
        y = checked_y(target, graph.y)
        with fed.in_mode(model, False):
            output = logits_of(model, params, graph)
        metrics: dict[str, Any] = {}
        if graph.val_mask is not None:
            first = target.metrics[target.first]
            metrics[f"val_{target.first}"] = first(output, y, graph.val_mask)
        if test and graph.test_mask is not None:
            metrics |= of_clients(target).measure("test_", output, y, graph.test_mask)
        return scored_alone(on_host(metrics)[0])

    return score


@typed
def link_scores(model: nn.Module, splits: Sequence[EdgeSplit], *, test: bool = True) -> Score:
    """A score of how well a model separates a client's held-out edges from pairs without an edge.

    Args:
        model: called as ``model(graph.x, graph.adj)``, returns embeddings; inner products decode.
        splits: one per client; the client is known by its ``split.graph``.
        test: whether to score the test pairs too.

    Returns:
        ``(params, graph) -> {"val_auc", "val_ap", "auc", "ap"}``, the last two on the test pairs;
        without the names of pairs that lack edges or negatives, so none for a client that only
        trains; NaN if the model's scores are NaN, as after divergence.

    Raises:
        ValueError: when called, if no split has this graph.

    Example:
        >>> split = fgl.data.splits.edge_split(fgl.data.load("synthetic"))
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
        with fed.in_mode(model, False):
            z = fed.predict(model, params, graph)
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


def validation(score: Score, select: str) -> Callable[[Params, Graph], float]:
    """A client's own validation: one metric of its score, NaN if it has no validation examples.

    Larger is better: for ``"-val_rmse"`` it is minus the metric.
    """

    def validate(params: Params, graph: Graph) -> float:
        metrics: Mapping[str, Any] = score(params, graph)
        return selected(metrics, select)

    return validate


@typed
def evaluate_own(
    score: Score, method: Method, clients: Sequence[Graph], *, required: bool = True
) -> Evaluate:
    """Score each client with the model that it deploys, and with the start of its last round.

    A method may keep that start in its clients' states as ``"adopted"``.

    Args:
        score: ``(params, graph) -> metrics``, such as `link_scores` or `node_scores`.
        method: the method with `deploy`.
        clients: the clients' graphs.
        required: whether it is an error if no client has a metric.

    Returns:
        ``(outbox, states) ->`` every metric as a mean over the clients that have it, then, where
        clients keep it, the same with ``_before`` at the end, and ``scored_clients``, how many have
        all of them. A mean over a client with NaN is NaN.

    Raises:
        ValueError: when called, if no client has a metric, or a model is not whole.

    Example:
        >>> graph = fgl.data.splits.split(fgl.data.load("synthetic"), "random")
        >>> model = fgl.nn.GCN(graph.num_features, 8, graph.num_classes)
        >>> evaluate = evaluate_own(node_scores(model), fgl.fedavg(model), [graph])
        >>> sorted(evaluate({0: {"model": model.state_dict()}}, {}))
        ['scored_clients', 'test_accuracy', 'val_accuracy']
    """
    model, models = method.model, fed.deployed(method, clients)

    def evaluate(outbox: Outbox, states: Mapping[int, State]) -> dict[str, float]:
        used = models(outbox, states)
        pairs = {(k, ""): (used[k], graph) for k, graph in enumerate(clients)}
        if any("adopted" in state for state in states.values()):
            common = method.common()
            for k, graph in enumerate(clients):
                started = states.get(k, {}).get("adopted", used[k])
                fed.check_whole(method, started, graph, f"client {k}'s adopted model", common)
                pairs[k, "_before"] = started, graph
        metrics: list[dict[str, float]] = [{} for _ in clients]
        trained = {key: method.model_of(clients[key[0]]) for key in pairs}
        for (k, ending), own in fed.scored(model, score, pairs, trained).items():
            metrics[k] |= {f"{name}{ending}": value for name, value in own.items()}
        names = {name for own in metrics for name in own}
        if not names and required:
            raise ValueError("Expected a client to have something to test on, but got none")
        whole = sum(len(own) == len(names) for own in metrics) if names else 0
        return {**fed.means(metrics), "scored_clients": float(whole)}

    return evaluate


def evaluate_ego(method: Method, clients: Sequence[Graph], test: Graph) -> Evaluate:
    """Score each client's model on its own test nodes and on a graph that no client trained on.

    Micro-F1, which is accuracy where a node has one label. A client that has never taken part has
    no model of its own yet, and is not scored.

    Args:
        method: its model is called as ``model(graph.x, graph.adj)``.
        clients: the clients' graphs, with labels and masks.
        test: the common test graph; all of its nodes are scored.

    Returns:
        ``(outbox, states) -> {"local_f1", "global_f1", "val_f1", "val_loss"}``, means over the
        ``scored_clients``; ``local_unseen_f1``, on own test nodes that no other client trains on
        (`unseen_nodes`), a mean over the ``unseen_clients`` that have some, and left out where
        there are none; each client's ``local_f1/0``, ``global_f1/0``, ``local_unseen_f1/0``, ...;
        empty if no client has taken part.

    Example:
        >>> test, clients = fgl.data.partitions.major_label_partition(fgl.data.load("synthetic"), 2)
        >>> model = fgl.nn.EgoSAGE(test.num_features, 8, test.num_classes)
        >>> outbox = {0: {"model": model.state_dict()}}
        >>> list(evaluate_ego(fgl.fedavg(model), clients, test)(outbox, {0: {}}))
        ['local_f1', 'global_f1', 'val_f1', 'val_loss', 'local_unseen_f1', 'scored_clients',
         'unseen_clients', 'local_f1/0', 'global_f1/0', 'local_unseen_f1/0']
    """
    fed.check_one_architecture(method, "evaluate_ego")
    model, models = method.model, fed.deployed(method, clients)
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

    def evaluate(outbox: Outbox, states: Mapping[int, State]) -> dict[str, float]:
        used = models({client: outbox[client] for client in sorted(states)}, states)
        metrics = fed.scored(model, score, {k: (params, clients[k]) for k, params in used.items()})
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
        return {**fed.means(metrics.values()), **counts, **of_clients}

    return evaluate


def one_hot(graph: Graph) -> Tensor:
    """Labels as rows ``[num_nodes, C]`` of zeros and a one."""
    labels, classes = graph.labels, int(graph.num_classes or 0)
    return torch.eye(classes, dtype=graph.x.dtype, device=graph.device)[labels]
