"""FedStar's network (Tan et al. 2023), with one channel for structure and one for features."""

from typing import Any, Literal

import torch
from torch import Tensor, nn

from ..checks import check_choice, check_count, check_share, reject_if
from ..sparse import SparseMatrix
from .gcn import GCNConv
from .gin import GINConv, pooled_rows
from .layers import Edges, adjacency, dropout


class Star(nn.Module):
    """FedStar's network: a GCN reads the structure; a GIN reads features and the GCN's output.

    The structure channel starts with ``s W_s + b_s`` and applies ``s <- tanh(GCNConv(s))``. The
    feature channel starts with ``x W + b`` and applies ``h <- dropout(relu(GINConv([h || s])))``,
    where s is the input of the corresponding layer in the structure channel. Then g is the sum of
    ``[h || s] W_j + b_j`` over the nodes of a graph. The logits are ``dropout(relu(g W' + b')) W''
    + b''``.

    The modules named in `STRUCTURE` form the structure channel.

    Args:
        in_channels: number of node features, without the encodings.
        hidden_channels: width of all hidden layers.
        out_channels: number of classes.
        structure_channels: number of structural encodings; these are the last columns of the input.
        num_layers: number of convolutions in each channel.
        dropout: probability of dropping a hidden unit in training.
        pooling: ``"sum"`` to classify graphs, ``"none"`` to classify nodes.

    Shapes:
        - x: float ``[num_nodes, in_channels + structure_channels]``, the features, followed by
          `fgl.properties.structure_encoding` (see `fgl.tasks.with_structure`).
        - edges: ``edge_index`` or a `SparseMatrix` with ``A[target, source]``.
        - pool: as for `GIN`.
        - output: logits ``[num_graphs, out_channels]``, or ``[num_nodes, out_channels]`` without
          pooling.

    Raises:
        TypeError, ValueError: if a number is out of range, or if `pooling` is unknown. A call
            raises a ValueError if x is a `SparseMatrix` or has the wrong width.

    Example:
        >>> model = Star(4, 8, 2, structure_channels=3)
        >>> model(torch.rand(5, 7), torch.tensor([[0], [1]]), torch.tensor([0, 0, 0, 1, 1])).shape
        torch.Size([2, 2])

    Source: Tan et al. 2023, https://arxiv.org/abs/2211.13009; https://github.com/yuetan031/FedStar
    """

    STRUCTURE = ("structure_pre", "structure_convs")

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        *,
        structure_channels: int = 32,
        num_layers: int = 3,
        dropout: float = 0.5,
        pooling: Literal["sum", "none"] = "sum",
    ) -> None:
        super().__init__()
        check_count(structure_channels=structure_channels, num_layers=num_layers)
        check_share(dropout=dropout)
        check_choice("pooling", pooling, ("sum", "none"))
        width = hidden_channels
        self.sizes = [in_channels, structure_channels]
        self.structure_pre = nn.Linear(structure_channels, width)
        self.structure_convs = nn.ModuleList(GCNConv(width, width) for _ in range(num_layers))
        self.pre = nn.Linear(in_channels, width)
        self.convs = nn.ModuleList(GINConv(2 * width, width) for _ in range(num_layers))
        self.join = nn.Linear(2 * width, width)
        self.post = nn.Linear(width, width)
        self.readout = nn.Linear(width, out_channels)
        self.dropout = dropout
        self.pooling = pooling

    def forward(self, x: Tensor, edges: Edges, pool: SparseMatrix | Tensor | None = None) -> Tensor:
        wrong = not isinstance(x, Tensor) or x.shape[-1] != sum(self.sizes)
        columns = "{} features and {} encodings (see fgl.tasks.with_structure)".format(*self.sizes)
        got = f"{type(x).__name__} {list(x.shape)}"
        reject_if(wrong, f"x to be dense and have {columns}", got)
        edges = adjacency(edges, x.shape[0])
        features, encodings = x.split(self.sizes, dim=-1)
        h, s = self.pre(features), self.structure_pre(encodings)
        layers: Any = zip(self.convs, self.structure_convs, strict=True)
        for conv, structure_conv in layers:
            h = conv(torch.cat([h, s], dim=-1), edges).relu()
            h = dropout(h, self.dropout, self.training)
            s = structure_conv(s, edges).tanh()
        h = self.join(torch.cat([h, s], dim=-1))
        if self.pooling == "sum":
            h = pooled_rows(h, pool, "sum")
        h = dropout(self.post(h).relu(), self.dropout, self.training)
        out: Tensor = self.readout(h)
        return out
