"""Nodes of overlapping clients, sampled from one graph; scores use the clients' union (FedGL)."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

from torch import Tensor, nn

from .. import data
from .. import federation as fed
from ..checks import Count, Share, Weight, reject_if
from ..federation import Evaluate, Method, Params, Training
from ..graph import Graph
from ..nn import GCN
from ..targets import CLASSES, Target
from .apart import warn_of_trained
from .scores import node_scores, validation
from .settings import Setting, setting
from .task import Local, Task, bounded, weighed_by_nodes


def overlapping_node_task(
    union: Graph,
    clients: Sequence[Graph],
    model: nn.Module,
    train: Training,
    *,
    l2: Weight = 0.0,
    target: Target = CLASSES,
) -> Task:
    """Classify nodes; a node can belong to several clients.

    The weight of a client is its number of nodes, or 0 if the client has no training node.

    Models are scored on the union of all clients' graphs, and also on every client's own test
    nodes.

    Args:
        union: the union of the clients' graphs, with labels and masks.
        clients: graphs with labels, masks and `node_id`.
        model: ``model(graph.x, graph.adj)`` returns logits. If `l2` is not 0, the model's first
            matrix must have the name ``convs.0.lin.weight``.
        train: local training.
        l2: weight decay of the model's first matrix. The loss contains ``l2 / 2`` times the squared
            norm of this matrix.
        target: meaning of the values of ``graph.y``; by default class labels.

    Example:
        >>> graph = fgl.data.splits.split(fgl.data.load("synthetic"), "random")
        >>> parts = fgl.data.partitions.overlapping_partition(graph, [0.3, 0.5], seed=0)
        >>> clients = fgl.data.partitions.partition_graph(graph, parts)
        >>> union = fgl.data.partitions.union_graph(graph, parts)
        >>> model = fgl.nn.GCN(graph.num_features, 8, graph.num_classes)
        >>> len(overlapping_node_task(union, clients, model, fgl.Training()).clients)
        2
    """
    warn_of_trained(clients, union)
    scopes = union, clients

    def scores(method: Method, trained: Sequence[Graph], *, each: bool = False) -> Evaluate:
        how: dict[str, Any] = {"target": target, "each": each}
        return fed.together(*(fed.evaluate_on(method, on, trained, **how) for on in scopes))

    validate = validation(node_scores(model, test=False, target=target), target.select)
    method = fed.fedavg(model, train=train, target=target)
    method = weighed_by_nodes(_shrinking(method, l2=l2) if l2 else method, by_mask=True)
    bound = bounded(method, [*clients, union])
    return Task(clients, bound, scores, target.select, validate, union)


@fed.layer
def _shrinking(fedavg: Method, *, l2: float) -> Method:
    """The method with an added loss term: `l2` / 2 times the first matrix's squared norm."""

    def loss(params: Params, graph: Graph, context: Any) -> Tensor:
        total = fedavg.loss(params, graph, context)
        return total + l2 / 2 * params["convs.0.lin.weight"].square().sum()

    return replace(fedavg, loss=loss)


@setting
class OverlappingNodes(Setting):
    """Nodes of overlapping clients, which are sampled from one graph (FedGL's protocol).

    Example:
        >>> task = OverlappingNodes(proportions=("0.3", "0.5"), per_class=20).load(seed=0)
        >>> len(task.clients), task.whole.num_nodes < 2708
        (2, True)
    """

    clients: Count | None = None
    """Number of clients; by default the number of proportions."""
    proportions: tuple[str, ...] = ("table2",)
    """Fraction of the nodes that each client samples: the paper's table2, D1 to D4, or numbers."""
    overlap: Share | None = None
    """Fraction of the nodes that all clients hold."""
    per_class: Count | None = None
    """Number of random training nodes of a class; by default the public training nodes."""
    hidden: Count = 16
    """Width of the hidden layer."""
    dropout: Share = 0.5
    l2: Weight = 5e-4
    """Weight of the squared norm of the first layer."""
    local: Local = Local("adam", lr=0.01, weight_decay=0.0, steps=10)
    sparse: Literal["torch", "torch_sparse"] = "torch"
    """The library of the sparse kernels."""

    def __post_init__(self) -> None:
        super().__post_init__()
        expected = f"clients to be {len(self.shares)}, one per proportion"
        reject_if(self.clients not in (None, len(self.shares)), expected, self.clients)

    @property
    def shares(self) -> list[float]:
        """The fraction of the nodes that each client samples."""
        shares_of: Any = {(name,): own for name, own in data.partitions.PROPORTIONS.items()}
        try:
            return list(shares_of.get(self.proportions) or map(float, self.proportions))
        except ValueError:
            names = ", ".join(data.partitions.PROPORTIONS)
            raise ValueError(
                f"Expected proportions to be numbers, or one of {names}, but got {self.proportions}"
            ) from None

    def load(self, seed: int = 0) -> Task:
        """Load the task.

        `seed` determines the partition, a random split and the initial model.
        """
        graph = data.normalize_features(data.load(self.dataset))
        if self.per_class is not None or graph.train_mask is None:
            count = 20 if self.per_class is None else self.per_class
            graph = data.splits.class_capped_split(
                graph, train_per_class=count, num_val=500, num_test=1000, seed=seed
            )
        graph = graph.replace(backend=self.sparse).to(self.device)
        how: Any = {"common": self.overlap, "seed": seed}
        parts = data.partitions.overlapping_partition(graph, self.shares, **how)
        union = data.partitions.union_graph(graph, parts)
        clients = data.partitions.partition_graph(graph, parts)
        clients = self.damaged(clients, seed)
        sizes: Any = union.num_features, self.hidden, union.num_classes
        model = self.seeded(seed, GCN, *sizes, dropout=self.dropout, drop_input=True)
        return overlapping_node_task(union, clients, model, self.local.training(), l2=self.l2)
