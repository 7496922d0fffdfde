"""FedDEP's networks: a generator that embeds missing neighbours, and a classifier of nodes."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from ..checks import check_count, check_share
from .layers import Edges, Features, adjacency, dropout, widths
from .sage import SAGE, SAGEConv


class DeepNeighbours(nn.Module):
    """FedDEP's network: the classifier's layers also use embeddings of missing neighbours.

    A `DeepGenerator` predicts the number c of missing neighbours of each node, and P embeddings z.
    Of the P embeddings of a node, the first ``min(P, round c)`` are used. The used embeddings are
    summed and divided by P. This vector is an input of the classifier, a `FusedSAGE`. Training this
    model changes only the classifier; the generator always stays in evaluation mode.
    `fgl.methods.feddep` trains the generator beforehand. Until the generator is trained, the buffer
    `mends` is 0, and no node has generated neighbours.

    A node's output depends on nodes up to four hops away: the generator and the classifier have two
    hops each.

    Args:
        in_channels: number of node features.
        hidden_channels: width of the embeddings, of the classifier's hidden layers, and of the
            first layer in the generator's encoder.
        out_channels: number of classes.
        latent: width of h, which is the output of the generator's encoder.
        widths: widths of the generator's two hidden layers.
        num_neighbours: P.
        dropout: probability of dropping a hidden unit in training.

    Shapes:
        - x: float ``[n, in_channels]``, dense or `SparseMatrix`.
        - edges: as for `SAGE`.

    Returns:
        Logits ``[n, out_channels]``.

    Example:
        >>> model = DeepNeighbours(4, 8, 2, latent=3, widths=(5, 6))
        >>> model(torch.rand(3, 4), torch.tensor([[0, 1], [1, 2]])).shape
        torch.Size([3, 2])

    Source: Zhang et al. 2024, https://arxiv.org/abs/2401.04336; https://github.com/zkzhangke/FedDEP
    """

    mends: Tensor

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        *,
        latent: int = 128,
        widths: tuple[int, int] = (256, 2048),
        num_neighbours: int = 5,
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        self.hidden_channels = hidden_channels
        how: Any = {"latent": latent, "widths": widths, "num_neighbours": num_neighbours}
        self.generator = DeepGenerator(in_channels, hidden_channels, dropout=dropout, **how)
        self.generator.requires_grad_(False)
        sizes = in_channels, hidden_channels, out_channels
        self.classifier = FusedSAGE(*sizes, dropout=dropout)
        self.register_buffer("mends", torch.zeros(()))

    def train(self, mode: bool = True) -> DeepNeighbours:
        """Set the mode of the classifier; the generator always stays in evaluation mode."""
        super().train(mode)
        self.generator.eval()
        return self

    def forward(self, x: Features, edges: Edges) -> Tensor:
        edges = adjacency(edges, x.shape[0])
        out: Tensor = self.classifier(x, edges, self.mends * fused(*self.generator(x, edges)))
        return out


class DeepGenerator(nn.Module):
    """Generator (DGen) that predicts the number and the embeddings of a node's missing neighbours.

    Two SAGE layers compute ``h = SAGE(x)``. The number of missing neighbours is
    ``c = ReLU(w h + b)``, and the embeddings of these neighbours are
    ``z = tanh(W_3 ReLU(W_2 ReLU(W_1 (h + e))))``. In training, e is standard normal noise, and
    dropout is applied before ``W_3``. The count's bias b is initially 1, because a ReLU whose
    output is 0 at every node has no gradient.

    Args:
        in_channels: number of node features.
        hidden_channels: width of the embeddings and of the encoder's first layer.
        latent: width of h.
        widths: widths of the two hidden layers.
        num_neighbours: P.
        dropout: probability of dropping a unit in training.

    Returns:
        The counts ``[n]`` and the embeddings ``[n, P, hidden_channels]``.

    Example:
        >>> model = DeepGenerator(4, 8, latent=3, widths=(5, 6))
        >>> count, made = model(torch.rand(3, 4), torch.tensor([[0, 1], [1, 2]]))
        >>> count.shape, made.shape
        (torch.Size([3]), torch.Size([3, 5, 8]))
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        *,
        latent: int = 128,
        widths: tuple[int, int] = (256, 2048),
        num_neighbours: int = 5,
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        check_count(num_neighbours=num_neighbours, latent=latent)
        check_share(dropout=dropout)
        self.num_neighbours, self.dropout = num_neighbours, dropout
        self.encoder = SAGE(in_channels, hidden_channels, latent, dropout=dropout)
        self.count = nn.Linear(latent, 1)
        nn.init.ones_(self.count.bias)
        sizes = (latent, *widths, num_neighbours * hidden_channels)
        self.embedding = nn.ModuleList([nn.Linear(a, b) for a, b in pairwise(sizes)])

    def forward(self, x: Features, edges: Edges) -> tuple[Tensor, Tensor]:
        h = self.encoder(x, edges)
        count = self.count(h).relu().squeeze(1)
        first, second, last = self.embedding
        h = h + torch.randn_like(h) if self.training else h
        h = dropout(second(first(h).relu()).relu(), self.dropout, self.training)
        return count, last(h).tanh().unflatten(1, (self.num_neighbours, -1))


class FusedSAGE(nn.Module):
    """Two-layer GraphSAGE; each layer also adds a linear map of a given embedding of the node.

    ``e_k = V_k e_(k-1) + c_k`` and ``h_k = SAGE_k(h_(k-1)) + e_k``, where ``e_0`` is given. ReLU
    and dropout are applied between the layers.

    Args:
        in_channels: number of node features.
        hidden_channels: width of the embedding and of the hidden layers.
        out_channels: number of classes.
        dropout: probability of dropping a hidden unit in training.

    Shapes:
        - x: float ``[n, in_channels]``, dense or `SparseMatrix`.
        - edges: as for `SAGE`.
        - embedding: float ``[n, hidden_channels]``.

    Returns:
        Logits ``[n, out_channels]``.

    Example:
        >>> edges = torch.tensor([[0, 1], [1, 2]])
        >>> FusedSAGE(4, 8, 2)(torch.rand(3, 4), edges, torch.zeros(3, 8)).shape
        torch.Size([3, 2])
    """

    def __init__(
        self, in_channels: int, hidden_channels: int, out_channels: int, *, dropout: float = 0.5
    ) -> None:
        super().__init__()
        check_share(dropout=dropout)
        sizes = widths(in_channels, hidden_channels, out_channels, 2)
        self.convs = nn.ModuleList([SAGEConv(a, b) for a, b in pairwise(sizes)])
        below = (hidden_channels, *sizes[1:])
        self.fuse = nn.ModuleList([nn.Linear(a, b) for a, b in pairwise(below)])
        self.dropout = dropout

    def forward(self, x: Features, edges: Edges, embedding: Tensor) -> Tensor:
        edges = adjacency(edges, x.shape[0])
        h: Any = x
        for depth, (conv, fuse) in enumerate(zip(self.convs, self.fuse, strict=True)):
            h = dropout(h.relu(), self.dropout, self.training) if depth else h
            embedding = fuse(embedding)
            h = conv(h, edges) + embedding
        out: Tensor = h
        return out


class DeepEncoder(nn.Module):
    """The network whose embeddings FedDEP groups into prototypes.

    The embedding is ``h = tanh(SAGE(ReLU(SAGE(x))))``. The prediction is ``softmax(W h + b)``.
    Dropout follows each of these three layers.

    Args:
        in_channels: number of node features.
        hidden_channels: width of the embeddings.
        out_channels: number of classes.
        dropout: probability of dropping a unit in training.

    Returns:
        The embeddings h, ``[n, hidden_channels]``, and the predictions, ``[n, out_channels]``.

    Example:
        >>> h, answers = DeepEncoder(4, 8, 2)(torch.rand(3, 4), torch.tensor([[0, 1], [1, 2]]))
        >>> h.shape, answers.shape
        (torch.Size([3, 8]), torch.Size([3, 2]))
    """

    def __init__(
        self, in_channels: int, hidden_channels: int, out_channels: int, *, dropout: float = 0.5
    ) -> None:
        super().__init__()
        check_share(dropout=dropout)
        self.convs = nn.ModuleList(
            [SAGEConv(in_channels, hidden_channels), SAGEConv(hidden_channels, hidden_channels)]
        )
        self.head, self.dropout = nn.Linear(hidden_channels, out_channels), dropout

    def forward(self, x: Features, edges: Edges) -> tuple[Tensor, Tensor]:
        edges = adjacency(edges, x.shape[0])
        first, second = self.convs
        h = self._dropped(second(self._dropped(first(x, edges).relu()), edges).tanh())
        return h, self._dropped(self.head(h)).softmax(1)

    def _dropped(self, h: Tensor) -> Tensor:
        return dropout(h, self.dropout, self.training)


def fused(count: Tensor, embeddings: Tensor) -> Tensor:
    """Sum each node's first ``round(count)`` embeddings, and divide the sum by P; float ``[n, d]``.

    Args:
        count: float ``[n]``, the number of embeddings to add for each node. The number is rounded.
        embeddings: float ``[n, P, d]``.

    Example:
        >>> fused(torch.tensor([0.6, 0.0]), torch.ones(2, 5, 1))
        tensor([[0.2000],
                [0.0000]])
    """
    places = torch.arange(embeddings.shape[1], device=embeddings.device)
    filled = places < count.detach().round()[:, None]
    return (embeddings * filled[..., None]).mean(1)
