"""Relational graph convolutional network (Schlichtkrull et al. 2018)."""

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from ..checks import check_count
from ..sparse import SparseMatrix, gather_rows
from .gine import in_order
from .layers import Edges, Features, Layers, widths


class RGCNConv(nn.Module):
    """Graph convolution with a separate weight matrix for each relation.

    ``out_v = x_v W_0 + b + sum_r 1/|N_r(v)| sum_{u in N_r(v)} x_u W_r``. With `num_bases`,
    ``W_r = sum_b comp_rb V_b``. ``torch_geometric.nn.RGCNConv`` has the same `state_dict` keys and
    the same outputs. All relations are computed together, by one matrix product and one sum over
    entries.

    Args:
        in_channels: width of the input.
        out_channels: width of the output.
        num_relations: number of types of edges.
        num_bases: number of matrices V_b that the relations share; by default nothing is shared,
            and each relation has a matrix of its own.

    Shapes:
        - x: float ``[num_nodes, in_channels]``, dense or a `SparseMatrix`.
        - edges: ``edge_index`` or a `SparseMatrix` with ``A[target, source]``. A zero entry means
          no edge.
        - edge_type: int64 ``[nnz]``, in the order of the matrix's entries (`Graph.entries`) or in
          the order of ``edge_index``. Each type is at least 0 and below `num_relations`.
        - output: ``[num_nodes, out_channels]``.

    Raises:
        ValueError: if `num_relations` or `num_bases` is not positive.

    Example:
        >>> edges, edge_type = torch.tensor([[0, 1], [1, 2]]), torch.tensor([0, 1])
        >>> RGCNConv(4, 2, num_relations=2)(torch.rand(3, 4), edges, edge_type).shape
        torch.Size([3, 2])

    Source: https://arxiv.org/abs/1703.06103, Equations 2 and 3
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        num_relations: int,
        num_bases: int | None = None,
    ) -> None:
        super().__init__()
        check_count(num_relations=num_relations)
        self.num_relations, self.num_bases = num_relations, num_bases
        matrices = num_relations if num_bases is None else num_bases
        self.weight = nn.Parameter(torch.empty(matrices, in_channels, out_channels))
        if num_bases is not None:
            check_count(num_bases=num_bases)
            self.comp = nn.Parameter(torch.empty(num_relations, num_bases))
        self.root = nn.Parameter(torch.empty(in_channels, out_channels))
        self.bias = nn.Parameter(torch.empty(out_channels))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialise all parameters again: Glorot-uniform matrices, zero biases."""
        if self.num_bases is not None:
            nn.init.xavier_uniform_(self.comp)
        nn.init.xavier_uniform_(self.root)
        nn.init.zeros_(self.bias)
        for matrix in self.weight:
            nn.init.xavier_uniform_(matrix)

    def forward(self, x: Features, edges: Edges, edge_type: Tensor) -> Tensor:
        matrix, edge_type = in_order(edges, x.shape[0], edge_type)
        width = self.root.shape[1]
        weights = self.weight
        if self.num_bases is not None:
            weights = (self.comp @ self.weight.flatten(1)).unflatten(1, self.root.shape)
        joined = torch.cat([*weights.unbind(), self.root], dim=1)
        out: Tensor = x @ joined
        of_relations, of_itself = out.split([self.num_relations * width, width], dim=1)
        h = of_relations.reshape(-1, width)  # a row for each node and relation
        source = matrix.pattern.col * self.num_relations + edge_type
        share = relation_share(matrix, edge_type, self.num_relations, h.dtype)
        messages = gather_rows(h, source) * share[:, None]
        of_neighbours = matrix.incidence.astype(h.dtype) @ messages
        total: Tensor = of_neighbours + of_itself + self.bias
        return total


@torch.no_grad()
def relation_share(
    matrix: SparseMatrix, edge_type: Tensor, num_relations: int, dtype: torch.dtype
) -> Tensor:
    """Weight 1 / n of each entry, if n entries of the same row have the same relation.

    Example:
        >>> matrix = SparseMatrix.from_dense(torch.ones(1, 3))
        >>> relation_share(matrix, torch.tensor([0, 1, 1]), 2, torch.float32)
        tensor([1.0000, 0.5000, 0.5000])
    """
    try:
        kinds = one_hot(edge_type, num_relations).to(dtype)
    except RuntimeError as error:
        most = int(edge_type.max()) + 1
        expected = f"num_relations to be at least the {most} of edge_type"
        raise ValueError(f"Expected {expected}, but got {num_relations}") from error
    counts = matrix.incidence.astype(dtype) @ kinds
    place = matrix.pattern.row * num_relations + edge_type
    return 1 / gather_rows(counts.reshape(-1, 1), place).squeeze(1).clamp(min=1)


class RGCN(Layers):
    """Layers of `RGCNConv`, with ReLU and dropout between them.

    Args:
        in_channels: number of node features.
        hidden_channels: width of the hidden layers.
        out_channels: number of classes.
        num_relations: number of types of edges.
        num_bases: as for `RGCNConv`.
        num_layers: number of convolutions.
        dropout: probability of dropping a hidden unit in training.

    Shapes:
        - x, edges, edge_type: as for `RGCNConv`.
        - output: logits ``[num_nodes, out_channels]``. With ``return_embedding=True``, the output
          of the last hidden convolution before the activation is returned too.

    Example:
        >>> edges, edge_type = torch.tensor([[0, 1], [1, 2]]), torch.tensor([0, 1])
        >>> RGCN(4, 8, 2, num_relations=2)(torch.rand(3, 4), edges, edge_type=edge_type).shape
        torch.Size([3, 2])

    Source: https://arxiv.org/abs/1703.06103
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        *,
        num_relations: int,
        num_bases: int | None = None,
        num_layers: int = 2,
        dropout: float = 0.0,
    ) -> None:
        sizes = widths(in_channels, hidden_channels, out_channels, num_layers)
        how: Any = {"num_relations": num_relations, "num_bases": num_bases}
        super().__init__([RGCNConv(*pair, **how) for pair in pairwise(sizes)], dropout)

    def forward(
        self, x: Features, edges: Edges, *, edge_type: Tensor, return_embedding: bool = False
    ) -> Any:
        out, embedding = self.outputs(x, *in_order(edges, x.shape[0], edge_type))
        return (out, embedding) if return_embedding else out
