"""Nodes of one graph, cut into disjoint clients, scored on the whole graph (FGSSL's protocol)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Literal

import torch
from torch import nn

from .. import data
from ..checks import check_choice
from ..federation import Evaluate, Method, Training, evaluate_on, fedavg
from ..graph import Graph
from ..nn import GAT, GCN, SAGE, Star
from ..targets import CLASSES, Target
from .scores import evaluate_own, node_scores, validation
from .settings import PARTITIONS, Cut, setting
from .structure import with_structure
from .task import Task, bounded

MODELS: dict[str, Any] = {
    "gcn": GCN,
    "gat": GAT,
    "sage": SAGE,
    "star": partial(Star, pooling="none"),
}


def node_task(
    whole: Graph | None,
    clients: Sequence[Graph],
    model: nn.Module,
    train: Training,
    *,
    target: Target = CLASSES,
) -> Task:
    """Classify the nodes of clients, or what else the target says; scored on the whole graph.

    Args:
        whole: the graph with all edges, labels, a validation and a test mask. None where nobody
            has it: each client is then scored on its own nodes, and a score is their mean.
        clients: graphs with labels, and a training mask where not all nodes train.
        model: called as ``model(graph.x, graph.adj)``, returns logits, or what the target needs.
        train: local training.
        target: what the values of ``graph.y`` are; default class labels.

    Example:
        >>> whole = fgl.data.split(fgl.data.load("synthetic"), "random")
        >>> clients = fgl.data.partition_graph(whole, fgl.data.random_partition(whole, 4))
        >>> model = fgl.nn.GCN(whole.num_features, 8, whole.num_classes)
        >>> node_task(whole, clients, model, fgl.Training()).fedavg.model is model
        True
    """

    def scores(method: Method, trained: Sequence[Graph]) -> Evaluate:
        if whole is None:
            return evaluate_own(node_scores(model, target=target), method, trained)
        return evaluate_on(method, whole, trained, target=target)

    validate = validation(node_scores(model, test=False, target=target), target.select)
    method = bounded(fedavg(model, train=train, target=target), clients)
    return Task(clients, method, scores, target.select, validate, whole)


@setting
class Nodes(Cut):
    """Nodes of clients that are cut from one graph; FGSSL's protocol.

    Example:
        >>> task = Nodes(clients=3, hidden=8).load(seed=0)
        >>> sum(graph.num_nodes for graph in task.clients) == task.whole.num_nodes
        True
    """

    split: Literal["random", "class_capped", "public"] = "random"
    """Which nodes train, validate and test: 60, 20, 20 % at random is the paper's."""
    model: Literal["gcn", "gat", "sage", "star"] = "gat"
    """The network of the clients; star reads encodings of structure too, as FedStar's does."""
    hops: Literal[0, 1, 2] = 0
    """How far neighbours are whose features clients sum before training; above 0 needs gcn."""
    hidden: int = 128
    dropout: float = 0.5

    published: ClassVar[dict[str, dict[str, Any]]] = {
        "cora": {"lr": 0.5},
        "pubmed": {"optimizer": "adam", "lr": 0.005},
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("model", self.model, tuple(MODELS))
        check_choice("hops", self.hops, (0, 1, 2))
        if self.hops and self.model != "gcn":
            raise ValueError(
                f"Expected hops to be 0 beside {self.model}, but got {self.hops}: sums of "
                "neighbours' features are those of a gcn"
            )

    def load(self, seed: int = 0) -> Task:
        """The task; `seed` decides split, partition and initial model."""
        whole = data.split(data.load(self.dataset), self.split, dataset=self.dataset, seed=seed)
        whole = whole.replace(backend=self.sparse).to(self.device)
        parts = [torch.arange(whole.num_nodes, device=whole.device)]
        if self.clients > 1:
            parts = PARTITIONS[self.partition](whole, self.clients, seed=seed)
        clients = data.partition_graph(whole, parts) if self.clients > 1 else [whole]
        options, sent = {"dropout": self.dropout}, 0
        if self.hops:
            clients, whole, sent = data.neighbour_sums(whole, parts, hops=self.hops)
            options |= {"normalize": False, "summed": True}
        sizes = whole.num_features, self.hidden, whole.num_classes
        model = self.seeded(seed, MODELS[self.model], *sizes, **options)
        if self.model == "star":
            whole, clients = with_structure(whole), [with_structure(own) for own in clients]
        task = node_task(whole, clients, model, self.local.training())
        return replace(task, bytes_before=sent)
