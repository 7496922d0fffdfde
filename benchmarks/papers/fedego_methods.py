"""Methods of FedEgo's tables: FedEgo itself, FedProx as in the authors' code, the ablations.

docs/papers/fedego.md explains them.
"""

import functools
import warnings
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import torch
from harness.machine import example
from harness.rows import Loaded
from torch import Tensor, nn
from torch.func import functional_call

from fgl import Graph, Method, aggregate, ego, methods, tasks
from fgl.federation import Broadcast, check_model, in_mode, minimise
from fgl.losses import distance_per_entry, soft_cross_entropy
from fgl.nn import EgoSAGE, SAGEConv
from fgl.nn.layers import dropout
from fgl.nn.sage import child_mean
from fgl.personalize import is_distribution, label_distribution, part, rest
from fgl.tasks.scores import one_hot

_build = example("fedego").fedego


@functools.wraps(_build)
def fedego(loaded: Loaded, **options: Any) -> Method:
    return _build(loaded.task.fedavg, **server_steps(loaded), **options)


def server_steps(loaded: Loaded) -> dict[str, int]:
    """The server's epochs and its batches: as many and as large as a client's."""
    setting = loaded.setting
    return {"epochs": setting.local.steps, "batch_size": setting.batch_size}


def adaptive_fedprox(loaded: Loaded) -> Method:
    """FedProx as the authors' code has it: the weight follows the loss on the training nodes."""
    model = loaded.task.fedavg.model

    def fit(params: Any, graph: Any) -> Tensor:
        logits = functional_call(model, params, (graph.x, graph.adj))
        return soft_cross_entropy(logits, one_hot(graph), graph.train_mask)

    return methods.adaptive_fedprox(loaded.task.fedavg, fit=fit, distance=distance_per_entry)


def with_short_last(values: Tensor, trees: Tensor, *, batch_size: int) -> Tensor:
    """Mixup as in the authors' code: a last batch may be short, down to a single ego-graph."""
    return ego.mash(values, trees, batch_size=batch_size, least=1)


# What clients upload in all recorded runs: nodes in their order, a short last batch.
RECORDED: dict[str, Any] = {"mash": with_short_last, "shuffle": False}


def first_of_each_batch(values: Tensor, trees: Tensor, *, batch_size: int) -> Tensor:
    """Instead of a mean over a batch of ego-graphs the first of them, as it is.

    Whoever sees it reads the features and the labels of its nodes, so it warns.
    """
    warnings.warn(
        "Expected means of ego-graphs to be uploaded, but got ego-graphs as they are: whoever "
        "sees them reads the features and labels of their nodes",
        stacklevel=2,
    )
    return values[trees[::batch_size]]


@dataclass(frozen=True)
class Always:
    """The same share of the global head for all clients."""

    share: float

    def __call__(self, own: Tensor, everybody: Tensor) -> float:
        return self.share


def without_rl(loaded: Loaded) -> Method:
    """FedEgo whose reduction layer stays with each client."""

    def nothing(inbox: Any, state: Any) -> Any:
        sent = {"num_clients": torch.tensor(len(inbox))}
        return Broadcast(sent, inbox.num_clients), state

    plain = replace(loaded.task, fedavg=replace(loaded.task.fedavg, aggregate=nothing))
    method = fedego(replace(loaded, task=plain), **RECORDED)

    def send(params: Any, context: Any, state: Any, graph: Any) -> Any:
        message, state = method.send(params, context, state, graph)
        return {name: value for name, value in message.items() if name != "model"}, state

    return replace(method, send=send)


class SAGEThenMLP(nn.Module):
    """FedEgo's network the other way round: SAGE layers first, a perceptron on the embeddings.

    The SAGE layers are the `reduction`, which is averaged; the perceptron (`lin`, `head`) is what
    is personal. Dropout stands before and after `lin`. ``model(x, edges)`` and ``model(x,
    trees=trees)`` are called as those of `fgl.nn.EgoSAGE`, ``model(x, edges, reduce=True)`` gives
    embeddings ``[num_nodes, hidden_channels]``, and ``model(r)`` the logits of embeddings that lie
    ``[n, 1, hidden_channels]``, as ego-graphs of a centre alone.
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        *,
        fanouts: tuple[int, ...] = (6, 6),
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        self.fanouts, self.dropout = tuple(fanouts), dropout
        sizes = [in_channels] + [hidden_channels] * len(self.fanouts)
        self.reduction = nn.ModuleList(SAGEConv(a, b) for a, b in pairwise(sizes))
        self.lin = nn.Linear(hidden_channels, hidden_channels)
        self.head = nn.Linear(hidden_channels, out_channels, bias=False)
        self.reset_parameters()

    reset_parameters = EgoSAGE.reset_parameters  # the same draw

    def forward(
        self, x: Any, edges: Any = None, *, trees: Tensor | None = None, reduce: bool = False
    ) -> Tensor:
        if len(x.shape) == 3:
            return self._classified(x.squeeze(1))
        r = self._on_graph(x, edges) if trees is None else self._on_trees(x, trees)
        return r if reduce else self._classified(dropout(r, self.dropout, self.training))

    def _on_graph(self, x: Any, edges: Any) -> Tensor:
        for conv in self.reduction:
            x = conv(x, edges).relu()
        return x

    def _on_trees(self, x: Any, trees: Tensor) -> Tensor:
        """The first layer multiplies each distinct node's features once, before trees are made."""
        first: Any = self.reduction[0]
        roots = trees[:, : ego.trees.levels(self.fanouts)[-2]]
        h = child_mean(_chosen(x @ first.lin_l.weight.t(), trees), self.fanouts)
        h = (h + _chosen(x @ first.lin_r.weight.t(), roots) + first.lin_l.bias).relu()
        for depth, conv in enumerate(list(self.reduction)[1:], 1):
            h = conv.on_trees(h, self.fanouts[: len(self.fanouts) - depth]).relu()
        return h.squeeze(1)

    def _classified(self, r: Tensor) -> Tensor:
        return self.head(dropout(self.lin(r).relu(), self.dropout, self.training))


def _chosen(rows: Tensor, trees: Tensor) -> Tensor:
    return rows.index_select(0, trees.flatten()).unflatten(0, trees.shape)


@dataclass(frozen=True)
class SAGEFirst(tasks.EgoNodes):
    """FedEgo's clients, whose network has the SAGE layers first."""

    def network(self, graph: Graph) -> Any:
        """The model, for graphs like this one."""
        sizes: Any = graph.num_features, self.hidden, graph.num_classes
        return SAGEThenMLP(*sizes, fanouts=self.fanouts, dropout=self.dropout)


def without_ego_graphs(loaded: Loaded) -> Method:
    """FedEgo of a network with the SAGE layers first, whose clients upload embedded centres alone.

    The centres' embeddings see the client's graph, so no ego-graph is uploaded: an upload is a mean
    over each batch of centres (Mixup), and of their labels. The server trains the perceptron on
    these. Mixing is FedEgo's.
    """
    plain, how = loaded.task.fedavg, server_steps(loaded)
    model: Any = plain.model
    classes, width = model.head.weight.shape

    @torch.no_grad()
    def send(params: Any, context: Any, state: Any, graph: Any) -> Any:
        sent, state = plain.send(params, context, state, graph)
        r = functional_call(model, params, (graph.x, graph.adj), {"reduce": True})
        alone = graph.train_mask.nonzero()  # trees of one position
        mash = functools.partial(with_short_last, trees=alone, batch_size=how["batch_size"])
        sent |= {"embeddings": mash(r), "labels": mash(one_hot(graph))}
        return {**sent, "model": part(params, "reduction")}, state

    def accept(message: Any, client: int, state: Any) -> None:
        kind = {"shape": (1, width, classes), "dtype": model.head.weight.dtype}
        ego.uploads.check_mashed(message["embeddings"], message["labels"], **kind)

    def loss(params: Any, r: Tensor, labels: Tensor) -> Tensor:
        return soft_cross_entropy(functional_call(model, params, (r,)), labels)

    def combine(inbox: Any, state: Any) -> Any:
        outbox, new = plain.aggregate(inbox, state)
        r, y = inbox.joined("embeddings"), inbox.joined("labels")[:, 0]
        steps = ego.tree_minibatches(r, y, how["epochs"], how["batch_size"])
        head = state.get("head") or rest(state["model"], "reduction")
        kept = {"optimizer": plain.train.optimizer, "state": state.get("optimizer")}
        with in_mode(model, True):
            head, _, adam = minimise(loss, head, steps, **kept)
        sent = {**outbox[0], "head": head, "distribution": y.mean(0)}
        return Broadcast(sent, inbox.num_clients), {**new, "head": head, "optimizer": adam}

    return replace(fedego(loaded), send=send, accept=accept, aggregate=combine)


def averaged_heads(loaded: Loaded) -> Method:
    """FedEgo whose server trains nothing: heads are averaged, and so are labels' distributions."""
    plain = loaded.task.fedavg
    model: Any = plain.model
    classes = model.head.out_features

    @torch.no_grad()
    def send(params: Any, context: Any, state: Any, graph: Any) -> Any:
        message, state = plain.send(params, context, state, graph)
        message["model"], message["head"] = part(params, "reduction"), rest(params, "reduction")
        own = label_distribution(graph.y, classes, graph.train_mask)
        return {**message, "distribution": own}, state

    def accept(message: Any, client: int, state: Any) -> None:
        check_model(message["head"], rest(model.state_dict(), "reduction"), "head")
        share = message["distribution"]
        if share.shape != (classes,) or not is_distribution(share):
            raise ValueError(
                f"Expected distribution to be {classes} shares that sum to 1, "
                f"but got {share.tolist()}"
            )

    def combine(inbox: Any, state: Any) -> Any:
        outbox, state = plain.aggregate(inbox, state)
        head = aggregate.mean(inbox.each("head"), torch.ones(len(inbox)))
        distribution = inbox.stack("distribution").mean(0)
        sent = {**outbox[0], "head": head, "distribution": distribution}
        return Broadcast(sent, inbox.num_clients), state

    return replace(fedego(loaded), send=send, accept=accept, aggregate=combine)
