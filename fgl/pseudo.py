"""Global pseudo labels and pseudo graph (FedGL): what a server fuses from its clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from .sparse import Pattern, SparseMatrix, row_sum

BLOCK = 2**23  # similarities that exist at a time
FILLS = ("renormalised", "padded")


def fuse(
    rows: Sequence[Tensor],
    node_id: Sequence[Tensor],
    weight: Tensor,
    num_nodes: int,
    *,
    fill: str = "renormalised",
    threshold: float = 0.0,
) -> Tensor:
    """Weighted mean, for every node, over the clients that hold it (FedGL, Eq. 12).

    ``out_i = sum_{k holds i} w_k rows_k[i] / sum_{k holds i} w_k``; 0 for a node that nobody holds.
    Two `index_add`; no tensor of size clients x nodes.

    Args:
        rows: one float ``[N_k, C]`` per client, e.g. predictions or embeddings.
        node_id: one int64 ``[N_k]`` per client, the rows' global ids, without repeats.
        weight: float ``[K]``, non-negative (FedGL: the clients' numbers of nodes).
        num_nodes: number of nodes of the federation.
        fill: ``"renormalised"`` as above, or ``"padded"``, the equation read literally: the sum of
            ``w_k rows_k[i]`` with ``w`` divided by its sum over *all* clients.
        threshold: set entries below it to 0 before fusing (the public port's order); default keeps
            them all.

    Returns:
        float ``[num_nodes, C]``.

    Raises:
        ValueError: if a client's rows and ids differ in number, ids repeat or are out of range,
            widths differ, a weight is negative, all weights are 0, or `fill` is unknown.

    Example:
        >>> rows = [torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0], [0.5, 0.5]])]
        >>> ids = [torch.tensor([0]), torch.tensor([0, 2])]
        >>> fuse(rows, ids, torch.tensor([3, 1]), num_nodes=3)
        tensor([[0.7500, 0.2500],
                [0.0000, 0.0000],
                [0.5000, 0.5000]])

    Source: FedGL, Information Sciences 2024
    """
    if fill not in FILLS:
        raise ValueError(f"Expected fill to be one of {FILLS}, but got {fill!r}")
    if not len(rows) == len(node_id) == weight.numel() or not len(rows):
        got = f"{len(rows)}, {len(node_id)} and {weight.numel()}"
        raise ValueError(f"Expected rows, node_id and weight to be one per client, but got {got}")
    if not torch.isfinite(weight).all() or (weight < 0).any() or not weight.any():
        raise ValueError(f"Expected weight to be >= 0 and not all 0, but got {weight.tolist()}")
    for client, (own, ids) in enumerate(zip(rows, node_id, strict=True)):
        check_rows(own, ids, num_nodes, width=rows[0].shape[1], name=f"client {client}'s rows")
    share = (weight.double() / weight.sum()).to(rows[0])
    each = torch.cat([w.expand(len(own)) for w, own in zip(share, rows, strict=True)])
    ids, values = torch.cat(list(node_id)), torch.cat(list(rows))
    if threshold:
        values = torch.where(values >= threshold, values, 0)
    total = values.new_zeros(num_nodes, values.shape[1]).index_add(0, ids, values * each[:, None])
    if fill == "padded":
        return total
    cover = values.new_zeros(num_nodes).index_add(0, ids, each)
    return total / torch.where(cover > 0, cover, 1)[:, None]


def check_rows(rows: Tensor, node_id: Tensor, num_nodes: int, *, width: int, name: str) -> None:
    """Raise a ValueError unless there is one row per node, and the ids are of the federation.

    Example:
        >>> check_rows(torch.ones(1, 2), torch.tensor([4]), 4, width=2, name="rows")
        Traceback (most recent call last):
        ValueError: Expected rows to have node ids in [0, 4), but got 4
    """
    if rows.shape != (node_id.numel(), width):
        raise ValueError(
            f"Expected {name} to have shape {[node_id.numel(), width]}, but got {list(rows.shape)}"
        )
    if not node_id.numel():
        return
    low, high = (int(end) for end in node_id.aminmax())
    if low < 0 or high >= num_nodes:
        bad = low if low < 0 else high
        raise ValueError(f"Expected {name} to have node ids in [0, {num_nodes}), but got {bad}")
    repeated = node_id.bincount()
    if (repeated > 1).any():
        bad = int(repeated.argmax())
        raise ValueError(f"Expected {name} to have each node id once, but got {bad} again")


def check_upload(message: Mapping[str, Any], num_nodes: int) -> None:
    """Raise a ValueError unless a client's predictions and embeddings are what they should be.

    Args:
        message: ``num_nodes`` (how many the client has), ``node_id`` int64 ``[n]`` without repeats,
            ``predictions`` ``[n, C]`` whose rows are probabilities, ``embeddings`` ``[n, C]``.
        num_nodes: of the federation.

    Example:
        >>> rows = torch.tensor([[0.5, 0.6]])
        >>> message = {"num_nodes": torch.tensor(1), "node_id": torch.tensor([0])}
        >>> check_upload({**message, "predictions": rows, "embeddings": rows}, num_nodes=3)
        Traceback (most recent call last):
        ValueError: Expected predictions to be probabilities, but got row 0 with sum 1.1000
    """
    ids, own = message["node_id"], int(message["num_nodes"])
    if ids.shape != (own,):
        raise ValueError(f"Expected node_id to have shape [{own}], but got {list(ids.shape)}")
    predictions = message["predictions"]
    if predictions.dim() != 2:
        raise ValueError(f"Expected predictions to be a matrix, but got {list(predictions.shape)}")
    for key in ("predictions", "embeddings"):
        check_rows(message[key], ids, num_nodes, width=predictions.shape[1], name=key)
    total = predictions.sum(1)
    bad = ((total - 1).abs() > 1e-3) | (predictions < 0).any(1)
    if bad.any():
        row = int(bad.nonzero()[0])
        raise ValueError(
            f"Expected predictions to be probabilities, but got row {row} "
            f"with sum {float(total[row]):.4f}"
        )


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


def pseudo_labels(scores: Tensor, *, threshold: float = 0.5) -> Tensor:
    """The class of the largest score where that is above a threshold, -1 elsewhere.

    Args:
        scores: float ``[num_nodes, C]``, fused predictions.
        threshold: the paper's lambda.

    Returns:
        int64 ``[num_nodes]``.

    Example:
        >>> pseudo_labels(torch.tensor([[0.2, 0.8], [0.5, 0.5]]))
        tensor([ 1, -1])
    """
    best, label = scores.max(1)
    return torch.where(best > threshold, label, -1)


def pseudo_graph(
    h: Tensor, *, s: int = 100, include_self: bool = True, block: int = BLOCK
) -> SparseMatrix:
    """Each node's `s` most similar nodes: top-s of ``max(0, h h^T)``, rows divided by their sums.

    Similarities exist a block of rows at a time: O(N^2 C) time, O(block + N s) memory, no N x N
    matrix. The matrix is not symmetric. No gradient flows through it.

    Args:
        h: float ``[N, C]``, fused embeddings.
        s: entries kept per row; zeros are not kept.
        include_self: whether a node may be among its own.
        block: largest number of similarities held at a time.

    Returns:
        `SparseMatrix` ``[N, N]``; a row without a positive similarity is empty.

    Raises:
        ValueError: if `s` is not positive or `h` is not a matrix.

    Example:
        >>> pseudo_graph(torch.tensor([[2.0, 0.0], [1.0, 0.0], [0.0, 1.0]]), s=2).to_dense()
        tensor([[0.6667, 0.3333, 0.0000],
                [0.6667, 0.3333, 0.0000],
                [0.0000, 0.0000, 1.0000]])
    """
    if h.dim() != 2:
        raise ValueError(f"Expected h to have shape [N, C], but got {list(h.shape)}")
    if s < 1:
        raise ValueError(f"Expected s to be at least 1, but got {s}")
    h = h.detach()
    num_nodes = h.shape[0]
    counts, cols, values = [], [], []
    for start in range(0, num_nodes, max(1, block // max(num_nodes, 1))):
        rows = h[start : start + max(1, block // num_nodes)]
        sim = rows @ h.t()
        if not include_self:
            sim[:, start:].diagonal().fill_(0)
        top, col = sim.topk(min(s, num_nodes), dim=1)
        kept = top > 0
        order = torch.where(kept, col, num_nodes).argsort(1)  # columns in order, as in any CSR
        top, col, kept = (t.gather(1, order) for t in (top, col, kept))
        share = top / torch.where(kept, top, 0).sum(1, keepdim=True)
        counts.append(kept.sum(1))
        cols.append(col[kept])
        values.append(share[kept])
    if not counts:
        return SparseMatrix(Pattern(h.new_zeros(1).long(), h.new_zeros(0).long(), (0, 0)))
    crow = torch.cat([counts[0].new_zeros(1), torch.cat(counts).cumsum(0)])
    return SparseMatrix(Pattern(crow, torch.cat(cols), (num_nodes, num_nodes)), torch.cat(values))


def project(matrix: SparseMatrix, nodes: Tensor) -> SparseMatrix:
    """The block of rows and columns `nodes`, in that order: what a client may see of a matrix.

    Args:
        matrix: ``[N, N]``.
        nodes: int64 ``[m]``, without repeats.

    Returns:
        `SparseMatrix` ``[m, m]``.

    Example:
        >>> A = SparseMatrix.from_dense(torch.tensor([[0., 2., 0.], [0., 0., 3.], [4., 0., 5.]]))
        >>> project(A, torch.tensor([2, 0])).to_dense()
        tensor([[5., 4.],
                [0., 0.]])
    """
    rows = matrix.rows(nodes)
    position = torch.full((matrix.shape[1],), -1, dtype=torch.int64, device=nodes.device)
    position[nodes] = torch.arange(nodes.numel(), device=nodes.device)
    col = position[rows.pattern.col]
    kept = col >= 0
    value = None if rows.value is None else rows.value[kept]
    edges = torch.stack([col[kept], rows.pattern.row[kept]])
    return SparseMatrix.from_edge_index(edges, nodes.numel(), value)


def augmented_operator(
    adj: SparseMatrix, pseudo: SparseMatrix, *, beta: float = 0.1, symmetric: bool = True
) -> SparseMatrix:
    """What a GCN multiplies with (FedGL, Eq. 9): ``norm(A + I) + beta D^-1/2 P D^-1/2``.

    D are the row sums of P (0 where a row is empty). With ``symmetric`` P is first replaced by
    ``(P + P^T) / 2``: otherwise nothing scales the columns, and a few nodes that are similar to
    everybody dominate (spectral norm 3.6 instead of 1 on Cora).

    Args:
        adj: adjacency ``A[target, source]``, ``[n, n]``.
        pseudo: the pseudo graph's block of the same nodes, float values.
        beta: weight of the pseudo graph; the paper prints 1.
        symmetric: see above; the paper's formula is without.

    Returns:
        `SparseMatrix` ``[n, n]``, for a model that takes its operator as it is
        (``GCN(..., normalize=False)``). Entries of both parts stay separate.

    Raises:
        ValueError: if the shapes differ.

    Example:
        >>> A = SparseMatrix.from_dense(torch.tensor([[0.0, 1.0], [1.0, 0.0]]))
        >>> P = SparseMatrix.from_dense(torch.tensor([[0.0, 1.0], [1.0, 0.0]]))
        >>> augmented_operator(A, P, beta=1.0).to_dense()
        tensor([[0.5000, 1.5000],
                [1.5000, 0.5000]])
    """
    if adj.shape != pseudo.shape:
        raise ValueError(f"Expected pseudo to have shape {adj.shape}, but got {pseudo.shape}")
    plain = adj.gcn_norm
    row, col = pseudo.pattern.row, pseudo.pattern.col
    value = pseudo.pattern.ones(plain.dtype) if pseudo.value is None else pseudo.value
    degree = row_sum(pseudo.pattern, value)
    if symmetric:
        degree = (degree + value.new_zeros(degree.shape).index_add(0, col, value)) / 2
        row, col, value = (
            torch.cat([row, col]),
            torch.cat([col, row]),
            torch.cat([value, value]) / 2,
        )
    scale = torch.where(degree > 0, degree, torch.inf).rsqrt()
    value = beta * value * scale[row] * scale[col]
    source = torch.cat([plain.pattern.col, col])
    target = torch.cat([plain.pattern.row, row])
    known = plain.pattern.ones(plain.dtype) if plain.value is None else plain.value
    both = torch.cat([known, value.to(plain.dtype)])
    made = SparseMatrix.from_edge_index(torch.stack([source, target]), adj.shape[0], both)
    return made.using(adj.pattern.backend)
