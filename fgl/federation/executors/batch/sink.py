"""The sink: an extra node for models of PyG; in a batch, padded and removed edges end at the sink.

PyG's code uses masks to remove edges. Such masks do not work under `vmap`. So each padded edge
becomes a self-loop of the sink. An edge also becomes such a self-loop if `Graph.with_adj` set its
weight to 0. The features of the sink are 0, and the sink belongs to an extra graph. If the model's
output has a row per node, the sink's row is removed.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad
from torch.overrides import TorchFunctionMode

from ....graph import EDGE_FIELDS, NODE_FIELDS
from ....graph.reading import Reading, dense
from ....graph.windows import read
from ....sparse import gather_rows, sum_rows

FRESH = {Tensor.new_zeros, Tensor.new_ones, Tensor.new_full, Tensor.new_empty}
FRESH |= {torch.zeros, torch.ones, torch.full, torch.empty}


class SunkReading(Reading):
    """The arguments of a model that reads `edge_index`, for one client of a batch.

    Edges that are added as padding are self-loops of the sink node.

    Args:
        graph: the client's graph; its edge fields end with padding.
        edge_index: int64 ``[2, E]``. Edges that are padding start and end at the sink node.
        num_nodes: number of nodes of the largest client; the sink node has this index.
        num_graphs: largest number of graphs of a client. This number is also the index of the
            sink's graph. The argument is None if each client has one graph.
        zero: a batched int64 zero, one per client.
    """

    def __init__(
        self, graph: Any, edge_index: Tensor, num_nodes: int, num_graphs: int | None, zero: Tensor
    ) -> None:
        self.graph, self.edges, self.zero = graph, edge_index, zero
        self.sink, self.sinks_graph = num_nodes, num_graphs
        self.owners: Tensor | None = None
        self.fields: list[Tensor] = []  # the fields that were read, except for indices

    def value(self, name: str) -> Any:
        graph, adj = self.graph, self.graph.adj
        if name == "x":
            return pad(dense(read(graph)), (0, 0, 0, 1))
        if name == "edge_index":
            present = adj.present if "edges_of" in graph.__dict__ else None
            return self.edges if present is None else torch.where(present, self.edges, self.sink)
        if name == "edge_weight":
            return adj.value
        if name in (*EDGE_FIELDS, *NODE_FIELDS):
            return self._field(name) if graph.has(name) else None
        if name == "num_nodes":
            return self.sink + 1
        if name in ("batch_size", "num_graphs"):
            return None if self.sinks_graph is None else self.sinks_graph + 1
        if name == "u" and graph.has("u"):
            return pad(graph.u, (0, 0, 0, 1))
        if name == "batch" and self.sinks_graph is not None:
            self.owners = pad(graph.batch, (0, 1), value=self.sinks_graph)
            return self.owners
        return getattr(graph, name) if graph.has(name) else None

    def _field(self, name: str) -> Tensor:
        if name in EDGE_FIELDS:
            field: Tensor = self.graph.entries(name)
        else:
            field = getattr(self.graph, name)
            field = pad(field, (0, 0) * (field.dim() - 1) + (0, 1))
        self.fields.append(field)
        return field

    @contextmanager
    def around(self, model: nn.Module) -> Iterator[None]:
        """A context for a call of the model.

        The context moves masked edges to the sink and removes the sink's row from the output.
        """
        hook = model.register_forward_hook(self._cut, prepend=True)
        try:
            with Filtered(self):
                yield
        finally:
            hook.remove()

    def _cut(self, model: nn.Module, args: Any, out: Any) -> Any:
        """The model's output without the row that belongs to the sink.

        If the output has one row per graph, the row of the extra graph that contains the sink is
        removed.
        """
        if isinstance(out, tuple):
            return tuple(self._cut(model, args, each) for each in out)
        if not isinstance(out, Tensor) or not out.dim():
            return out
        if self.graph.has("window_index"):
            rows = out.shape[1] if out.dim() == 3 else 0
            return out[:, : self.sink] if rows == self.sink + 1 else out
        sizes = {self.sink} if self.sinks_graph is None else {self.sink, self.sinks_graph}
        rows = out.shape[0] - 1
        return out[:rows] if rows in sizes and not self.graph.has("edge_label_index") else out


class Filtered(TorchFunctionMode):
    """A `TorchFunctionMode` that keeps shapes fixed in PyG's edge operations, as `vmap` requires.

    Edges that a mask excludes are moved to the sink. The maximum of an index tensor depends on the
    data. So this class returns the largest possible index instead of the maximum: the index of the
    sink (an extra node), or the index of the graph that contains the sink. If a layer creates a
    tensor, each client gets its own copy. Whole rows are read and added, which is faster than
    reading and adding single entries.
    """

    def __init__(self, reading: SunkReading) -> None:
        super().__init__()
        self.reading = reading

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is Tensor.__getitem__ and _mask_of(args[1]) is not None:
            return self._masked(args[0], _mask_of(args[1]))
        if func in (Tensor.max, torch.max, Tensor.amax) and len(args) == 1 and not kwargs:
            return self._largest(func, args[0])
        if func is Tensor.index_select and not kwargs and _reads_rows(*args):
            return gather_rows(args[0], args[2])
        if func is Tensor.scatter_add_ and not kwargs and _adds_rows(*args):
            into, _, index, values = args
            for _ in range(1, index.dim()):
                index = index.select(-1, 0)
            return into.add_(sum_rows(values, index, into.shape[0]))
        out = func(*args, **kwargs)
        if func in FRESH and isinstance(out, Tensor) and out.dtype != torch.bool:
            return out + self.reading.zero.to(out.dtype)
        return out

    def _masked(self, values: Tensor, mask: Any) -> Tensor:
        """Return the values of all edges, not only of the edges in the mask.

        Edges that the mask excludes become self-loops at the sink.
        """
        ends = values.dtype == torch.int64 and not self._is_field(values)
        return torch.where(mask, values, self.reading.sink) if ends else values

    def _is_field(self, values: Tensor) -> bool:
        return any(values is field for field in self.reading.fields)

    def _largest(self, func: Any, index: Tensor) -> Any:
        if index.dtype != torch.int64 or self._is_field(index):
            return func(index)
        of_graphs = index is self.reading.owners
        return torch.tensor(self.reading.sinks_graph if of_graphs else self.reading.sink)


def _mask_of(key: Any) -> Tensor | None:
    """The mask of the index ``[mask]`` or ``[:, mask]``; None for any other index."""
    last = key[-1] if isinstance(key, tuple) and key else key
    alone = not isinstance(key, tuple) or key[:-1] == (slice(None),) * (len(key) - 1)
    is_mask = isinstance(last, Tensor) and last.dtype == torch.bool and last.dim() == 1
    return last if is_mask and alone else None


def _reads_rows(x: Tensor, dim: int, index: Tensor) -> bool:
    """Whether whole rows are read; copying a row is faster than reading each of its entries."""
    return dim in (0, -x.dim()) and x.is_floating_point() and index.dim() == 1


def _adds_rows(into: Tensor, dim: int, index: Tensor, values: Tensor) -> bool:
    """Whether whole rows are added, that is, whether all entries of a row have the same index."""
    by_rows = not any(index.stride()[1:]) and values.shape == index.shape
    return dim in (0, -into.dim()) and by_rows
