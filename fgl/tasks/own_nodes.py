"""Nodes and links of clients that have test sets of their own (FedVGAE's protocols)."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor
from torch.func import functional_call

from .. import data, losses
from ..checks import check_choice, check_count, check_device, check_share, check_weight
from ..data import EdgeSplit
from ..data.splits.edges import FreePairs, each_once
from ..federation import (
    Evaluate,
    Loss,
    Method,
    Params,
    Ragged,
    Training,
    fedavg,
    fold_in,
    num_steps,
)
from ..graph import Graph
from ..methods.own_models import own_models
from ..nn import VGAE
from ..sparse import SparseMatrix
from .nodes import PARTITIONS
from .scores import Score, evaluate_own, link_scores, node_scores, validation
from .task import Local, Task
from .weights import bounded, own_nodes, send_by_nodes


def own_node_task(
    clients: Sequence[Graph], model: VGAE, train: Training, *, kl: float = 1.0
) -> Task:
    """Classify a client's nodes with a variational encoder and an MLP.

    ``L = CE + kl / n KL(q(z | x, A) || N(0, 1))``, KL being the mean over the n nodes: the printed
    sum is divided by n twice, as in `link_task`. A client weighs as many as it has nodes, keeps
    the model that it trained, and is scored with it on its own test nodes; metrics that end in
    ``_before`` are those of the model it started its round from.

    Args:
        clients: graphs with labels and masks of their own.
        model: with a classifier.
        train: local training; in each of its steps the noise of z is drawn anew.
        kl: weight of the divergence, at least 0.

    Example:
        >>> clients = [fgl.data.split(fgl.data.load("synthetic"), "random")]
        >>> model = fgl.nn.VGAE(clients[0].num_features, 8, 4, num_classes=7)
        >>> own_node_task(clients, model, fgl.Training(num_steps=2)).select
        'val_accuracy'

    Source: FedVGAE, IEEE Transactions on Big Data 2024
    """

    check_weight(kl=kl)

    def loss(params: Params, graph: Graph, context: Any) -> Tensor:
        logits, total = encoded(model, params, graph, context, kl)
        return total + losses.cross_entropy(logits, graph.y, graph.train_mask)  # type: ignore[arg-type]

    def batches(graph: Graph, context: Any) -> Iterator[tuple[Graph, Any]]:
        for _ in range(num_steps(train)):
            yield graph, {**context, "noise": noise(model, graph)}

    method = _method(model, loss, replace(train, num_steps=None, batches=batches))
    return _task(clients, method, lambda test: node_scores(model, test=test), "val_accuracy")


def link_task(
    splits: Sequence[EdgeSplit],
    model: VGAE,
    train: Training,
    *,
    kl: float = 1.0,
    recon: Literal["sampled", "dense", "dense_weighted"] = "sampled",
) -> Task:
    """Predict a client's links with a variational graph auto-encoder.

    ``L = reconstruction + kl / n KL``; scores are those of a client's own held-out edges against
    pairs without an edge. Otherwise as `own_node_task`.

    The sampled reconstruction is a mean over the pairs, and KL already a mean over the n nodes. So
    the sum that the paper prints for the divergence is divided by n twice; ``kl=n`` divides it
    once. Kipf and Welling's public code has the same two divisions.

    Args:
        splits: one per client; its graph has the training edges alone.
        model: without a classifier.
        train: local training; in each of its steps noise and negative edges are drawn anew.
        kl: weight of the divergence, at least 0.
        recon: which pairs are reconstructed.

    Raises:
        ValueError: if no client has enough edges to split.

    Example:
        >>> splits = [fgl.data.edge_split(fgl.data.load("synthetic"))]
        >>> model = fgl.nn.VGAE(1433, 8, 4)
        >>> link_task(splits, model, fgl.Training(num_steps=2)).select
        'val_auc'

    Source: FedVGAE, IEEE Transactions on Big Data 2024
    """
    check_weight(kl=kl)
    check_choice("recon", recon, ("sampled", "dense", "dense_weighted"))
    idle = [client for client, own in enumerate(splits) if own.trains_only]
    if len(idle) == len(splits):
        raise ValueError(
            f"Expected a client to have enough edges to split, but got none of {len(splits)}"
        )
    if idle:
        warnings.warn(
            f"Expected all clients to have enough edges to split, but got too few in {idle}: they "
            "train and are not scored",
            stacklevel=2,
        )

    def trained(graph: Graph) -> Tensor:  # a split's graph has the training edges alone, both ways
        return each_once(graph.edge_index) if recon == "sampled" else graph.edge_index

    def loss(params: Params, graph: Graph, context: Any) -> Tensor:
        z, total = encoded(model, params, graph, context, kl)
        there, absent = context["edges"], context["negatives"]
        edge, none = there.values.mT, absent.values.mT
        free = absent.mask & (none[0] != none[1])
        masks = {"mask": there.mask, "negative_mask": free, "node_mask": graph.node_mask}
        return total + losses.reconstruction_loss(z, edge, none, kind=recon, **masks)

    @lru_cache(len(splits))  # copies, as an estimate makes them, do not stay
    def pairs(graph: Graph) -> tuple[Tensor, FreePairs]:
        own = trained(graph)
        return own, FreePairs(own, graph.num_nodes)

    def batches(graph: Graph, context: Any) -> Iterator[tuple[Graph, Any]]:
        (own, free), n = pairs(graph), graph.num_nodes
        count = own.shape[1] if own.shape[1] < n * (n - 1) // 2 else 0  # all joined: no pair
        kept = Ragged(own.t())
        for _ in range(num_steps(train)):
            fresh = {"noise": noise(model, graph), "edges": kept}
            negatives = Ragged(free(count, replacement=True).t())
            yield graph, {**context, **fresh, "negatives": negatives}

    method = _method(model, loss, replace(train, num_steps=None, batches=batches))
    clients = [own.graph for own in splits]
    return _task(clients, method, lambda test: link_scores(model, splits, test=test), "val_auc")


def noise(model: VGAE, graph: Graph) -> Ragged:
    """Standard normal noise for the embeddings of a graph's nodes."""
    return Ragged(torch.randn(graph.num_nodes, model.conv_mu.bias.numel(), device=graph.device))


def encoded(
    model: VGAE, params: Params, graph: Graph, context: Any, kl: float
) -> tuple[Tensor, Tensor]:
    """The model's output, and the divergence's part of the loss."""
    options = {"noise": context["noise"].values, "return_embedding": True}
    out, mu, log_sigma = functional_call(model, params, (graph.x, graph.adj), options)
    nodes = own_nodes(graph, context)
    n = nodes.sum().clamp(min=1)
    return out, kl / n * losses.kl_divergence(mu, log_sigma, mask=nodes)


def _method(model: VGAE, loss: Loss, train: Training) -> Method:
    plain = replace(fedavg(model, loss=loss, train=train), send=send_by_nodes)
    return own_models(plain, before=True)


def _task(clients: Sequence[Graph], method: Method, score: Any, select: str) -> Task:
    def scores(made: Method, trained: Sequence[Graph]) -> Evaluate:
        own: Score = score(True)
        return evaluate_own(own, made, trained)

    method = bounded(method, clients)
    return Task(clients, method, scores, select, validation(score(False), select))


@dataclass(frozen=True)
class OwnNodes:
    """Nodes of disjoint clients, each with a split of its own; FedVGAE's node protocol.

    Example:
        >>> task = OwnNodes(clients=3, partition="random", hidden=8).load(seed=0)
        >>> all(bool(graph.test_mask.any()) for graph in task.clients)
        True
    """

    dataset: str = "synthetic"
    """A known dataset, or the name of a folder under FGL_DATA."""
    clients: int = 10
    """How many clients."""
    partition: Literal["louvain", "louvain_igraph", "leiden", "metis", "random"] = "louvain"
    """How nodes come to clients: communities, a balanced cut (metis), or at random."""
    features: Literal["raw", "normalized", "degree"] = "raw"
    """Features of the nodes."""
    hidden: int = 64
    """Width of the hidden layers."""
    latent: int = 32
    """Dimensions of an embedding."""
    dropout: float = 0.5
    """Share of units set to zero."""
    kl: float = 1.0
    """Weight of the divergence, which is divided by the number of nodes."""
    local: Local = Local("adam", lr=0.01, weight_decay=5e-4, steps=5)
    device: str = "cpu"
    """Where to compute, as torch names it."""
    sparse: Literal["torch", "torch_sparse"] = "torch"
    """Whose sparse kernels multiply."""

    published: ClassVar[dict[str, dict[str, Any]]] = {}

    def __post_init__(self) -> None:
        _check_setting(self)

    def load(self, seed: int = 0) -> Task:
        """The task; `seed` decides partition, splits and initial model."""
        graph, whole = _graphs(self)
        parts = PARTITIONS[self.partition](whole, self.clients, seed=seed)
        clients = data.partition_graph(whole, parts)
        seeds = [fold_in(seed, client, "split") for client in range(len(clients))]
        split = [data.random_split(own, seed=s) for own, s in zip(clients, seeds, strict=True)]
        if _of_degrees(self, graph):
            split = [data.degree_features(own) for own in split]
        model = _model(self, split[0], seed, split[0].num_classes)
        train = Training(self.local.optimizer_factory(), num_steps=self.local.steps)
        return own_node_task(split, model, train, kl=self.kl)


@dataclass(frozen=True)
class Links:
    """Links of disjoint clients, 5 % of them to validate, 10 % for the test; FedVGAE's protocol.

    By default these are drawn on the whole graph, and the clients are made of the training edges
    alone: no held-out edge has a say in who holds which node. A client is scored on the held-out
    edges between its own nodes. Those between clients are lost, as training edges between clients
    are. They are a larger share of the held-out edges than of the training edges, for communities
    are found in the latter; so a client has less than 5 and 10 %, and some have none at all.

    Example:
        >>> task = Links(clients=3, partition="random", hidden=8).load(seed=0)
        >>> all(graph.train_mask is None for graph in task.clients)
        True
    """

    dataset: str = "synthetic"
    """A known dataset, or the name of a folder under FGL_DATA."""
    clients: int = 10
    """How many clients."""
    partition: Literal["louvain", "louvain_igraph", "leiden", "metis", "random"] = "louvain"
    """How nodes come to clients: communities, a balanced cut (metis), or at random."""
    partition_after_split: bool = True
    """Whether held-out edges are kept from the partition; else each client draws its own."""
    features: Literal["raw", "normalized", "degree"] = "raw"
    """Features of the nodes; degrees are those in a client's training edges."""
    hidden: int = 64
    """Width of the hidden layer."""
    latent: int = 32
    """Dimensions of an embedding."""
    dropout: float = 0.0
    """Share of units set to zero."""
    kl: float = 1.0
    """Weight of the divergence, which is divided by the number of nodes."""
    recon: Literal["sampled", "dense", "dense_weighted"] = "sampled"
    """Which pairs are reconstructed."""
    local: Local = Local("adam", lr=0.01, weight_decay=0.0, steps=5)
    device: str = "cpu"
    """Where to compute, as torch names it."""
    sparse: Literal["torch", "torch_sparse"] = "torch"
    """Whose sparse kernels multiply."""

    published: ClassVar[dict[str, dict[str, Any]]] = {}

    def __post_init__(self) -> None:
        _check_setting(self)

    def load(self, seed: int = 0) -> Task:
        """The task; `seed` decides partition, splits and initial model."""
        graph, whole = _graphs(self)
        none = {"train_mask": None, "val_mask": None, "test_mask": None}  # every node is trained on
        splits = _edge_splits(self, whole.replace(**none), seed)
        if _of_degrees(self, graph):
            splits = [replace(own, graph=data.degree_features(own.graph)) for own in splits]
        model = _model(self, splits[0].graph, seed, None)
        train = Training(self.local.optimizer_factory(), num_steps=self.local.steps)
        return link_task(splits, model, train, kl=self.kl, recon=self.recon)


def _check_setting(setting: OwnNodes | Links) -> None:
    check_device(setting.device)
    check_choice("partition", setting.partition, tuple(PARTITIONS))
    check_choice("features", setting.features, ("raw", "normalized", "degree"))
    check_count(clients=setting.clients, hidden=setting.hidden, latent=setting.latent)
    check_share(dropout=setting.dropout)
    check_weight(kl=setting.kl)


def _graphs(setting: OwnNodes | Links) -> tuple[Graph, Graph]:
    """The whole graph as it is loaded, and with the features that the clients get."""
    graph = data.load(setting.dataset).replace(backend=setting.sparse).to(setting.device)
    normalized = setting.features == "normalized"
    return graph, data.normalize_features(graph) if normalized else graph


def _edge_splits(setting: Links, whole: Graph, seed: int) -> list[EdgeSplit]:
    """The clients' splits: parts of one split of the whole graph, or one of each client's own."""
    seeds = [fold_in(seed, client, "split") for client in range(setting.clients)]
    cut = partial(PARTITIONS[setting.partition], num_clients=setting.clients, seed=seed)
    if setting.partition_after_split:
        kept = data.edge_split(whole, seed=fold_in(seed, "split"))
        parts = zip(cut(kept.graph), seeds, strict=True)
        return [data.subgraph_split(kept, part, seed=s) for part, s in parts]
    clients = zip(data.partition_graph(whole, cut(whole)), seeds, strict=True)
    return [data.edge_split(own, seed=s) for own, s in clients]


def _of_degrees(setting: OwnNodes | Links, graph: Graph) -> bool:
    """Whether features are degrees, which would tell of the edges that are kept from a client.

    Then each client counts them in its own training edges.
    """
    x, degrees = graph.x, data.degree_features(graph).x
    if setting.features == "degree" or x.shape != degrees.shape:
        return setting.features == "degree"
    here, there = (m.to_dense() if isinstance(m, SparseMatrix) else m for m in (x, degrees))
    return torch.equal(here, there)


def _model(setting: OwnNodes | Links, graph: Graph, seed: int, classes: int | None) -> VGAE:
    sizes = graph.num_features, setting.hidden, setting.latent
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        model = VGAE(*sizes, num_classes=classes, dropout=setting.dropout)
    return model.to(setting.device)
