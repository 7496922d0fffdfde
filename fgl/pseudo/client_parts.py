"""Parts of the server's pseudo labels and pseudo graph for each client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ..graph import Graph
from ..kinds import explained
from ..sparse import SparseMatrix
from ..warn import warn
from .graph import edge_tensors, from_edge_tensors, project

NAMES = ("labels", "row", "col", "weight")


@explained
def part_of(
    node_id: Tensor, labels: Tensor | None, similar: SparseMatrix | None
) -> dict[str, Tensor]:
    """A client's part of the pseudo labels and of the pseudo graph.

    Args:
        node_id: int64 ``[n]``, the client's global ids.
        labels: int64 ``[num_nodes]``, -1 for nodes without one; or nothing.
        similar: the pseudo graph ``[num_nodes, num_nodes]``; or nothing.

    Returns:
        ``"labels"`` ``[n]``, and ``"row"``, ``"col"``, ``"weight"`` as `edge_tensors`; without what
        is not given.

    Example:
        >>> part_of(torch.tensor([2, 0]), torch.tensor([0, -1, 1]), None)
        {'labels': tensor([1, 0])}

    Source: FedGL, Information Sciences 2024
    """
    part = {} if labels is None else {"labels": labels[node_id]}
    return part if similar is None else part | edge_tensors(project(similar, node_id))


@explained
def unpacked(
    message: Mapping[str, Any], graph: Graph
) -> tuple[dict[str, Any], Tensor, SparseMatrix]:
    """Unpack a client's message into the rest of it, the pseudo labels and the pseudo graph.

    Args:
        message: with or without a part (see `part_of`); one for another number of nodes is left
            out, with a warning.
        graph: the client's graph; its `y` has labels.

    Returns:
        The message without the part; labels int64 ``[num_nodes]``, -1 for nodes without one; the
        pseudo graph ``[num_nodes, num_nodes]``, empty if it has none.

    Raises:
        TypeError: if `y` is numbers.

    Example:
        >>> graph = fgl.Graph(torch.eye(2), torch.tensor([[0], [1]]))
        >>> unpacked({"model": {}, "labels": torch.tensor([1, -1])}, graph)[:2]
        ({'model': {}}, tensor([ 1, -1]))
    """
    if graph.y is not None:
        _ = graph.labels  # numbers have no classes, which pseudo labels name
    rest = {key: value for key, value in message.items() if key not in NAMES}
    part = {key: message[key] for key in NAMES if key in message}
    if not _fits(part, graph.num_nodes):
        warn(
            f"Expected a part for the client's {graph.num_nodes} nodes, but got one for others: "
            "it goes on without",
        )
        part = {}
    labels = part.get("labels")
    if labels is None:
        labels = torch.full((graph.num_nodes,), -1, device=graph.device)
    return rest, labels, from_edge_tensors(part, like=graph.adj)


def _fits(part: Mapping[str, Tensor], num_nodes: int) -> bool:
    """Whether a part is about `num_nodes` nodes: a forged upload could make it another number."""
    ends = [part[key] for key in ("row", "col") if key in part]
    inside = all(not end.numel() or int(end.max()) < num_nodes for end in ends)
    return inside and ("labels" not in part or len(part["labels"]) == num_nodes)
