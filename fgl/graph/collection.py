"""Collections of graphs: join graphs, select graphs, and append nodes to a graph."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..checks import reject_if
from ..sparse import SparseMatrix
from ..sparse.matrix import dense, rows_of
from ..sparse.pattern import Pattern
from .checks import MASKS, check_features
from .fields import (
    EDGE_FIELDS,
    EXAMPLE_FIELDS,
    FIELDS,
    NODE_FIELDS,
    UNFILLED,
    changed_copy,
    present,
    taken,
)
from .windows import check_no_series


def joined(graphs: Sequence[Any]) -> dict[str, Any]:
    """Concatenate the graphs' node fields and edge fields, as the fields of one collection."""
    _check_parts(graphs)
    device = graphs[0].device
    sizes = torch.tensor([graph.num_nodes for graph in graphs], device=device)
    start = (sizes.cumsum(0) - sizes).tolist()
    fields = {name: _joined_field(name, graphs) for name in ("edge_weight", *UNFILLED)}
    return {
        "x": torch.cat([dense(graph.x) for graph in graphs]),
        "edge_index": torch.cat(
            [graph.edge_index + first for graph, first in zip(graphs, start, strict=True)], dim=1
        ),
        "batch": torch.arange(len(graphs), device=device).repeat_interleave(sizes),
        **fields,
    }


def _check_parts(graphs: Sequence[Any]) -> None:
    """Raise an error unless each graph has nodes, no `batch`, and the same `num_features`."""
    for i, graph in enumerate(graphs):
        check_no_series(graph, "join")
        if graph.batch is not None or graph.num_nodes == 0:
            got = "none" if graph.num_nodes == 0 else "a batch"
            raise ValueError(f"Expected graph {i} to be one graph with nodes, but got {got}")
    reject_if(not graphs, "graphs to be at least one", "none")
    width = graphs[0].num_features
    for i, graph in enumerate(graphs):
        expected = f"graph {i} to have {width} features as graph 0"
        reject_if(graph.num_features != width, expected, graph.num_features)


def _joined_field(name: str, graphs: Sequence[Any]) -> Tensor | None:
    """Concatenate a field of nodes or edges over the graphs; None if no graph has the field."""
    lacking = [i for i, graph in enumerate(graphs) if getattr(graph, name) is None]
    if len(lacking) == len(graphs):
        return None
    wrong = lacking and FIELDS[name].default is None
    reject_if(wrong, f"{name} in all graphs or in none", f"none in graphs {lacking[:3]}")
    values = [getattr(graph, name) for graph in graphs]
    for i in lacking:
        size, like = graphs[i].num_edges, graphs[i]
        values[i] = torch.ones(size, dtype=like.x.dtype, device=like.device)
    return torch.cat(values)


def select(graph: Any, graphs: Tensor) -> Any:
    """Select some graphs of a collection, in the order of `graphs`.

    The new adjacency matrix and its transpose are cut out of the collection's block-diagonal
    matrices. In both matrices the entries of each graph's block are contiguous, so they need no
    sorting.
    """
    ptr, adj = graph.ptr, graph.adj
    turned, order = adj.pattern.transpose
    first = adj.pattern.crow.index_select(0, ptr)  # of each graph, also in the transpose
    size, count = (each.diff().index_select(0, graphs) for each in (ptr, first))
    totals = torch.stack([size.sum(), count.sum()]).tolist()
    batch, nodes, node_shift, new_ptr = _ranges(ptr, graphs, size, totals[0])
    owner, entries, entry_shift, ends = _ranges(first, graphs, count, totals[1])
    shift, row_shift = node_shift.index_select(0, owner), entry_shift.index_select(0, batch)
    shape = (nodes.numel(), nodes.numel())

    def cut(pattern: Pattern) -> Pattern:
        crow = torch.cat([pattern.crow.index_select(0, nodes) + row_shift, ends[-1:]])
        return pattern.like(crow, pattern.col.index_select(0, entries) + shift, shape)

    pattern = cut(adj.pattern)
    flipped = pattern.shared() if turned.col is adj.pattern.col else cut(turned)
    place = order.index_select(0, entries) + entry_shift.index_select(0, owner)
    pattern.__dict__["transpose"] = flipped, place
    value = None if adj.value is None else adj.value[entries]
    own = {name: graph.entries(name)[entries] for name in EDGE_FIELDS[1:] if graph.has(name)}
    return changed_copy(
        graph,
        x=rows_of(graph.x, nodes),
        edge_index=torch.stack([pattern.col, pattern.row]),
        edge_weight=value,
        batch=batch,
        **taken(graph, NODE_FIELDS, nodes),
        **taken(graph, EXAMPLE_FIELDS, graphs),
        **own,
        num_graphs=graphs.numel(),
        ptr=new_ptr,
        adj=SparseMatrix(pattern, value),
    )


def _ranges(
    first: Tensor, parts: Tensor, count: Tensor, total: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Concatenate ranges of integers.

    Range i has ``count[i]`` integers and begins at ``first[parts[i]]``.

    Returns:
        ``(owner, members, shift, begins)``. The tensor `members` contains the concatenated
        integers. The integer ``members[j]`` belongs to range number ``owner[j]``. Range i begins at
        the position ``begins[i]`` in `members`, and the last entry of `begins` is `total`.
        ``shift[i]`` is ``begins[i]`` minus the first integer of range i.
    """
    begins = torch.cat([count.new_zeros(1), count.cumsum(0)])
    shift = begins[:-1] - first.index_select(0, parts)
    owner = torch.repeat_interleave(count, output_size=total)
    members = torch.arange(total, device=first.device) - shift.index_select(0, owner)
    return owner, members, shift, begins


def appended(
    graph: Any,
    x: Tensor | SparseMatrix,
    edge_index: Tensor,
    edge_weight: Tensor | None,
    node_id: Tensor | None,
    fields: dict[str, Tensor],
) -> dict[str, Any]:
    """Compute the fields that `Graph.append` changes.

    Raises:
        TypeError, ValueError: if `x` cannot be concatenated with the graph's features.
    """
    check_features(x)
    wrong = x.shape[1] != graph.num_features or x.dtype != graph.x.dtype
    expected = f"x to have {graph.num_features} features of {graph.x.dtype}"
    reject_if(wrong, expected, f"{x.shape[1]} of {x.dtype}")
    new = x.shape[0]
    changes: dict[str, Any] = {
        "x": _below(graph.x, x),
        "edge_index": torch.cat([graph.edge_index, edge_index], 1),
        "node_id": None,
    }
    if graph.edge_label_index is None:  # otherwise the examples are pairs, which do not change
        changes |= _examples(graph, new)
    weights = _weights((graph.edge_weight, edge_weight), (graph.num_edges, edge_index.shape[1]))
    if weights is not None:
        changes["edge_weight"] = weights
    if graph.node_id is not None and node_id is not None:
        changes["node_id"] = torch.cat([graph.node_id, node_id])
    return changes | _more(graph, fields)


def _weights(weights: Sequence[Tensor | None], sizes: Sequence[int]) -> Tensor | None:
    """Weights of old and new edges; if only some edges have weights, all others get weight 1."""
    some = [weight for weight in weights if weight is not None]
    if not some:
        return None
    ones = [some[0].new_ones(size) for size in sizes]
    return torch.cat([o if w is None else w for w, o in zip(weights, ones, strict=True)])


def _examples(graph: Any, new: int) -> dict[str, Tensor]:
    """Masks and labels of all nodes; new nodes are in no mask, and their labels are unknown."""
    changes = {}
    for name in MASKS:
        mask = getattr(graph, name)
        if mask is None and name == "train_mask" and graph.y is not None:
            mask = torch.ones(graph.num_nodes, dtype=torch.bool, device=graph.device)
        if mask is not None:
            changes[name] = torch.cat([mask, mask.new_zeros(new)])
    if graph.y is not None:
        unknown = torch.nan if graph.y.is_floating_point() else 0
        changes["y"] = torch.cat([graph.y, graph.y.new_full((new, *graph.y.shape[1:]), unknown)])
    return changes


def _more(graph: Any, fields: dict[str, Tensor]) -> dict[str, Tensor]:
    """Append values for new nodes and edges to all fields in `UNFILLED` that the graph has."""
    names = [*present(graph, UNFILLED)]
    reject_if({*fields} != {*names}, f"new nodes and edges to come with {names}", list(fields))
    return {name: torch.cat([getattr(graph, name), fields[name]]) for name in names}


def _below(above: Tensor | SparseMatrix, below: Tensor | SparseMatrix) -> Tensor | SparseMatrix:
    """Concatenate the rows of two inputs; the result is sparse if both inputs are sparse."""
    if isinstance(above, SparseMatrix) and isinstance(below, SparseMatrix):
        one, two = above.pattern, below.pattern
        shape = (one.shape[0] + two.shape[0], one.shape[1])
        crow = torch.cat([one.crow, two.crow[1:] + one.nnz])
        pattern = Pattern(crow, torch.cat([one.col, two.col]), shape, one.backend)
        if above.value is None and below.value is None:
            return SparseMatrix(pattern)
        values = [
            m.pattern.ones(above.dtype) if m.value is None else m.value for m in (above, below)
        ]
        return SparseMatrix(pattern, torch.cat(values))
    return torch.cat([dense(above), dense(below)])
