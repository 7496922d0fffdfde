"""Random views of a graph: edges are dropped, and feature columns are masked."""

from functools import partial
from typing import TypeVar

import torch
from torch import Tensor

from .checks import check_share
from .kinds import explained
from .sparse import SparseMatrix

TensorOrSparse = TypeVar("TensorOrSparse", Tensor, SparseMatrix)


def drop_edges(
    edges: TensorOrSparse, *, p: float, generator: torch.Generator | None = None
) -> TensorOrSparse:
    """Drop each directed edge independently with probability `p`.

    Args:
        edges: ``edge_index`` int64 ``[2, num_edges]``, from which dropped columns are removed; or a
            `SparseMatrix`, in which dropped entries become 0 and shapes do not change.
        p: probability, between 0 and 1.
        generator: source of randomness; by default torch's global generator.

    Returns:
        The remaining edges, in the same format as `edges`.

    Raises:
        ValueError: if `p` is below 0 or above 1.

    Example:
        >>> drop_edges(torch.tensor([[0, 1], [1, 0]]), p=1.0).shape
        torch.Size([2, 0])

    Source: Huang et al., IJCAI 2023, https://doi.org/10.24963/ijcai.2023/426
    """
    if isinstance(edges, SparseMatrix):
        keep = _keep(edges.nnz, p, edges.device, generator).to(edges.dtype)
        return edges.with_value(keep if edges.value is None else edges.value * keep)
    return edges[:, _keep(edges.shape[1], p, edges.device, generator)]


def mask_features(
    x: TensorOrSparse, *, p: float, generator: torch.Generator | None = None
) -> TensorOrSparse:
    """Set each feature column to zero, for all nodes together, with probability `p`.

    Args:
        x: float ``[num_nodes, num_features]``, dense or a `SparseMatrix`.
        p: probability, between 0 and 1.
        generator: source of randomness; by default torch's global generator.

    Returns:
        The masked features, with the type and the shape of `x`.

    Raises:
        ValueError: if `p` is below 0 or above 1.

    Example:
        >>> mask_features(torch.ones(2, 3), p=1.0).sum()
        tensor(0.)

    Source: Huang et al., IJCAI 2023, https://doi.org/10.24963/ijcai.2023/426
    """
    keep = _keep(x.shape[1], p, x.device, generator).to(x.dtype)
    if not isinstance(x, SparseMatrix):
        return x * keep
    scale = keep.index_select(0, x.pattern.col)
    return x.with_value(scale if x.value is None else x.value * scale)


@explained
def augment(
    x: TensorOrSparse,
    edges: SparseMatrix,
    *,
    edge_p: float,
    feature_p: float,
    generator: torch.Generator | None = None,
) -> tuple[TensorOrSparse, SparseMatrix]:
    """Random view of a graph: mask feature columns and drop edges at random.

    Args:
        x: float ``[num_nodes, num_features]``, dense or a `SparseMatrix`.
        edges: the adjacency.
        edge_p: probability of dropping an edge.
        feature_p: probability of masking a column.
        generator: source of randomness; by default torch's global generator.

    Returns:
        The view's features and edges.

    Example:
        >>> edges = SparseMatrix.from_edge_index(torch.tensor([[0, 1], [1, 0]]), 2)
        >>> x, edges = augment(torch.ones(2, 3), edges, edge_p=0.0, feature_p=1.0)
        >>> x.sum(), edges.to_dense().sum()
        (tensor(0.), tensor(2.))

    Source: Huang et al., IJCAI 2023, https://doi.org/10.24963/ijcai.2023/426
    """
    x = mask_features(x, p=feature_p, generator=generator)
    return x, drop_edges(edges, p=edge_p, generator=generator)


weak = partial(augment, edge_p=0.3, feature_p=0.3)
"""`augment` with the weak view of FGSSL's code: drops 30 % of edges, masks 30 % of columns."""

strong = partial(augment, edge_p=0.8, feature_p=0.5)
"""`augment` with the strong view of FGSSL's code: drops 80 % of edges, masks half the columns."""


def _keep(size: int, p: float, device: torch.device, generator: torch.Generator | None) -> Tensor:
    check_share(p=p)
    return torch.rand(size, device=device, generator=generator) >= p
