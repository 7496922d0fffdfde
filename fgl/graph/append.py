"""Nodes that are added to a graph: what becomes of its features, edges, labels and masks."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..sparse import SparseMatrix
from ..sparse.pattern import Pattern
from .checks import MASKS, check_features
from .fields import UNFILLED, present


def appended(
    graph: Any,
    x: Tensor | SparseMatrix,
    edge_index: Tensor,
    edge_weight: Tensor | None,
    node_id: Tensor | None,
    fields: dict[str, Tensor],
) -> dict[str, Any]:
    """The fields of `Graph.append` that change.

    Raises:
        TypeError, ValueError: if `x` does not fit below the graph's features.
    """
    check_features(x)
    if x.shape[1] != graph.num_features or x.dtype != graph.x.dtype:
        raise ValueError(
            f"Expected x to have {graph.num_features} features of {graph.x.dtype}, "
            f"but got {x.shape[1]} of {x.dtype}"
        )
    new = x.shape[0]
    changes: dict[str, Any] = {
        "x": _below(graph.x, x),
        "edge_index": torch.cat([graph.edge_index, edge_index], 1),
        "node_id": None,
    }
    if graph.edge_label_index is None:  # else the examples are pairs, which stay
        changes |= _examples(graph, new)
    weights = graph.edge_weight, edge_weight
    if like := [weight for weight in weights if weight is not None]:
        counts = graph.num_edges, edge_index.shape[1]
        changes["edge_weight"] = torch.cat(
            [
                like[0].new_ones(count) if weight is None else weight
                for weight, count in zip(weights, counts, strict=True)
            ]
        )
    if graph.node_id is not None and node_id is not None:
        changes["node_id"] = torch.cat([graph.node_id, node_id])
    return changes | _more(graph, fields)


def _examples(graph: Any, new: int) -> dict[str, Tensor]:
    """Masks and labels of old nodes and new ones, which are in no mask, their answer unknown."""
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
    """The fields without a default, of the old nodes and edges and the new ones."""
    names = [*present(graph, UNFILLED)]
    if {*fields} != {*names}:
        raise ValueError(
            f"Expected new nodes and edges to come with {names}, but got {list(fields)}"
        )
    return {name: torch.cat([getattr(graph, name), fields[name]]) for name in names}


def _below(above: Tensor | SparseMatrix, below: Tensor | SparseMatrix) -> Tensor | SparseMatrix:
    """Rows below rows; sparse where both are."""
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
    dense = [m.to_dense() if isinstance(m, SparseMatrix) else m for m in (above, below)]
    return torch.cat(dense)
