"""Graphs of one collection, divided among clients with skewed labels (GPFL's protocol)."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal

from torch import nn

from .. import data
from ..checks import Count, Positive, Share, reject_if
from ..data.partitions import Skew
from ..federation import Evaluate, Method, Training, fedavg
from ..graph import Graph
from ..nn import GIN, SSP, Star
from ..targets import CLASSES, Target
from .apart import warn_of_copies, warn_of_trained
from .scores import evaluate_graphs, has_validation, masked, node_scores, validation
from .settings import Setting, setting
from .structure import with_spectrum, with_structure
from .task import Local, Task, bounded

GRAPH_MODELS: dict[str, Any] = {"gin": GIN, "star": Star, "ssp": SSP}


def graph_task(
    clients: Sequence[Graph],
    tests: Sequence[Graph],
    model: nn.Module,
    train: Training,
    *,
    target: Target = CLASSES,
    whole: Graph | None = None,
) -> Task:
    """Classify graphs.

    Every client is scored on its own test graphs, with the model that this client deploys. For
    class labels, ``majority_accuracy`` is the accuracy of always predicting the most frequent class
    of a client's training graphs.

    The graphs in the clients' validation masks, if there are any, determine the best round. A
    warning is given if more than a tenth of the test graphs, and more than two or all of them, are
    training graphs or copies of training graphs; the same holds for validation graphs.

    Args:
        clients: the clients' training graphs, collections with labels.
        tests: for each client, one collection with labels. The graphs in a collection's test mask
            are scored, or all graphs if the collection has no masks.
        model: ``model(*graph.inputs)`` returns logits, or the output that the target needs.
        train: local training.
        target: meaning of the values of ``graph.y``; by default class labels.
        whole: the training graphs of all clients in one collection. Centralized training uses this
            collection if labels are not classes.

    Example:
        >>> none = torch.zeros(2, 0, dtype=torch.int64)
        >>> y, batch = torch.tensor([0, 0, 1]), torch.arange(3)
        >>> own = fgl.Graph(torch.eye(3), none, y=y, batch=batch)
        >>> own = fgl.data.splits.random_split(own, train=0.4, val=0.3)
        >>> graph_task([own], [own], fgl.nn.GIN(3, 8, 2), fgl.Training()).select
        'val_accuracy'
    """

    want = f"tests to be {len(clients)}, one collection for each client"
    reject_if(len(tests) != len(clients), want, len(tests))
    for client, own in enumerate(tests):
        masked(own, "test_mask", client)  # raises an error if it selects no graph
    warn_of_trained(clients)
    warn_of_copies(clients, tests)
    validated = [own for own in clients if has_validation(own) and own.train_mask is not None]
    warn_of_copies(clients, validated, mask="val_mask")

    def scores(method: Method, trained: Sequence[Graph], *, each: bool = False) -> Evaluate:
        return evaluate_graphs(method, tests, trained, target=target, each=each)

    validate = validation(node_scores(model, test=False, target=target), target.select)
    method = bounded(fedavg(model, train=train, target=target), clients)
    select = target.select if any(map(has_validation, clients)) else ""
    return Task(clients, method, scores, select, validate, whole)


@setting
class Graphs(Setting):
    """Graphs of a collection, first divided by label among clients, then into folds (GPFL).

    Example:
        >>> len(Graphs(clients=4, hidden=8).load(seed=0).clients)
        4
    """

    clients: Count = 25
    partition: Literal["authors", "dirichlet"] = "authors"
    """The division among clients: as in the public code with seed 0, or drawn with the run's seed.
    """
    alpha: Positive = 5.0
    """The Dirichlet parameter: the smaller it is, the more the classes of clients differ."""
    fold: int = 0
    """The test fold."""
    folds: int = 5
    """Number of folds."""
    batch_size: Count = 128
    """Graphs per step."""
    model: Literal["gin", "star", "ssp"] = "gin"
    """The network of the clients; star also reads encodings of structure, as in FedStar; ssp reads
    spectra, as in FedSSP."""
    hidden: Count = 64
    dropout: Share = 0.5
    skew: Skew = Skew()
    local: Local = Local("adam", lr=1e-3, steps=1)

    def folds_of(self, seed: int = 0) -> tuple[list[Graph], list[Graph]]:
        """The training graphs and the test graphs of every client.

        `seed` determines the folds. With ``partition="dirichlet"``, `seed` also determines the
        partition.
        """
        graph = Graph.join(*data.load_graphs(self.dataset, attributes=False)).to(self.device)
        y: Any = graph.y
        way = "fgl.tasks.graph_task takes them with target=fgl.targets.REGRESSION"
        got = f"{self.dataset!r}, which has numbers: {way}"
        reject_if(y.is_floating_point(), "dataset to have a class for each graph", got, TypeError)
        reject_if(self.skew.unseen, "unseen to be 0 for Graphs", self.skew.unseen)
        if self.skew.skew_by != "nothing":
            parts = self.skew.parts(graph, self.clients, seed=seed)
        elif self.partition == "authors":
            parts = data.partitions.gpfl_partition(y, self.clients, alpha=self.alpha)
        else:
            parts = data.partitions.dirichlet_partition(
                y, self.clients, alpha=self.alpha, seed=seed
            )
        which: dict[str, Any] = {"fold": self.fold, "num_folds": self.folds, "seed": seed}
        return data.splits.fold_clients(graph, parts, **which)

    def load(self, seed: int = 0) -> Task:
        """Load the task.

        `seed` determines the folds and the initial model. A ``"dirichlet"`` partition also depends
        on `seed`.
        """
        clients, tests = self.folds_of(seed)
        inputs = replace(self, damage=replace(self.damage, missing_labels=0, label_noise=0))
        return self.of(self.damaged(clients, seed), inputs.damaged(tests, seed + 1), seed=seed)

    def of(self, clients: Sequence[Graph], tests: Sequence[Graph], *, seed: int = 0) -> Task:
        """The task of the given clients.

        `seed` determines the initial model.
        """
        sizes: Any = clients[0].num_features, self.hidden, clients[0].num_classes
        model = self.seeded(seed, GRAPH_MODELS[self.model], *sizes, dropout=self.dropout)
        if self.model == "star":
            clients, tests = ([with_structure(own) for own in each] for each in (clients, tests))
        elif self.model == "ssp":
            both = (*clients, *tests)
            read = partial(with_spectrum, width=max(int(own.ptr.diff().max()) for own in both))
            clients, tests = (list(map(read, each)) for each in (clients, tests))
        train = self.local.minibatches(self.batch_size)
        return graph_task(clients, tests, model, train)
