"""Quality of pseudo labels and pseudo edges: how many are right."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..sparse import SparseMatrix


def describe(
    labels: Sequence[Tensor],
    edges: Sequence[tuple[Tensor, Tensor, Tensor]],
    node_id: Sequence[Tensor],
    y: Tensor,
) -> dict[str, float]:
    """How much of the pseudo labels and the pseudo graph that clients hold is right.

    Args:
        labels: pseudo labels ``[N_k]`` per client, -1 where there is none; may be empty.
        edges: local row, local column, weight ``[E_k]`` per client; may be empty.
        node_id: the clients' global ids ``[N_k]``.
        y: true labels ``[N]`` by global id.

    Returns:
        ``pseudo_label_share`` and ``pseudo_label_accuracy`` over the nodes that a client holds,
        ``pseudo_homophily`` (share of edges, self excluded, within a class) and
        ``pseudo_column_sum`` (the largest) over the distinct edges.

    Example:
        >>> found = describe([torch.tensor([1, -1])], [], [torch.tensor([0, 2])], torch.ones(3))
        >>> found
        {'pseudo_label_share': 0.5, 'pseudo_label_accuracy': 1.0}
    """
    out = {}
    if labels:
        guess = torch.full_like(y, -1)
        held = torch.zeros_like(y, dtype=torch.bool)
        for own, ids in zip(labels, node_id, strict=True):
            guess[ids] = own.to(guess.dtype)
            held[ids] = True
        there = held & (guess >= 0)
        out["pseudo_label_share"] = float(there.sum() / held.sum().clamp(min=1))
        right = (guess == y) & there
        out["pseudo_label_accuracy"] = float(right.sum() / there.sum().clamp(min=1))
    if edges:
        parts = zip(edges, node_id, strict=True)
        found = [(ids[row], ids[col], weight) for (row, col, weight), ids in parts]
        row, col, weight = (torch.cat(each) for each in zip(*found, strict=True))
        first = SparseMatrix.from_edge_index(torch.stack([col, row]), y.numel(), weight)
        key = first.pattern.row * y.numel() + first.pattern.col
        new = torch.cat([key.new_ones(1, dtype=torch.bool), key[1:] != key[:-1]])[: key.numel()]
        row, col = first.pattern.row[new], first.pattern.col[new]
        value = first.pattern.ones(weight.dtype) if first.value is None else first.value
        other = row != col
        same = (y[row] == y[col])[other]
        out["pseudo_homophily"] = float(same.float().mean()) if same.numel() else 0.0
        sums = value.new_zeros(y.numel()).index_add(0, col, value[new])
        out["pseudo_column_sum"] = float(sums.max())
    return out
