"""Nodes of clients with major labels, trained on sampled ego-graphs (FedEgo's protocol)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor
from torch.func import functional_call

from .. import data
from ..checks import check_count, check_device, check_share
from ..ego import EgoSampler
from ..federation import (
    Evaluate,
    Message,
    Method,
    OptimizerFactory,
    Params,
    Ragged,
    State,
    Training,
    accept_equally,
    deployed,
    fedavg,
    in_mode,
    means,
    training_examples,
)
from ..graph import Graph
from ..losses import soft_cross_entropy
from ..methods.own_models import own_models
from ..metrics import hit_counts, share
from ..nn import EgoSAGE
from ..sparse import rows_of
from ..transfer import to_host
from .scores import node_scores, validation
from .task import Local, Task
from .weights import bounded, own_nodes, send_equally


def ego_node_task(
    clients: Sequence[Graph],
    test: Graph,
    model: EgoSAGE,
    optimizer: OptimizerFactory,
    *,
    epochs: int = 5,
    batch_size: int = 32,
) -> Task:
    """Classify nodes by their sampled ego-graphs; every client starts from a model of its own.

    A client keeps its optimiser's state, and the model that it trained; all weigh the same. It is
    scored on its own test nodes and on a graph that nobody trained on.

    Args:
        clients: graphs with labels and masks.
        test: the common test graph, with labels; all its nodes count.
        model: reads trees and graphs.
        optimizer: makes a `torch.optim` optimiser of a list of tensors.
        epochs: passes in a round, each over a fifth of the client's nodes, drawn anew.
        batch_size: centres per step.

    Raises:
        ValueError: if a graph lacks labels, a client a validation or test node, the test graph
            nodes, or a client has fewer training nodes than a batch.

    Example:
        >>> test, clients = fgl.data.major_label_partition(fgl.data.load("synthetic"), 2)
        >>> model = fgl.nn.EgoSAGE(test.num_features, 8, test.num_classes)
        >>> ego_node_task(clients, test, model, torch.optim.Adam).select
        'val_f1'

    Source: Zhang et al., FedEgo, https://arxiv.org/abs/2208.13685
    """
    _check(clients, test)
    for graph in clients:
        check_batch_size(batch_size, graph)
    own = lru_cache(len(clients))  # copies, as an estimate makes them, do not stay
    sampler = own(partial(EgoSampler, fanouts=model.fanouts))

    def batches(graph: Graph, context: Any) -> Iterator[tuple[Graph, Any]]:
        nodes = int(own_nodes(graph, context).sum())
        how: dict[str, Any] = {"epochs": epochs, "batch_size": batch_size, "num_nodes": nodes}
        for step in ego_steps(sampler(graph), graph, **how):
            yield graph, {**context, **step}

    def loss(params: Params, graph: Graph, context: Any) -> Tensor:
        x, trees, labels = context["x"], context["trees"], context["labels"]
        logits = functional_call(model, params, (x.values,), {"trees": trees.values})
        return soft_cross_entropy(logits, labels.values, labels.mask)

    def scores(method: Method, trained: Sequence[Graph]) -> Evaluate:
        return evaluate_ego(method, trained, test)

    validate = validation(node_scores(model, test=False), "val_accuracy")
    train = Training(optimizer, batches=batches, keep_optimizer=True)
    plain = replace(
        bounded(fedavg(model, loss=loss, train=train), clients),
        send=send_equally,
        accept=accept_equally,
    )
    return Task(clients, own_models(plain, draw=True), scores, "val_f1", validate)


def ego_steps(
    sampler: EgoSampler,
    graph: Graph,
    *,
    epochs: int,
    batch_size: int,
    num_nodes: int | None = None,
) -> Iterator[Mapping[str, Ragged]]:
    """What FedEgo's local steps see: per epoch a fifth of the client's nodes, training ones.

    ``"trees"`` (int64 ``[b, size]``) point into ``"x"``, the features of the nodes that occur in
    them, so the first layer works on each node once; ``"labels"`` are one-hot, ``[b, C]``. All are
    `Ragged`: a last step is short.

    Args:
        sampler: of the client's graph.
        graph: with labels and a training mask.
        epochs: passes, each over ``num_nodes // 5`` fresh training nodes, at least one (or all, if
            fewer).
        batch_size: centres per step.
        num_nodes: of the client, where its graph has generated ones besides.

    Raises:
        ValueError: if `batch_size` is not in ``[1, num_train]``, or there are no labels.

    Example:
        >>> graph = fgl.data.split(fgl.data.load("synthetic"), "random")
        >>> steps = list(ego_steps(fgl.ego.EgoSampler(graph), graph, epochs=1, batch_size=32))
        >>> len(steps), steps[0]["trees"].values.shape
        (17, torch.Size([32, 43]))
    """
    check_batch_size(batch_size, graph)
    pool, labels = training_examples(graph), one_hot(graph)
    size = max((graph.num_nodes if num_nodes is None else num_nodes) // 5, 1)
    for _ in range(epochs):
        drawn = torch.randperm(pool.numel(), device=pool.device)[:size]
        for centres in pool[drawn].split(batch_size):
            nodes, trees = sampler(centres).unique(return_inverse=True)
            x = Ragged(rows_of(graph.x, nodes))
            yield {"x": x, "trees": Ragged(trees), "labels": Ragged(labels[centres])}


def check_batch_size(batch_size: int, graph: Graph) -> None:
    """A batch must not be larger than the client, nor empty."""
    if not 1 <= batch_size <= graph.num_train:
        raise ValueError(
            f"Expected batch_size to be in [1, {graph.num_train}], the client's training nodes, "
            f"but got {batch_size}"
        )


def one_hot(graph: Graph) -> Tensor:
    """Labels as rows ``[num_nodes, C]`` of zeros and a one."""
    if graph.y is None or graph.num_classes is None:
        raise ValueError("Expected graph.y to be a tensor of labels, but got None")
    return torch.eye(graph.num_classes, dtype=graph.x.dtype, device=graph.device)[graph.y]


def evaluate_ego(method: Method, clients: Sequence[Graph], test: Graph) -> Evaluate:
    """Score each client's model on its own test nodes and on a graph that nobody trained on.

    Micro-F1, which is accuracy where a node has one label. A client that has never taken part has
    no model of its own yet, and is not scored.

    Args:
        method: its model is called as ``model(graph.x, graph.adj)``.
        clients: the clients' graphs, with labels and masks.
        test: the common test graph; all its nodes count.

    Returns:
        ``(outbox, states) -> {"local_f1", "global_f1", "val_f1", "val_loss"}``, means over the
        ``scored_clients``; ``local_unseen_f1``, on the own test nodes that nobody else trains on
        (`unseen_nodes`), a mean over the ``unseen_clients`` that have some, and left out where
        there are none; each client's ``local_f1/0``, ``global_f1/0``, ``local_unseen_f1/0``, ...;
        empty where nobody has taken part.

    Example:
        >>> test, clients = fgl.data.major_label_partition(fgl.data.load("synthetic"), 2)
        >>> model = fgl.nn.EgoSAGE(test.num_features, 8, test.num_classes)
        >>> outbox = {0: {"model": model.state_dict()}}
        >>> list(evaluate_ego(fgl.fedavg(model), clients, test)(outbox, {0: {}}))
        ['local_f1', 'global_f1', 'val_f1', 'val_loss', 'local_unseen_f1', 'scored_clients',
         'unseen_clients', 'local_f1/0', 'global_f1/0', 'local_unseen_f1/0']
    """
    model, models = method.model, deployed(method, clients)
    known = all(graph.node_id is not None for graph in clients)
    masks = unseen_nodes(clients) if known else []
    unseen = {client: mask for client, mask in enumerate(masks) if mask.any()}

    @torch.no_grad()
    def counts_of(client: int, params: Params) -> dict[str, Tensor]:
        graph: Any = clients[client]
        own, common = (functional_call(model, params, (each.x, each.adj)) for each in (graph, test))
        found = {
            "local_f1": hit_counts(own, graph.y, graph.test_mask),
            "global_f1": hit_counts(common, test.y),  # type: ignore[arg-type]  # checked
            "val_f1": hit_counts(own, graph.y, graph.val_mask),
            "val_loss": soft_cross_entropy(own, one_hot(graph), graph.val_mask),
        }
        if client in unseen:
            found["local_unseen_f1"] = hit_counts(own, graph.y, unseen[client])
        return found

    def evaluate(outbox: Mapping[int, Message], states: Mapping[int, State]) -> dict[str, float]:
        there = {client: outbox[client] for client in sorted(states)}
        with in_mode(model, False):
            parts = {k: counts_of(k, used) for k, used in models(there, states).items()}
        moved = iter(to_host(*(each for own in parts.values() for each in own.values())))
        found = {k: {name: _number(next(moved)) for name in own} for k, own in parts.items()}
        if not found:
            return {}
        counts = {"scored_clients": float(len(found))}
        if known:
            counts["unseen_clients"] = float(sum("local_unseen_f1" in f for f in found.values()))
        each = {
            f"{name}/{client}": f[name]
            for client, f in sorted(found.items())
            for name in ("local_f1", "global_f1", "local_unseen_f1")
            if name in f
        }
        return {**means(found.values()), **counts, **each}

    return evaluate


def _number(made: Tensor) -> float:
    """A loss, or the share that two counts are."""
    return share(made) if made.dim() else float(made)


def unseen_nodes(clients: Sequence[Graph]) -> list[Tensor]:
    """Each client's test nodes that no other client trains on.

    Clients overlap, so that a test node of one may be a training node of another one, whose model
    reaches the first.

    Args:
        clients: graphs with `node_id`, training and test masks.

    Returns:
        bool ``[num_nodes]`` per client.

    Raises:
        ValueError: if a graph has no `node_id`.

    Example:
        >>> _, clients = fgl.data.major_label_partition(fgl.data.load("synthetic"), 3)
        >>> [int(unseen.sum()) for unseen in unseen_nodes(clients)]
        [200, 116, 53]
    """
    without = [client for client, graph in enumerate(clients) if graph.node_id is None]
    if without:
        raise ValueError(f"Expected clients to have node_id, but got none in clients {without}")
    known: list[Any] = list(clients)
    total = 1 + max(int(graph.node_id.max()) for graph in known)
    trained = torch.cat([graph.node_id[graph.train_mask] for graph in known])
    times = trained.bincount(minlength=total)
    return [g.test_mask & (times[g.node_id] == g.train_mask.long()) for g in known]


def _check(clients: Sequence[Graph], test: Graph) -> None:
    for client, graph in enumerate(clients):
        for name in ("y", "val_mask", "test_mask"):
            value = getattr(graph, name)
            if value is None or (name != "y" and not value.any()):
                raise ValueError(f"Expected client {client} to have {name}, but got none")
    if test.y is None or not test.num_nodes:
        raise ValueError("Expected the test graph to have nodes with labels, but got none")


@dataclass(frozen=True)
class EgoNodes:
    """Nodes of overlapping clients with major labels, as sampled ego-graphs; FedEgo's protocol.

    Example:
        >>> len(EgoNodes(clients=2, hidden=8).load(seed=0).clients)
        2
    """

    dataset: str = "synthetic"
    """A known dataset, or the name of a folder under FGL_DATA."""
    clients: int = 5
    """How many clients."""
    share: float = 0.5
    """Share of the nodes in a client."""
    major_rate: float = 0.8
    """Share of a client's nodes that have its major labels."""
    num_test: int = 200
    """Test nodes of a client."""
    fanouts: tuple[int, ...] = (6, 6)
    """Neighbours drawn at each depth."""
    batch_size: int = 32
    """Centres of ego-graphs per step."""
    hidden: int = 512
    """Width of all layers but the last."""
    dropout: float = 0.0
    """Share of units set to zero."""
    linear: bool = False
    """Leave out the ReLU between the SAGE layers."""
    local: Local = Local("adam", lr=3e-4, weight_decay=0.0, steps=5)
    device: str = "cpu"
    """Where to compute, as torch names it."""
    sparse: Literal["torch", "torch_sparse"] = "torch"
    """Whose sparse kernels multiply."""

    published: ClassVar[dict[str, dict[str, Any]]] = {
        "dblp": {"clients": 10, "share": 0.2, "num_test": 300},
        "wiki_cs": {"clients": 10, "share": 0.2, "num_test": 300},
        "cora_full": {"clients": 10, "share": 0.3, "num_test": 300},
    }

    def __post_init__(self) -> None:
        check_device(self.device)
        check_count(
            clients=self.clients,
            num_test=self.num_test,
            batch_size=self.batch_size,
            hidden=self.hidden,
        )
        check_share(share=self.share, major_rate=self.major_rate, dropout=self.dropout)

    def load(self, seed: int = 0) -> Task:
        """The task; `seed` decides who holds what and the initial model."""
        graph = data.load(self.dataset).replace(backend=self.sparse).to(self.device)
        where: dict[str, Any] = {"share": self.share, "major_rate": self.major_rate}
        where |= {"num_test": self.num_test, "seed": seed}
        test, clients = data.major_label_partition(graph, self.clients, **where)
        with torch.random.fork_rng([]):
            torch.manual_seed(seed)
            model = self.network(graph).to(self.device)
        steps: dict[str, Any] = {"epochs": self.local.steps, "batch_size": self.batch_size}
        return ego_node_task(clients, test, model, self.local.optimizer_factory(), **steps)

    def network(self, graph: Graph) -> Any:
        """The model, for graphs like this one, before it is moved to the device."""
        sizes: Any = graph.num_features, self.hidden, graph.num_classes
        how: dict[str, Any] = {"dropout": self.dropout, "linear": self.linear}
        return EgoSAGE(*sizes, fanouts=self.fanouts, **how)
