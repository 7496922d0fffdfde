"""Examples of a client one by one: what a loss sees of each alone, and what nobody else may see."""

from __future__ import annotations

import copy
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from ...federation import Method, Params, in_mode
from ...graph import Graph
from ...sparse import SparseMatrix, rows_of

TRIED = 6  # examples whose losses are compared with the loss of them all
NEAR = 1e-4
NOT_ALONE = (
    "Expected examples that are independent, which graphs of a collection and rows of a graph "
    "without edges are, but got a graph with edges: a node is in the gradients of all nodes that "
    "see it, and so is an edge, one that is to be predicted too"
)
PUBLIC = ("num_features", "num_classes", "device")
COUNTS = ("num_nodes", "num_graphs", "num_train", "num_examples")


class Unseen:
    """A client's graph of which only its form can be read, so that no example gets into a message.

    Every number of examples or nodes is 1: how many there are is private too.

    Args:
        graph: the client's.

    Example:
        >>> graph = fgl.Graph(torch.ones(3, 2), torch.zeros(2, 0, dtype=torch.int64))
        >>> Unseen.of(graph).num_features, Unseen.of(graph).num_train
        (2, 1)
        >>> Unseen.of(graph).x
        Traceback (most recent call last):
        ValueError: Expected a method whose receive and send do not ask what a client's examples ...
    """

    def __init__(self, graph: Graph) -> None:
        self._form = {**{name: getattr(graph, name) for name in PUBLIC}, **dict.fromkeys(COUNTS, 1)}

    @classmethod
    def of(cls, graph: Graph) -> Any:
        """The same, to be passed as a `Graph`."""
        return cls(graph)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if name not in self._form:
            raise ValueError(
                "Expected a method whose receive and send do not ask what a client's examples say, "
                f"since clipping and noise cover its training alone, but got one that reads {name}"
            )
        return self._form[name]


def alone(graph: Graph, which: Tensor) -> Graph:
    """Some examples of a client, or one, as a graph of their own.

    Args:
        graph: a collection, or one without edges.
        which: int64 ``[n]`` or a scalar.

    Example:
        >>> graph = fgl.Graph(torch.ones(3, 2), torch.zeros(2, 0).long(), y=torch.tensor([0, 1, 0]))
        >>> alone(graph, torch.tensor(1)).y
        tensor([1])
    """
    which = which.view(-1)
    if graph.batch is not None:
        return graph.select(which)
    if graph.y is None:
        raise ValueError("Expected graph.y to be a tensor of labels, but got None")
    x = rows_of(graph.x, which)
    x = x.to_dense() if isinstance(x, SparseMatrix) else x
    return Graph(x, graph.edge_index, y=graph.y[which], num_classes=graph.num_classes)


def like_row(graph: Graph) -> Graph:
    """A graph of one row, the very same for all clients of a kind, to be filled by `of_row`."""
    y: Any = graph.y
    return _like_row(graph.num_features, graph.num_classes, graph.x.dtype, y.dtype, graph.device)


@cache
def _like_row(
    width: int, classes: int | None, dtype: torch.dtype, of_y: torch.dtype, device: torch.device
) -> Graph:
    x, y = torch.zeros(1, width, dtype=dtype), torch.zeros(1, dtype=of_y)
    none = torch.zeros(2, 0, dtype=torch.int64)
    row = Graph(x, none, y=y, num_classes=classes).to(device)
    _ = row.adj  # made here: under vmap it could not be
    return row


def of_row(like: Graph, x: Tensor, y: Tensor) -> Graph:
    """A graph of one row; unchecked, so that it can be made under vmap."""
    row = copy.copy(like)
    row.__dict__.update(x=x[None], y=y[None])
    return row


def check_method(method: Method) -> None:
    """Raise a ValueError if DP-SGD would drop what a method does to gradients, or mix examples."""
    if method.train.adjust is not None:
        raise ValueError(
            "Expected the method's training to have no adjust, since gradients are clipped example "
            "by example and it would be dropped, but got one"
        )
    if method.train.max_grad_norm is not None:
        raise ValueError(
            "Expected max_grad_norm to be None, since gradients are clipped example by example, "
            f"but got {method.train.max_grad_norm}"
        )
    kind = nn.modules.batchnorm._BatchNorm
    mixing = [name for name, part in method.model.named_modules() if isinstance(part, kind)]
    if mixing:
        raise ValueError(
            "Expected the model to have no batch norm, by which examples see each other, "
            f"but got {mixing}"
        )


@torch.no_grad()
def check_alone(method: Method, graph: Graph, context: Any, examples: Tensor) -> None:
    """Raise unless the loss of some examples is the mean of the losses of each alone.

    Asked in evaluation mode, at parameters where no term is 0 by chance. Torch's random state stays
    as it was. Losses that are not finite are not compared: such an example counts for nothing, and
    must not stop a client. An error tells no loss, since a server may read it.

    Args:
        method: its loss.
        graph: the client's.
        context: of this round.
        examples: int64, those that the client trains on.

    Raises:
        ValueError: if it is not, if a loss cannot be asked of one example, or the graph has edges.

    Example:
        >>> graph = fgl.Graph(torch.eye(3), torch.zeros(2, 0).long(), y=torch.tensor([0, 1, 0]))
        >>> check_alone(fgl.fedavg(fgl.nn.GCN(3, 4, 2)), graph, {}, torch.arange(3))
    """
    if graph.batch is None and graph.edge_index.numel():
        raise ValueError(NOT_ALONE)
    few = examples[:TRIED]
    if not len(few):
        return
    with torch.random.fork_rng([graph.device] if graph.device.type == "cuda" else []):
        params = _elsewhere(method)
        try:
            with in_mode(method.model, False):
                whole = method.loss(params, alone(graph, few), context)
                each = [method.loss(params, alone(graph, one), context) for one in few.unbind()]
        except Exception as error:
            why = str(error) or type(error).__name__
            raise ValueError(
                "Expected a method whose loss can be asked of one example alone, with what it "
                f"received, since each one's gradient is clipped, but got {why}"
            ) from error
    whole, mean = whole.double(), torch.stack(each).double().mean()
    finite = whole.isfinite() and mean.isfinite()
    if finite and not torch.isclose(whole, mean, rtol=NEAR, atol=NEAR):
        raise ValueError(
            "Expected a method whose loss is the mean of its examples' losses, since each one's "
            "gradient is clipped alone, but got one that compares them, adapts to them or draws"
        )


def _elsewhere(method: Method) -> Params:
    """Parameters that differ from a client's initial ones and from the ones that it was sent."""
    torch.manual_seed(0)
    tensors = {**method.initial(), **method.personal}
    return {
        name: value + 0.1 * torch.randn_like(value) if value.is_floating_point() else value
        for name, value in tensors.items()
    }
