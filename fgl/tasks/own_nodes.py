"""Node tasks: every client has its own test set (FedVGAE's protocol for nodes)."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from torch import Tensor

from .. import data, losses
from ..checks import Weight
from ..federation import Params, Training, fold_in, num_steps
from ..graph import Graph
from ..nn import VGAE
from .apart import warn_of_trained
from .disjoint import Disjoint, encoded, noise, task_of
from .scores import node_scores
from .settings import setting
from .task import Task
from .unseen import with_unseen


def own_node_task(
    clients: Sequence[Graph], model: VGAE, train: Training, *, kl: Weight = 1.0
) -> Task:
    """Classify a client's nodes with a variational encoder and an MLP.

    ``L = CE + beta / n KL(q(z | x, A) || N(0, 1))``, where ``beta`` is the argument `kl`. KL is the
    mean divergence over the n nodes. So the paper's sum is divided by n twice, as in `link_task`. A
    client's weight is its number of nodes. A client keeps the model that it has trained. This model
    is scored on the client's test nodes. A metric with a name that ends in ``_before`` is the score
    of the model with which a client starts its round.

    Args:
        clients: graphs with labels and masks.
        model: a model with a classifier.
        train: local training; each step samples new noise for z.
        kl: weight of the divergence, at least 0.

    Example:
        >>> clients = [fgl.data.splits.split(fgl.data.load("synthetic"), "random")]
        >>> model = fgl.nn.VGAE(clients[0].num_features, 8, 4, num_classes=7)
        >>> own_node_task(clients, model, fgl.Training(num_steps=2)).select
        'val_accuracy'

    Source: FedVGAE, IEEE Transactions on Big Data 2024
    """

    warn_of_trained(clients)

    def loss(params: Params, graph: Graph, context: Any) -> Tensor:
        logits, total = encoded(model, params, graph, context, kl)
        return total + losses.cross_entropy(logits, graph.labels, graph.train_mask)

    def batches(graph: Graph, context: Any) -> Iterator[tuple[Graph, Any]]:
        for _ in range(num_steps(train)):
            yield graph, {**context, "noise": noise(model, graph)}

    drawing = replace(train, num_steps=None, batches=batches, epochs=num_steps(train))
    return task_of(clients, model, loss, drawing, partial(node_scores, model), "val_accuracy")


@setting
class OwnNodes(Disjoint):
    """Nodes of disjoint clients; every client has its own split (FedVGAE's protocol for nodes).

    Example:
        >>> task = OwnNodes(clients=3, partition="random", hidden=8).load(seed=0)
        >>> all(bool(graph.test_mask.any()) for graph in task.clients)
        True
    """

    def load(self, seed: int = 0) -> Task:
        """Load the task.

        `seed` determines the partition, the splits and the initial model.
        """
        whole, of_degrees = self.graphs()
        parts = self.cut(whole, seed)
        clients = data.partitions.partition_graph(self.scaled(whole), parts)
        seeds = [fold_in(seed, client, "split") for client in range(len(clients))]
        split = [
            data.splits.random_split(own, seed=s) for own, s in zip(clients, seeds, strict=True)
        ]
        split = self.damaged(split, seed, data.degree_features if of_degrees else None)
        model = self.encoder(split[0], seed, split[0].num_classes)
        task = own_node_task(split, model, self.local.training(), kl=self.kl)
        return with_unseen(task, self.skew.unseen)
