"""Features of clients: their flat or pooled parameters, their models' answers on random graphs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from ..checks import Count, Share, check_count, check_rows, reject_if
from ..kinds import explained, typed


def centred(rows: Tensor) -> Tensor:
    """Each row less the rows' mean."""
    return rows - rows.mean(0)


def unit(rows: Tensor) -> Tensor:
    """Each row divided by its length; a row of zeros stays."""
    if not rows.numel():
        return rows
    size = rows.abs().amax(1, keepdim=True)  # else the squares of a small row would vanish
    rows = rows / torch.where(size > 0, size, 1)
    length: Tensor = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    return rows / length.clamp(min=1)


def unit_centred(rows: Tensor) -> Tensor:
    """Centred rows of length 1; rows that equal the mean up to rounding are 0, not noise."""
    info, biggest = torch.finfo(rows.dtype), float(rows.abs().max()) if rows.numel() else 0.0
    if biggest and not info.tiny**0.25 < biggest < info.max**0.25:
        rows = rows / biggest  # else squares would overflow or vanish, and all rows be 0
    apart = centred(rows)
    norm = torch.linalg.vector_norm(apart, dim=1, keepdim=True)
    if not len(rows):
        return apart
    rounding = 16 * torch.finfo(rows.dtype).eps * torch.linalg.vector_norm(rows, dim=1).max()
    return torch.where(norm > rounding, apart / norm, 0.0)


@explained
def flat_parameters(stack: Mapping[str, Tensor]) -> Tensor:
    """Flatten each client's parameters into a row, side by side.

    Args:
        stack: name to ``[k, ...]``, e.g. ``inbox.stack("model")``; only floating-point tensors
            count.

    Returns:
        float ``[k, P]``, in the order of the names.

    Raises:
        ValueError: if no tensor is floating point, or they do not have as many clients.

    Example:
        >>> flat_parameters({"w": torch.tensor([[[1.0, 2.0]], [[4.0, 5.0]]]), "b": torch.ones(2)})
        tensor([[1., 2., 1.],
                [4., 5., 1.]])

    Source: GPFL, TMLR 2025
    """
    parts = {name: each for name, each in stack.items() if each.is_floating_point()}
    reject_if(not parts, "stack to have floating-point tensors", list(stack))
    clients = len(next(iter(parts.values())))
    for name, each in parts.items():
        if each.shape[:1] != (clients,):
            raise ValueError(
                f"Expected stack[{name!r}] to have {clients} clients, but got {list(each.shape)}"
            )
    return torch.cat([each.reshape(clients, -1) for each in parts.values()], dim=1)


@explained
def pooled_features(flat: Tensor, *, width: int | None = 100, l2: bool = True) -> Tensor:
    """About 100 numbers per client: means of consecutive parameters, centred, of length 1.

    Windows of ``max(1, P // width)`` parameters do not overlap; the remaining ones at the end are
    not used. A client whose features are the clients' mean, up to rounding, has the row 0.

    Args:
        flat: float ``[k, P]``, one client's flattened parameters per row.
        width: about how many numbers to keep; None keeps all.
        l2: divide each row by its length. The default is the public code's form; the paper's,
            ``flatten(theta_i - mean_j theta_j)``, is ``width=None, l2=False``.

    Returns:
        float ``[k, P // (P // width)]``.

    Raises:
        TypeError: if `flat` is not floating point.
        ValueError: if `width` is not positive, or `flat` is no matrix, or is not finite; the error
            names the client.

    Example:
        >>> pooled_features(torch.tensor([[1.0, 3.0, 0.0, 0.0], [3.0, 1.0, 0.0, 4.0]]), width=2)
        tensor([[ 0., -1.],
                [ 0.,  1.]])

    Source: GPFL, TMLR 2025
    """
    check_rows("flat", flat, "k, P")
    if width is not None:
        check_count(width=width)
        window = max(1, flat.shape[1] // width)
        flat = F.avg_pool1d(flat, window, window) if flat.numel() else flat
    return unit_centred(flat) if l2 else centred(flat)


@explained
def functional_embedding(outputs: Tensor) -> Tensor:
    """Outputs of every client's model on the same probe graphs, side by side.

    Args:
        outputs: float ``[k, R, C]``, of each client for each of R graphs (GPFL: log-probabilities).

    Returns:
        float ``[k, R C]``; their `similarity` is GPFL's ``A_E``.

    Raises:
        TypeError: if `outputs` is not floating point.
        ValueError: for another shape, or an output that is not finite; the error names the client.

    Example:
        >>> functional_embedding(torch.arange(8.0).view(2, 2, 2))
        tensor([[0., 1., 2., 3.],
                [4., 5., 6., 7.]])

    Source: GPFL, TMLR 2025
    """
    if outputs.dim() != 3:
        got = list(outputs.shape)
        raise ValueError(f"Expected outputs to have shape [k, R, C], but got {got}")
    check_rows("outputs", outputs.flatten(1))
    return outputs.flatten(1)


@typed
def probe_graphs(
    num: Count = 20,
    num_nodes: Count = 30,
    p: Share = 0.1,
    *,
    num_features: Count,
    generator: torch.Generator | None = None,
    features: Literal["degree", "normal"] = "degree",
) -> tuple[Tensor, Tensor, Tensor]:
    """Random graphs (Erdos and Renyi) whose nodes' features are their degrees, one-hot.

    Args:
        num: how many graphs.
        num_nodes: of each.
        p: probability of an edge.
        num_features: width of the features; the last column is for its degree and any above.
        generator: of the edges, and of the features where they are drawn.
        features: one-hot degrees (GPFL), or numbers from N(0, 1) (FED-PUB).

    Returns:
        x float ``[num num_nodes, num_features]``, edge_index int64 ``[2, num_edges]`` with both
        directions of an edge, sorted by target, and batch int64 ``[num num_nodes]``.

    Raises:
        ValueError: if a number is not positive, `p` is not in [0, 1], or `features` is unknown.

    Example:
        >>> x, edge_index, batch = probe_graphs(2, 3, 1.0, num_features=2)
        >>> x.tolist(), edge_index.shape, batch
        ([[0.0, 1.0], ...], torch.Size([2, 12]), tensor([0, 0, 0, 1, 1, 1]))

    Source: GPFL, TMLR 2025; Baek et al. 2023, https://arxiv.org/abs/2206.10206
    """
    later = (torch.rand(num, num_nodes, num_nodes, generator=generator) < p).triu(1)
    edges = later | later.mT
    graph, target, source = edges.nonzero().unbind(1)
    edge_index = torch.stack([source, target]) + graph * num_nodes
    if features == "normal":
        x = torch.randn(num * num_nodes, num_features, generator=generator)
    else:
        degree = edges.sum(2).clamp(max=num_features - 1)
        x = F.one_hot(degree.flatten(), num_features).to(torch.get_default_dtype())
    return x, edge_index, torch.arange(num).repeat_interleave(num_nodes)
