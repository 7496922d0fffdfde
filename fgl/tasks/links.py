"""Links at clients; each client is scored on held-out edges (FedVGAE's protocol for links)."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal

from torch import Tensor

from .. import data, losses
from ..checks import Count, Share, Weight, reject_if
from ..data.splits import EdgeSplit
from ..data.splits.free_pairs import FreePairsLike, keys_of, pairs_of, sides_of
from ..federation import Params, Ragged, Training, fold_in, num_steps
from ..graph import Graph
from ..nn import VGAE
from ..warn import warn
from .apart import warn_of_known_edges
from .disjoint import Disjoint, encoded, noise, task_of
from .scores import link_scores
from .settings import setting
from .task import Local, Once, Task


def link_task(
    splits: Sequence[EdgeSplit],
    model: VGAE,
    train: Training,
    *,
    kl: Weight = 1.0,
    recon: Literal["sampled", "dense", "dense_weighted"] = "sampled",
) -> Task:
    """Predict the links in a client's graph with a variational graph autoencoder.

    ``L = reconstruction + beta / n KL``, where ``beta`` is the argument `kl`. A client's score says
    how well its held-out edges are separated from pairs without an edge. Everything else is the
    same as in `own_node_task`.

    The sampled reconstruction is a mean over the pairs, and KL is already a mean over n nodes. In
    the paper, the divergence is a sum. In this loss, the divergence is divided by n twice, as in
    the public code of Kipf and Welling. With ``kl=n`` the divergence is divided by n only once.

    Args:
        splits: one split per client. The graph of a split contains only training edges. A warning
            is given if the graph also contains validation or test edges.
        model: a model without a classifier.
        train: local training; each step samples new noise and new negative edges. If nodes have
            types, the ends of a negative edge have the same types as the ends of a training edge.
        kl: weight of the divergence, at least 0.
        recon: form of the reconstruction loss; see `kind` in `fgl.losses.reconstruction_loss`.

    Raises:
        ValueError: if no client has enough edges to split.

    Example:
        >>> splits = [fgl.data.splits.edge_split(fgl.data.load("synthetic"))]
        >>> model = fgl.nn.VGAE(1433, 8, 4)
        >>> link_task(splits, model, fgl.Training(num_steps=2)).select
        'val_auc'

    Source: FedVGAE, IEEE Transactions on Big Data 2024
    """
    wrong = any(own.directed for own in splits)
    expected = "splits without directions, since inner products have none"
    reject_if(wrong, expected, "directed ones: see fgl.tasks.pair_task")
    warn_of_known_edges(splits)
    idle = [client for client, own in enumerate(splits) if own.trains_only]
    expected = "a client to have enough edges to split"
    reject_if(len(idle) == len(splits), expected, f"none of {len(splits)}")
    if idle:
        warn(
            f"Expected all clients to have enough edges to split, but got too few in {idle}: they "
            "train and are not scored"
        )

    def trained(graph: Graph) -> Tensor:  # a split's graph has only training edges, both ways
        edges = graph.edge_index
        return pairs_of(keys_of(edges)) if recon == "sampled" else edges

    def loss(params: Params, graph: Graph, context: Any) -> Tensor:
        z, total = encoded(model, params, graph, context, kl)
        present, absent = context["edges"], context["negatives"]
        edge, none = present.values.mT, absent.values.mT
        free = absent.mask & (none[0] != none[1])
        masks = {"mask": present.mask, "negative_mask": free, "node_mask": graph.node_mask}
        return total + losses.reconstruction_loss(z, edge, none, kind=recon, **masks)

    def own_pairs(graph: Graph) -> tuple[Tensor, FreePairsLike]:
        own, n = trained(graph), graph.num_nodes
        return own, FreePairsLike(own, n, own, side=sides_of(graph.node_type, graph.edge_index, n))

    pairs = Once(own_pairs, len(splits))

    def batches(graph: Graph, context: Any) -> Iterator[tuple[Graph, Any]]:
        own, free = pairs(graph)
        edges = Ragged(own.t())
        for _ in range(num_steps(train)):
            fresh = {"noise": noise(model, graph), "edges": edges}
            negatives = Ragged(free(replacement=True).t())
            yield graph, {**context, **fresh, "negatives": negatives}

    drawing = replace(train, num_steps=None, batches=batches, epochs=num_steps(train))
    clients = [own.graph for own in splits]
    return task_of(clients, model, loss, drawing, partial(link_scores, model, splits), "val_auc")


@setting
class Links(Disjoint):
    """Links of disjoint clients; 5 % of the links are for validation, 10 % for the test (FedVGAE).

    By default, held-out edges are sampled from the whole graph before the partition. The partition
    then uses only training edges. So held-out edges do not influence the assignment of nodes to
    clients. A client is scored on held-out edges between its own nodes. Edges between nodes of
    different clients are lost. The partition is computed from training edges, so it cuts a larger
    fraction of the held-out edges than of the training edges. For this reason, fewer than 5 % of a
    client's edges are validation edges, and fewer than 10 % are test edges. Some clients hold out
    no edge.

    Example:
        >>> task = Links(clients=3, partition="random", hidden=8).load(seed=0)
        >>> all(graph.train_mask is None for graph in task.clients)
        True
    """

    partition_after_split: bool = True
    """Whether the partition ignores held-out edges; if not, each client samples its own held-out
    edges."""
    features: Literal["raw", "normalized", "degree"] = "raw"
    """Features of the nodes; degrees are computed from a client's training edges."""
    hidden: Count = 64
    """Width of the hidden layer."""
    latent: Count = 32
    dropout: Share = 0.0
    kl: Weight = 1.0
    recon: Literal["sampled", "dense", "dense_weighted"] = "sampled"
    """Which pairs are reconstructed."""
    local: Local = Local("adam", lr=0.01, weight_decay=0.0, steps=5)

    def load(self, seed: int = 0) -> Task:
        """Load the task.

        `seed` determines the partition, the splits and the initial model.
        """
        whole, of_degrees = self.graphs()
        none = {"train_mask": None, "val_mask": None, "test_mask": None}  # all nodes train
        splits = self.splits(whole.replace(**none), seed)
        self.check_all_train()
        wrong = self.damage.missing_labels or self.damage.label_noise
        reject_if(wrong, "links to have no labels to damage", self.damage)
        features = data.degree_features if of_degrees else None
        graphs = self.damaged([self.scaled(own.graph) for own in splits], seed, features)
        edges = [pairs_of(keys_of(graph.edge_index)) for graph in graphs]  # also of a damaged graph
        splits = [
            replace(own, graph=graph, train_edges=left)
            for own, graph, left in zip(splits, graphs, edges, strict=True)
        ]
        model = self.encoder(splits[0].graph, seed)
        return link_task(splits, model, self.local.training(), kl=self.kl, recon=self.recon)

    def splits(self, whole: Graph, seed: int) -> list[EdgeSplit]:
        """Return one split per client.

        With `partition_after_split`, the whole graph is split, and each client gets a part of this
        split. Otherwise, the graph of each client is split.
        """
        seeds = [fold_in(seed, client, "split") for client in range(self.clients)]
        cut = partial(self.cut, seed=seed)
        if self.partition_after_split:
            whole_split = data.splits.edge_split(whole, seed=fold_in(seed, "split"))
            parts = zip(cut(whole_split.graph), seeds, strict=True)
            return [data.splits.subgraph_split(whole_split, part, seed=s) for part, s in parts]
        clients = zip(data.partitions.partition_graph(whole, cut(whole)), seeds, strict=True)
        return [data.splits.edge_split(own, seed=s) for own, s in clients]
