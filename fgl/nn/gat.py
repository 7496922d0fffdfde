"""Graph attention network (Velickovic et al. 2018)."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..checks import check_count, reject_if
from ..sparse import row_softmax, weighted_product
from ..sparse.rows import pair_sum
from .layers import Edges, Features, Linear, Stack, adjacency, widths


class GATConv(nn.Module):
    """Attention of each node over the node itself and its neighbours.

    ``h = X W``, ``a_ij = softmax_j LeakyReLU(att_dst . h_i + att_src . h_j)``,
    ``out_i = sum_j a_ij h_j + b``. The sum over j is a weighted sparse product, so no tensor of
    shape ``[num_edges, width]`` is needed.

    Args:
        in_channels: width of the input.
        out_channels: width of each head.
        heads: number of attention heads.
        concat: whether to concatenate the heads' outputs; if False, the outputs are averaged.

    Shapes:
        - x: float ``[num_nodes, in_channels]``, dense or `SparseMatrix`.
        - edges: ``edge_index`` or a `SparseMatrix`. Where the matrix is 0, there is no edge.
        - output: ``[num_nodes, heads * out_channels]``, or ``[num_nodes, out_channels]`` if heads
          are averaged.

    Example:
        >>> GATConv(4, 2, heads=3)(torch.rand(3, 4), torch.tensor([[0, 1], [1, 2]])).shape
        torch.Size([3, 6])
    """

    def __init__(
        self, in_channels: int, out_channels: int, *, heads: int = 1, concat: bool = True
    ) -> None:
        super().__init__()
        self.heads = heads
        self.concat = concat
        self.lin = Linear(in_channels, heads * out_channels)
        self.att_src = nn.Parameter(torch.empty(1, heads, out_channels))
        self.att_dst = nn.Parameter(torch.empty(1, heads, out_channels))
        self.bias = nn.Parameter(torch.empty(heads * out_channels if concat else out_channels))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialise attention and bias again, but not the weights of the linear map."""
        bound = math.sqrt(6 / sum(self.att_src.shape[1:]))  # Glorot over these two, as PyG
        nn.init.uniform_(self.att_src, -bound, bound)
        nn.init.uniform_(self.att_dst, -bound, bound)
        nn.init.zeros_(self.bias)

    def forward(self, x: Features, edges: Edges) -> Tensor:
        matrix = adjacency(edges, x.shape[0]).with_self_loops
        pattern = matrix.pattern
        outputs = []
        for head, h in enumerate(self.lin(x).chunk(self.heads, dim=1)):
            score = h @ torch.cat([self.att_dst[:, head], self.att_src[:, head]]).t()
            logit = F.leaky_relu(pair_sum(pattern, *score.unbind(1)), 0.2)
            attention = row_softmax(pattern, logit, matrix.present)
            outputs.append(weighted_product(pattern, attention, h))
        if self.concat:
            return torch.cat(outputs, dim=1) + self.bias
        return torch.stack(outputs).mean(0) + self.bias


class GAT(Stack):
    """Layers of `GATConv` with ReLU and dropout between them; the last layer averages over heads.

    A ``torch_geometric.nn.GAT`` of the same sizes has the same `state_dict` keys. With the same
    weights and without dropout, PyG's network and this network have equal outputs. If dropout is
    above 0, the outputs differ in training: PyG's network also applies dropout to attention, and
    this network does not.

    Args:
        in_channels: number of node features.
        hidden_channels: width of the hidden layers, summed over all heads.
        out_channels: number of classes.
        num_layers: number of convolutions.
        heads: number of attention heads per layer.
        dropout: probability of dropping a hidden unit in training.

    Returns:
        Logits ``[num_nodes, out_channels]``; with ``return_embedding=True`` also the output of the
        last hidden convolution before the activation, ``[num_nodes, hidden_channels]``.

    Raises:
        ValueError: if `hidden_channels` is not a multiple of `heads`.

    Example:
        >>> GAT(4, 8, 2)(torch.rand(3, 4), torch.tensor([[0, 1], [1, 2]])).shape
        torch.Size([3, 2])

    Source: https://arxiv.org/abs/1710.10903
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        *,
        num_layers: int = 2,
        heads: int = 1,
        dropout: float = 0.0,
    ) -> None:
        check_count(hidden_channels=hidden_channels, heads=heads)
        expected = f"hidden_channels to be a multiple of heads={heads}"
        reject_if(hidden_channels % heads, expected, hidden_channels)
        sizes = widths(in_channels, hidden_channels, out_channels, num_layers)
        hidden = [GATConv(size, hidden_channels // heads, heads=heads) for size in sizes[:-2]]
        last = GATConv(sizes[-2], out_channels, heads=heads, concat=False)
        super().__init__([*hidden, last], dropout)
