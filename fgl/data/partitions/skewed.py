"""Clients that differ in one thing: their mix of labels, their features, or their degrees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from ...checks import check_choice, check_number
from ...graph import Graph
from ...kinds import typed
from ...sparse import SparseMatrix, row_sum
from .checks import check_num_clients
from .dirichlet import dirichlet_partition

WAYS = ("nothing", "labels", "features", "degrees")


@dataclass(frozen=True)
class Skew:
    """Differences between clients, and the number of clients that never train.

    Example:
        >>> graph = fgl.data.load("synthetic")
        >>> parts = Skew(skew_by="degrees").parts(graph, 3)
        >>> degree = graph.edge_index[1].bincount(minlength=2708)
        >>> [round(float(degree[part].float().mean()), 1) for part in parts]
        [1.5, 2.8, 7.3]

    Source: the settings of OpenFGL, https://github.com/xkLi-Allen/OpenFGL
    """

    skew_by: Literal["nothing", "labels", "features", "degrees"] = "nothing"
    """The difference between clients, instead of the partition: mix of labels, mean feature, or
    mean degree."""
    skew_alpha: float = 0.5
    """The parameter of the Dirichlet draw of labels: small makes clients of one class."""
    unseen: int = 0
    """The last clients, which never train, and are scored with models that the others are sent."""

    def __post_init__(self) -> None:
        check_choice("skew_by", self.skew_by, WAYS)
        check_number("skew_alpha", self.skew_alpha, above=0)
        check_number("unseen", self.unseen, at_least=0, integer=True)
        if self.skew_alpha != Skew.skew_alpha and self.skew_by != "labels":
            raise ValueError(
                f"Expected skew_by to be 'labels' beside skew_alpha, {self.skew_alpha}, "
                f"but got {self.skew_by!r}"
            )

    def parts(self, graph: Graph, num_clients: int, *, seed: int = 0) -> list[Tensor]:
        """Ids of each client's nodes, or of a collection's graphs; `seed` decides Dirichlet's draw.

        Raises:
            ValueError, TypeError: if clients shall differ in labels that nodes or graphs have not.
        """
        if self.skew_by == "labels":
            if graph.edge_label_index is not None:
                raise ValueError(
                    "Expected skew_by to be 'features' or 'degrees' where pairs have the labels, "
                    "but got 'labels'"
                )
            return dirichlet_partition(graph.labels, num_clients, alpha=self.skew_alpha, seed=seed)
        return sorted_partition(graph, num_clients, by=self.skew_by)


@typed
def sorted_partition(graph: Graph, num_clients: int, *, by: str) -> list[Tensor]:
    """Examples in the order of one number, cut into clients whose sizes differ by at most 1.

    Args:
        graph: its nodes are the examples, or the graphs of a collection.
        num_clients: at most one per example.
        by: ``"features"``, the mean of an example's features, or ``"degrees"``, its (mean) degree.

    Returns:
        One sorted int64 tensor of examples per client, those with the smallest numbers first; of
        equal numbers the first example comes first.

    Raises:
        ValueError: for another `by`, if `num_clients` is out of range, or if all means of features
            agree up to rounding, as after `fgl.data.normalize_features`.

    Example:
        >>> graph = fgl.Graph(torch.eye(4), torch.tensor([[0, 1, 0, 2], [1, 0, 2, 0]]))
        >>> [part.tolist() for part in sorted_partition(graph, 2, by="degrees")]
        [[1, 3], [0, 2]]

    Source: "feature_skew" and "topology_skew" of OpenFGL, https://arxiv.org/abs/2408.16288, for
    collections, where the last client takes what is left
    """
    check_choice("by", by, WAYS[2:])
    check_num_clients(num_clients, graph.num_nodes if graph.batch is None else graph.num_graphs)
    value = _means(graph) if by == "features" else graph.edge_index[1].bincount(
        minlength=graph.num_nodes
    ).double()  # fmt: skip
    if graph.batch is not None:
        total = value.new_zeros(graph.num_graphs).index_add_(0, graph.batch, value)
        value = total / graph.batch.bincount(minlength=graph.num_graphs).clamp(min=1)
    if by == "features" and num_clients > 1 and _alike(value, graph):
        raise ValueError(
            "Expected features whose means differ between examples, but got means that are equal "
            "up to rounding; cut before features are normalized"
        )
    order = value.argsort(stable=True)
    return [part.sort().values for part in order.tensor_split(num_clients)]


def _means(graph: Graph) -> Tensor:
    """The mean feature of every node."""
    x: Any = graph.x
    if isinstance(x, SparseMatrix):
        return row_sum(x.pattern, x.values.double()) / x.shape[1]
    return torch.as_tensor(x.double().mean(1))


def _alike(value: Tensor, graph: Graph) -> bool:
    """Whether nonzero means of features are equal up to the rounding of their sums."""
    some = value[value != 0]
    if some.numel() < 2:
        return False
    precise = torch.finfo(torch.float32).eps * graph.num_features
    return bool(some.max() - some.min() <= precise * some.abs().max())
