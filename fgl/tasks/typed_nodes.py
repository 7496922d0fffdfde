"""Nodes of a typed graph, which is divided among clients; public nodes can be shared."""

from .. import data
from ..checks import Count, Natural, reject_if
from ..federation import fold_in
from ..graph import Graph
from ..nn import RGCN
from .nodes import node_task
from .settings import Cut, setting
from .task import Local, Task
from .unseen import with_unseen

CONFERENCE = 2  # the type of nodes that clients share


@setting
class TypedNodes(Cut):
    """Predict the research areas of authors.

    Papers, authors and conferences are divided among the clients.

    A partition gives every conference to one client. If a paper and its conference belong to
    different clients, the edge between the two nodes is removed. With `share_conferences`, a client
    gets a copy of every conference of its papers, so no such edge is removed.

    Example:
        >>> task = TypedNodes(clients=3, hidden=8).load(seed=0)
        >>> task.whole.num_nodes < sum(graph.num_nodes for graph in task.clients)
        True
    """

    share_conferences: bool = True
    """Whether each client knows all conferences of its papers; if not, each conference belongs to
    one client."""
    bases: Natural = 0
    """Number of matrices that a layer's relations share; 0 if each relation has its own matrix."""
    hidden: Count = 16
    local: Local = Local("adam", lr=0.01, weight_decay=5e-4, steps=3)

    def load(self, seed: int = 0) -> Task:
        """Load the task.

        `seed` determines the split, the partition and the initial model.
        """
        whole = self.whole(seed)
        parts = self.cut(whole, seed)
        if self.share_conferences:
            parts = data.with_shared(whole, parts, [CONFERENCE])
        clients = self.damaged(data.partitions.partition_graph(whole, parts), seed)
        sizes = whole.num_features, self.hidden, whole.num_classes
        relations = int(whole.edge_type.max()) + 1  # type: ignore[union-attr]  # checked
        how = {"num_relations": relations, "num_bases": self.bases or None}
        model = self.seeded(seed, RGCN, *sizes, dropout=self.dropout, **how)
        task = node_task(whole, clients, model, self.local.training())
        return with_unseen(task, self.skew.unseen)

    def whole(self, seed: int) -> Graph:
        """All clients' graph.

        Of the labelled authors, 60 % are for training, 20 % for validation and 20 % for the test.
        """
        synthetic = self.dataset == "synthetic"
        graph = data.bibliography() if synthetic else data.load(self.dataset)
        wrong = graph.node_type is None or graph.edge_type is None
        expected = "dataset to have types of nodes and edges"
        reject_if(wrong, expected, f"{self.dataset!r}, which has none")
        graph = data.splits.random_split(graph, seed=fold_in(seed, "split"), among=graph.train_mask)
        return graph.replace(backend=self.sparse).to(self.device)
