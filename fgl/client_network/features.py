"""Features of clients: flat or pooled parameters, and outputs of models on random graphs."""

from collections.abc import Mapping
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from ..checks import Count, Share, check_count, check_rows, reject_if
from ..kinds import typed


def centred(rows: Tensor) -> Tensor:
    """Subtract the mean of all rows from each row."""
    return rows - rows.mean(0)


def unit(rows: Tensor) -> Tensor:
    """Divide each row by its Euclidean length; a row of zeros is unchanged."""
    if not rows.numel():
        return rows
    size = rows.abs().amax(1, keepdim=True)  # without it, squares of a small row would underflow
    rows = rows / torch.where(size > 0, size, 1)
    length: Tensor = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    return rows / length.clamp(min=1)


def unit_centred(rows: Tensor) -> Tensor:
    """Centre rows and scale them to length 1; a row that (almost) equals the mean becomes 0."""
    info, biggest = torch.finfo(rows.dtype), float(rows.abs().max()) if rows.numel() else 0.0
    if biggest and not info.tiny**0.25 < biggest < info.max**0.25:
        rows = rows / biggest  # without it, squares could overflow or underflow to 0
    apart = centred(rows)
    norm = torch.linalg.vector_norm(apart, dim=1, keepdim=True)
    if not len(rows):
        return apart
    rounding = 16 * torch.finfo(rows.dtype).eps * torch.linalg.vector_norm(rows, dim=1).max()
    return torch.where(norm > rounding, apart / norm, 0.0)


def flat_parameters(stack: Mapping[str, Tensor]) -> Tensor:
    """Flatten each client's parameters into one row.

    Args:
        stack: dict from name to ``[k, ...]``, such as ``inbox.stack("model")``; only floating-point
            tensors are used.

    Returns:
        float ``[k, P]``, in the order of the names.

    Raises:
        ValueError: if no tensor is floating point, or if the first dimension k differs between two
            tensors.

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
        shape = list(each.shape)
        reject_if(shape[:1] != [clients], f"stack[{name!r}] to have {clients} clients", shape)
    return torch.cat([each.reshape(clients, -1) for each in parts.values()], dim=1)


def pooled_features(flat: Tensor, *, width: int | None = 100, l2: bool = True) -> Tensor:
    """Pool each client's parameters into about 100 features, then centre and normalise them.

    A feature is the mean of ``max(1, P // width)`` consecutive parameters, called a window. Windows
    do not overlap, and parameters after the last full window are not used. A client's row is 0 if
    its features equal the mean over clients, up to rounding.

    Args:
        flat: float ``[k, P]``, one client's flattened parameters per row.
        width: approximate number of features to keep; None keeps all.
        l2: whether to divide each row by its length. With the defaults, the features equal the
            features of the public code. With ``width=None, l2=False`` the features are the paper's
            ``flatten(theta_i - mean_j theta_j)``.

    Returns:
        float ``[k, P // (P // width)]``.

    Raises:
        TypeError: if `flat` is not floating point.
        ValueError: if `width` is not positive, if `flat` is not a matrix, or if an entry is not
            finite. For such an entry the error names the client.

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


def functional_embedding(outputs: Tensor) -> Tensor:
    """Concatenate the outputs of each client's model on common probe graphs.

    Args:
        outputs: float ``[k, R, C]``, the outputs of each client's model for R graphs. GPFL uses
            log-probabilities.

    Returns:
        float ``[k, R C]``; the `similarity` of these rows is GPFL's ``A_E``.

    Raises:
        TypeError: if `outputs` is not floating point.
        ValueError: if `outputs` does not have three dimensions, or if an output is not finite. For
            such an output the error names the client.

    Example:
        >>> functional_embedding(torch.arange(8.0).view(2, 2, 2))
        tensor([[0., 1., 2., 3.],
                [4., 5., 6., 7.]])

    Source: GPFL, TMLR 2025
    """
    reject_if(outputs.dim() != 3, "outputs to have shape [k, R, C]", list(outputs.shape))
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
    """Random Erdos-Renyi graphs; the features are one-hot degrees or random numbers.

    Args:
        num: number of graphs.
        num_nodes: number of nodes of each graph.
        p: probability of an edge.
        num_features: width of the features. For one-hot degrees, the last column stands for degree
            ``num_features - 1`` and all larger degrees.
        generator: source of randomness for the edges and for random features.
        features: one-hot degrees (GPFL), or numbers from N(0, 1) (FED-PUB).

    Returns:
        Three tensors: x, float ``[num * num_nodes, num_features]``; edge_index, int64
        ``[2, num_edges]``, which has both directions of each edge and is sorted by target; and
        batch, int64 ``[num * num_nodes]``.

    Raises:
        ValueError: if a number is not positive, if `p` is below 0 or above 1, or if `features` is
            unknown.

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
