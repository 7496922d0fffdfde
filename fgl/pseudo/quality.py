"""Quality of pseudo labels and pseudo edges: the fractions that are correct."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ..checks import reject_if
from ..graph import Graph
from ..sparse import SparseMatrix, sum_rows


def describe(
    labels: Sequence[Tensor],
    edges: Sequence[tuple[Tensor, Tensor, Tensor]],
    node_id: Sequence[Tensor],
    y: Tensor,
) -> dict[str, float]:
    """Fraction of correct pseudo labels, and of correct pseudo edges, over all clients.

    Args:
        labels: for each client, pseudo labels ``[N_k]``, with -1 for nodes without a pseudo label.
            The list may be empty.
        edges: for each client three tensors ``[E_k]``: local row, local column, and weight. The
            list may be empty.
        node_id: for each client, the global ids of its nodes, ``[N_k]``.
        y: true labels ``[N]`` by global id.

    Returns:
        ``pseudo_label_share`` and ``pseudo_label_accuracy`` are computed over the nodes that at
        least one client holds. Two numbers are computed over the distinct edges:
        ``pseudo_homophily``, the fraction of edges within a class, without self-loops; and
        ``pseudo_column_sum``, the largest column sum.

    Example:
        >>> found = describe([torch.tensor([1, -1])], [], [torch.tensor([0, 2])], torch.ones(3))
        >>> found
        {'pseudo_label_share': 0.5, 'pseudo_label_accuracy': 1.0}
    """
    out = _of_labels(labels, node_id, y) if labels else {}
    return out | _of_edges(edges, node_id, y) if edges else out


def _of_labels(labels: Sequence[Tensor], node_id: Sequence[Tensor], y: Tensor) -> dict[str, float]:
    guess = torch.full_like(y, -1)
    present = torch.zeros_like(y, dtype=torch.bool)
    for own, ids in zip(labels, node_id, strict=True):
        guess[ids] = own.to(guess.dtype)
        present[ids] = True
    labelled = present & (guess >= 0)
    right = (guess == y) & labelled
    return {
        "pseudo_label_share": float(labelled.sum() / present.sum().clamp(min=1)),
        "pseudo_label_accuracy": float(right.sum() / labelled.sum().clamp(min=1)),
    }


def _of_edges(
    edges: Sequence[tuple[Tensor, Tensor, Tensor]], node_id: Sequence[Tensor], y: Tensor
) -> dict[str, float]:
    parts = zip(edges, node_id, strict=True)
    joined = [(ids[row], ids[col], weight) for (row, col, weight), ids in parts]
    row, col, weight = (torch.cat(each) for each in zip(*joined, strict=True))
    first = SparseMatrix.from_edge_index(torch.stack([col, row]), y.numel(), weight)
    key = first.pattern.row * y.numel() + first.pattern.col
    new = torch.cat([key.new_ones(1, dtype=torch.bool), key[1:] != key[:-1]])[: key.numel()]
    row, col = first.pattern.row[new], first.pattern.col[new]
    other = row != col
    same = (y[row] == y[col])[other]
    sums = sum_rows(first.values[new], col, y.numel())
    return {
        "pseudo_homophily": float(same.float().mean()) if same.numel() else 0.0,
        "pseudo_column_sum": float(sums.max()),
    }


def quality_of(clients: Sequence[Graph]) -> Callable[[Mapping[int, Any], Any], dict[str, float]]:
    """Build a function that measures the pseudo labels and pseudo edges in an outbox (FedGL).

    Args:
        clients: the clients' graphs, with labels and `node_id`.

    Returns:
        Function of ``(outbox, states)``. This function calls `describe` with the content of the
        outbox's messages. Entry ``"labels"`` of a message contains the pseudo labels. Entries
        ``"row"`` and ``"col"`` contain the two end nodes of each pseudo edge, and entry
        ``"weight"`` contains the edge's weight. The function returns an empty dict if the messages
        have neither labels nor edges.

    Raises:
        ValueError: if a client has no labels or no `node_id`.

    Example:
        >>> graph = fgl.Graph(torch.eye(2), torch.tensor([[0], [1]]), y=torch.tensor([0, 1]))
        >>> client = graph.subgraph(torch.tensor([0, 1]))
        >>> quality_of([client])({0: {"labels": torch.tensor([0, -1])}}, {})
        {'pseudo_label_share': 0.5, 'pseudo_label_accuracy': 1.0}
    """
    for index, client in enumerate(clients):
        lacking = [name for name in ("y", "node_id") if not client.has(name)]
        reject_if(lacking, f"client {index} to have {lacking}", "None")
    ids: list[Any] = [client.node_id for client in clients]
    y: Any = torch.zeros(1 + max(int(own.max()) for own in ids), dtype=torch.int64)
    y = y.to(clients[0].device)
    for own, client in zip(ids, clients, strict=True):
        y[own] = client.labels

    def quality(outbox: Mapping[int, Any], states: Any) -> dict[str, float]:
        sent = [(own, outbox[k]) for k, own in enumerate(ids) if k in outbox]
        labelled = [(own, message) for own, message in sent if "labels" in message]
        joined = [(own, message) for own, message in sent if "weight" in message]
        edges = [(message["row"], message["col"], message["weight"]) for _, message in joined]
        labels = [message["labels"] for _, message in labelled]
        return describe(labels, edges, [own for own, _ in labelled or joined], y)

    return quality
