"""Graph convolutional network (Kipf & Welling 2017)."""

from itertools import pairwise

import torch
from torch import Tensor, nn

from .layers import Edges, Features, Linear, Stack, adjacency, widths


class GCNConv(nn.Module):
    """Graph convolution ``D^-1/2 (A + I) D^-1/2 X W + b``.

    The normalised operator is computed once for an adjacency matrix, and later calls reuse it.

    Args:
        in_channels: width of the input.
        out_channels: width of the output.
        normalize: if False, the operator is the given matrix itself.
        propagate: if False, the layer computes only ``X W + b``; use False if the features are
            already sums over neighbours.

    Shapes:
        - x: float ``[num_nodes, in_channels]``, dense or `SparseMatrix`.
        - edges: ``edge_index`` or a `SparseMatrix` with ``A[target, source]``.
        - output: ``[num_nodes, out_channels]``.

    Example:
        >>> GCNConv(4, 2)(torch.rand(3, 4), torch.tensor([[0, 1], [1, 2]])).shape
        torch.Size([3, 2])
    """

    def __init__(
        self, in_channels: int, out_channels: int, *, normalize: bool = True, propagate: bool = True
    ) -> None:
        super().__init__()
        self.normalize = normalize
        self.propagate = propagate
        self.lin = Linear(in_channels, out_channels)
        self.bias = nn.Parameter(torch.zeros(out_channels))

    def reset_parameters(self) -> None:
        """Set the bias to 0, but do not change the weights of the linear map."""
        nn.init.zeros_(self.bias)

    def forward(self, x: Features, edges: Edges) -> Tensor:
        h: Tensor = self.lin(x)
        if not self.propagate:
            return h + self.bias
        matrix = adjacency(edges, x.shape[0]).astype(h.dtype)
        out: Tensor = (matrix.gcn_norm if self.normalize else matrix) @ h
        return out + self.bias


class GCN(Stack):
    """Layers of `GCNConv`, with ReLU and dropout between them.

    A ``torch_geometric.nn.GCN`` of the same sizes has the same `state_dict` keys. With the same
    weights, both networks have equal outputs.

    Args:
        in_channels: number of node features.
        hidden_channels: width of the hidden layers.
        out_channels: number of classes.
        num_layers: number of convolutions.
        dropout: probability of dropping a hidden unit in training.
        drop_input: whether to apply dropout to the features too.
        normalize: if False, the operator is the given matrix itself.
        summed: if True, the features are already sums over neighbours
            (`fgl.data.neighbour_sums`), so the first convolution does not sum over neighbours
            again.
        head: if True, all convolutions are hidden layers. ReLU and dropout follow the last
            convolution, and then a linear map ``lin`` computes the logits, as in PyG with
            ``jk="last"``.

    Returns:
        Logits ``[num_nodes, out_channels]``; with ``return_embedding=True`` also the output of the
        last hidden convolution before the activation, ``[num_nodes, hidden_channels]``.

    Example:
        >>> GCN(4, 8, 2)(torch.rand(3, 4), torch.tensor([[0, 1], [1, 2]])).shape
        torch.Size([3, 2])

    Source: https://arxiv.org/abs/1609.02907
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        *,
        num_layers: int = 2,
        dropout: float = 0.0,
        drop_input: bool = False,
        normalize: bool = True,
        summed: bool = False,
        head: bool = False,
    ) -> None:
        last = hidden_channels if head else out_channels
        sizes = widths(in_channels, hidden_channels, last, num_layers)
        convs: list[nn.Module] = [
            GCNConv(a, b, normalize=normalize, propagate=depth > 0 or not summed)
            for depth, (a, b) in enumerate(pairwise(sizes))
        ]
        lin = nn.Linear(hidden_channels, out_channels) if head else None
        super().__init__(convs, dropout, drop_input, lin)
        self.summed = summed
