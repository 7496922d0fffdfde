"""Nodes of clients with major labels; models train on sampled ego-graphs (FedEgo's protocol)."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.func import functional_call

from .. import data
from .. import federation as fed
from ..checks import Count, Share, reject_if
from ..ego import EgoSampler
from ..federation import OptimizerFactory, Params, Ragged, Training
from ..graph import Graph
from ..losses import soft_cross_entropy
from ..methods.own_models import own_models
from ..nn import EgoSAGE
from ..sparse.matrix import rows_of
from .apart import warn_of_trained
from .scores import evaluate_ego, node_scores, one_hot, validation
from .settings import Setting, setting
from .task import Local, Once, Task, bounded, own_node_mask, weighed_equally


def ego_node_task(
    clients: Sequence[Graph],
    test: Graph,
    model: nn.Module,
    optimizer: OptimizerFactory,
    *,
    epochs: int = 5,
    batch_size: int = 32,
) -> Task:
    """Classify nodes by their sampled ego-graphs.

    Clients start from different initial models.

    A client keeps its trained model and the state of its optimiser. All clients have equal weights.
    Every client is scored on its own test nodes and on a test graph, on which no client trains.

    Args:
        clients: graphs with labels and masks.
        test: a test graph with labels, common to all clients; all nodes of this graph are scored.
        model: the model, which reads trees and graphs.
        optimizer: function that returns a `torch.optim` optimiser for a list of tensors.
        epochs: number of passes in a round; every pass samples new training nodes, a fifth of the
            client's nodes.
        batch_size: number of centres per step.

    Raises:
        ValueError: if a graph lacks labels, if a client lacks validation or test nodes, if the test
            graph has no nodes, or if a client has fewer training nodes than `batch_size`.

    Example:
        >>> test, clients = fgl.data.partitions.major_label_partition(fgl.data.load("synthetic"), 2)
        >>> model = fgl.nn.EgoSAGE(test.num_features, 8, test.num_classes)
        >>> ego_node_task(clients, test, model, torch.optim.Adam).select
        'val_f1'

    Source: Zhang et al., FedEgo, https://arxiv.org/abs/2208.13685
    """
    fanouts: Any = getattr(model, "fanouts", None)
    got = f"{type(model).__name__}: fgl.tasks.node_task takes any model"
    reject_if(fanouts is None, "model to read trees, as fgl.nn.EgoSAGE does", got, TypeError)
    _check(clients, test)
    named = all(own.node_id is not None for own in clients)  # the score of unseen nodes tells
    warn_of_trained(clients, elsewhere=not named)
    for graph in clients:
        check_batch_size(batch_size, graph)
    sampler = Once(partial(EgoSampler, fanouts=fanouts), len(clients))

    def batches(graph: Graph, context: Any) -> Iterator[tuple[Graph, Any]]:
        if not graph.num_train:  # a client that joins later
            return
        nodes = int(own_node_mask(graph, context).sum())
        how: dict[str, Any] = {"epochs": epochs, "batch_size": batch_size, "num_nodes": nodes}
        for step in ego_steps(sampler(graph), graph, **how):
            yield graph, {**context, **step}

    def loss(params: Params, graph: Graph, context: Any) -> Tensor:
        x, trees, labels = context["x"], context["trees"], context["labels"]
        logits = functional_call(model, params, (x.values,), {"trees": trees.values})
        return soft_cross_entropy(logits, labels.values, labels.mask)

    scores = partial(evaluate_ego, test=test)
    validate = validation(node_scores(model, test=False), "val_accuracy")
    train = Training(optimizer, batches=batches, epochs=epochs, keep_optimizer=True)
    plain = weighed_equally(bounded(fed.fedavg(model, loss=loss, train=train), clients))
    return Task(clients, own_models(plain, draw=True), scores, "val_f1", validate)


def ego_steps(
    sampler: EgoSampler, graph: Graph, *, epochs: int, batch_size: int, num_nodes: int | None = None
) -> Iterator[Mapping[str, Ragged]]:
    """FedEgo's local steps.

    An epoch samples one training node for every five nodes of the graph.

    ``"trees"`` (int64 ``[b, size]``) contains row indices into ``"x"``. The rows of ``"x"`` are the
    features of all nodes in the trees. A node that occurs several times has only one row. So the
    first layer processes each node only once. ``"labels"`` contains one-hot rows, ``[b, C]``. The
    last step can have fewer centres than the steps before, so ``"trees"``, ``"x"`` and ``"labels"``
    are of class `Ragged`.

    Args:
        sampler: the sampler of the client's graph.
        graph: a graph with labels and a training mask.
        epochs: number of passes. A pass samples ``num_nodes // 5`` new training nodes, but at least
            one. If there are fewer training nodes, a pass uses all training nodes.
        batch_size: number of centres per step.
        num_nodes: number of the client's own nodes, if the graph also contains generated nodes.

    Raises:
        ValueError: if `batch_size` is below 1 or above the number of training nodes, or if there
            are no labels.

    Example:
        >>> graph = fgl.data.splits.split(fgl.data.load("synthetic"), "random")
        >>> steps = list(ego_steps(fgl.ego.EgoSampler(graph), graph, epochs=1, batch_size=32))
        >>> len(steps), steps[0]["trees"].values.shape
        (17, torch.Size([32, 43]))
    """
    check_batch_size(batch_size, graph)
    pool, labels = fed.training_examples(graph), one_hot(graph)
    size = max((graph.num_nodes if num_nodes is None else num_nodes) // 5, 1)
    for _ in range(epochs):
        drawn = torch.randperm(pool.numel(), device=pool.device)[:size]
        for centres in pool[drawn].split(batch_size):
            nodes, trees = sampler(centres).unique(return_inverse=True)
            x = Ragged(rows_of(graph.x, nodes))
            yield {"x": x, "trees": Ragged(trees), "labels": Ragged(labels[centres])}


def check_batch_size(batch_size: int, graph: Graph) -> None:
    """Raise an error if a batch would be empty or larger than a client's training set."""
    expected = f"batch_size to be in [1, {graph.num_train}], the client's training nodes"
    reject_if(not 1 <= batch_size <= graph.num_train, expected, batch_size)


def _check(clients: Sequence[Graph], test: Graph) -> None:
    for client, graph in enumerate(clients):
        for name in ("y", "val_mask", "test_mask"):
            value = getattr(graph, name)
            if value is None or (name != "y" and not value.any()):
                raise ValueError(f"Expected client {client} to have {name}, but got none")
    wrong = test.y is None or not test.num_nodes
    reject_if(wrong, "the test graph to have nodes with labels", "none")
    for graph in (*clients, test):
        _ = graph.labels  # raises if labels are numbers


@setting
class EgoNodes(Setting):
    """Overlapping clients, each mainly with nodes of a few labels (FedEgo's protocol).

    Example:
        >>> len(EgoNodes(clients=2, hidden=8).load(seed=0).clients)
        2
    """

    clients: Count = 5
    share: Share = 0.5
    """Fraction of the nodes in a client."""
    major_rate: Share = 0.8
    """Fraction of a client's nodes that have its major labels."""
    num_test: Count = 200
    """Number of test nodes of a client."""
    fanouts: tuple[int, ...] = (6, 6)
    """Number of sampled neighbours at each depth."""
    batch_size: Count = 32
    """Number of ego-graph centres per step."""
    hidden: Count = 512
    """Width of all layers except the last."""
    dropout: Share = 0.0
    linear: bool = False
    """Leave out the ReLU between the SAGE layers."""
    local: Local = Local("adam", lr=3e-4, weight_decay=0.0, steps=5)
    sparse: Literal["torch", "torch_sparse"] = "torch"
    """The library of the sparse kernels."""

    published: ClassVar[dict[str, dict[str, Any]]] = {
        "dblp": {"clients": 10, "share": 0.2, "num_test": 300},
        "wiki_cs": {"clients": 10, "share": 0.2, "num_test": 300},
        "cora_full": {"clients": 10, "share": 0.3, "num_test": 300},
    }

    def load(self, seed: int = 0) -> Task:
        """Load the task.

        `seed` determines the partition and the initial model.
        """
        graph = data.load(self.dataset).replace(backend=self.sparse).to(self.device)
        where: dict[str, Any] = {"share": self.share, "major_rate": self.major_rate}
        where |= {"num_test": self.num_test, "seed": seed}
        test, clients = data.partitions.major_label_partition(graph, self.clients, **where)
        clients = self.damaged(clients, seed)
        model = self.seeded(seed, self.network, graph)
        steps: dict[str, Any] = {"epochs": self.local.steps, "batch_size": self.batch_size}
        return ego_node_task(clients, test, model, self.local.optimizer_factory(), **steps)

    def network(self, graph: Graph) -> Any:
        """The model on the CPU, for graphs with as many features and classes as the given graph."""
        sizes: Any = graph.num_features, self.hidden, graph.num_classes
        how: dict[str, Any] = {"dropout": self.dropout, "linear": self.linear}
        return EgoSAGE(*sizes, fanouts=self.fanouts, **how)
