"""Fields of a graph by name, for models whose `forward` takes an `edge_index`."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from ..sparse import SparseMatrix
from ..sparse.pattern import outside
from .fields import EDGE_FIELDS
from .windows import read


class Reading:
    """Edges in PyG's format, ``edge_index [2, E]``, ordered like the entries of `adj`.

    If `adj` was replaced by `Graph.with_adj`, entries with value 0 are not edges.

    Example:
        >>> graph = fgl.Graph(torch.eye(3), torch.tensor([[0, 1, 2], [2, 0, 0]]))
        >>> dropped = graph.with_adj(graph.adj.with_value(torch.tensor([1.0, 0.0, 1.0])))
        >>> dropped.reading.value("edge_index")
        tensor([[1, 0],
                [0, 2]])
    """

    def __init__(self, graph: Any) -> None:
        self.graph = graph
        with outside(graph.adj.value):
            real = graph.adj.present if "edges_of" in graph.__dict__ else None
            self.kept = None if real is None or bool(real.all()) else real.nonzero().squeeze(1)

    def value(self, name: str) -> Any:
        """Return the graph's value of this name, or None if the graph has no such value."""
        graph, adj = self.graph, self.graph.adj
        if name == "x":
            return dense(read(graph))
        if name == "edge_index":
            return self.edge_index
        if name == "edge_weight":
            return None if adj.value is None else self._left(adj.value, 0)
        if name in EDGE_FIELDS:
            return self._left(graph.entries(name), 0) if graph.has(name) else None
        if name in ("batch_size", "num_graphs"):
            return None if graph.batch is None else graph.num_graphs
        value = getattr(graph, name)
        # A model that computes forces needs the gradient of its own copy.
        return value.detach() if name == "pos" and value is not None else value

    @cached_property
    def edge_index(self) -> Tensor:
        with outside():
            pattern = self.graph.adj.pattern
            return self._left(torch.stack([pattern.col, pattern.row]), 1)

    def _left(self, entries: Tensor, dim: int) -> Tensor:
        return entries if self.kept is None else entries.index_select(dim, self.kept)

    @contextmanager
    def around(self, model: nn.Module) -> Iterator[None]:
        """A context for a call of a model: an error is raised if the call changes the features.

        Raises:
            ValueError: if the features were changed.
        """
        x = self.graph.x
        before = None if x.is_inference() else x._version
        yield
        if before is not None and x._version != before:
            raise ValueError(
                f"Expected {type(model).__name__}'s forward to leave x as it is, but it writes "
                "into it, which is the client's own: begin with x = x.clone()"
            )


def dense(x: Tensor | SparseMatrix) -> Tensor:
    """Dense features, which PyG's layers require.

    Raises:
        TypeError: if the features are sparse.
    """
    if isinstance(x, SparseMatrix):
        raise TypeError(
            "Expected graph.x to be dense, since the model reads edge_index as PyG's do, but got a "
            "SparseMatrix: graph.replace(x=graph.x.to_dense())"
        )
    return x
