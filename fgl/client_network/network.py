"""Networks of clients: built from similarities or distances, and turned into weights for mixes."""

import math

import torch
from torch import Tensor

from ..checks import Positive, Share, Weight, check_rows, reject_if
from ..kinds import typed
from .features import unit, unit_centred


def similarity(rows: Tensor, *, clip: bool = False, centre: bool = True) -> Tensor:
    """Cosine similarity of each pair of rows, after the mean row is subtracted from all rows.

    ``A_ij = <r_i - m, r_j - m> / (|r_i - m| |r_j - m|)``. A row that equals the mean (up to
    rounding) has similarity 0 to all rows, including itself.

    Args:
        rows: float ``[k, *]``, such as a `functional_embedding`.
        clip: whether to set negative entries to 0.
        centre: whether to subtract the mean row m, as in GPFL. If False, m is 0, as in pFedGraph
            and FED-PUB.

    Returns:
        float ``[k, k]``; entries are in ``[-1, 1]``, up to rounding.

    Raises:
        TypeError: if `rows` is not floating point.
        ValueError: if `rows` is not a matrix, or if an entry is not finite. For such an entry the
            error names the client.

    Example:
        >>> similarity(torch.tensor([[1.0, 0.0], [0.0, 0.0], [-1.0, 0.0]]))
        tensor([[ 1.,  0., -1.],
                [ 0.,  0.,  0.],
                [-1.,  0.,  1.]])

    Source: GPFL, TMLR 2025
    """
    check_rows("rows", rows)
    directions = unit_centred(rows) if centre else unit(rows)
    cosine = directions @ directions.T
    return cosine.clamp(min=0) if clip else cosine


def property_network(properties: Tensor) -> Tensor:
    """Network that links clients with similar graphs, computed from properties of the graphs.

    The network is the `similarity` of the rows of `properties`, with negative entries set to 0. As
    in the public code, a property with large values has more influence than a property with small
    values. To give properties equal influence, divide each column by its standard deviation first.

    Args:
        properties: float ``[k, P]``, each client's mean over its training graphs.

    Returns:
        float ``[k, k]``; entries are in ``[0, 1]``, up to rounding.

    Raises:
        TypeError, ValueError: as for `similarity`.

    Example:
        >>> property_network(torch.tensor([[1.0, 9.0], [1.0, 8.0], [1.0, 1.0]]))
        tensor([[1., 1., 0.],
                [1., 1., 0.],
                [0., 0., 1.]])

    Source: GPFL, TMLR 2025
    """
    check_rows("properties", properties, "k, P")
    return similarity(properties, clip=True)


def select_properties(properties: Tensor, embedding_similarity: Tensor) -> Tensor:
    """Select properties whose `property_network` resembles the similarity of the clients' models.

    The selection starts with all properties. Each step removes one property: the property whose
    removal reduces ``|f(F) - max(0, A_E)|^2`` most. Here ``f`` is `property_network`. In a tie the
    first property is removed. The selection stops if no removal reduces this value, or if only two
    properties are left.

    Args:
        properties: float ``[k, P]``.
        embedding_similarity: float ``[k, k]``, the paper's ``A_E``.

    Returns:
        int64 tensor, the indices of the selected columns in ascending order.

    Raises:
        TypeError, ValueError: if `similarity` raises one of these errors, or if the shapes do not
            agree.

    Example:
        >>> properties = torch.tensor([[1.0, 0.0, 9.0], [2.0, 0.1, -9.0], [7.0, 0.2, 0.0]])
        >>> select_properties(properties, fgl.client_network.similarity(properties[:, :2]))
        tensor([0, 1])

    Source: GPFL, TMLR 2025
    """
    check_rows("properties", properties, "k, P")
    _check_square("embedding_similarity", embedding_similarity, len(properties))
    target = embedding_similarity.clamp(min=0).to(properties.dtype)

    def error(columns: list[int]) -> float:
        return float((similarity(properties[:, columns], clip=True) - target).square().sum())

    chosen = list(range(properties.shape[1]))
    best = error(chosen)
    while len(chosen) > 2:
        fewer = [[c for c in chosen if c != column] for column in chosen]
        errors = [error(columns) for columns in fewer]
        if min(errors) >= best:
            break
        best = min(errors)
        chosen = fewer[errors.index(best)]
    return torch.tensor(chosen, dtype=torch.int64, device=properties.device)


def normalize_rows(network: Tensor) -> Tensor:
    """Divide each row by the sum of the row: ``D^-1 A``; a row of zeros is unchanged.

    Args:
        network: float ``[k, k]``, non-negative.

    Returns:
        float ``[k, k]``.

    Raises:
        TypeError, ValueError: if `network` is not floating point or not square, or if an entry is
            not finite or is negative.

    Example:
        >>> normalize_rows(torch.tensor([[1.0, 3.0], [0.0, 0.0]]))
        tensor([[0.2500, 0.7500],
                [0.0000, 0.0000]])

    Source: GPFL, TMLR 2025
    """
    check_rows("network", network, "k, k")
    if (network < 0).any():
        raise ValueError(f"Expected network to be not negative, but got {float(network.min())}")
    total = network.sum(1, keepdim=True)
    if not torch.isfinite(total).all():
        network = network / network.amax(1, keepdim=True).clamp(min=1)
        total = network.sum(1, keepdim=True)
    return network / torch.where(total > 0, total, 1)  # an epsilon would be 0 in half precision


@typed
def running_network(
    previous: Tensor, embedding_similarity: Tensor, *, beta: Share = 0.95
) -> Tensor:
    """Running average of the network over rounds: ``D^-1 max(0, beta A + (1 - beta) A_E)``.

    Args:
        previous: float ``[k, k]``, the matrix A that this function returned in the previous round.
            In the second round, A is the first round's property network after `normalize_rows`.
        embedding_similarity: float ``[k, k]``, this round's ``A_E``.
        beta: weight of the previous network.

    Returns:
        float ``[k, k]``. Each row sums to 1, or is 0 if it has no positive entry.

    Raises:
        TypeError, ValueError: if a matrix is not floating point, not square or not finite, if the
            sizes of the two matrices differ, or if `beta` is below 0 or above 1.

    Example:
        >>> running_network(torch.eye(2), torch.tensor([[1.0, -1.0], [1.0, 1.0]]), beta=0.5)
        tensor([[1.0000, 0.0000],
                [0.3333, 0.6667]])

    Source: GPFL, TMLR 2025, Eq. 8
    """
    check_rows("previous", previous, "k, k")
    _check_square("embedding_similarity", embedding_similarity, len(previous))
    mixed = beta * previous + (1 - beta) * embedding_similarity.to(previous)
    return normalize_rows(mixed.clamp(min=0))


def discretise(z: Tensor, *, threshold: float | None = None) -> Tensor:
    """Network that links similar clients, with equal weights in each row.

    The network is ``1[softmax_row(z z^T) >= threshold]``, with each row divided by its sum.

    Args:
        z: float ``[k, d]``, one client's embedding per row.
        threshold: smallest softmax value that gives a weight above 0; by default ``0.1 / k``.

    Returns:
        float ``[k, k]``. Each row sums to 1, or is 0 if no entry reaches the threshold.

    Raises:
        TypeError, ValueError: if `z` is not a finite floating-point matrix, if products of rows of
            `z` are not finite, or if `threshold` is NaN.

    Example:
        >>> discretise(torch.tensor([[2.0, 0.0], [2.0, 0.0], [0.0, 3.0]]))
        tensor([[0.5000, 0.5000, 0.0000],
                [0.5000, 0.5000, 0.0000],
                [0.0000, 0.0000, 1.0000]])

    Source: GPFL, TMLR 2025
    """
    check_rows("z", z, "k, d")
    least = 0.1 / max(len(z), 1) if threshold is None else threshold
    reject_if(math.isnan(least), "threshold to be a number", least)
    products = z @ z.T
    check_rows("z @ z.T", products, "k, k")
    links = (torch.softmax(products, dim=1) >= least).to(z.dtype)
    return links / links.sum(1, keepdim=True).clamp(min=1)


def _check_square(name: str, matrix: Tensor, k: int) -> None:
    check_rows(name, matrix, "k, k")
    reject_if(len(matrix) != k, f"{name} to have shape {[k, k]}", list(matrix.shape))


@typed
def softmax_attention(alike: Tensor, *, scale: Weight = 10.0, own: Share | None = None) -> Tensor:
    """Softmax over each row: ``exp(scale S_ij) / sum_k exp(scale S_ik)`` (FED-PUB; HeurFedAMP).

    Args:
        alike: the matrix S, float ``[k, k]``, such as the result of `similarity`.
        scale: inverse temperature of the softmax, at least 0; 0 gives equal weights.
        own: each client's weight for itself, between 0 and 1. If `own` is given, a softmax divides
            the remaining weight among the other clients (HeurFedAMP). By default the softmax is
            over all clients, including the client itself (FED-PUB).

    Returns:
        float ``[k, k]``; each row sums to 1. A single client has weight 1.

    Raises:
        TypeError, ValueError: if `alike` is not floating point, not square or not finite, or if a
            number is out of range.

    Example:
        >>> softmax_attention(torch.zeros(3, 3), own=0.5)
        tensor([[0.5000, 0.2500, 0.2500],
                [0.2500, 0.5000, 0.2500],
                [0.2500, 0.2500, 0.5000]])

    Source: Baek et al. 2023, https://arxiv.org/abs/2206.10206; Huang et al. 2021,
    https://arxiv.org/abs/2007.03797
    """
    check_rows("alike", alike, "k, k")
    if own is None:
        return torch.softmax(scale * alike, dim=1)
    itself = torch.eye(len(alike), dtype=alike.dtype, device=alike.device)
    if len(alike) < 2:
        return itself
    others = torch.softmax((scale * alike).masked_fill(itself.bool(), -torch.inf), dim=1)
    return own * itself + (1 - own) * others


@typed
def distance_attention(rows: Tensor, *, sigma: Positive = 1.0, lr: Weight = 1.0) -> Tensor:
    """Weights for moving towards nearby clients: ``xi_ij = lr A'(||r_i - r_j||^2)`` (FedAMP).

    ``A(x) = 1 - exp(-x / sigma)``, so ``A'(x) = exp(-x / sigma) / sigma``, and
    ``xi_ii = 1 - sum_{j != i} xi_ij``. The paper requires a small step size `lr`, so that no
    ``xi_ii`` is negative. This function also accepts a large `lr`. If a row's entries for other
    clients sum to more than 1, these entries are scaled to sum to 1.

    Args:
        rows: float ``[k, P]``, one client's flattened parameters per row.
        sigma: the squared distance at which attention is 1 / e of the largest possible attention;
            above 0.
        lr: the paper's step size alpha_K, at least 0.

    Returns:
        float ``[k, k]``, non-negative; each row sums to 1.

    Raises:
        TypeError, ValueError: if `rows` is not a finite floating-point matrix, or if a number is
            out of range.

    Example:
        >>> distance_attention(torch.tensor([[0.0], [0.0], [99.0]]), lr=0.5)
        tensor([[0.5000, 0.5000, 0.0000],
                [0.5000, 0.5000, 0.0000],
                [0.0000, 0.0000, 1.0000]])

    Source: Huang et al. 2021, https://arxiv.org/abs/2007.03797
    """
    check_rows("rows", rows, "k, P")
    # Exact differences, because the expanded square would lose all digits for similar models.
    apart = torch.cdist(rows, rows, compute_mode="donot_use_mm_for_euclid_dist").square()
    others = (lr / sigma * torch.exp(-apart / sigma)).fill_diagonal_(0)
    others = others / others.sum(1, keepdim=True).clamp(min=1)
    return others + torch.diag((1 - others.sum(1)).clamp(min=0))
