"""Facts that follow from a graph's fields: counts, masks, labels, and the edges before a time."""

import dataclasses
from collections.abc import Sequence
from functools import cached_property
from operator import is_not
from typing import Any

import torch
from torch import Tensor

from ..checks import reject_if
from ..sparse import SparseMatrix
from ..sparse.pattern import outside, row_major
from .windows import by_answer


def answered(mask: Tensor, y: Tensor | None) -> Tensor:
    """Remove from a mask the examples whose targets are all unknown (NaN).

    Example:
        >>> answered(torch.tensor([True, True, False]), torch.tensor([1.0, torch.nan, 0.0]))
        tensor([ True, False, False])
    """
    if y is None or not y.is_floating_point():
        return mask
    has_answer = ~y.isnan()
    return mask & (has_answer if y.dim() == 1 else has_answer.any(1))


def unscored(graph: Any) -> Tensor:
    """Bool mask of the training examples that are neither validation nor test examples.

    Example:
        >>> graph = fgl.Graph(torch.eye(2), torch.tensor([[0], [1]]), y=torch.tensor([1, 0]))
        >>> unscored(graph.replace(test_mask=torch.tensor([False, True])))
        tensor([ True, False])
    """
    mask: Tensor = graph.training_mask
    for scored in (graph.val_mask, graph.test_mask):  # without a training mask all are in `mask`
        mask = mask if scored is None else mask & ~scored
    return mask


class Facts:
    """A graph's counts, masks and labels."""

    x: Any
    edge_index: Tensor
    y: Tensor | None
    num_classes: int | None
    train_mask: Tensor | None
    val_mask: Tensor | None
    test_mask: Tensor | None
    batch: Tensor | None
    edge_label_index: Tensor | None
    window_index: Tensor | None
    horizon_index: Tensor | None

    def __repr__(self) -> str:
        """Format the shapes of the graph's fields in PyG's style."""
        values = {each.name: getattr(self, each.name) for each in dataclasses.fields(self)}  # type: ignore[arg-type]
        shown = {name: value for name, value in values.items() if name != "backend"}
        parts = (
            f"{name}={list(value.shape) if hasattr(value, 'shape') else value}"
            for name, value in shown.items()
            if value is not None
        )
        return f"Graph({', '.join(parts)})"

    @property
    def num_nodes(self) -> int:
        return int(self.x.shape[0])

    @property
    def num_features(self) -> int:
        return int(self.x.shape[-1])

    @property
    def num_edges(self) -> int:
        return self.edge_index.shape[1]

    @property
    def device(self) -> torch.device:
        return self.edge_index.device

    @property
    def num_train(self) -> int:
        """Number of the training examples whose target is known.

        Without a training mask, every example is a training example. If the graph has no `y`, all
        training examples count. Each window counts once per node.
        """
        answers = self.y if self.y is not None and self.y.is_floating_point() else None
        read = [each for each in (self.train_mask, answers) if each is not None]
        if not read:
            return self.num_answers
        try:
            versions = [each._version for each in read]
        except RuntimeError:  # an inference tensor has no version counter
            return int(self._answered.sum())
        cached = self.__dict__.get("_counted")
        if cached is None or cached[1] != versions or any(map(is_not, cached[0], read)):
            count = int(self._answered.sum())
            cached = self.__dict__["_counted"] = read, versions, count
        return int(cached[2])

    @property
    def _answered(self) -> Tensor:
        """Mask of the training targets that are known."""
        _, y, mask = by_answer(self, self.training_mask)
        return answered(mask, y)

    @property
    def training_mask(self) -> Tensor:
        """Bool mask of the training examples; without a training mask, all real examples."""
        return self.example_mask if self.train_mask is None else self.train_mask

    @property
    def num_examples(self) -> int:
        """Number of examples: nodes, graphs of a `batch`, labelled pairs, or windows."""
        if self.edge_label_index is not None:
            return self.edge_label_index.shape[1]
        if self.window_index is not None:
            return self.window_index.shape[0]
        return self.num_nodes if self.batch is None else self.num_graphs

    @property
    def num_answers(self) -> int:
        """Number of rows of targets: one per example or, for a series, one per window and node."""
        return self.num_examples * (1 if self.window_index is None else self.num_nodes)

    @property
    def num_outputs(self) -> int:
        """Number of a model's outputs per example: classes, or columns of a float `y`.

        Raises:
            ValueError: if the graph has no `y` and no number of classes.
        """
        if self.num_classes is not None:
            return self.num_classes
        if self.horizon_index is not None:
            return self.horizon_index.shape[1]
        if self.y is None or not self.y.is_floating_point():
            raise ValueError("Expected graph.y to say what a model learns, but got None")
        return 1 if self.y.dim() == 1 else self.y.shape[1]

    @property
    def labels(self) -> Tensor:
        """Class labels `y`, int64 ``[num_examples]``; raises an error if `y` does not hold classes.

        Raises:
            ValueError: if there is no `y`.
            TypeError: if `y` holds float targets.
        """
        if self.y is None:
            raise ValueError("Expected graph.y to be a tensor of labels, but got None")
        expected = "graph.y to be class labels, int64 [num_examples]"
        got = f"{self.y.dtype} {list(self.y.shape)}"
        reject_if(self.y.is_floating_point(), expected, got, TypeError)
        return self.y

    @property
    def train_labels(self) -> Tensor:
        """Labels of the training nodes and -1 for all other nodes, int64 ``[num_nodes]``.

        Validation and test nodes always get -1, even if there is no training mask.

        Raises:
            ValueError: if the examples are not nodes.
            TypeError: if `y` holds float targets.

        Example:
            >>> mask = torch.tensor([True, False])
            >>> y = torch.tensor([1, 0])
            >>> fgl.Graph(torch.eye(2), torch.tensor([[0], [1]]), y=y, train_mask=mask).train_labels
            tensor([ 1, -1])
        """
        others = (self.batch, self.edge_label_index, self.window_index)
        if any(each is not None for each in others):
            raise ValueError("Expected examples to be nodes, whose labels are known in training")
        if self.y is None:
            return torch.full((self.num_nodes,), -1, device=self.device)
        return torch.where(unscored(self), self.labels, -1)

    def has(self, name: str) -> bool:
        """Whether the graph has a field; the function also works inside a batch of clients.

        Example:
            >>> fgl.Graph(torch.eye(2), torch.tensor([[0], [1]])).has("edge_attr")
            False
        """
        return getattr(self, name) is not None

    @cached_property
    def num_graphs(self) -> int:
        return 1 if self.batch is None else int(self.batch[-1]) + 1

    @cached_property
    def ptr(self) -> Tensor:
        """First node of each graph, followed by the number of nodes: int64 ``[num_graphs + 1]``."""
        if self.batch is None:
            return torch.tensor([0, self.num_nodes], device=self.device)
        sizes = self.batch.bincount(minlength=self.num_graphs)
        return torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])

    @property
    def node_mask(self) -> Tensor:
        """Mask of the real nodes.

        All nodes that are not real are padding. Only a batch of clients has padding.
        """
        return torch.ones(self.num_nodes, dtype=torch.bool, device=self.device)

    @property
    def example_mask(self) -> Tensor:
        """Mask of the real examples, which may be nodes, graphs, pairs or windows."""
        return torch.ones(self.num_examples, dtype=torch.bool, device=self.device)

    @property
    def all_tensors(self) -> dict[str, Tensor]:
        """Dict from name to tensor: tensors of fields, and tensors computed from fields so far.

        Two kinds of tensors are computed from fields: edge fields sorted into the order of the
        entries of `adj`, and the values of `adj` and of matrices such as ``adj.gcn_norm``.
        """
        copies = self.__dict__.get("in_order", {})
        named = {f"graph.entries({name!r})": own for name, own in copies.items()}
        for name in {"x", "adj"} & self.__dict__.keys():
            if isinstance(matrix := self.__dict__[name], SparseMatrix):
                _store(named, f"graph.{name}", matrix)
        return {**self.tensors, **named}

    @cached_property
    def tensors(self) -> dict[str, Tensor]:
        """The tensors of the fields by name; for sparse features, the tensor of their values."""
        fields = {f"graph.{own.name}": getattr(self, own.name) for own in dataclasses.fields(self)}  # type: ignore[arg-type]
        values = {name: getattr(field, "value", field) for name, field in fields.items()}
        return {name: own for name, own in values.items() if isinstance(own, Tensor)}

    def _entries(self, name: str) -> Tensor:
        value: Tensor = getattr(self, name)
        cache: dict[str, Tensor] = self.__dict__.setdefault("in_order", {})
        if name not in cache:
            with outside(value):
                cache[name] = value.index_select(0, self.entry_order)
        return cache[name]

    @cached_property
    def entry_order(self) -> Tensor:
        """For each entry of `adj`, in order, the id of the entry's edge: int64 ``[num_edges]``."""
        source, target = self.edge_index
        with outside():
            return row_major(target, source, self.num_nodes)


def _store(tensors: dict[str, Tensor], name: str, matrix: SparseMatrix) -> None:
    """Add to `tensors` the values of a matrix and of all matrices that were computed from it."""
    for own in matrix.pattern.__dict__.get("_ones", {}).values():
        tensors[f"{name}.values"] = own
    if matrix.value is not None:
        tensors[name] = matrix.value
    for key, derived in matrix.__dict__.get("_made", {}).items():
        _store(tensors, f"{name}.{key}", derived)


FROM = {
    "Data": ": fgl.Graph.from_pyg(data)",
    "Batch": ": fgl.Graph.from_pyg(batch)",
    "DataBatch": ": fgl.Graph.from_pyg(batch)",
    "HeteroData": ": fgl.data.from_hetero(data)",
    "DataLoader": ": [fgl.Graph.from_pyg(data), ...], one graph per client",
}


def kind_of(value: object) -> str:
    """The name of a value's type, for the text of an error.

    If fgl has a function that converts values of this type to a graph, the returned text also shows
    how to call this function.

    Example:
        >>> kind_of([1, 2])
        'list'
    """
    kind = type(value).__name__
    return f"{kind}{FROM.get(kind, '')}"


def check_graph(name: str, graph: Any) -> None:
    """Raise a TypeError unless the value is a graph.

    Example:
        >>> check_graph("whole", [1, 2])
        Traceback (most recent call last):
        TypeError: Expected whole to be a fgl.Graph, but got list
    """
    if not isinstance(graph, Facts):
        raise TypeError(f"Expected {name} to be a fgl.Graph, but got {kind_of(graph)}")


def check_graphs(clients: Sequence[Any]) -> None:
    """Raise an error if there is no client, or if a client is not a graph.

    Example:
        >>> check_graphs([[1, 2]])
        Traceback (most recent call last):
        TypeError: Expected client 0 to be a Graph, but got list
    """
    if isinstance(clients, Facts):
        raise TypeError("Expected clients to be a sequence of graphs, but got a Graph: [graph]")
    reject_if(not len(clients), "clients to be at least one graph", "none")
    for client, graph in enumerate(clients):
        if not isinstance(graph, Facts):
            cut = isinstance(graph, Tensor)  # the node ids of a partition
            hint = ": fgl.data.partitions.partition_graph(graph, parts) makes the clients" * cut
            got = f"{kind_of(graph)}{hint}"
            raise TypeError(f"Expected client {client} to be a Graph, but got {got}")
