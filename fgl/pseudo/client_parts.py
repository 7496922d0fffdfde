"""Each client's parts of the server's pseudo labels and pseudo graph."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ..graph import Graph
from ..sparse import SparseMatrix
from ..warn import warn
from .graph import edge_tensors, from_edge_tensors, project

NAMES = ("labels", "row", "col", "weight")


def part_of(
    node_id: Tensor, labels: Tensor | None, similar: SparseMatrix | None
) -> dict[str, Tensor]:
    """A client's part of the pseudo labels and of the pseudo graph.

    Args:
        node_id: int64 ``[n]``, the global ids of the client's nodes.
        labels: int64 ``[num_nodes]``, -1 for nodes without a pseudo label; or None.
        similar: the pseudo graph ``[num_nodes, num_nodes]``; or None.

    Returns:
        A dict. If `labels` is given, the dict has ``"labels"`` ``[n]``. If `similar` is given, the
        dict has ``"row"``, ``"col"`` and ``"weight"`` as in `edge_tensors`.

    Example:
        >>> part_of(torch.tensor([2, 0]), torch.tensor([0, -1, 1]), None)
        {'labels': tensor([1, 0])}

    Source: FedGL, Information Sciences 2024
    """
    part = {} if labels is None else {"labels": labels[node_id]}
    return part if similar is None else part | edge_tensors(project(similar, node_id))


def unpacked(
    message: Mapping[str, Any], graph: Graph
) -> tuple[dict[str, Any], Tensor, SparseMatrix]:
    """Split a message to a client into pseudo labels, a pseudo graph, and the rest of the message.

    Args:
        message: the message, with or without a part (see `part_of`). If the number of nodes in the
            part differs from the graph's, a warning is given and the part is ignored.
        graph: the client's graph, with class labels in `y`.

    Returns:
        Three values: the message without the part; the labels, int64 ``[num_nodes]``, with -1 for
        nodes without a pseudo label; and the pseudo graph ``[num_nodes, num_nodes]``, which is
        empty if the message has none.

    Raises:
        TypeError: if `y` has numbers instead of class labels.

    Example:
        >>> graph = fgl.Graph(torch.eye(2), torch.tensor([[0], [1]]))
        >>> unpacked({"model": {}, "labels": torch.tensor([1, -1])}, graph)[:2]
        ({'model': {}}, tensor([ 1, -1]))
    """
    if graph.y is not None:
        _ = graph.labels  # raises for numbers, since pseudo labels are classes
    rest = {key: value for key, value in message.items() if key not in NAMES}
    part = {key: message[key] for key in NAMES if key in message}
    if not _fits(part, graph.num_nodes):
        warn(
            f"Expected a part for the client's {graph.num_nodes} nodes, but got one for others: "
            "it goes on without"
        )
        part = {}
    labels = part.get("labels")
    if labels is None:
        labels = torch.full((graph.num_nodes,), -1, device=graph.device)
    return rest, labels, from_edge_tensors(part, like=graph.adj)


def _fits(part: Mapping[str, Tensor], num_nodes: int) -> bool:
    """Whether a client's pseudo labels and edges fit a graph with `num_nodes` nodes.

    A forged upload could change the number of nodes for which the server computes pseudo labels and
    edges.
    """
    ends = [part[key] for key in ("row", "col") if key in part]
    inside = all(not end.numel() or int(end.max()) < num_nodes for end in ends)
    return inside and ("labels" not in part or len(part["labels"]) == num_nodes)
