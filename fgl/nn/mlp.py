"""Multilayer perceptron."""

from itertools import pairwise

from torch import Tensor, nn

from ..checks import check_share
from .layers import through, widths


class MLP(nn.Module):
    """Linear layers, with ReLU and dropout between them.

    A ``torch_geometric.nn.MLP`` of the same sizes with ``norm=None`` has the same `state_dict`
    keys. With the same weights, both networks have equal outputs.

    Args:
        in_channels: width of the input.
        hidden_channels: width of the hidden layers.
        out_channels: width of the output.
        num_layers: number of linear layers.
        dropout: probability of dropping a hidden unit in training.

    Shapes:
        - input: float ``[*, in_channels]``.
        - output: ``[*, out_channels]``.

    Example:
        >>> MLP(4, 8, 2)(torch.rand(3, 4)).shape
        torch.Size([3, 2])
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        *,
        num_layers: int = 2,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        check_share(dropout=dropout)
        sizes = widths(in_channels, hidden_channels, out_channels, num_layers)
        self.lins = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(sizes))
        self.dropout = dropout

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = through(self.lins, x, self.dropout if self.training else 0.0)[0]
        return out
