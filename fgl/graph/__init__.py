"""`Graph`: one graph or a collection of graphs; its fields are checked on creation."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Collection, Sequence
from functools import cached_property
from typing import Any, cast

import torch
from torch import Tensor

from ..checks import check_count, check_device, check_index, check_mask, reject_if
from ..sparse import SparseMatrix
from ..sparse.matrix import rows_of
from ..sparse.pattern import Pattern, outside
from . import checks, collection
from .checks import MASKS as MASKS
from .facts import Facts
from .fields import EDGE_FIELDS as EDGE_FIELDS
from .fields import EXAMPLE_FIELDS as EXAMPLE_FIELDS
from .fields import FIELDS, TENSORS, check_field, check_y, counted_classes, inside, present, taken
from .fields import NODE_FIELDS as NODE_FIELDS
from .fields import TIME_FIELDS as TIME_FIELDS
from .pyg import fields_of, pyg_fields
from .reading import Reading
from .tables import of_networkx
from .windows import check_no_series, check_windows, read, select_windows


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Graph(Facts):
    """A graph: node features, edges, and further data of the nodes, edges and examples.

    `y` and the masks have a row for each example. By default the examples are the nodes. With
    `batch`, the object is a collection of graphs. The examples are then the graphs, and
    ``[num_examples]`` means ``[num_graphs]``. With `edge_label_index`, the examples are pairs of
    nodes. With `window_index`, the examples are windows of a time series. Each window has targets
    for all nodes.

    Args:
        x: node features, float ``[num_nodes, num_features]``, as a dense tensor or a
            `SparseMatrix`; or a time series ``[num_nodes, num_times, num_features]``, as a dense
            tensor.
        edge_index: int64 ``[2, num_edges]``; row 0 has the sources, and row 1 has the targets.
        y: class labels, int64 ``[num_examples]`` in ``[0, num_classes)``; or float targets
            ``[num_examples]`` or ``[num_examples, t]``, with NaN for unknown values. See
            `fgl.targets`. If `window_index` is given, `y` is a time series per node, float
            ``[num_nodes, num_times]``.
        num_classes: number of classes. The default is the largest label plus one; a warning is then
            given if some class has no label in `y`.
        train_mask, val_mask, test_mask: bool ``[num_examples]``.
        node_id: int64 ``[num_nodes]``, for a subgraph: the ids of the nodes in the original graph.
        edge_weight: float ``[num_edges]``.
        batch: for each node, the index of its graph: int64 ``[num_nodes]``, sorted, from 0 without
            gaps. Every graph has at least one node, and no edge joins two graphs.
        backend: the kernels for products with `adj` and with sparse features: ``"torch"``, or
            ``"torch_sparse"`` (torch-sparse and torch-scatter, the extra `sparse`). The default is
            the backend of the features if the features are sparse, otherwise ``"torch"``.
        edge_attr: float ``[num_edges, d]``, edge features.
        edge_type: int64 ``[num_edges]``, the relation of each edge, at least 0.
        edge_time: int64 or float ``[num_edges]``.
        node_type: int64 ``[num_nodes]``, at least 0.
        edge_label_index: int64 ``[2, num_examples]``, pairs of nodes, which are the examples.
        edge_label_type: int64 ``[num_examples]``, the relation of each pair.
        z: int64 ``[num_nodes]``, an integer per node, at least 0, such as the atomic number.
        pos: float ``[num_nodes, d]``, positions of the nodes.
        u: float ``[num_graphs, d]``, features of the graphs in a collection.
        scale: float ``[num_nodes, 2 * (num_features + 1)]``, the means of the features and of `y`,
            followed by the standard deviations of the features and of `y`. With `scale`, a model
            reads standardised windows, and the model's output is converted to the units of `y`.
        window_index: int64 ``[num_examples, steps]``. Row i lists the time steps at which the model
            reads `x` in window i.
        horizon_index: int64 ``[num_examples, h]``. Row i lists the time steps for which the model
            predicts `y` in window i. These time steps are later than all time steps in row i of
            `window_index`.

    Raises:
        TypeError: if a field has a wrong type or a wrong dtype.
        ValueError: if a shape is wrong, if an index or a label is out of range, or if a feature, a
            weight or a time is not finite.

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
    edge_attr: Tensor | None = None
    edge_type: Tensor | None = None
    edge_time: Tensor | None = None
    node_type: Tensor | None = None
    edge_label_index: Tensor | None = None
    edge_label_type: Tensor | None = None
    z: Tensor | None = None
    pos: Tensor | None = None
    u: Tensor | None = None
    scale: Tensor | None = None
    window_index: Tensor | None = None
    horizon_index: Tensor | None = None

    def __post_init__(self) -> None:
        checks.check_features(self.x)
        self._choose_backend()
        check_index("edge_index", self.edge_index, (2, None), self.num_nodes)
        checks.check_devices(present(self, TENSORS), self.edge_index.device)
        if self.batch is not None:
            checks.check_batch(self.batch, self.edge_index, self.num_nodes)
        checks.check_pairs(self.edge_label_index, self.edge_label_type, self.batch, self.num_nodes)
        check_windows(self)
        alone = self.u is not None and self.batch is None
        reject_if(alone, "batch beside u, the features of its graphs", "none")
        sizes = {"node": self.num_nodes, "edge": self.num_edges}
        for name, value in present(self, FIELDS).items():
            check_field(name, value, sizes.get(FIELDS[name].owner, self.num_examples))
        masks = present(self, MASKS)
        checks.check_roles(masks)
        for name, mask in masks.items():  # a column of a matrix of masks is not contiguous
            object.__setattr__(self, name, mask.contiguous())
        if self.num_classes is not None:
            check_count(num_classes=self.num_classes)
        if self.y is None:
            return
        rows = self.num_examples if self.window_index is None else self.num_nodes
        check_y(self.y, rows, self.num_classes)
        if self.num_classes is None and self.y.numel() and not self.y.is_floating_point():
            object.__setattr__(self, "num_classes", counted_classes(self.y))

    def _choose_backend(self) -> None:
        if not isinstance(self.x, SparseMatrix):
            object.__setattr__(self, "backend", self.backend or "torch")
            return
        backend = self.backend or self.x.pattern.backend
        object.__setattr__(self, "backend", backend)
        if backend != self.x.pattern.backend:
            object.__setattr__(self, "x", self.x.using(backend))

    @cached_property
    def pool(self) -> SparseMatrix:
        """Matrix ``[num_graphs, num_nodes]``; ``pool @ h`` sums h over the nodes of each graph.

        Entry ``[i, j]`` is 1 if node j belongs to graph i, otherwise 0. The matrix also works under
        `vmap`. Then padding nodes belong to no graph, and padding graphs are empty.
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
        """The arguments of a model's `forward`: ``x, adj``, and ``pool`` if `batch` is given."""
        return (read(self), self.adj) if self.batch is None else (self.x, self.adj, self.pool)

    @cached_property
    def adj(self) -> SparseMatrix:
        """Adjacency matrix ``A[target, source]`` without added self-loops; computed once."""
        with outside(self.edge_weight):
            adj = SparseMatrix.from_edge_index(self.edge_index, self.num_nodes, self.edge_weight)
            return adj if self.backend == "torch" else adj.using(str(self.backend))

    def entries(self, name: str) -> Tensor:
        """A field of the edges, in the order of the entries of `adj`: ``[adj.nnz, ...]``.

        The method also works inside a batch of clients. In that case the fields of smaller clients
        are padded at the end.

        Raises:
            ValueError: if the graph has no edge field of this name, or if `adj` was replaced by a
                matrix with different entries.

        Example:
            >>> edges = torch.tensor([[0, 1, 2], [2, 0, 0]])
            >>> graph = fgl.Graph(torch.eye(3), edges, edge_time=torch.tensor([7, 8, 9]))
            >>> graph.adj.pattern.row, graph.entries("edge_time")
            (tensor([0, 0, 2]), tensor([8, 9, 7]))
        """
        wrong = name not in EDGE_FIELDS or not self.has(name)
        reject_if(wrong, f"the graph to have {name} of edges", "none")
        own: Graph = self.__dict__.get("edges_of", self)
        expected = f"adj to have the graph's own edges, whose {name} is known"
        reject_if(not self.adj.pattern.same(own.adj.pattern), expected, "other entries")
        return own._entries(name)

    @cached_property
    def reading(self) -> Reading:
        """The graph's fields for models whose `forward` takes an `edge_index`; computed once."""
        return Reading(self)

    def with_adj(self, adj: SparseMatrix, *, x: Any = None) -> Graph:
        """Return the graph with the operator ``A[target, source]`` as `adj`, without checks.

        Models do not normalise an operator from `SparseMatrix.as_operator`. If `x` is given, it
        replaces the features. Edges and all other fields do not change.
        """
        other = copy.copy(self)
        if x is not None:
            other.__dict__["x"] = x
        other.__dict__["edges_of"] = self.__dict__.get("edges_of", self)
        other.__dict__["adj"] = adj
        other.__dict__.pop("reading", None)
        return other

    def replace(self, **changes: Any) -> Graph:
        """Return a checked copy with changed fields; a new float `y` sets `num_classes` to None."""
        y = changes.get("y")
        if isinstance(y, Tensor) and y.is_floating_point():
            changes.setdefault("num_classes", None)
        return dataclasses.replace(self, **changes)

    def before(self, time: float) -> Graph:
        """Return the graph with all nodes and examples, but only the edges before a given time.

        Raises:
            ValueError: if the edges have no times.

        Example:
            >>> edges = torch.tensor([[0, 1, 2], [1, 2, 0]])
            >>> graph = fgl.Graph(torch.eye(3), edges, edge_time=torch.tensor([7, 8, 9]))
            >>> graph.before(9).edge_index
            tensor([[0, 1],
                    [1, 2]])
        """
        reject_if(not self.has("edge_time"), "the graph to have edge_time", "none")
        return self.with_edges(self.edge_time < time)  # type: ignore[operator, arg-type]

    def with_edges(self, edges: Tensor) -> Graph:
        """Return the graph with only some edges: distinct ids (int64 ``[m]``) or a bool mask.

        Example:
            >>> graph = fgl.Graph(torch.eye(3), torch.tensor([[0, 1, 2], [1, 2, 0]]))
            >>> graph.with_edges(torch.tensor([2, 0])).edge_index
            tensor([[2, 0],
                    [0, 1]])
        """
        if isinstance(edges, Tensor) and edges.dtype == torch.bool:
            check_mask("edges", edges, self.num_edges)
        else:
            check_index("edges", edges, (None,), self.num_edges)
            reject_if(len(edges.unique()) < len(edges), "edges to be distinct", "an edge twice")
        fields = taken(self, EDGE_FIELDS, edges)
        return self.replace(edge_index=self.edge_index[:, edges], **fields)

    def subgraph(self, nodes: Tensor, edges: Tensor | None = None) -> Graph:
        """Return the subgraph induced by `nodes` (int64 ``[m]``, distinct), in the given order.

        An edge or a pair is dropped if one of its ends is not in `nodes`. If the graph has
        `node_id`, the subgraph keeps the values of its nodes. Otherwise the subgraph's `node_id` is
        `nodes`. The ids of the induced edges can be given as `edges` (int64); otherwise all edges
        are searched.
        """
        reject_if(self.batch is not None, "a graph without batch (see select)", "one with it")
        check_index("nodes", nodes, (None,), self.num_nodes)
        repeated = nodes.unique().numel() != nodes.numel()
        reject_if(repeated, "nodes to be without repeats", "a node twice")
        position = torch.full((self.num_nodes,), -1, dtype=torch.int64, device=self.device)
        position[nodes] = torch.arange(nodes.numel(), device=self.device)
        if edges is None:
            edges = inside(self.edge_index, position)
        examples, pairs = nodes, None
        if self.edge_label_index is not None:
            examples = inside(self.edge_label_index, position)
            pairs = position[self.edge_label_index[:, examples]]
        fields = {
            **taken(self, NODE_FIELDS, nodes),
            **taken(self, EDGE_FIELDS, edges),
            **taken(self, EXAMPLE_FIELDS if self.window_index is None else ("y",), examples),
        }
        if self.window_index is not None:  # windows hold for all nodes
            fields |= present(self, (*TIME_FIELDS, *MASKS))
        return Graph(
            x=rows_of(self.x, nodes),
            edge_index=position[self.edge_index[:, edges]],
            num_classes=self.num_classes,
            edge_label_index=pairs,
            backend=self.backend,
            **{"node_id": nodes, **fields},
        )

    def append(
        self,
        x: Tensor | SparseMatrix,
        edge_index: Tensor,
        *,
        edge_weight: Tensor | None = None,
        node_id: Tensor | None = None,
        **fields: Tensor,
    ) -> Graph:
        """Append new nodes; none of them is a training, validation or test node.

        New nodes are in no mask. The label of a new node is the placeholder 0, or NaN for float
        targets. If the graph has no training mask, the result gets a training mask that selects the
        old nodes. Features stay sparse only if the old and the new features are both sparse.

        Args:
            x: float ``[m, num_features]``, the new nodes' features.
            edge_index: int64 ``[2, *]``, new edges between any nodes; the first new node has the
                index ``num_nodes``.
            edge_weight: float, weights of the new edges. If only the old edges or only the new
                edges have weights, all edges without a weight get weight 1.
            node_id: int64 ``[m]``, ids of the new nodes; if it is missing, the result has no
                `node_id`.
            fields: values for the new edges (`edge_attr`, `edge_type` and `edge_time`) and for the
                new nodes (`node_type`). If the graph has a field, values for this field are
                required. If the graph lacks a field, values for this field are not allowed.

        Raises:
            TypeError, ValueError: if `Graph` raises one of these errors, if the graph is a
                collection, if `fields` lacks a field that the graph has, or if `fields` has a field
                that the graph lacks.

        Example:
            >>> graph = fgl.Graph(torch.eye(2), torch.tensor([[0], [1]]), y=torch.tensor([0, 1]))
            >>> more = graph.append(torch.ones(1, 2), torch.tensor([[2], [0]]))
            >>> more.num_nodes, more.train_mask
            (3, tensor([ True,  True, False]))

        Source: the mended graphs of Zhang et al. 2021, FedSage+, https://arxiv.org/abs/2106.13430
        """
        reject_if(self.batch is not None, "a graph without batch (see join)", "one with it")
        check_no_series(self, "append")
        check_index("edge_index", edge_index, (2, None), self.num_nodes + x.shape[0])
        return self.replace(
            **collection.appended(self, x, edge_index, edge_weight, node_id, fields)
        )

    def select(self, graphs: Tensor) -> Graph:
        """Select the graphs of a collection with the given ids (int64 ``[m]``), in the ids' order.

        The function neither sorts nor checks the result, so the run time is proportional to the
        size of the result. Edges are sorted by target. For a time series, `graphs` holds ids of
        windows. The result shares the series and the edges with this graph.

        Example:
            >>> batch = torch.tensor([0, 1, 1])
            >>> both = fgl.Graph(torch.eye(3), torch.tensor([[1], [2]]), batch=batch)
            >>> both.select(torch.tensor([1, 0])).edge_index
            tensor([[0],
                    [1]])
        """
        if self.window_index is not None:
            check_index("graphs", graphs, (None,), self.num_examples)
            return cast("Graph", select_windows(self, graphs.to(self.device)))
        reject_if(self.batch is None, "a graph with batch (see subgraph)", "one without")
        check_index("graphs", graphs, (None,), self.num_graphs)
        reject_if(graphs.numel() == 0, "graphs to name a graph", "none")
        chosen: Graph = collection.select(self, graphs.to(self.device))
        return chosen

    @classmethod
    def join(cls, graphs: Sequence[Graph], y: Tensor | None = None, **fields: Any) -> Graph:
        """Join graphs without `batch` into one collection, with targets and masks per graph.

        Features become dense. The result keeps the fields of nodes and edges, but not the labels
        and masks of nodes. `fields` may contain masks with a row for each graph. If only some
        graphs have edge weights, the edges of all other graphs get weight 1.

        Raises:
            ValueError: if there is no graph, if a graph has no nodes, if the graphs differ in
                `num_features`, or if a field other than edge weights exists in only some graphs.

        Example:
            >>> none = torch.zeros(2, 0, dtype=torch.int64)
            >>> graphs = [fgl.Graph(torch.ones(n, 1), none) for n in (2, 1)]
            >>> fgl.Graph.join(graphs, torch.tensor([1, 0])).batch
            tensor([0, 0, 1])
        """
        return cls(**collection.joined(graphs), y=y, **fields)

    def to(self, device: torch.device | str, *, features: bool = True) -> Graph:
        """Return the graph on another device.

        Args:
            device: the target device.
            features: whether `x` is also moved. If False, `x` stays on its device, and
                `fgl.sampler.NeighbourSampler` moves only the features of each minibatch. Use False
                for features that are mapped from a file (`fgl.data.map_features`).

        Raises:
            ValueError: if torch has no such device.
        """
        check_device(device)
        names = TENSORS if features else TENSORS[1:]
        return self.replace(**{k: value.to(device) for k, value in present(self, names).items()})

    @classmethod
    def from_pyg(
        cls,
        data: Any,
        *,
        split: int | None = None,
        ignore: Collection[str] = (),
        num_classes: int | None = None,
    ) -> Graph:
        """Convert a ``torch_geometric.data.Data`` or `Batch`, or an object with the same fields.

        Args:
            data: an object whose fields have the names of a `Graph`'s fields. ``y [n, 1]`` becomes
                ``[n]``, and ``edge_attr [E]`` becomes ``[E, 1]``. ``edge_label`` becomes `y`: the
                labels of the pairs in ``edge_label_index`` or, without pairs, the labels of the
                edges. ``adj_t`` is converted to edges. Ids such as ``train_idx`` are converted to
                masks, and float64 features to the default dtype.
            split: the column to read, counted from 0, if masks have the shape ``[n, splits]``.
            ignore: names of fields that are not read.
            num_classes: number of classes; by default ``data.num_classes``, or as in `Graph`.

        Raises:
            TypeError: if the nodes or edges of each type are in separate dicts, as in `HeteroData`.
            ValueError: if a field has no equivalent in a `Graph` and is not ignored, or if `x` is
                missing. A ValueError is also raised if masks have several splits and `split` is
                None, or if both nodes and pairs have labels. Errors of `Graph` are raised too.

        Example:
            >>> from types import SimpleNamespace
            >>> data = SimpleNamespace(x=torch.eye(2), edge_index=torch.tensor([[0], [1]]))
            >>> Graph.from_pyg(data).num_edges
            1
        """
        fields = fields_of(data, split, ignore)
        if num_classes is not None:
            fields["num_classes"] = num_classes
        return cls(**fields)

    @classmethod
    def from_networkx(
        cls,
        graph: Any,
        *,
        x: Sequence[str] = (),
        y: str | None = None,
        edge_weight: str | None = None,
        edge_attr: Sequence[str] = (),
        edge_time: str | None = None,
        classes: Sequence[Any] | None = None,
        ignore: Collection[str] = (),
    ) -> Graph:
        """Convert a networkx graph; row i of the result is node ``list(graph)[i]``.

        Edges of an undirected graph are stored in both directions. To read GraphML or GEXF files,
        first call ``networkx.read_graphml`` or ``networkx.read_gexf``.

        Args:
            graph: a ``networkx.Graph``, ``DiGraph``, ``MultiGraph`` or ``MultiDiGraph``.
            x: names of node attributes that hold numbers or rows of numbers. If no names are given,
                `x` is a column of ones.
            y: node attribute with labels (integers, or strings with `classes`) or floats.
            edge_weight, edge_attr, edge_time: numeric edge attributes.
            classes: all possible values of `y`. The first value becomes label 0, the second value
                becomes label 1, and so on.
            ignore: attributes that may stay unread. A warning names every other attribute that is
                not read.

        Raises:
            ValueError: if a node or an edge lacks an attribute, or if labels are strings but
                `classes` is missing.

        Example:
            >>> import networkx
            >>> friends = networkx.Graph([("Ann", "Bob")])
            >>> networkx.set_node_attributes(friends, {"Ann": 31, "Bob": 27}, "age")
            >>> Graph.from_networkx(friends, x=["age"]).x.tolist()
            [[31.0], [27.0]]
        """
        of_edges = edge_weight, edge_attr, edge_time
        return cls(**of_networkx(graph, x, y, classes, *of_edges, ignore))

    def to_pyg(self, data_class: Any) -> Any:
        """Convert to a ``torch_geometric.data.Data`` or `Batch`: ``graph.to_pyg(Data)``.

        Features become dense.
        """
        return data_class(**pyg_fields(self))
