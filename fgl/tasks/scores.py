"""Scores of a client's own model: on its nodes, and on the edges that were held out."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.func import functional_call

from ..data import EdgeSplit
from ..federation import (
    Evaluate,
    Message,
    Method,
    Params,
    Predict,
    State,
    check_model,
    deployed,
    in_mode,
    means,
    predict,
)
from ..graph import Graph
from ..losses import pair_scores
from ..metrics import auc_and_average_precision, hit_counts, share
from ..transfer import to_host
from .task import Validate

Score = Callable[[Params, Graph], dict[str, float]]


def node_scores(model: nn.Module, *, test: bool = True, logits_of: Predict = predict) -> Score:
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
        masks = {"val_accuracy": graph.val_mask}
        if test:
            masks["test_accuracy"] = graph.test_mask
        there = {name: mask for name, mask in masks.items() if mask is not None}
        counts = to_host(*(hit_counts(logits, graph.y, mask) for mask in there.values()))
        found = dict(zip(there, map(share, counts), strict=True))
        return {name: value for name, value in found.items() if not math.isnan(value)}

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
            z = functional_call(model, params, (graph.x, graph.adj))
        kept = {"val_": (split.val_edges, split.val_negatives)}
        if test:
            kept[""] = (split.test_edges, split.test_negatives)
        kept = {prefix: pairs for prefix, pairs in kept.items() if all(p.shape[1] for p in pairs)}
        scores = {prefix: pair_scores(z, torch.cat(pairs, 1)) for prefix, pairs in kept.items()}
        diverged = to_host(*(own.isnan().any() for own in scores.values()))
        found = {}
        for (prefix, own), bad in zip(scores.items(), diverged, strict=True):
            positive = torch.arange(len(own), device=own.device) < kept[prefix][0].shape[1]
            both = (math.nan, math.nan) if bad else auc_and_average_precision(own, positive)
            found[f"{prefix}auc"], found[f"{prefix}ap"] = both
        return found

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


def validation(score: Score, metric: str) -> Validate:
    """A client's own validation: one metric of its score, NaN where it has nothing to score on."""

    def validate(params: Params, graph: Graph) -> float:
        return score(params, graph).get(metric, math.nan)

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
    models, template = deployed(method, clients), method.model.state_dict()

    def evaluate(outbox: Mapping[int, Message], states: Mapping[int, State]) -> dict[str, float]:
        each: list[dict[str, float]] = []
        used = models(outbox, states)
        keep = any("adopted" in state for state in states.values())
        for client, graph in enumerate(clients):
            found = dict(score(used[client], graph))
            if keep:
                started: Any = states.get(client, {}).get("adopted", used[client])
                check_model(started, template, f"client {client}'s adopted model")
                found |= {f"{name}_before": v for name, v in score(started, graph).items()}
            each.append(found)
        names = dict.fromkeys(name for found in each for name in found)
        if not names:
            raise ValueError("Expected a client to have something to test on, but got none")
        whole = sum(len(found) == len(names) for found in each)
        return {**means(each), "scored_clients": float(whole)}

    return evaluate
