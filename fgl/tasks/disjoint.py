"""Base of the tasks `OwnNodes` and `Links`: disjoint clients train variational encoders."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor

from .. import data, losses
from ..checks import Count, Share, Weight
from ..federation import Loss, Params, Ragged, Score, Training, fedavg, predict
from ..graph import Graph
from ..methods.own_models import own_models
from ..nn import VGAE
from .scores import evaluate_own, validation
from .settings import Cut, declares
from .task import Local, Task, bounded, own_node_mask, weighed_by_nodes


def noise(model: VGAE, graph: Graph) -> Ragged:
    """Standard normal noise for the embeddings of all nodes of a graph."""
    return Ragged(torch.randn(graph.num_nodes, model.conv_mu.bias.numel(), device=graph.device))


def encoded(
    model: VGAE, params: Params, graph: Graph, context: Any, kl: float
) -> tuple[Tensor, Tensor]:
    """The output of the model, and the divergence term of the loss."""
    options = {"noise": context["noise"].values, "return_embedding": True}
    out, mu, log_sigma = predict(model, params, graph, **options)
    nodes = own_node_mask(graph, context)
    n = nodes.sum().clamp(min=1)
    return out, kl / n * losses.kl_divergence(mu, log_sigma, mask=nodes)


def task_of(
    clients: Sequence[Graph],
    model: VGAE,
    loss: Loss,
    train: Training,
    score_of: Callable[..., Score],
    select: str,
) -> Task:
    """A task in which every client keeps its trained model and is scored with this model.

    Args:
        clients: the clients' graphs.
        model: the encoder.
        loss: the loss that a client minimises.
        train: local training.
        score_of: ``(test=...) -> score``; with ``test=True``, test examples are scored too.
        select: the validation metric.
    """
    method = weighed_by_nodes(fedavg(model, loss=loss, train=train))
    method = bounded(own_models(method, before=True), clients)
    scores = partial(evaluate_own, score_of(test=True))
    validate = validation(score_of(test=False), select)
    return Task(clients, method, scores, select, validate, by_mask=False)


@declares
class Disjoint(Cut):
    """Fields, graphs and model that the settings `OwnNodes` and `Links` have in common."""

    clients: Count = 10
    features: Literal["raw", "normalized", "degree"] = "raw"
    """Features of the nodes."""
    hidden: Count = 64
    """Width of the hidden layers."""
    latent: Count = 32
    """Dimensions of an embedding."""
    dropout: Share = 0.5
    kl: Weight = 1.0
    """Weight of the divergence, which is divided by the number of nodes."""
    local: Local = Local("adam", lr=0.01, weight_decay=5e-4, steps=5)

    def graphs(self) -> tuple[Graph, bool]:
        """The whole graph, and a bool: whether clients use degrees as features.

        Degrees in the whole graph would reveal edges that a client must not know. So each client
        computes degrees from the training edges that it has.
        """
        graph = data.load(self.dataset).replace(backend=self.sparse).to(self.device)
        of_degrees = self.features == "degree" or _has_degrees(graph)
        return graph, of_degrees

    def scaled(self, graph: Graph) -> Graph:
        """A part of the graph with features in the form that this setting requires.

        After the cut, every row of features is scaled to the sum 1.
        """
        return data.normalize_features(graph) if self.features == "normalized" else graph

    def encoder(self, graph: Graph, seed: int, num_classes: int | None = None) -> VGAE:
        """The encoder for graphs with as many features as the given graph.

        If there are classes, the encoder includes a classifier.
        """
        sizes = graph.num_features, self.hidden, self.latent
        return self.seeded(seed, VGAE, *sizes, num_classes=num_classes, dropout=self.dropout)


def _has_degrees(graph: Graph) -> bool:
    """Whether the features of a graph are the degrees of its nodes."""
    x, degrees = graph.x, data.degree_features(graph).x
    if x.shape != degrees.shape:
        return False
    return torch.equal(x.to_dense(), degrees.to_dense())
