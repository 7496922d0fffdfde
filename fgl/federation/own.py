"""Scoring clients by models of their own, on their own test sets."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.func import functional_call

from .. import data
from ..data import EdgeSplit
from ..graph import Graph
from ..losses import pair_scores
from ..metrics import accuracy, auc, average_precision
from ..sparse import SparseMatrix
from .evaluate import Evaluate, in_mode
from .message import Message, Params
from .method import State, fold_in

Score = Callable[[Params, Graph], dict[str, float]]


def own_clients(args: argparse.Namespace) -> tuple[list[Graph], list[EdgeSplit] | None]:
    """The setting of FedVGAE: disjoint clients, each with a split of its own.

    Args:
        args: with ``dataset, clients, seed, device, sparse``; ``partition``: ``"louvain"`` or
            ``"random"``; ``features``: ``"raw"``, ``"normalized"``, or ``"degree"`` (always where
            the raw ones are the degrees, as for polblogs), counted in a client's training edges
            only; ``task``: ``"node"`` (60 % of a client's nodes train, 20 % validate) or
            ``"link"`` (5 % of its edges validate, 10 % are for the test).

    Returns:
        One graph per client, and for links one split each, else None; for links without masks.

    Raises:
        ValueError: if no client has enough edges to split.

    Example:
        >>> options = {"dataset": "synthetic", "clients": 3, "seed": 0, "device": "cpu"}
        >>> options |= {"sparse": "torch", "partition": "random", "features": "raw"}
        >>> clients, splits = own_clients(argparse.Namespace(**options, task="link"))
        >>> [client is split.graph for client, split in zip(clients, splits)]
        [True, True, True]
    """
    graph = data.load(args.dataset).replace(backend=args.sparse).to(args.device)
    # Degrees of the whole graph would tell of the edges that are kept from a client.
    degree = args.features == "degree" or _are_degrees(graph)
    if args.features == "normalized":
        graph = data.normalize_features(graph)
    cut = {"louvain": data.louvain_partition, "random": data.random_partition}[args.partition]
    clients = data.partition_graph(graph, cut(graph, args.clients, seed=args.seed))
    seeds = [fold_in(args.seed, client, "split") for client in range(len(clients))]
    pairs = list(zip(clients, seeds, strict=True))
    if args.task == "node":
        nodes = [data.random_split(own, seed=seed) for own, seed in pairs]
        return [data.degree_features(own) if degree else own for own in nodes], None
    none = {"train_mask": None, "val_mask": None, "test_mask": None}  # every node is trained on
    splits = [data.edge_split(own.replace(**none), seed=seed) for own, seed in pairs]
    if degree:
        splits = [replace(own, graph=data.degree_features(own.graph)) for own in splits]
    idle = [client for client, own in enumerate(splits) if own.trains_only]
    if len(idle) == len(splits):
        raise ValueError(
            f"Expected a client to have enough edges to split, but got none of {len(splits)}"
        )
    if idle:
        print(f"clients {idle} have too few edges to split: they train and are not scored")
    return [own.graph for own in splits], splits


def _are_degrees(graph: Graph) -> bool:
    x, degrees = graph.x, data.degree_features(graph).x
    if x.shape != degrees.shape:
        return False
    here, there = (m.to_dense() if isinstance(m, SparseMatrix) else m for m in (x, degrees))
    return torch.equal(here, there)


def own_scores(
    model: nn.Module, splits: Sequence[EdgeSplit] | None = None, *, test: bool = True
) -> Score:
    """`link_scores` of the splits, or `node_scores` where there are none.

    Example:
        >>> own_scores(fgl.nn.GCN(2, 8, 2)).__qualname__
        'node_scores.<locals>.score'
    """
    return (
        node_scores(model, test=test) if splits is None else link_scores(model, splits, test=test)
    )


def node_scores(model: nn.Module, *, test: bool = True) -> Score:
    """How well a model classifies a client's own nodes.

    Args:
        model: called as ``model(graph.x, graph.adj)``, returns logits.
        test: whether to score the test nodes too; a method that validates has no business there.

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
            logits = functional_call(model, params, (graph.x, graph.adj))
        masks = {"val_accuracy": graph.val_mask}
        if test:
            masks["test_accuracy"] = graph.test_mask
        found = {
            name: accuracy(logits, graph.y, mask)
            for name, mask in masks.items()
            if mask is not None
        }
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
    of = {split.graph: split for split in splits}  # graphs are told apart by identity

    @torch.no_grad()
    def score(params: Params, graph: Graph) -> dict[str, float]:
        split = of.get(graph)
        if split is None:
            raise ValueError("Expected graph to be the graph of a split, but got another")
        if split.trains_only:
            return {}
        with in_mode(model, False):
            z = functional_call(model, params, (graph.x, graph.adj))
        found = {}
        kept = {"val_": (split.val_edges, split.val_negatives)}
        if test:
            kept[""] = (split.test_edges, split.test_negatives)
        for prefix, (edges, negatives) in kept.items():
            if not (edges.shape[1] and negatives.shape[1]):
                continue
            scores = pair_scores(z, torch.cat([edges, negatives], 1))
            positive = torch.arange(len(scores), device=scores.device) < edges.shape[1]
            diverged = bool(scores.isnan().any())
            found[f"{prefix}auc"] = math.nan if diverged else auc(scores, positive)
            found[f"{prefix}ap"] = math.nan if diverged else average_precision(scores, positive)
        return found

    return score


def evaluate_own(score: Score, model: nn.Module, clients: Sequence[Graph]) -> Evaluate:
    """Score each client with its own model: after its last local training, and before it.

    A method keeps both in its clients' states: ``"model"`` after training, ``"adopted"`` before,
    each name to tensor; what is missing there is completed from `model`. A client that has not
    taken part yet is scored with what the server would send it.

    Args:
        score: ``(params, graph) -> metrics``, such as `link_scores` or `node_scores`.
        model: the architecture, with its initial tensors.
        clients: the clients' graphs.

    Returns:
        ``(outbox, states) ->`` every metric as a mean over the clients that have it, then the same
        with ``_before`` at the end, and ``scored_clients``, how many have all of them. A mean over
        a client with NaN is NaN.

    Raises:
        ValueError: when called, if no client has a metric.

    Example:
        >>> graph = fgl.data.split(fgl.data.load("synthetic"), "random")
        >>> model = fgl.nn.GCN(graph.num_features, 8, graph.num_classes)
        >>> evaluate = evaluate_own(node_scores(model), model, [graph])
        >>> sorted(evaluate({0: {"model": model.state_dict()}}, {}))[:3]
        ['scored_clients', 'test_accuracy', 'test_accuracy_before']
    """
    initial = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}

    def evaluate(outbox: Mapping[int, Message], states: Mapping[int, State]) -> dict[str, float]:
        each: list[dict[str, float]] = []
        for client, graph in enumerate(clients):
            each.append({})
            for key, ending in (("model", ""), ("adopted", "_before")):
                state = states.get(client, {})
                own = state[key] if key in state else outbox[client]["model"]
                for name, value in score({**initial, **own}, graph).items():  # type: ignore[dict-item]
                    each[-1][f"{name}{ending}"] = value
        names = dict.fromkeys(name for found in each for name in found)
        if not names:
            raise ValueError("Expected a client to have something to test on, but got none")
        means = {}
        for metric in names:
            values = [found[metric] for found in each if metric in found]
            means[metric] = sum(values) / len(values)
        return {**means, "scored_clients": float(sum(len(found) == len(names) for found in each))}

    return evaluate


def trigger_rate(outbox: Mapping[int, Message], states: Mapping[int, State]) -> dict[str, float]:
    """Share of the client-rounds so far in which a client did not take the received model as it is.

    Args:
        outbox: not used; it makes this an `Evaluate`.
        states: each with how many rounds the client took part in, ``"rounds"``, and in how many of
            them it moved the model back towards its own, ``"adjusted"``.

    Example:
        >>> trigger_rate({}, {0: {"rounds": torch.tensor(4), "adjusted": torch.tensor(1)}})
        {'trigger_rate': 0.25}
    """
    kept: Any = states.values()
    adjusted, rounds = (sum(int(state[key]) for state in kept) for key in ("adjusted", "rounds"))
    return {"trigger_rate": adjusted / max(rounds, 1)}
