"""Controls of FGSSL: what is left of its gain without the labels, without the graph, without both.

- Keys shuffled: a node's keys have the labels of other nodes. Is it the labels?
- Teacher's graph shuffled: the received model sees the client's nodes on edges between other nodes,
  as many, of the same degrees. Is it the structure?
- Augmented FedAvg: the mean of cross-entropy and that on the strong view. Is it the augmentation?
"""

import copy
from dataclasses import replace
from typing import Any, Literal

import torch
from harness.machine import example
from harness.rows import Loaded
from torch import Tensor
from torch.func import functional_call

from fgl import Method, SparseMatrix, augment
from fgl.federation import Params
from fgl.graph import Graph
from fgl.losses import cross_entropy, node_contrast

RECIPE = example("fgssl")


def shuffle(size: int, device: torch.device) -> Tensor:
    """A permutation, always the same of a size."""
    return torch.randperm(size, generator=torch.Generator().manual_seed(size)).to(device)


def keys_shuffled(
    loaded: Loaded, *, lambda_c: float = 1.5, lambda_d: float = 25.0, tau: float = 0.1
) -> Method:
    """FGSSL whose training nodes are contrasted with keys of other nodes' labels."""
    fedavg = loaded.task.fedavg
    distilled = RECIPE.fgssl(fedavg, lambda_c=0.0, lambda_d=lambda_d)
    teacher = copy.deepcopy(fedavg.model).eval()
    embedding = {"return_embedding": True}

    def loss(params: Params, graph: Graph, context: Any) -> Tensor:
        mask: Any = graph.train_mask
        y: Any = graph.y
        weak, strong = augment.weak(graph.x, graph.adj), augment.strong(graph.x, graph.adj)
        with torch.no_grad():
            keys = functional_call(teacher, context["model"], weak, embedding)[1][mask]
        anchors = functional_call(fedavg.model, params, strong, embedding)[1][mask]
        keys = keys[shuffle(len(keys), keys.device)]
        contrast = node_contrast(anchors, keys, y[mask], temperature=tau)
        return distilled.loss(params, graph, context) + lambda_c * contrast

    return replace(fedavg, loss=loss)


def shuffled_graph(x: Any, adj: SparseMatrix) -> tuple[Any, SparseMatrix]:
    """The weak view of the nodes on a graph whose nodes have changed places."""
    place = shuffle(adj.shape[0], adj.device)
    row, col = place[adj.pattern.row], place[adj.pattern.col]
    return augment.weak(x, SparseMatrix.from_entries(row, col, adj.shape))


def augmented_fedavg(loaded: Loaded, *, reduction: Literal["mean", "sum"] = "mean") -> Method:
    """FedAvg whose cross-entropy sees the strong view beside the graph.

    The sum of the two has twice the gradient of FedAvg's, their mean has as much.
    """
    fedavg = loaded.task.fedavg

    def loss(params: Params, graph: Graph, context: Any) -> Tensor:
        strong = augment.strong(graph.x, graph.adj)
        logits = functional_call(fedavg.model, params, strong)
        on_view = cross_entropy(logits, graph.y, graph.train_mask)
        total = fedavg.loss(params, graph, context) + on_view
        return total / 2 if reduction == "mean" else total

    return replace(fedavg, loss=loss)
