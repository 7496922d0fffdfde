"""Node tasks: clients hold disjoint parts of one graph; scores use the whole graph (FGSSL)."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal

import torch
from torch import nn

from ..checks import SPLIT, reject_if
from ..federation import Evaluate, Method, Training, evaluate_on, fedavg
from ..graph import Graph
from ..graph.facts import check_graph
from ..graph.windows import check_same_windows
from ..targets import CLASSES, Target
from .apart import warn_of_trained
from .networks import Networks
from .scores import evaluate_own, node_scores, validation, with_pooled
from .settings import setting
from .task import Task, bounded
from .unseen import with_unseen


def node_task(
    whole: Graph | None,
    clients: Sequence[Graph],
    model: nn.Module,
    train: Training,
    *,
    target: Target = CLASSES,
) -> Task:
    """Classify the clients' nodes, or predict another target.

    The model is scored on the whole graph.

    A warning is given if scored nodes are training nodes. If a graph lacks `node_id`, nodes are
    compared by features and labels. In this comparison, different nodes can be equal by chance. So
    the warning is given only if a mask has at least three copies, and if more than a tenth of the
    mask's nodes are copies.

    Args:
        whole: the graph with all edges, labels, a validation mask and a test mask. If `whole` is
            None, every client is scored on its own nodes, and the score is the mean over clients.
            For `centralized`, pass the graph to ``dataclasses.replace(task, whole=graph)``.
            If a metric is undefined for a client's labels, a warning names the client. The result
            then also has metrics over all clients' nodes together (``pooled_test_``).
        clients: graphs with labels; without a training mask, all nodes of a graph are training
            nodes.
        model: ``model(graph.x, graph.adj)`` returns logits, or the output that the target needs.
        train: local training.
        target: meaning of the values of ``graph.y``; by default class labels.

    Example:
        >>> whole = fgl.data.splits.split(fgl.data.load("synthetic"), "random")
        >>> parts = fgl.data.partitions.random_partition(whole, 4)
        >>> clients = fgl.data.partitions.partition_graph(whole, parts)
        >>> model = fgl.nn.GCN(whole.num_features, 8, whole.num_classes)
        >>> node_task(whole, clients, model, fgl.Training()).fedavg.model is model
        True
    """

    if whole is not None:
        check_graph("whole", whole)
    warn_of_trained(clients, whole)
    check_same_windows([*clients, *([whole] if whole else [])])
    windows = any(own.has("window_index") for own in clients)
    lacks = windows and whole is not None and not whole.has("window_index")
    reject_if(lacks, "whole to have windows, as the clients have", "none: fgl.data.splits.windows")

    def scores(method: Method, trained: Sequence[Graph], *, each: bool = False) -> Evaluate:
        if whole is None:
            return _scores_of_own(method, clients, trained, model, target=target, each=each)
        return evaluate_on(method, whole, trained, target=target, each=each)

    validate = validation(node_scores(model, test=False, target=target), target.select)
    method = bounded(fedavg(model, train=train, target=target), clients)
    return Task(clients, method, scores, target.select, validate, whole)


def _scores_of_own(
    method: Method,
    clients: Sequence[Graph],
    trained: Sequence[Graph],
    model: nn.Module,
    *,
    target: Target,
    each: bool,
) -> Evaluate:
    """Score clients on their own nodes.

    If `trained` is the whole graph, as in centralized training, its model is scored on the nodes of
    all clients.
    """
    central = len(trained) < len(clients) and not any(own is trained[0] for own in clients)
    tests = clients if central else trained
    masks = [mask for own in tests for mask in (own.val_mask, own.test_mask) if mask is not None]
    nothing = not any(bool(mask.any()) for mask in masks)
    reject_if(nothing, "a client to have something to test on", f"none{SPLIT}")
    score = node_scores(model, target=target)
    if central:
        scores = evaluate_on(method, tests, trained, score=score, target=target, each=each)
    else:
        how: dict[str, Any] = {"required": False, "each": each, "lower": target.lower}
        scores = evaluate_own(score, method, trained, **how)
    return with_pooled(scores, method, trained, tests, target)


@setting
class Nodes(Networks):
    """Nodes of clients whose graphs are cut from one graph (FGSSL's protocol).

    Example:
        >>> task = Nodes(clients=3, hidden=8).load(seed=0)
        >>> sum(graph.num_nodes for graph in task.clients) == task.whole.num_nodes
        True
    """

    split: Literal["random", "class_capped", "public"] = "random"
    """The split into training, validation and test nodes; the paper's split is random, with 60, 20
    and 20 %."""
    scored: Literal["whole", "own"] = "whole"
    """Nodes that are scored: those of the whole graph, or each client's own nodes."""

    published: ClassVar[dict[str, dict[str, Any]]] = {
        "cora": {"lr": 0.5},
        "pubmed": {"optimizer": "adam", "lr": 0.005},
    }

    def load(self, seed: int = 0) -> Task:
        """Load the task.

        `seed` determines the split, the partition and the initial model.
        """
        whole = self.split_nodes(self.split, seed)
        parts = [torch.arange(whole.num_nodes, device=whole.device)]
        if self.clients > 1:
            parts = self.cut(whole, seed)
        whole, clients, model, sent = self.network(whole, parts, seed)
        scored = whole if self.scored == "whole" else None
        task = node_task(scored, clients, model, self.local.training())
        return with_unseen(replace(task, whole=whole, bytes_before=sent), self.skew.unseen)
