"""Graph isomorphism network for whole graphs (Xu et al. 2019), in the form of GCFL and GPFL."""

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import Linear

from ..checks import check_choice, check_count, check_index, check_share
from ..sparse import SparseMatrix
from .layers import Edges, Features, adjacency, coarse_scale


class GINConv(nn.Module):
    """Graph isomorphism convolution ``MLP(x_v + sum_{u in N(v)} x_u)``, with eps fixed at 0.

    PyG's ``GINConv(Sequential(Linear, ReLU, Linear))`` has the same `state_dict` keys, and one more
    key: the constant ``eps``.

    Args:
        in_channels: width of the input.
        out_channels: width of the MLP's hidden layer and of its output layer.

    Shapes:
        - x: float ``[num_nodes, in_channels]``.
        - edges: ``edge_index`` or a `SparseMatrix` with ``A[target, source]``.
        - output: ``[num_nodes, out_channels]``.

    Example:
        >>> GINConv(4, 2)(torch.rand(3, 4), torch.tensor([[0, 1], [1, 2]])).shape
        torch.Size([3, 2])

    Source: https://arxiv.org/abs/1810.00826, Equation 4.1
    """

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        layers = nn.Linear(in_channels, out_channels), nn.Linear(out_channels, out_channels)
        self.nn = nn.Sequential(layers[0], nn.ReLU(), layers[1])

    def forward(self, x: Tensor, edges: Edges) -> Tensor:
        matrix = adjacency(edges, x.shape[0]).astype(x.dtype)
        return self.mapped(matrix.plus_identity @ x)

    def mapped(self, total: Tensor, before: Linear | None = None) -> Tensor:
        """Apply the MLP to sums over neighbours; if `before` is given, apply this layer first."""
        first: Any = self.nn[0]
        second: Any = self.nn[2]
        hidden = _linear(total, first, before).relu_()
        return _linear(hidden, second)


def _linear(x: Tensor, layer: Linear, before: Linear | None = None) -> Tensor:
    """Compute ``layer(x)`` as a new tensor; the caller may change this tensor in place.

    If `before` is given, compute ``layer((x W) + n b)`` as one product, where n is the last column
    of x.
    """
    if before is None:
        return (x @ layer.weight.t()).add_(layer.bias)
    joined = torch.cat([before.weight, before.bias[:, None]], dim=1)
    return (x @ (layer.weight @ joined).t()).add_(layer.bias)


class OfGraphs(nn.Module):
    """Parts of networks for whole graphs: a linear map, convolutions, a hidden layer and logits.

    Args:
        in_channels, width, out_channels: sizes of the network.
        make_conv: function that returns a new convolution; it is called `num_layers` times.
        dropout: probability of dropping a hidden unit in training.
        pooling: ``"sum"`` or ``"mean"``, see `pooled_rows`.
    """

    def __init__(
        self,
        in_channels: int,
        width: int,
        out_channels: int,
        make_conv: Callable[[], nn.Module],
        *,
        num_layers: int,
        dropout: float,
        pooling: Literal["sum", "mean"],
    ) -> None:
        super().__init__()
        check_count(num_layers=num_layers)
        check_share(dropout=dropout)
        check_choice("pooling", pooling, ("sum", "mean"))
        self.pre = nn.Linear(in_channels, width)
        self.convs = nn.ModuleList(make_conv() for _ in range(num_layers))
        self.post = nn.Linear(width, width)
        self.readout = nn.Linear(width, out_channels)
        self.dropout = dropout
        self.pooling: Literal["sum", "mean"] = pooling


class GIN(OfGraphs):
    """GPFL's GIN: a linear map, convolutions (`GINConv`), pooling, a hidden layer and logits.

    The input layer is ``h = x W + b``. Then ``h <- dropout(relu(GINConv(h)))`` is applied
    `num_layers` times. Pooling is ``g = sum_v h_v`` over the nodes v of a graph, or the mean of
    ``h_v`` over these nodes. The logits are ``dropout(relu(g W' + b')) W'' + b''``. There is no
    batch normalisation.

    Args:
        in_channels: number of node features.
        hidden_channels: width of all hidden layers.
        out_channels: number of classes.
        num_layers: number of convolutions.
        dropout: probability of dropping a hidden unit in training.
        pooling: ``"sum"`` or ``"mean"``.

    Shapes:
        - x: float ``[num_nodes, in_channels]``, dense or a `SparseMatrix`.
        - edges: ``edge_index`` or a `SparseMatrix` with ``A[target, source]``.
        - pool: the graph of each node, int64 ``[num_nodes]`` (PyG's ``batch``), or the matrix
          `Graph.pool`, ``[num_graphs, num_nodes]``, with 1 where a graph contains a node. By
          default, all nodes form one graph.
        - output: logits ``[num_graphs, out_channels]``.

    Raises:
        ValueError: if `num_layers` is not positive, if `dropout` is not between 0 and 1, or if
            `pooling` is unknown.
        TypeError, ValueError: when called with a `pool` that has the wrong dtype, the wrong shape,
            or a negative entry.

    Example:
        >>> batch = torch.tensor([0, 0, 1])
        >>> graph = fgl.Graph(torch.rand(3, 4), torch.tensor([[0], [1]]), batch=batch)
        >>> GIN(4, 8, 2)(*graph.inputs).shape
        torch.Size([2, 2])

    Source: Xu et al., https://arxiv.org/abs/1810.00826;
    https://github.com/Jiachen2cc/Graph-Personalized-Federated-Learning
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        *,
        num_layers: int = 3,
        dropout: float = 0.0,
        pooling: Literal["sum", "mean"] = "sum",
    ) -> None:
        conv = partial(GINConv, hidden_channels, hidden_channels)
        sizes = in_channels, hidden_channels, out_channels
        super().__init__(*sizes, conv, num_layers=num_layers, dropout=dropout, pooling=pooling)

    def forward(
        self, x: Features, edges: Edges, pool: SparseMatrix | Tensor | None = None
    ) -> Tensor:
        edges = adjacency(edges, x.shape[0])
        convs: list[Any] = list(self.convs)
        h = self._active(convs[0].mapped(*self._first(x, edges)))
        for conv in convs[1:]:
            h = self._active(conv(h, edges))
        pooled = self._active(_linear(pooled_rows(h, pool, self.pooling), self.post))
        return _linear(pooled, self.readout)

    def _first(self, x: Features, edges: SparseMatrix) -> tuple[Tensor, Linear | None]:
        """Return sums over neighbours, and the linear map that must still be applied to the sums.

        If x is sparse, the linear map `pre` is applied before the sum, and the second result is
        None. If x is dense, the returned sums are sums of x itself, and the caller must apply `pre`
        to these sums. Both orders give the same result, since `pre` and the sum are
        linear. It is faster to sum x first if x has few columns and needs no gradient.
        """
        if isinstance(x, SparseMatrix):
            h = (x @ self.pre.weight.t()).add_(self.pre.bias)
            return edges.astype(h.dtype).plus_identity @ h, None
        counted = torch.cat([x, torch.ones_like(x[:, :1])], dim=1)
        return edges.astype(x.dtype).plus_identity @ counted, self.pre

    def _active(self, h: Tensor) -> Tensor:
        """Apply ReLU and dropout to h in place."""
        if self.training and self.dropout:
            h = h.mul_(coarse_scale(h, self.dropout))
        return h.relu_()


def pooled_rows(
    h: Tensor, pool: SparseMatrix | Tensor | None, how: Literal["sum", "mean"]
) -> Tensor:
    """Sums or means of rows over the nodes of each graph; without `pool` there is one graph.

    Example:
        >>> pooled_rows(torch.tensor([[1.0], [2.0], [6.0]]), torch.tensor([0, 0, 1]), "mean")
        tensor([[1.5000],
                [6.0000]])
    """
    if pool is None:
        return h.sum(0, keepdim=True) if how == "sum" else h.mean(0, keepdim=True)
    if isinstance(pool, Tensor):
        pool = membership(pool, h.shape[0])
    matrix = pool.astype(h.dtype)
    total: Tensor = matrix @ h
    if how == "sum":
        return total
    return total / (matrix @ torch.ones_like(h[:, :1])).clamp(min=1)


def membership(batch: Tensor, num_nodes: int) -> SparseMatrix:
    """Matrix ``[num_graphs, num_nodes]``: 1 if the node belongs to the graph, otherwise 0."""
    check_index("pool, the graph of each node,", batch, (num_nodes,), None)
    count = int(batch.max()) + 1 if num_nodes else 0
    nodes = torch.arange(num_nodes, device=batch.device)
    return SparseMatrix.from_entries(batch, nodes, (count, num_nodes))
