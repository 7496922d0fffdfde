"""Graph isomorphism network that reads edge features (Hu et al. 2020)."""

from functools import partial
from typing import Any, Literal

from torch import Tensor, nn

from ..sparse import SparseMatrix, gather_rows
from ..sparse.pattern import row_major
from .gin import OfGraphs, pooled_rows
from .layers import Edges, Features, adjacency, dropout


class GINEConv(nn.Module):
    """Graph isomorphism convolution with edge features.

    ``MLP(x_v + sum_{u in N(v)} relu(x_u + W e_uv + b))``, with eps fixed at 0. PyG's
    ``GINEConv(MLP, edge_dim=edge_dim)`` has the same outputs and the same `state_dict` keys, and
    one more key: the constant ``eps``.

    Args:
        in_channels: width of the input.
        out_channels: width of the MLP's hidden layer and of its output layer.
        edge_dim: number of features of an edge.

    Shapes:
        - x: float ``[num_nodes, in_channels]``.
        - edges: ``edge_index`` or a `SparseMatrix` with ``A[target, source]``. A zero entry means
          no edge.
        - edge_attr: float ``[nnz, edge_dim]`` in the order of the matrix's entries
          (`Graph.entries`) or in the order of ``edge_index``.
        - output: ``[num_nodes, out_channels]``.

    Example:
        >>> edges, edge_attr = torch.tensor([[0, 1], [1, 2]]), torch.ones(2, 5)
        >>> GINEConv(4, 2, edge_dim=5)(torch.rand(3, 4), edges, edge_attr).shape
        torch.Size([3, 2])

    Source: https://arxiv.org/abs/1905.12265
    """

    def __init__(self, in_channels: int, out_channels: int, *, edge_dim: int) -> None:
        super().__init__()
        layers = nn.Linear(in_channels, out_channels), nn.Linear(out_channels, out_channels)
        self.nn = nn.Sequential(layers[0], nn.ReLU(), layers[1])
        self.lin = nn.Linear(edge_dim, in_channels)

    def forward(self, x: Tensor, edges: Edges, edge_attr: Tensor) -> Tensor:
        matrix, edge_attr = in_order(edges, x.shape[0], edge_attr)
        messages = (gather_rows(x, matrix.pattern.col) + self.lin(edge_attr)).relu()
        out: Tensor = self.nn(x + matrix.incidence.astype(x.dtype) @ messages)
        return out


def in_order(edges: Edges, num_nodes: int, field: Tensor) -> tuple[SparseMatrix, Tensor]:
    """Convert edges to a matrix, and sort an edge field in the order of the matrix's entries.

    Example:
        >>> in_order(torch.tensor([[0, 1], [1, 0]]), 2, torch.tensor([7, 8]))[1]
        tensor([8, 7])
    """
    if isinstance(edges, SparseMatrix):
        return edges, field
    source, target = edges
    return adjacency(edges, num_nodes), field[row_major(target, source, num_nodes)]


class GINE(OfGraphs):
    """Network for whole graphs: a linear map, convolutions (`GINEConv`), pooling and an MLP.

    `GINE` differs from `GIN` only in its convolutions. The input layer is ``h = x W + b``. Then
    ``h <- dropout(relu(GINEConv(h, e)))`` is applied `num_layers` times. Pooling is
    ``g = sum_v h_v`` over the nodes v of a graph, or the mean of ``h_v`` over these nodes. The
    logits are ``dropout(relu(g W' + b')) W'' + b''``.

    Args:
        in_channels: number of node features.
        hidden_channels: width of all hidden layers.
        out_channels: number of classes, or number of predicted values.
        edge_dim: number of features of an edge.
        num_layers: number of convolutions.
        dropout: probability of dropping a hidden unit in training.
        pooling: ``"sum"`` or ``"mean"``.

    Shapes:
        - x: float ``[num_nodes, in_channels]``, dense or a `SparseMatrix`.
        - edges, edge_attr: as for `GINEConv`.
        - pool: as for `GIN`.
        - output: ``[num_graphs, out_channels]``. With ``return_embedding=True``, the pooled ``g``,
          ``[num_graphs, hidden_channels]``, is returned too.

    Raises:
        ValueError: if `num_layers` is not positive, if `dropout` is not between 0 and 1, or if
            `pooling` is unknown.

    Example:
        >>> edges, batch = torch.tensor([[0], [1]]), torch.tensor([0, 0, 1])
        >>> graph = fgl.Graph(torch.rand(3, 4), edges, edge_attr=torch.ones(1, 5), batch=batch)
        >>> GINE(4, 8, 2, edge_dim=5)(*graph.inputs, edge_attr=graph.entries("edge_attr")).shape
        torch.Size([2, 2])

    Source: https://arxiv.org/abs/1905.12265
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        *,
        edge_dim: int,
        num_layers: int = 3,
        dropout: float = 0.0,
        pooling: Literal["sum", "mean"] = "sum",
    ) -> None:
        conv = partial(GINEConv, hidden_channels, hidden_channels, edge_dim=edge_dim)
        sizes = in_channels, hidden_channels, out_channels
        super().__init__(*sizes, conv, num_layers=num_layers, dropout=dropout, pooling=pooling)

    def forward(
        self,
        x: Features,
        edges: Edges,
        pool: SparseMatrix | Tensor | None = None,
        *,
        edge_attr: Tensor,
        return_embedding: bool = False,
    ) -> Any:
        matrix, edge_attr = in_order(edges, x.shape[0], edge_attr)
        h: Tensor = x @ self.pre.weight.t() + self.pre.bias
        for conv in self.convs:
            h = dropout(conv(h, matrix, edge_attr).relu(), self.dropout, self.training)
        pooled = pooled_rows(h, pool, self.pooling)
        out = self.readout(dropout(self.post(pooled).relu(), self.dropout, self.training))
        return (out, pooled) if return_embedding else out
