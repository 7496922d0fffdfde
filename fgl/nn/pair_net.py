"""A network that reads directed edges with signed features and predicts labels of node pairs."""

import torch
from torch import Tensor, nn

from ..checks import check_count, reject_if
from ..sparse import SparseMatrix, gather_rows
from .layers import Edges, Features, Linear, adjacency


class PairNet(nn.Module):
    """Network that averages along and against edges, and returns one row per directed pair.

    A layer is ``h' = relu(W [h, P_1 h, ..., P_K h] + b)``. Each P_k is a mean of the neighbours'
    rows h over a node's incoming edges or over its outgoing edges. In each direction, there is one
    plain mean. In each direction and for each column of `edge_attr`, there are also two weighted
    means. Let a be the entry of an edge in this column. The first weighted mean multiplies the
    neighbour's row by ``max(a, 0)``, and the second weighted mean multiplies this row by
    ``max(-a, 0)``. The output for (u, v) is ``W_2 relu(W_1 [h_u, h_v] + b_1) + b_2``, which differs
    from the output for (v, u).

    Args:
        in_channels: number of node features.
        hidden_channels: width of the hidden layers.
        out_channels: number of outputs per pair.
        edge_dim: number of columns of `edge_attr`; 0 if edges have no features.
        num_layers: number of layers.

    Shapes:
        - x: float ``[num_nodes, in_channels]``, dense or `SparseMatrix`.
        - edges: ``edge_index`` or a `SparseMatrix` with ``A[target, source]``.
        - edge_label_index: int64 ``[2, p]``.
        - edge_attr: float ``[nnz, edge_dim]``, in the order of the matrix's entries.
        - output: ``[p, out_channels]``.

    Example:
        >>> net = PairNet(4, 8, 1, edge_dim=0)
        >>> pairs = torch.tensor([[0, 1], [1, 0]])
        >>> net(torch.rand(3, 4), torch.tensor([[0, 1], [1, 2]]), edge_label_index=pairs).shape
        torch.Size([2, 1])

    Source: the averages over signed edges follow Derr et al. 2018, https://arxiv.org/abs/1808.06354
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        *,
        edge_dim: int = 0,
        num_layers: int = 2,
    ) -> None:
        super().__init__()
        check_count(hidden_channels=hidden_channels, num_layers=num_layers)
        self.edge_dim = edge_dim
        self.embed = Linear(in_channels, hidden_channels)
        many = 3 + 4 * edge_dim
        self.convs = nn.ModuleList(
            nn.Linear(many * hidden_channels, hidden_channels) for _ in range(num_layers)
        )
        self.hidden = nn.Linear(2 * hidden_channels, hidden_channels)
        self.out = nn.Linear(hidden_channels, out_channels)

    def forward(
        self,
        x: Features,
        edges: Edges,
        *,
        edge_label_index: Tensor,
        edge_attr: Tensor | None = None,
    ) -> Tensor:
        h: Tensor = self.embed(x)
        means = self._means(adjacency(edges, x.shape[0]).astype(h.dtype), edge_attr)
        for conv in self.convs:
            h = conv(torch.cat([h, *(mean @ h for mean in means)], 1)).relu()
        ends = torch.cat([gather_rows(h, index) for index in edge_label_index.unbind(0)], 1)
        out: Tensor = self.out(self.hidden(ends).relu())
        return out

    def _means(self, adj: SparseMatrix, edge_attr: Tensor | None) -> list[SparseMatrix]:
        """The operators P_k: first for incoming edges, then for outgoing edges."""
        got = 0 if edge_attr is None else edge_attr.shape[1]
        reject_if(got != self.edge_dim, f"edge_attr to have {self.edge_dim} columns", got)
        columns = () if edge_attr is None else edge_attr.to(adj.dtype).unbind(1)
        signed = [adj.with_value(part.relu()) for column in columns for part in (column, -column)]
        into, out_of = adj.mean_norm, adj.T.mean_norm
        return [
            *(into, *(_times(into, part) for part in signed)),
            *(out_of, *(_times(out_of, part.T) for part in signed)),
        ]


def _times(one: SparseMatrix, two: SparseMatrix) -> SparseMatrix:
    """Entrywise product of two matrices that have the same pattern."""
    return one.with_value(one.value * two.value)  # type: ignore[operator]  # both have values
