"""NeighGen (FedSage+): a generator of missing neighbours, and a classifier of nodes."""

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from ..checks import check_share
from .layers import Edges, Features, adjacency
from .sage import SAGE, SAGEConv


class NeighbourGenerator(nn.Module):
    """FedSage+'s network: a generator of nodes' missing neighbours, and a classifier of nodes.

    The encoder is ``z = SAGE(ReLU(SAGE(x)))``. The count of missing neighbours is
    ``c = ReLU(w z + b)`` (dGen). The features of these neighbours are
    ``tanh(W_3 dropout(ReLU(W_2 ReLU(W_1 (z + e)))))`` with noise e (fGen). The classifier, a
    `SAGE`, reads the graph with added neighbours: every node is joined to the first ``min(P, floor
    c)`` of the neighbours that were generated for this node. Noise and dropout are arguments (see
    `draw`), so a second call can generate the same neighbours. The count's bias b is initially 1,
    because a ReLU whose output is 0 at every node has no gradient.

    The encoder and the classifier follow the paper. The public code (src/models/models.py) instead
    uses layers ``D^-1 (A + I) x W + b``. These layers have dropout between them and a ReLU after
    the last layer.

    Args:
        in_channels: number of node features, d.
        hidden_channels: width of the encoder's first layer and of the classifier's first layer.
        num_classes: number of classes.
        latent: width of z.
        widths: widths of fGen's two hidden layers.
        num_neighbours: P, the largest number of generated neighbours of a node.
        dropout: probability of dropping a unit before fGen's last layer.
        rounded: whether counts are rounded to the nearest integer; if False, counts are rounded
            down, as in the public code.

    Shapes:
        - x: float ``[n, d]``, dense or `SparseMatrix`.
        - edges: as for `SAGE`, without weights.
        - noise: float ``[n, latent]``; by default zeros.
        - keep: float ``[n, widths[1]]``; by default ones. Dropout multiplies the last hidden units
          by these factors.

    Returns:
        Three tensors: the counts ``[n]``, the features ``[n, P, d]``, and the logits
        ``[n, num_classes]`` of the n nodes.

    Example:
        >>> model = NeighbourGenerator(4, 8, 2, latent=3, widths=(5, 6))
        >>> count, made, logits = model(torch.rand(3, 4), torch.tensor([[0, 1], [1, 2]]))
        >>> count.shape, made.shape, logits.shape
        (torch.Size([3]), torch.Size([3, 5, 4]), torch.Size([3, 2]))

    Source: Zhang et al. 2021, https://arxiv.org/abs/2106.13430
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        num_classes: int,
        *,
        latent: int = 128,
        widths: tuple[int, int] = (256, 2048),
        num_neighbours: int = 5,
        dropout: float = 0.5,
        rounded: bool = False,
    ) -> None:
        super().__init__()
        check_share(dropout=dropout)
        self.rounded = rounded
        self.num_neighbours = num_neighbours
        self.dropout = dropout
        self.encoder = nn.ModuleList(
            [SAGEConv(in_channels, hidden_channels), SAGEConv(hidden_channels, latent)]
        )
        self.count = nn.Linear(latent, 1)
        nn.init.ones_(self.count.bias)
        sizes = (latent, *widths, num_neighbours * in_channels)
        self.features = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(sizes))
        self.classifier = SAGE(in_channels, hidden_channels, num_classes, dropout=0.0)

    def draw(self, num_nodes: int) -> dict[str, Tensor]:
        """Noise and dropout for `num_nodes` nodes, from torch's global generator."""
        like = self.count.weight
        wide: Any = self.features[2]
        noise = torch.randn(num_nodes, like.shape[1], dtype=like.dtype, device=like.device)
        survives = torch.rand(num_nodes, wide.in_features, device=like.device) >= self.dropout
        scale = 1 / (1 - self.dropout) if self.dropout < 1 else 0.0
        return {"noise": noise, "keep": survives.to(like.dtype) * scale}

    def forward(
        self, x: Features, edges: Edges, noise: Tensor | None = None, keep: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        edges = adjacency(edges, x.shape[0])
        z = self.encoder[1](self.encoder[0](x, edges).relu(), edges)
        count = self.count(z).relu().squeeze(1)
        first, second, last = self.features
        h = second(first(z if noise is None else z + noise).relu()).relu()
        neighbours = last(h if keep is None else h * keep).tanh()
        neighbours = neighbours.unflatten(1, (self.num_neighbours, x.shape[1]))
        return count, neighbours, self.classify(x, edges, count, neighbours)

    def number(self, count: Tensor) -> Tensor:
        """The predicted numbers of neighbours as whole numbers, without a gradient."""
        return count.detach().round() if self.rounded else count.detach().floor()

    def there(self, count: Tensor) -> Tensor:
        """Mask ``[n, P]``, True for each node's first k generated neighbours; k is `number`."""
        places = torch.arange(self.num_neighbours, device=count.device)
        return places < self.number(count)[:, None]

    def classify(self, x: Features, edges: Edges, count: Tensor, made: Tensor) -> Tensor:
        """The classifier's logits on the graph with generated neighbours.

        The function does not build this graph. Each generated neighbour is connected only to the
        node for which it was generated.
        """
        adj = adjacency(edges, x.shape[0]).astype(made.dtype)
        filled = self.there(count).to(made.dtype)
        number = adj @ torch.ones_like(count)[:, None] + filled.sum(1, keepdim=True)
        number = number.clamp(min=1)
        old: Any = x
        new = made.flatten(0, 1)  # two dimensions, as in `SAGEConv.on_trees`
        layers: list[Any] = list(self.classifier.convs)
        for depth, conv in enumerate(layers):
            if depth:
                old, new = old.relu(), new.relu()
            own, far = old @ conv.lin_l.weight.t(), new @ conv.lin_l.weight.t()
            pulled = (far * filled.flatten()[:, None]).unflatten(0, filled.shape).sum(1)
            mean = (adj @ own + pulled) / number
            back = own[:, None].expand(-1, filled.shape[1], -1).flatten(0, 1)
            new = back + conv.lin_l.bias + new @ conv.lin_r.weight.t()
            old = mean + conv.lin_l.bias + old @ conv.lin_r.weight.t()
        logits: Tensor = old
        return logits
