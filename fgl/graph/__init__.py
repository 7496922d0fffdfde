"""`Graph`: one graph or a collection of graphs, checked when it is made."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from ..checks import check_count
from ..sparse import Pattern, SparseMatrix, rows_of
from ..sparse.pattern import outside
from . import collection
from .append import appended
from .checks import MASKS as MASKS
from .checks import check_batch, check_edge_weight, check_features, check_index, check_mask


@dataclass(frozen=True, eq=False)
class Graph:
    """A graph with node features, and what a client knows about its nodes.

    With `batch` it is a collection of graphs, one after the other, and `y` and the masks speak of
    graphs instead of nodes: read ``[num_graphs]`` for ``[num_nodes]``.

    Args:
        x: node features, float ``[num_nodes, num_features]``, dense or a `SparseMatrix`.
        edge_index: int64 ``[2, num_edges]``, rows (source, target).
        y: node labels, int64 ``[num_nodes]`` in ``[0, num_classes)``.
        num_classes: number of classes; by default the largest label plus one.
        train_mask, val_mask, test_mask: bool ``[num_nodes]``.
        node_id: int64 ``[num_nodes]``, the nodes' ids in the graph this one was cut from.
        edge_weight: float ``[num_edges]``.
        batch: the graph of every node, int64 ``[num_nodes]``, sorted from 0 without a gap: every
            graph has a node, and no edge joins two graphs.
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
    batch: Tensor | None = None
    backend: str | None = None

    def __post_init__(self) -> None:
        check_features(self.x)
        given = self.x.pattern.backend if isinstance(self.x, SparseMatrix) else "torch"
        object.__setattr__(self, "backend", self.backend or given)
        if isinstance(self.x, SparseMatrix) and given != self.backend:
            object.__setattr__(self, "x", self.x.using(str(self.backend)))
        n = self.x.shape[0]
        check_index("edge_index", self.edge_index, (2, None), n)
        if self.edge_weight is not None:
            check_edge_weight(self.edge_weight, self.edge_index.shape[1])
        if self.batch is not None:
            check_batch(self.batch, self.edge_index, n)
        for name in MASKS:
            mask = getattr(self, name)
            if mask is not None:
                check_mask(name, mask, self.num_examples)
        if self.node_id is not None:
            check_index("node_id", self.node_id, (n,), None)
        if self.num_classes is not None:
            check_count(num_classes=self.num_classes)
        if self.y is not None:
            check_index("y", self.y, (self.num_examples,), self.num_classes)
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
        """Number of training examples; every one where there is no training mask."""
        mask = self.train_mask
        if mask is None:
            return self.num_examples
        if mask.is_inference():  # it counts no changes
            return int(mask.sum())
        known = self.__dict__.get("_counted")
        if known is None or known[0] is not mask or known[1] != mask._version:
            known = self.__dict__["_counted"] = mask, mask._version, int(mask.sum())
        return int(known[2])

    @property
    def training_mask(self) -> Tensor:
        """Which examples are trained on, bool; all real ones where there is no training mask."""
        return self.example_mask if self.train_mask is None else self.train_mask

    @property
    def num_examples(self) -> int:
        """Number of examples: nodes, or graphs where there is a `batch`."""
        return self.num_nodes if self.batch is None else self.num_graphs

    @cached_property
    def num_graphs(self) -> int:
        return 1 if self.batch is None else int(self.batch[-1]) + 1

    @cached_property
    def ptr(self) -> Tensor:
        """Where each graph's nodes begin, int64 ``[num_graphs + 1]``."""
        if self.batch is None:
            return torch.tensor([0, self.num_nodes], device=self.device)
        sizes = self.batch.bincount(minlength=self.num_graphs)
        return torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])

    @cached_property
    def pool(self) -> SparseMatrix:
        """``[num_graphs, num_nodes]``, 1 where a node is in a graph: ``pool @ h`` sums over nodes.

        Under `vmap` too, where padded nodes are in no graph and padded graphs are empty.
        """
        with outside():
            nodes = torch.arange(self.num_nodes + 1, device=self.device)
            owner = torch.zeros_like(nodes[:-1]) if self.batch is None else self.batch
            shape = (self.num_graphs, self.num_nodes)
            pattern = Pattern(self.ptr, nodes[:-1], shape, str(self.backend))
            turned = Pattern(nodes, owner, shape[::-1], str(self.backend))
            pattern.__dict__["transpose"] = turned, nodes[:-1]  # known without a sort
            turned.__dict__["transpose"] = pattern, nodes[:-1]
            return SparseMatrix(pattern)

    @property
    def inputs(self) -> tuple[Any, ...]:
        """What a model is called with: ``x, adj``, and ``pool`` where there is a `batch`."""
        return (self.x, self.adj) if self.batch is None else (self.x, self.adj, self.pool)

    @property
    def node_mask(self) -> Tensor:
        """Which nodes are real: all, except in a batch of clients, where some are padding."""
        return torch.ones(self.num_nodes, dtype=torch.bool, device=self.device)

    @property
    def example_mask(self) -> Tensor:
        """Which examples are real: as `node_mask`, but for graphs where there is a `batch`."""
        return torch.ones(self.num_examples, dtype=torch.bool, device=self.device)

    @cached_property
    def adj(self) -> SparseMatrix:
        """Adjacency with ``A[target, source]``, made once; it adds no self-loops."""
        with outside(self.edge_weight):
            adj = SparseMatrix.from_edge_index(self.edge_index, self.num_nodes, self.edge_weight)
            return adj if self.backend == "torch" else adj.using(str(self.backend))

    def with_adj(self, adj: SparseMatrix) -> Graph:
        """The same graph, multiplied with another operator ``A[target, source]``; unchecked.

        A `SparseMatrix.as_operator` is multiplied as it is. Edges and everything else stay.
        """
        other = copy.copy(self)
        other.__dict__["adj"] = adj
        return other

    def replace(self, **changes: Any) -> Graph:
        """A copy with some fields changed, checked again."""
        return replace(self, **changes)

    def subgraph(self, nodes: Tensor, edges: Tensor | None = None) -> Graph:
        """The induced subgraph on `nodes` (int64 ``[m]``, no repeats), in that order.

        Edges with an end outside are lost. `node_id` is carried along, or set to `nodes`. Where the
        ids of the edges inside are known (`edges`, int64), not all edges are looked at.
        """
        if self.batch is not None:
            raise ValueError("Expected a graph without batch (see select), but got one with it")
        check_index("nodes", nodes, (None,), self.num_nodes)
        if nodes.unique().numel() != nodes.numel():
            raise ValueError("Expected nodes to be without repeats, but got a node twice")
        position = torch.full((self.num_nodes,), -1, dtype=torch.int64, device=self.device)
        position[nodes] = torch.arange(nodes.numel(), device=self.device)
        if edges is None:
            inside = position >= 0
            kept = inside[self.edge_index[0]] & inside[self.edge_index[1]]
            edges = kept.nonzero().squeeze(1)
        per_node: dict[str, Any] = {
            name: value[nodes]
            for name in ("y", *MASKS)
            if (value := getattr(self, name)) is not None
        }
        return Graph(
            x=rows_of(self.x, nodes),
            edge_index=position[self.edge_index[:, edges]],
            num_classes=self.num_classes,
            node_id=nodes if self.node_id is None else self.node_id[nodes],
            edge_weight=None if self.edge_weight is None else self.edge_weight[edges],
            backend=self.backend,
            **per_node,
        )

    def append(
        self,
        x: Tensor | SparseMatrix,
        edge_index: Tensor,
        *,
        edge_weight: Tensor | None = None,
        node_id: Tensor | None = None,
    ) -> Graph:
        """The graph with new nodes after its own, which nothing is trained or scored on.

        They are in no mask, and their label is 0, which stands for none; where all nodes trained
        there is a training mask of the old ones. Features become dense unless both are sparse.

        Args:
            x: float ``[m, num_features]``, the new nodes' features.
            edge_index: int64 ``[2, *]``, more edges, between any nodes; the first new node is
                ``num_nodes``.
            edge_weight: float, of the new edges; 1 where only some edges have weights.
            node_id: int64 ``[m]``, of the new nodes; without it the result has no `node_id`.

        Raises:
            TypeError, ValueError: as for a `Graph`, and for a collection of graphs.

        Example:
            >>> graph = fgl.Graph(torch.eye(2), torch.tensor([[0], [1]]), y=torch.tensor([0, 1]))
            >>> more = graph.append(torch.ones(1, 2), torch.tensor([[2], [0]]))
            >>> more.num_nodes, more.train_mask
            (3, tensor([ True,  True, False]))

        Source: the mended graphs of Zhang et al. 2021, FedSage+, https://arxiv.org/abs/2106.13430
        """
        if self.batch is not None:
            raise ValueError("Expected a graph without batch (see join), but got one with it")
        check_index("edge_index", edge_index, (2, None), self.num_nodes + x.shape[0])
        return self.replace(**appended(self, x, edge_index, edge_weight, node_id))

    def select(self, graphs: Tensor) -> Graph:
        """The collection of the graphs named by `graphs` (int64 ``[m]``), in that order.

        Nothing is sorted or checked again: O(size of the result). Edges come by target.

        Example:
            >>> batch = torch.tensor([0, 1, 1])
            >>> both = fgl.Graph(torch.eye(3), torch.tensor([[1], [2]]), batch=batch)
            >>> both.select(torch.tensor([1, 0])).edge_index
            tensor([[0],
                    [1]])
        """
        if self.batch is None:
            raise ValueError("Expected a graph with batch (see subgraph), but got one without")
        check_index("graphs", graphs, (None,), self.num_graphs)
        if graphs.numel() == 0:
            raise ValueError("Expected graphs to name a graph, but got none")
        chosen: Graph = collection.select(self, graphs)
        return chosen

    @classmethod
    def join(cls, graphs: Sequence[Graph], y: Tensor | None = None, **given: Any) -> Graph:
        """Graphs without `batch` as one collection; `y` and the masks among `given` are per graph.

        Features (dense), edges and weights are kept, the graphs' own labels and masks are not.

        Raises:
            ValueError: if there is no graph, one has no nodes, or their features differ in width.

        Example:
            >>> none = torch.zeros(2, 0, dtype=torch.int64)
            >>> graphs = [fgl.Graph(torch.ones(n, 1), none) for n in (2, 1)]
            >>> fgl.Graph.join(graphs, torch.tensor([1, 0])).batch
            tensor([0, 0, 1])
        """
        return cls(**collection.joined(graphs), y=y, **given)

    def to(self, device: torch.device | str, *, features: bool = True) -> Graph:
        """The graph on another device.

        Args:
            device: where to.
            features: whether `x` moves too. Features that stay where they are, such as mapped ones
                (`fgl.data.map_features`), are read by minibatches (`fgl.sampler.NeighbourSampler`).
        """
        moved: dict[str, Any] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            stays = not hasattr(value, "to") or (field.name == "x" and not features)
            moved[field.name] = value if stays else value.to(device)
        return Graph(**moved)

    @classmethod
    def from_pyg(cls, data: Any) -> Graph:
        """From a ``torch_geometric.data.Data`` or `Batch`, or anything with the same attributes.

        Fields of other names, ``edge_attr`` among them, are not read.
        """
        names = [field.name for field in fields(cls)]
        found: dict[str, Any] = {
            name: getattr(data, name, None)
            for name in names
            if name not in ("num_classes", "backend")
        }
        owners, y = found["batch"], found["y"]
        if owners is not None and y is not None and len(owners) == len(y) > 1 + owners[-1:].sum():
            found["batch"] = None  # a batch of graphs with labels for nodes: as one graph
        return cls(**found, num_classes=getattr(data, "num_classes", None))

    def to_pyg(self, data_class: Any) -> Any:
        """To a ``torch_geometric.data.Data`` or `Batch`: ``graph.to_pyg(Data)``.

        Features become dense.
        """
        found = {
            f.name: value
            for f in fields(self)
            if f.name != "backend" and (value := getattr(self, f.name)) is not None
        }
        if isinstance(self.x, SparseMatrix):
            found["x"] = self.x.to_dense()
        if self.batch is not None:
            found["ptr"] = self.ptr
        return data_class(**found)
