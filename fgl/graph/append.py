"""Nodes that are added to a graph: what becomes of its features, edges, labels and masks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..checks import reject_if
from ..sparse import SparseMatrix
from ..sparse.matrix import dense
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
    weights = _weights((graph.edge_weight, edge_weight), (graph.num_edges, edge_index.shape[1]))
    if weights is not None:
        changes["edge_weight"] = weights
    if graph.node_id is not None and node_id is not None:
        changes["node_id"] = torch.cat([graph.node_id, node_id])
    return changes | _more(graph, fields)


def _weights(weights: Sequence[Tensor | None], sizes: Sequence[int]) -> Tensor | None:
    """Weights of old edges and new ones, 1 where only some edges have weights."""
    some = [weight for weight in weights if weight is not None]
    if not some:
        return None
    ones = [some[0].new_ones(size) for size in sizes]
    return torch.cat([o if w is None else w for w, o in zip(weights, ones, strict=True)])


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
    reject_if({*fields} != {*names}, f"new nodes and edges to come with {names}", list(fields))
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
    return torch.cat([dense(above), dense(below)])
