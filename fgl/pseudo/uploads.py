"""Checks of a client's uploaded predictions and embeddings of nodes (FedGL)."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from ..checks import reject_if

Accept = Callable[[Any, int, Any], None]
ROWS = ("node_id", "embeddings", "predictions")  # of an upload, one row per node


def check_node_rows(
    rows: Tensor, node_id: Tensor, num_nodes: int, *, width: int, name: str
) -> None:
    """Raise a ValueError if ids repeat or are out of range, or if rows have a wrong shape.

    Example:
        >>> check_node_rows(torch.ones(1, 2), torch.tensor([4]), 4, width=2, name="rows")
        Traceback (most recent call last):
        ValueError: Expected rows to have node ids in [0, 4), but got 4
    """
    shape = [node_id.numel(), width]
    reject_if(list(rows.shape) != shape, f"{name} to have shape {shape}", list(rows.shape))
    if not node_id.numel():
        return
    low, high = torch.stack(node_id.aminmax()).tolist()
    if low < 0 or high >= num_nodes:
        bad = low if low < 0 else high
        raise ValueError(f"Expected {name} to have node ids in [0, {num_nodes}), but got {bad}")
    times = node_id.new_zeros(num_nodes).scatter_add_(0, node_id, torch.ones_like(node_id))
    if times.max() > 1:
        bad = int(times.argmax())
        raise ValueError(f"Expected {name} to have each node id once, but got {bad} again")


def check_upload(message: Mapping[str, Any], num_nodes: int, num_classes: int) -> None:
    """Raise a ValueError unless a client's predictions and embeddings have valid shapes and values.

    Args:
        message: a dict of four tensors: ``num_examples`` (the client's number of nodes),
            ``node_id`` (int64 ``[n]``, without repeats), ``predictions`` (``[n, C]``, each row with
            probabilities), and ``embeddings`` (``[n, C]``).
        num_nodes: number of nodes in the federation.
        num_classes: C.

    Example:
        >>> rows = torch.tensor([[0.5, 0.6]])
        >>> message = {"num_examples": torch.tensor(1), "node_id": torch.tensor([0])}
        >>> check_upload({**message, "predictions": rows, "embeddings": rows}, 3, 2)
        Traceback (most recent call last):
        ValueError: Expected predictions to be probabilities, but got row 0 with sum 1.1000
    """
    keys = ("num_examples", "node_id", "predictions", "embeddings")
    missing = [key for key in keys if key not in message]
    reject_if(missing, "the upload to have its nodes' rows", f"no {missing}")
    ids, own = message["node_id"], int(message["num_examples"])
    if ids.dtype != torch.int64 or ids.shape != (own,):
        got = f"{ids.dtype} {list(ids.shape)}"
        raise ValueError(f"Expected node_id to be int64 and have shape [{own}], but got {got}")
    predictions = message["predictions"]
    for key in ("predictions", "embeddings"):
        if message[key].dtype != predictions.dtype or not predictions.is_floating_point():
            raise ValueError(f"Expected {key} to be floating point, but got {message[key].dtype}")
        check_node_rows(message[key], ids, num_nodes, width=num_classes, name=key)
    total = predictions.sum(1)
    bad = ~((total - 1).abs() <= 1e-3) | (predictions < 0).any(1)  # a NaN is bad too
    if bad.any():
        row = int(bad.nonzero()[0])
        raise ValueError(
            f"Expected predictions to be probabilities, but got row {row} "
            f"with sum {float(total[row]):.4f}"
        )
    if not message["embeddings"].square().sum().isfinite():  # nothing would be like them
        raise ValueError("Expected embeddings to be of finite length, but got larger ones")


def upload_check(num_nodes: int, like: Tensor, *, base: Accept | None = None) -> Accept:
    """Build a server's `accept`, which calls `check_upload` and checks the number of nodes.

    Args:
        num_nodes: number of nodes in the federation.
        like: ``[C]``, a tensor with the width and dtype of predictions and embeddings, such as the
            last layer's bias.
        base: an `accept` that checks every upload first; by default there is none.

    Example:
        >>> upload_check(3, torch.zeros(2))({"node_id": torch.tensor([0])}, client=0, state={})
        Traceback (most recent call last):
        ValueError: Expected the upload to have its nodes' rows, but got no ['num_examples', ...
    """

    def accept(message: Mapping[str, Any], client: int, state: Any) -> None:
        if base is not None:
            base(message, client, state)
        check_upload(message, num_nodes, like.numel())
        dtype = message["predictions"].dtype
        reject_if(dtype != like.dtype, f"predictions to be {like.dtype}", dtype, TypeError)
        before, now = len(state.get("nodes", {}).get(str(client), ())), len(message["node_id"])
        reject_if(now < before, f"node_id to be the {before} nodes that the client had before", now)

    return accept


def nodes_of(uploads: Mapping[int, Mapping[str, Any]], state: Mapping[str, Any]) -> dict[str, Any]:
    """Each client's node ids, which a server keeps in its state for `upload_check`.

    Args:
        uploads: the clients' messages, with ``node_id``.
        state: the server's state after the previous round.

    Example:
        >>> nodes_of({1: {"node_id": torch.tensor([7])}}, {"nodes": {"0": torch.tensor([4])}})
        {'nodes': {'0': tensor([4]), '1': tensor([7])}}
    """
    here = {str(client): message["node_id"] for client, message in uploads.items()}
    return {"nodes": {**state.get("nodes", {}), **here}}
