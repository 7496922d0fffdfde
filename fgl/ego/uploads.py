"""Checks of mashed ego-graphs that a client uploads (FedEgo)."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ..checks import reject_if
from .trees import check_float, levels


def check_mashed(
    embeddings: Tensor, labels: Tensor, *, shape: Sequence[int], dtype: torch.dtype | None = None
) -> None:
    """Check mashed ego-graphs that a client uploads.

    Args:
        embeddings: float ``[num_graphs, size, H]``.
        labels: float ``[num_graphs, size, C]``; every row is a distribution.
        shape: ``(size, H, C)``, as expected by the server.
        dtype: expected dtype of both tensors; by default any dtype is accepted.

    Raises:
        TypeError: if a tensor is not dense, is not floating point, or has a dtype other than
            `dtype`.
        ValueError: if a shape is invalid, if there is no graph, if squares of embeddings overflow,
            or if a row of `labels` has a negative entry or does not sum to 1.

    Example:
        >>> check_mashed(torch.zeros(1, 3, 4), torch.ones(1, 3, 2), shape=(3, 4, 2))
        Traceback (most recent call last):
        ValueError: Expected labels to have rows that sum to 1, but got 2 in graph 0, position 0
    """
    size, hidden, classes = shape
    for name, value, width in (("embeddings", embeddings, hidden), ("labels", labels, classes)):
        check_float(value, name)
        if dtype is not None and value.dtype != dtype:
            raise TypeError(f"Expected {name} to be {dtype}, but got {value.dtype}")
        want = [embeddings.shape[0] if embeddings.dim() else 0, size, width]
        if list(value.shape) != want:
            count = "*" if name == "embeddings" else want[0]
            raise ValueError(
                f"Expected {name} to have shape [{count}, {size}, {width}], "
                f"but got {list(value.shape)}"
            )
    reject_if(not len(embeddings), "embeddings to have a graph", "none")
    exact = torch.promote_types(embeddings.dtype, torch.float32)
    length = embeddings.to(exact).flatten(1).square().sum(1)
    if not length.isfinite().all():  # a training step on them would give an infinite model
        graph = int((~length.isfinite()).nonzero()[0])
        raise ValueError(
            f"Expected embeddings to be of finite length, but got "
            f"{float(embeddings[graph].abs().max()):.4g} in graph {graph}"
        )
    total, least = labels.double().sum(2), labels.amin(2)
    close = (total - 1).abs() <= max(1e-3, torch.finfo(labels.dtype).eps)
    bad = ~close | (least < 0)  # a NaN is not close
    if bad.any():
        graph, position = (int(i) for i in bad.nonzero()[0])
        low, whole = float(least[graph, position]), float(total[graph, position])
        rule = f"are >= 0, but got {low:.4g}" if low < 0 else f"sum to 1, but got {whole:.4g}"
        where = f"in graph {graph}, position {position}"
        raise ValueError(f"Expected labels to have rows that {rule} {where}")


def mashed_check(
    fanouts: Sequence[int],
    head: Tensor,
    most: float = float("inf"),
    *,
    base: Callable[[Any, int, Any], None] | None = None,
) -> Callable[[Any, int, Any], None]:
    """Build a server's `accept`, which checks ``"embeddings"`` and ``"labels"`` by `check_mashed`.

    Args:
        fanouts: shape of the trees.
        head: float ``[C, H]``, the classifier's weights. Embeddings must have width H, and the
            same dtype as the classifier's weights.
        most: largest number of ego-graphs that a client may send, such as the client's number of
            training nodes. By default a client may send any number of ego-graphs.
        base: an `accept` that is called before this check; by default there is none.

    Example:
        >>> message = {"embeddings": torch.zeros(1, 3, 4), "labels": torch.ones(1, 3, 2)}
        >>> mashed_check((2,), torch.zeros(2, 4))(message, client=0, state={})
        Traceback (most recent call last):
        ValueError: Expected labels to have rows that sum to 1, but got 2 in graph 0, position 0
    """
    shape, dtype = (levels(fanouts)[-1], head.shape[1], head.shape[0]), head.dtype

    def accept(message: Mapping[str, Any], client: int, state: Any) -> None:
        if base is not None:
            base(message, client, state)
        missing = [key for key in ("embeddings", "labels") if key not in message]
        reject_if(missing, f"message to have {missing}", list(message))
        check_mashed(message["embeddings"], message["labels"], shape=shape, dtype=dtype)
        if len(message["embeddings"]) > most:
            got = len(message["embeddings"])
            raise ValueError(f"Expected embeddings of at most {most} graphs, but got {got}")

    return accept
