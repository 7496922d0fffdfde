"""Cohorts: the graphs and contexts of several clients, stacked for `vmap`."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from ....graph import EDGE_FIELDS, EXAMPLE_FIELDS, MASKS, NODE_FIELDS, TIME_FIELDS, Graph
from ....sparse import SparseMatrix
from ....sparse.batched_matrix import MatrixStack
from ....sparse.batched_pattern import Member
from ....transfer import to_device
from ...method.message import stacked
from ...method.rules import Ragged
from .sink import SunkReading

ONE_BY_ONE = "; clients_at_once=1 trains one client after the other"

ENTRIES, MESSAGES = "entries of ", "messages"  # names of parts that are no fields

Part = Callable[[Member], Any]


@dataclass(frozen=True)
class Stacked:
    """The values of a field at all clients, and a function that returns the current client's value.

    Args:
        of: a function that returns the current client's value; call it inside `vmap`.
        tensors: the dense tensors that contain all clients' values. Each tensor is a stack, or a
            tensor that all clients share. The function `of` builds a client's value from these
            tensors.
        fixed: all other parts of these values, such as the keys of a dict.
    """

    of: Part
    tensors: Sequence[Tensor]
    fixed: Sequence[Any] = ()

    def __call__(self, client: Member) -> Any:
        return self.of(client)


def taken_apart(value: Any) -> tuple[list[Tensor], list[Any]]:
    """Split a nested value into its dense tensors, and a list of its types, keys and other objects.

    Example:
        >>> taken_apart({"a": torch.tensor(1.0), "b": 2})
        ([tensor(1.)], [<class 'dict'>, 'a', <class 'torch.Tensor'>, 'b', 2])
    """
    if isinstance(value, Tensor) and value.layout == torch.strided:
        return [value], [Tensor]
    if isinstance(value, Ragged):
        value = {"values": value.values, "mask": value.mask}
    if isinstance(value, (list, tuple)):
        value = dict(enumerate(value))
    if not isinstance(value, Mapping):
        return [], [value]
    tensors: list[Tensor] = []
    rest: list[Any] = [type(value)]
    for key, each in value.items():
        some, other = taken_apart(each)
        tensors += some
        rest += [key, *other]
    return tensors, rest


def _late(make: Callable[[], Part]) -> Part:
    """A part that is computed only when a loss reads it."""
    cached = cache(make)
    return lambda client: cached()(client)


class Cohort:
    """The graphs of K clients, padded to the largest graph and stacked.

    Edges become block-diagonal operators.

    Args:
        graphs: the clients' graphs, with equal fields, features, classes, dtype and device.
        clients: the numbers by which error messages name the clients; by default the positions in
            `graphs`.

    Raises:
        ValueError: if the graphs have different kinds.

    Example:
        >>> graphs = [fgl.Graph(torch.ones(n, 2), torch.tensor([[0], [1]])) for n in (2, 4)]
        >>> cohort = Cohort(graphs)
        >>> cohort.num_nodes, cohort.padding
        (4, 0.25)
        >>> torch.func.vmap(lambda index: cohort.graph(Member(index)).num_nodes)(cohort.index)
        tensor([2, 4])
    """

    def __init__(self, graphs: Sequence[Graph], clients: Sequence[int] | None = None) -> None:
        self.graphs = list(graphs)
        self.clients = list(range(len(graphs)) if clients is None else clients)
        check_kind(self.graphs, self.clients)
        first = self.graphs[0]
        sizes = [graph.num_nodes for graph in self.graphs]
        self.num_nodes = max(sizes)
        self.padding = 1 - sum(sizes) / max(len(sizes) * self.num_nodes, 1)
        self._lifted: list[weakref.ref[Tensor]] = []
        self.index = torch.arange(len(sizes), device=first.device)
        self.parts: dict[str, Part] = {"x": self._each("x")}
        self._stack_examples((*EXAMPLE_FIELDS, *NODE_FIELDS, *TIME_FIELDS))
        for name in EDGE_FIELDS:
            if first.has(name):
                self.parts[ENTRIES + name] = _late(partial(self._entries, name))
        if first.edge_label_index is not None:
            self.parts["edge_label_index"] = self._pairs()
        self.parts[MESSAGES] = _late(self._messages)
        self.parts["adj"] = MatrixStack([graph.adj for graph in self.graphs]).of
        self.parts["node_mask"] = _late(lambda: self._each("node_mask"))
        if first.batch is not None:
            self.parts["pool"] = MatrixStack([graph.pool for graph in self.graphs]).of
            self.parts["batch"] = _late(
                lambda: self.stack("batch", [self._owners(graph) for graph in self.graphs])
            )
        for name in ("num_nodes", "num_edges", "num_graphs"):
            self.parts[name] = _late(partial(self._counts, name))

    def _stack_examples(self, names: Sequence[str]) -> None:
        self.num_examples = max(graph.num_examples for graph in self.graphs)
        present = [name for name in names if self.graphs[0].has(name)]
        self.parts |= {name: self._each(name) for name in (*present, "example_mask")}
        if not self.graphs[0].has("train_mask"):
            self.parts["train_mask"] = self.parts["example_mask"]

    def of_step(self, batches: Sequence[Graph | None]) -> Cohort:
        """The cohort for one step.

        The cohort has one graph per client. `batches` has None for a client without a step.

        If the graphs are windows of the clients' series, the graphs share the stacked series and
        the stacked edges.
        """
        first = next(graph for graph in batches if graph is not None)
        if not first.has("window_index"):
            return Cohort([first if graph is None else graph for graph in batches], self.clients)
        pairs = list(zip(batches, self.graphs, strict=True))
        steps = [own.select(self.index[:0]) if graph is None else graph for graph, own in pairs]
        shared = [field.name for field in fields(Graph) if field.name not in (*TIME_FIELDS, *MASKS)]
        for graph, own in zip(steps, self.graphs, strict=True):
            if any(getattr(graph, name) is not getattr(own, name) for name in (*shared, "adj")):
                return Cohort(steps, self.clients)
        cohort = copy.copy(self)
        cohort.graphs, cohort.parts, cohort._lifted = steps, {**self.parts}, [*self._lifted]
        cohort._stack_examples((*TIME_FIELDS, *MASKS))
        return cohort

    def _each(self, name: str) -> Part:
        return self._stacked(name, [getattr(graph, name) for graph in self.graphs], pad=True)

    def _entries(self, name: str) -> Part:
        """Stack a field of edges: each row has a client's own entries, then padding."""
        return self._stacked(name, [graph.entries(name) for graph in self.graphs], pad=True)

    def _pairs(self) -> Part:
        pairs = [graph.edge_label_index.T for graph in self.graphs]  # type: ignore[union-attr]
        rows = self._stacked("edge_label_index", pairs, pad=True)
        return lambda client: rows(client).T

    def _messages(self) -> Part:
        """Build ``edge_index [2, E]`` from the entries.

        Padded entries are self-loops at the sink.
        """
        patterns = [graph.adj.pattern for graph in self.graphs]
        shape = (len(patterns), 2, max(pattern.nnz for pattern in patterns))
        ends = self.index.new_full(shape, self.num_nodes)
        for row, pattern in zip(ends, patterns, strict=True):
            row[:, : pattern.nnz] = torch.stack([pattern.col, pattern.row])
        self.remember([ends])
        return lambda client: client.part(ends)

    def _counts(self, name: str) -> Part:
        counts = torch.tensor([getattr(graph, name) for graph in self.graphs])
        stacked = to_device(counts, self.index.device)
        self.remember([stacked])
        return lambda client: client.part(stacked)

    def __len__(self) -> int:
        return len(self.graphs)

    def _owners(self, graph: Graph) -> Tensor:
        """The index of each node's graph.

        Padded nodes belong to an extra graph.
        """
        out = graph.edge_index.new_full((self.num_nodes,), self.num_examples)
        out[: graph.num_nodes] = graph.batch  # type: ignore[assignment]
        return out

    @property
    def sparse(self) -> bool:
        """Whether the features are sparse."""
        return isinstance(self.graphs[0].x, SparseMatrix)

    @property
    def tensors(self) -> dict[str, Tensor]:
        """The stacked tensors, by number; tensors of graph fields are also listed by field name."""
        stacks = {name: part for name, part in self.parts.items() if isinstance(part, Stacked)}
        named = {f"graph.{name}": each for name, part in stacks.items() for each in part.tensors}
        return named | {
            f"stack {number} of graphs": each for number, each in enumerate(self.known())
        }

    def known(self) -> list[Tensor]:
        """The cohort's stacked tensors that are still in memory.

        These tensors become arguments of `vmap`, since a client's loss may read them.
        """
        return [stack for ref in self._lifted if (stack := ref()) is not None]

    def remember(self, stacks: Sequence[Tensor]) -> None:
        """Add stacked tensors to `known`.

        The references are weak, so the memory is freed after a round.
        """
        self._lifted = [weakref.ref(stack) for stack in (*self.known(), *stacks)]

    def graph(self, client: Member) -> Graph:
        """The current client's graph, inside `vmap`."""
        return _Member(self, client)

    def stack(self, name: str, values: Sequence[Any]) -> Stacked:
        """A function that returns the current client's entry of `values`, for use inside `vmap`.

        If all clients share a value, the function returns this value unchanged. `Ragged` values are
        padded with zeros, and the mask of a `Ragged` excludes the padding.

        Raises:
            TypeError: if the type of a value differs from the type of the first client's value.
            ValueError: if two clients' values differ in shape, keys or dtype, and are not `Ragged`.
        """
        return self._stacked(name, values, pad=False)

    def _stacked(self, name: str, values: Sequence[Any], *, pad: bool) -> Stacked:
        first = values[0]
        if all(value is first for value in values):
            return Stacked(lambda client: first, *taken_apart(first))
        self._check_equal(f"{name} to be a", [type(each).__name__ for each in values], TypeError)
        if isinstance(first, Ragged):
            return self._stack_ragged(name, values)
        if not pad:  # padding without a mask could change the loss
            shapes = [list(getattr(each, "shape", ())) for each in values]
            self._check_equal(f"{name} to be fgl.Ragged, with a mask, or to have shape", shapes)
        if isinstance(first, SparseMatrix):
            self._check_equal(f"{name} to be", [each.dtype for each in values])
            return Stacked(MatrixStack(values).of, (), values)
        if isinstance(first, Mapping):
            return self._stack_dicts(name, values)
        if not isinstance(first, Tensor):
            raise TypeError(
                f"Expected client {self.clients[0]}'s {name} to be a tensor, a SparseMatrix, "
                f"Ragged or a dict of them, but got {type(first).__name__}{ONE_BY_ONE}"
            )
        stacked = self._padded(name, values)
        self.remember([stacked])  # cheaper as an argument of `vmap` than lifted by each use
        return Stacked(lambda client: client.part(stacked), [stacked])

    def _stack_ragged(self, name: str, values: Sequence[Ragged]) -> Stacked:
        values_of = self._stacked(name, [value.values for value in values], pad=True)
        mask_of = self._stacked(f"{name}.mask", [value.mask for value in values], pad=True)
        return _joined(
            lambda client: Ragged(values_of(client), mask_of(client)), [values_of, mask_of]
        )

    def _check_equal(
        self, name: str, forms: Sequence[Any], error: type[Exception] = ValueError
    ) -> None:
        """Raise an error unless the clients' values of a field have equal forms."""
        for client, form in zip(self.clients, forms, strict=True):
            if form != forms[0]:
                raise error(
                    f"Expected client {client}'s {name} {forms[0]} as client {self.clients[0]}'s, "
                    f"but got {form}{ONE_BY_ONE}"
                )

    def _stack_dicts(self, name: str, values: Sequence[Any]) -> Stacked:
        self._check_equal(f"{name} to have keys", list(map(list, values)))
        stacks = {
            key: self.stack(f"{name}[{key!r}]", [v[key] for v in values]) for key in values[0]
        }
        return _joined(
            lambda client: {key: of(client) for key, of in stacks.items()}, stacks.values()
        )

    def _padded(self, name: str, tensors: Sequence[Tensor]) -> Tensor:
        first = tensors[0]
        forms = [[each.dtype, *["*"][: each.dim()], *each.shape[1:]] for each in tensors]
        self._check_equal(f"{name} to have dtype and shape", forms)
        if all(tensor.shape == first.shape for tensor in tensors):
            stack = stacked(tensors)  # a number may lie beside tensors of a GPU
            return stack if first.dim() else to_device(stack, self.index.device)
        return pad_sequence(list(tensors), batch_first=True)


def _joined(of: Part, parts: Iterable[Stacked]) -> Stacked:
    """A `Stacked` with the tensors of several `Stacked` values."""
    parts = list(parts)
    tensors = [tensor for part in parts for tensor in part.tensors]
    return Stacked(of, tensors, [Stacked, *(each for part in parts for each in part.fixed)])


class _Member(Graph):
    """A client's graph, for use inside `vmap`.

    The tensors of this graph are batched, and the masks exclude padded nodes.

    The numbers of nodes, edges and training nodes are tensors, too. These numbers exclude padding.
    """

    def __init__(self, cohort: Cohort, client: Member) -> None:
        self.__dict__.update(cohort=cohort, client=client, num_classes=cohort.graphs[0].num_classes)

    def __getattribute__(self, name: str) -> Any:
        own = object.__getattribute__(self, "__dict__")
        if name not in own and "cohort" in own and name in own["cohort"].parts:
            own[name] = own["cohort"].parts[name](own["client"])
        return own[name] if name in own else super().__getattribute__(name)

    def __repr__(self) -> str:
        return "Graph(of a batch of clients)"

    @property
    def device(self) -> torch.device:
        device: torch.device = self.cohort.graphs[0].device
        return device

    @property
    def edge_index(self) -> Tensor:  # type: ignore[override]
        raise ValueError(f"Expected the loss to read graph.adj, but got edge_index{ONE_BY_ONE}")

    def _refused(self, name: str) -> Any:
        instead = "adj" if name == "edge_weight" else f'entries("{name}")'
        raise ValueError(f"Expected the loss to read graph.{instead}, but got {name}{ONE_BY_ONE}")

    edge_weight = property(lambda self: self._refused("edge_weight"))
    edge_attr = property(lambda self: self._refused("edge_attr"))
    edge_type = property(lambda self: self._refused("edge_type"))
    edge_time = property(lambda self: self._refused("edge_time"))

    def has(self, name: str) -> bool:
        parts = self.cohort.parts
        return name in parts or ENTRIES + name in parts

    def _entries(self, name: str) -> Tensor:
        entries: Tensor = self.cohort.parts[ENTRIES + name](self.client)
        return entries

    @property
    def reading(self) -> SunkReading:
        cohort, batched = self.cohort, self.cohort.graphs[0].batch is not None
        edges = cohort.parts[MESSAGES](self.client)
        graphs = cohort.num_examples if batched else None
        return SunkReading(self, edges, cohort.num_nodes, graphs, self.client.index * 0)

    @property
    def num_train(self) -> Any:
        return self._answered.sum()

    def replace(self, **changes: Any) -> Graph:
        names = {field.name for field in fields(Graph)}
        for name in changes:
            if name not in names:
                raise TypeError(f"Expected a field of Graph, but got {name!r}")
            if name in ("edge_index", *EDGE_FIELDS, "edge_label_index", "batch", "backend"):
                raise ValueError(f"Expected the edges to stay, but got {name}{ONE_BY_ONE}")
        changed = copy.copy(self)
        changed.__dict__.update(changes)
        return changed


def batch_norms(model: nn.Module) -> list[nn.Module]:
    """Layers that mix examples; padding would change the results of these layers.

    If the model has a layer that mixes examples, clients with different numbers of nodes cannot
    train as one batch.

    Example:
        >>> len(batch_norms(torch.nn.Sequential(torch.nn.Linear(1, 1), torch.nn.BatchNorm1d(1))))
        1
    """
    return [m for m in model.modules() if isinstance(m, nn.modules.batchnorm._NormBase)]


def check_kind(graphs: Sequence[Graph], clients: Sequence[int]) -> None:
    """Raise an error if graphs have different fields, features or classes."""
    if not graphs:
        raise ValueError("Expected graphs to be at least one, but got none")
    want = kind_of_graph(graphs[0])
    for client, graph in zip(clients, graphs, strict=True):
        got = kind_of_graph(graph)
        for name, value in want.items():
            if got[name] != value:
                raise ValueError(
                    f"Expected client {client} to have {name} {value} as client {clients[0]}, "
                    f"but got {got[name]}{ONE_BY_ONE}"
                )


def kind_of_graph(graph: Graph) -> dict[str, Any]:
    """The graph's kind as a dict; graphs can be stacked only if their dicts are equal."""
    names = (*EXAMPLE_FIELDS, *NODE_FIELDS, *EDGE_FIELDS[1:], *TIME_FIELDS)
    names = (*names, "edge_label_index", "batch")
    return {
        "fields": [name for name in names if graph.has(name)],
        "num_features": graph.num_features,
        "num_classes": graph.num_classes,
        "features": type(graph.x).__name__,
        "dtype": graph.x.dtype,
        "adj": graph.adj.dtype,
        "device": graph.device,
    }
