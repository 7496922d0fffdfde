"""GraphSAGE with a learned vector that orders nodes, for FedAux (2025)."""

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity

from ..checks import check_number
from .layers import Edges, Features, Layers, adjacency, widths
from .sage import SAGEConv


class AuxSAGE(Layers):
    """FedAux's network: a learned vector places nodes on a line; each node reads nearby nodes.

    The convolutions compute ``h = SAGE(x)``, with ReLU and dropout between them. The position of
    node i on the line is ``s_i = cos(h_i, a)``, where the vector a is the parameter `aux`. The mean
    ``z_i = sum_j k_ij h_j / sum_j k_ij`` with ``k_ij = exp(-(s_i - s_j)^2 / sigma^2)`` gives large
    weights to nodes near node i on the line (Eq. 3). The logits are ``W [h || z] + b``.

    All pairs of nodes are compared, so the memory that the network uses grows with the square of
    the number of nodes.

    Args:
        in_channels: number of node features.
        hidden_channels: width of h, z and a.
        out_channels: number of classes.
        num_layers: number of convolutions.
        dropout: probability of dropping a hidden unit in training.
        sigma: bandwidth of the Gaussian kernel ``k_ij``; a positive number.

    Shapes:
        - x: float ``[n, in_channels]``, dense or `SparseMatrix`.
        - edges: as for `SAGE`.
        - node_mask: bool ``[n]``, False for padding nodes; by default all True.

    Returns:
        Logits ``[n, out_channels]``. With ``return_embedding=True``, the embedding h is returned
        too.

    Example:
        >>> AuxSAGE(4, 8, 2)(torch.rand(3, 4), torch.tensor([[0, 1], [1, 2]])).shape
        torch.Size([3, 2])

    Source: Zhuo et al. 2025, https://arxiv.org/abs/2505.23864; https://github.com/JhuoW/FedAux
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        *,
        num_layers: int = 2,
        dropout: float = 0.5,
        sigma: float = 1.0,
    ) -> None:
        check_number("sigma", sigma, above=0)
        sizes = widths(in_channels, hidden_channels, hidden_channels, num_layers)
        super().__init__([SAGEConv(a, b) for a, b in pairwise(sizes)], dropout)
        self.aux = nn.Parameter(torch.randn(hidden_channels))
        self.head = nn.Linear(2 * hidden_channels, out_channels)
        self.sigma = sigma

    def reset_parameters(self) -> None:
        """Initialise all parameters again."""
        for layer in self.modules():
            if isinstance(layer, nn.Linear):
                layer.reset_parameters()
        nn.init.normal_(self.aux)

    def forward(
        self,
        x: Features,
        edges: Edges,
        node_mask: Tensor | None = None,
        *,
        return_embedding: bool = False,
    ) -> Tensor | tuple[Tensor, Tensor]:
        h, _ = self.outputs(x, adjacency(edges, x.shape[0]))
        z = smoothed(h, self.aux, self.sigma, node_mask)
        out: Tensor = self.head(torch.cat([h, z], 1))
        return (out, h) if return_embedding else out


def smoothed(h: Tensor, aux: Tensor, sigma: float, node_mask: Tensor | None = None) -> Tensor:
    """Weighted means, float ``[n, d]``; the closer two nodes on the line, the larger the weight."""
    place = cosine_similarity(h, aux[None], dim=-1)
    kernel = torch.exp(-(place[None] - place[:, None]).square() / sigma**2)
    if node_mask is not None:
        kernel = kernel * node_mask
    return (kernel @ h) / kernel.sum(1, keepdim=True)
