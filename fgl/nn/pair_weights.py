"""Weights of edges between all pairs of nodes, for condensed graphs (GCond, FedGM, O-pFGL)."""

import torch
from torch import Tensor, nn

from ..checks import check_count
from ..sparse import gather_rows


class PairWeights(nn.Module):
    """Weights ``sigmoid((e_ij + e_ji) / 2)`` of all pairs of nodes; the diagonal is 0.

    ``e_ij`` is the output of a three-layer MLP for ``[x_i || x_j]``, with batch norm before each
    ReLU. The pairs, ordered row by row, are split into consecutive parts. Batch norm normalises
    each part by the part's own mean and variance. As in the public implementations, evaluation does
    not use running averages.

    Args:
        in_channels: number of node features.
        hidden_channels: width of the MLP.
        parts: number of parts: 5 in FedGM's code, and 1 in O-pFGL's code.

    Returns:
        float ``[n, n]``, symmetric.

    Example:
        >>> PairWeights(4, 8)(torch.rand(3, 4)).diagonal()
        tensor([0., 0., 0.], grad_fn=...)

    Source: Jin et al. 2022, https://arxiv.org/abs/2110.07580; https://github.com/hanhan1900/FedGM
    """

    def __init__(self, in_channels: int, hidden_channels: int = 128, *, parts: int = 5) -> None:
        super().__init__()
        check_count(in_channels=in_channels, hidden_channels=hidden_channels, parts=parts)
        self.parts = parts
        h = hidden_channels
        self.lins = nn.ModuleList([nn.Linear(2 * in_channels, h), nn.Linear(h, h), nn.Linear(h, 1)])
        self.scale = nn.Parameter(torch.ones(2, h))
        self.shift = nn.Parameter(torch.zeros(2, h))

    def forward(self, x: Tensor) -> Tensor:
        n = len(x)
        pairs = torch.cartesian_prod(torch.arange(n), torch.arange(n)).view(-1, 2).to(x.device)
        some = [part.unbind(1) for part in pairs.tensor_split(self.parts) if len(part)]
        parts = [self._of(torch.cat([gather_rows(x, a), gather_rows(x, b)], 1)) for a, b in some]
        raw = torch.cat(parts).view(n, n) if parts else x.new_zeros(0, 0)
        weights = ((raw + raw.T) / 2).sigmoid()
        eye = torch.eye(n, dtype=torch.bool, device=x.device)
        return weights.masked_fill(eye, 0)

    def _of(self, h: Tensor) -> Tensor:
        for layer, scale, shift in zip(self.lins, self.scale, self.shift, strict=False):
            h = layer(h)
            centred = h - h.mean(0)
            h = (centred / (centred.square().mean(0) + 1e-5).sqrt() * scale + shift).relu()
        out: Tensor = self.lins[2](h)
        return out
