"""Molecules of several companies; tasks predict numbers or binary labels of molecules."""

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from .. import data
from ..checks import Count, Share
from ..federation import fold_in
from ..graph import MASKS, Graph
from ..nn import GIN, GINE
from ..targets import ANSWERS, REGRESSION, Target
from .graphs import graph_task
from .settings import Setting, setting
from .task import Local, Task

TARGETS = {"regression": REGRESSION, "answers": ANSWERS}
# Targets of the known datasets' columns.
KINDS = {"synthetic": "regression", "esol": "regression", "freesolv": "regression"}
KINDS |= dict.fromkeys(["tox21", "bace", "clintox"], "answers")


@setting
class Molecules(Setting):
    """Molecules of several companies.

    A company has all molecules with certain ring systems, or a random part of the molecules.

    Of all molecules, 80 % are for training, 10 % for validation and 10 % for the test.
    ``"synthetic"`` is `fgl.data.small_molecules`.

    Example:
        >>> task = Molecules(clients=4, hidden=8).load(seed=0)
        >>> len(task.clients), task.select
        (4, '-val_rmse')
    """

    clients: Count = 10
    partition: Literal["scaffold", "random"] = "scaffold"
    """The division among clients: all molecules of a scaffold at one client, or at random."""
    split: Literal["random", "scaffold"] = "random"
    """The test set: a part of each client's molecules, or scaffolds that no client trained on."""
    target: Literal["dataset", "regression", "answers"] = "dataset"
    """The kind of target: numbers, or yes-or-no answers; a known dataset defines this kind."""
    batch_size: Count = 64
    """Molecules per step."""
    model: Literal["gine", "gin"] = "gine"
    """The network of the clients; gin does not read bonds."""
    layers: Count = 3
    """Number of convolutions of the network."""
    hidden: Count = 64
    dropout: Share = 0.0
    local: Local = Local("adam", lr=1e-3, weight_decay=0.0, steps=1)

    def load(self, seed: int = 0) -> Task:
        """Load the task.

        `seed` determines the initial model. A random partition or split also depends on `seed`.
        """
        target = self._target()
        clients, whole = self.clients_of(seed)
        return self.of(self.damaged(clients, seed), whole, target=target, seed=seed)

    def clients_of(self, seed: int = 0) -> tuple[list[Graph], Graph]:
        """The collections of the clients, and one collection with all molecules.

        Every collection has a training, a validation and a test mask.
        """
        graph, scaffolds = self._collection()
        if self.split == "scaffold":
            graph = data.splits.scaffold_split(graph, scaffolds)
            parts = self._parts_of_split(graph, scaffolds, seed)
        else:
            parts = self._parts(graph, scaffolds, self.clients, seed)
            graph = split_each(graph, parts, seed=seed)
        return [graph.select(part) for part in parts], graph

    def of(self, clients: Sequence[Graph], whole: Graph, *, target: Target, seed: int = 0) -> Task:
        """The task of the given clients.

        `seed` determines the initial model.
        """
        sizes: Any = whole.num_features, self.hidden, whole.num_outputs
        options: dict[str, Any] = {"num_layers": self.layers, "dropout": self.dropout}
        if self.model == "gine":
            options["edge_dim"] = whole.entries("edge_attr").shape[1]
        model = self.seeded(seed, GINE if self.model == "gine" else GIN, *sizes, **options)
        train = self.local.minibatches(self.batch_size)
        return graph_task(clients, clients, model, train, target=target, whole=whole)

    def _target(self) -> Target:
        kind = KINDS.get(self.dataset) if self.target == "dataset" else self.target
        if kind is None:
            raise ValueError(
                f"Expected dataset to be one of {', '.join(KINDS)}, or target to be regression or "
                f"answers for a folder of yours, but got {self.dataset} and {self.target}"
            )
        return TARGETS[kind]

    def _collection(self) -> tuple[Graph, list[str]]:
        """All molecules, and a list of scaffolds, which is empty if no scaffolds are needed."""
        scaffolds: list[str] = []
        if self.dataset == "synthetic":
            graphs, y, scaffolds = data.small_molecules()
        else:
            graphs, y, smiles = data.load_molecules(self.dataset)
            if "scaffold" in (self.partition, self.split):
                scaffolds = data.murcko_scaffolds(smiles)
        return Graph.join(graphs, y).to(self.device), scaffolds

    def _parts(
        self, graph: Graph, scaffolds: Sequence[str], num_clients: int, seed: int
    ) -> list[Tensor]:
        if self.partition == "random":
            return data.partitions.random_partition(graph, num_clients, seed=seed)
        parts = data.partitions.scaffold_partition(scaffolds, num_clients)
        return [part.to(graph.device) for part in parts]

    def _parts_of_split(self, graph: Graph, scaffolds: Sequence[str], seed: int) -> list[Tensor]:
        """Divide training molecules by `_parts`, and all other molecules at random."""
        train, *others = (getattr(graph, name).nonzero().squeeze(1) for name in MASKS)
        own = [scaffolds[molecule] for molecule in train.tolist()]
        dealt = [
            [train[part] for part in self._parts(graph.select(train), own, self.clients, seed)]
        ]
        for index, rest in enumerate(others):
            chance = fold_in(seed, index)
            parts = data.partitions.random_partition(graph.select(rest), self.clients, seed=chance)
            dealt.append([rest[part] for part in parts])
        return [torch.cat(own).sort().values for own in zip(*dealt, strict=True)]


def split_each(graph: Graph, parts: Sequence[Tensor], *, seed: int = 0) -> Graph:
    """The collection with random masks.

    In each part, 80 % of the molecules are for training, 10 % for validation and the rest for the
    test.

    Example:
        >>> none = torch.zeros(2, 0, dtype=torch.int64)
        >>> graph = fgl.Graph(torch.ones(20, 1), none, batch=torch.arange(20))
        >>> graph = split_each(graph, [torch.arange(10), torch.arange(10, 20)])
        >>> graph.train_mask[:10].sum(), graph.test_mask[:10].sum()
        (tensor(8), tensor(1))
    """
    masks = torch.zeros(len(MASKS), graph.num_examples, dtype=torch.bool, device=graph.device)
    for part in parts:
        own = data.splits.random_split(graph.select(part), train=0.8, val=0.1, seed=seed)
        masks[:, part] = torch.stack([getattr(own, name) for name in MASKS])
    return graph.replace(**dict(zip(MASKS, masks, strict=True)))
