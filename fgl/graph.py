"""One graph, checked on the way in."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from .sparse import SparseMatrix

MASKS = ("train_mask", "val_mask", "test_mask")


@dataclass(frozen=True, eq=False)
class Graph:
    """A graph with node features, and what a client knows about its nodes.

    Args:
        x: node features, float ``[num_nodes, num_features]``, dense or a `SparseMatrix`.
        edge_index: int64 ``[2, num_edges]``, rows (source, target).
        y: node labels, int64 ``[num_nodes]`` in ``[0, num_classes)``.
        num_classes: number of classes; by default the largest label plus one.
        train_mask, val_mask, test_mask: bool ``[num_nodes]``.
        node_id: int64 ``[num_nodes]``, the nodes' ids in the graph this one was cut from.
        edge_weight: float ``[num_edges]``.
        backend: whose kernels multiply `adj` and sparse features, ``"torch"`` or
            ``"torch_sparse"`` (torch-sparse and torch-scatter, the extra `sparse`); default that of
            sparse features, else torch's.

    Raises:
        TypeError: for a wrong type or dtype.
        ValueError: for a wrong shape, an index or label out of range, or a feature or weight that
            is not finite.

    Example:
        >>> edge_index = torch.tensor([[0, 1], [1, 0]])
        >>> graph = Graph(torch.ones(3, 2), edge_index, y=torch.tensor([0, 1, 1]))
        >>> graph.num_nodes, graph.num_edges, graph.num_classes
        (3, 2, 2)
    """

    x: Tensor | SparseMatrix
    edge_index: Tensor
    y: Tensor | None = None
    num_classes: int | None = None
    train_mask: Tensor | None = None
    val_mask: Tensor | None = None
    test_mask: Tensor | None = None
    node_id: Tensor | None = None
    edge_weight: Tensor | None = None
    backend: str | None = None

    def __post_init__(self) -> None:
        _check_features(self.x)
        given = self.x.pattern.backend if isinstance(self.x, SparseMatrix) else "torch"
        object.__setattr__(self, "backend", self.backend or given)
        if isinstance(self.x, SparseMatrix) and given != self.backend:
            object.__setattr__(self, "x", self.x.using(str(self.backend)))
        n = self.x.shape[0]
        _check_index("edge_index", self.edge_index, (2, None), n)
        if self.edge_weight is not None:
            _check_weight(self.edge_weight, self.edge_index.shape[1])
        for name in MASKS:
            mask = getattr(self, name)
            if mask is not None:
                _check_mask(name, mask, n)
        if self.node_id is not None:
            _check_index("node_id", self.node_id, (n,), None)
        if self.num_classes is not None and self.num_classes < 1:
            raise ValueError(f"Expected num_classes to be at least 1, but got {self.num_classes}")
        if self.y is not None:
            _check_index("y", self.y, (n,), self.num_classes)
            if self.num_classes is None:
                object.__setattr__(self, "num_classes", int(self.y.max()) + 1 if n else None)

    @property
    def num_nodes(self) -> int:
        return self.x.shape[0]

    @property
    def num_features(self) -> int:
        return self.x.shape[1]

    @property
    def num_edges(self) -> int:
        return self.edge_index.shape[1]

    @property
    def device(self) -> torch.device:
        return self.edge_index.device

    @property
    def num_train(self) -> int:
        """Number of training nodes; every node where there is no training mask."""
        return self.num_nodes if self.train_mask is None else int(self.train_mask.sum())

    @property
    def node_mask(self) -> Tensor:
        """Which nodes are there: all, but in a batch of clients, where a loss meets padding."""
        return torch.ones(self.num_nodes, dtype=torch.bool, device=self.device)

    @cached_property
    def adj(self) -> SparseMatrix:
        """Adjacency with ``A[target, source]``, made once; without self-loops of its own making."""
        with torch.inference_mode(False):  # or training could not use what evaluation made
            adj = SparseMatrix.from_edge_index(self.edge_index, self.num_nodes, self.edge_weight)
            return adj if self.backend == "torch" else adj.using(str(self.backend))

    def replace(self, **changes: Any) -> Graph:
        """A copy with some fields changed, checked again."""
        return replace(self, **changes)

    def subgraph(self, nodes: Tensor) -> Graph:
        """The induced subgraph on `nodes` (int64 ``[m]``, no repeats), in that order.

        Edges with an end outside are lost. `node_id` is carried along, or set to `nodes`.
        """
        _check_index("nodes", nodes, (None,), self.num_nodes)
        if nodes.unique().numel() != nodes.numel():
            raise ValueError("Expected nodes to be without repeats, but got a node twice")
        position = torch.full((self.num_nodes,), -1, dtype=torch.int64, device=self.device)
        position[nodes] = torch.arange(nodes.numel(), device=self.device)
        edges = position[self.edge_index]
        kept = (edges >= 0).all(0)
        per_node: dict[str, Any] = {
            name: value[nodes]
            for name in ("y", *MASKS)
            if (value := getattr(self, name)) is not None
        }
        return Graph(
            x=self.x.rows(nodes) if isinstance(self.x, SparseMatrix) else self.x[nodes],
            edge_index=edges[:, kept],
            num_classes=self.num_classes,
            node_id=nodes if self.node_id is None else self.node_id[nodes],
            edge_weight=None if self.edge_weight is None else self.edge_weight[kept],
            backend=self.backend,
            **per_node,
        )

    def to(self, device: torch.device | str) -> Graph:
        """The graph on another device."""
        moved: dict[str, Any] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            moved[field.name] = value.to(device) if hasattr(value, "to") else value
        return Graph(**moved)

    @classmethod
    def from_pyg(cls, data: Any) -> Graph:
        """From a ``torch_geometric.data.Data``, or anything with the same attributes."""
        names = [field.name for field in fields(cls)]
        found: dict[str, Any] = {
            name: getattr(data, name, None)
            for name in names
            if name not in ("num_classes", "backend")
        }
        return cls(**found, num_classes=getattr(data, "num_classes", None))

    def to_pyg(self, data_class: Any) -> Any:
        """To a ``torch_geometric.data.Data``: ``graph.to_pyg(Data)``; features become dense."""
        found = {
            f.name: value
            for f in fields(self)
            if f.name != "backend" and (value := getattr(self, f.name)) is not None
        }
        if isinstance(self.x, SparseMatrix):
            found["x"] = self.x.to_dense()
        return data_class(**found)


def _check_features(x: Any) -> None:
    if not isinstance(x, (Tensor, SparseMatrix)):
        raise TypeError(f"Expected x to be a Tensor or SparseMatrix, but got {type(x).__name__}")
    if isinstance(x, Tensor) and x.layout != torch.strided:
        raise TypeError(f"Expected x to be dense or a SparseMatrix, but got a {x.layout} tensor")
    if len(x.shape) != 2:
        raise ValueError(
            f"Expected x to have shape [num_nodes, num_features], but got {list(x.shape)}"
        )
    values = x.value if isinstance(x, SparseMatrix) else x
    if values is None:
        return
    if not values.is_floating_point():
        raise TypeError(f"Expected x to be floating point, but got {values.dtype}")
    bad = ~torch.isfinite(values)
    if bad.any():
        raise ValueError(
            f"Expected x to be finite, but got {int(bad.sum())} NaN or infinite values"
        )


def _check_index(name: str, index: Any, shape: tuple[int | None, ...], bound: int | None) -> None:
    if not isinstance(index, Tensor) or index.dtype != torch.int64:
        got = index.dtype if isinstance(index, Tensor) else type(index).__name__
        raise TypeError(f"Expected {name} to be an int64 tensor, but got {got}")
    fits = index.dim() == len(shape) and all(
        want in (None, have) for want, have in zip(shape, index.shape, strict=True)
    )
    if not fits:
        want = ["*" if size is None else size for size in shape]
        raise ValueError(f"Expected {name} to have shape {want}, but got {list(index.shape)}")
    if index.numel() == 0:
        return
    low, high = (int(v) for v in index.aminmax())
    if low < 0 or (bound is not None and high >= bound):
        limit = "at least 0" if bound is None else f"in [0, {bound})"
        raise ValueError(f"Expected {name} to be {limit}, but got {low if low < 0 else high}")


def _check_mask(name: str, mask: Any, num_nodes: int) -> None:
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        got = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
        raise TypeError(f"Expected {name} to be a bool tensor, but got {got}")
    if mask.shape != (num_nodes,):
        raise ValueError(f"Expected {name} to have shape [{num_nodes}], but got {list(mask.shape)}")


def _check_weight(weight: Any, num_edges: int) -> None:
    if not isinstance(weight, Tensor) or not weight.is_floating_point():
        got = weight.dtype if isinstance(weight, Tensor) else type(weight).__name__
        raise TypeError(f"Expected edge_weight to be a float tensor, but got {got}")
    if weight.shape != (num_edges,):
        raise ValueError(
            f"Expected edge_weight to have shape [{num_edges}], but got {list(weight.shape)}"
        )
    if not torch.isfinite(weight).all():
        raise ValueError("Expected edge_weight to be finite, but got NaN or infinite values")
