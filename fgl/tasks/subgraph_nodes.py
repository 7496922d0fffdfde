"""Node tasks: each client holds a part of one graph, and is scored on its nodes (FED-PUB)."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal

from torch import Tensor, nn

from .. import data
from ..checks import Count, Share, reject_if
from ..federation import Training, fedavg, fold_in
from ..graph import Graph
from ..methods.own_models import own_models
from ..sparse import SparseMatrix
from .apart import warn_of_trained
from .networks import Networks
from .scores import evaluate_own, node_scores, validation
from .settings import partitioned, setting
from .task import Local, Task, bounded, weighed_equally
from .unseen import with_unseen


def subgraph_node_task(clients: Sequence[Graph], model: nn.Module, train: Training) -> Task:
    """Classify nodes.

    Every client keeps the model that it has trained, and is scored with this model on its own
    nodes.

    All clients that train have equal weights. Scores are means over the clients. A score with a
    name that ends in ``_before`` belongs to the model with which a client starts its round.

    Args:
        clients: graphs with labels and masks.
        model: ``model(graph.x, graph.adj)`` returns logits.
        train: local training.

    Example:
        >>> clients = [fgl.data.splits.split(fgl.data.load("synthetic"), "random")]
        >>> model = fgl.nn.GCN(clients[0].num_features, 8, 7)
        >>> subgraph_node_task(clients, model, fgl.Training(num_steps=2)).select
        'val_accuracy'

    Source: Baek et al. 2023, https://arxiv.org/abs/2206.10206
    """
    warn_of_trained(clients)
    method = weighed_equally(fedavg(model, train=train))
    method = bounded(own_models(method, before=True), clients)
    scores = partial(evaluate_own, node_scores(model))
    validate = validation(node_scores(model, test=False), "val_accuracy")
    return Task(clients, method, scores, "val_accuracy", validate)


def _scaled(graph: Graph) -> Graph:
    """Scale each row of features so that the numbers in the row add up to 1.

    Features with negative values (ogbn-arxiv) are unchanged.
    """
    x: Any = graph.x
    values = x.value if isinstance(x, SparseMatrix) else x
    if values is None or bool((values >= 0).all()):
        return data.normalize_features(graph)
    return graph


@setting
class SubgraphNodes(Networks):
    """Nodes of clients that hold parts of one graph (FED-PUB's protocol).

    METIS cuts the largest component into parts. With disjoint clients, a client gets one part.
    Otherwise the parts are communities, and a client samples half of the nodes of one community.
    With ``"cora+citeseer"``, clients come from several domains: every client has one dataset, and
    `fgl.data.one_space` gives the datasets common features and classes. If no feature is negative,
    each row of features is scaled to the sum 1. One fifth of the nodes is for training, two fifths
    are for validation, and two fifths are for the test. The network has two convolutions and a
    linear layer. A client takes one Adam step per round. Adam's moments are kept from round to
    round.

    Example:
        >>> task = SubgraphNodes(clients=3, partition="random", hidden=8).load(seed=0)
        >>> [own.num_nodes for own in task.clients]
        [903, 903, 902]

    Source: Baek et al. 2023, https://arxiv.org/abs/2206.10206, and its public generators
    """

    clients: Count = 10
    partition: Literal["louvain", "louvain_igraph", "leiden", "metis", "ldg", "random"] = "metis"
    """The division of nodes among clients, or among communities."""
    overlap: Count = 1
    """Number of clients of a community, each with a random half; 1 gives the whole community."""
    train: Share = 0.2
    """Fraction of the nodes that are for training; half of the other nodes are for validation, and
    half for the test."""
    model: Literal["gcn", "gat", "sage", "aux", "spa", "deep", "star"] = "gcn"
    """The network of the clients; gcn has a linear layer after its convolutions."""
    local: Local = Local("adam", lr=0.01, weight_decay=1e-6, steps=1)
    keep_optimizer: bool = True
    """Whether a client keeps the optimizer's state from round to round, as the public code does."""

    def __post_init__(self) -> None:
        super().__post_init__()
        expected = f"clients to be a multiple of overlap, {self.overlap}"
        reject_if(self.clients % self.overlap, expected, self.clients)
        expected = "overlap to be 1 beside skew_by, which deals each node to one client"
        reject_if(self.overlap > 1 and self.skew.skew_by != "nothing", expected, self.overlap)

    def parts(self, graph: Graph, seed: int = 0) -> list[Tensor]:
        """The clients' node ids: one tensor per client.

        METIS computes all parts in one call, as in the public code.
        """
        if self.skew.skew_by != "nothing":
            return self.cut(graph, seed)
        count = self.clients // self.overlap
        options = {"recursive": False} if self.partition == "metis" else {}
        parts = partitioned(self.partition, graph, count, seed=seed, **options)
        if self.overlap == 1:
            return parts
        return data.partitions.community_clients(
            parts, self.overlap, seed=fold_in(seed, "communities")
        )

    def whole(self, name: str, seed: int) -> Graph:
        """The largest component of a dataset, with a training, a validation and a test mask."""
        graph = data.largest_component(data.load(name))
        graph = data.splits.random_split(
            graph, train=self.train, val=(1 - self.train) / 2, seed=seed
        )
        return graph.replace(backend=self.sparse, node_id=None).to(self.device)

    def domains(self, names: Sequence[str], seed: int) -> list[Graph]:
        """Load and damage one dataset per client; then give them common features and classes."""
        plain = self.overlap == 1 and self.skew.skew_by == "nothing" and not self.hops
        expected = f"clients to be {len(names)}, one per dataset, without overlap, skew_by and hops"
        reject_if(self.clients != len(names) or not plain, expected, self)
        wholes = [_scaled(self.whole(name, seed)) for name in names]
        return data.one_space(self.damaged(wholes, seed))

    def load(self, seed: int = 0) -> Task:
        """Load the task.

        `seed` determines the split, the clients and the initial model.
        """
        more = {"head": True} if self.model == "gcn" else {}
        names, sent = self.dataset.split("+"), 0
        if len(names) > 1:
            domains = self.domains(names, seed)
            model = self.model_for(domains[0], seed, more)
            clients = self.read(domains)
        else:
            whole = self.whole(self.dataset, seed)
            parts = self.parts(whole, seed)  # before scaling, after which all mean features agree
            _, clients, model, sent = self.network(_scaled(whole), parts, seed, more)
        train = replace(self.local.training(), keep_optimizer=self.keep_optimizer)
        task = replace(subgraph_node_task(clients, model, train), bytes_before=sent)
        return with_unseen(task, self.skew.unseen)
