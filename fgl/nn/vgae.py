"""Variational graph autoencoder (Kipf & Welling 2016)."""

import torch
from torch import Tensor, nn

from ..checks import check_share
from ..losses import pair_scores
from .gcn import GCNConv
from .layers import Edges, Features, adjacency, dropout
from .mlp import MLP

LARGEST_LOG_SIGMA = 10.0


class VGAE(nn.Module):
    """Network that encodes nodes as normal distributions, from which it decodes links or classes.

    The encoder computes ``H = ReLU(GCN_1(X, A))``, ``mu = GCN_mu(H, A)`` and
    ``log sigma = GCN_sigma(H, A)``. In training, a node's embedding is ``z = mu + noise * sigma``;
    in evaluation without given noise, it is ``z = mu`` (FedVGAE, Eq. 2-4). Inner products decode
    links, and an MLP decodes classes. The encoder's `state_dict` keys begin with ``conv1``,
    ``conv_mu`` and ``conv_logstd``, as in PyTorch Geometric's example ``VariationalGCNEncoder``.
    The classifier's keys begin with ``head``.

    Args:
        in_channels: number of node features.
        hidden_channels: width of H, and width of the classifier's hidden layer.
        out_channels: width of the embeddings.
        num_classes: number of classes that the classifier predicts; by default there is no
            classifier.
        dropout: probability of dropping a unit of H, or of the classifier's hidden layer, in
            training.

    Returns:
        Logits ``[num_nodes, num_classes]``; without a classifier, z ``[num_nodes, out_channels]``.
        With ``return_embedding=True``, mu and log sigma are returned too. The optional argument
        `noise`, float ``[num_nodes, out_channels]``, is standard normal. In training, the network
        samples the noise if the caller gives none.

    Raises:
        ValueError: when called with noise of the wrong shape.

    Example:
        >>> model = VGAE(4, 8, 2).eval()
        >>> x, edges = torch.rand(3, 4), torch.tensor([[0, 1], [1, 2]])
        >>> mu, log_sigma = model.encode(x, edges)
        >>> torch.equal(model(x, edges), mu), model.decode(mu, edges).shape
        (True, torch.Size([2]))

    Source: https://arxiv.org/abs/1611.07308; FedVGAE, IEEE Transactions on Big Data 2024
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int = 64,
        out_channels: int = 32,
        *,
        num_classes: int | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        check_share(dropout=dropout)
        self.conv1 = GCNConv(in_channels, hidden_channels)
        self.conv_mu = GCNConv(hidden_channels, out_channels)
        self.conv_logstd = GCNConv(hidden_channels, out_channels)
        self.head = None
        if num_classes is not None:
            self.head = MLP(out_channels, hidden_channels, num_classes, dropout=dropout)
        self.dropout = dropout

    def encode(self, x: Features, edges: Edges) -> tuple[Tensor, Tensor]:
        """Mean and log standard deviation of every node's embedding."""
        edges = adjacency(edges, x.shape[0])
        hidden = dropout(self.conv1(x, edges).relu(), self.dropout, self.training)
        mu = self.conv_mu(hidden, edges)
        return mu, self.conv_logstd(hidden, edges).clamp(max=LARGEST_LOG_SIGMA)

    @staticmethod
    def decode(z: Tensor, pairs: Tensor) -> Tensor:
        """Return a logit for each node pair in ``[2, num_pairs]`` by `fgl.losses.pair_scores`."""
        return pair_scores(z, pairs)

    def forward(
        self,
        x: Features,
        edges: Edges,
        *,
        noise: Tensor | None = None,
        return_embedding: bool = False,
    ) -> Tensor | tuple[Tensor, Tensor, Tensor]:
        mu, log_sigma = self.encode(x, edges)
        if noise is not None and noise.shape != mu.shape:
            got = list(noise.shape)
            raise ValueError(f"Expected noise to have shape {list(mu.shape)}, but got {got}")
        if noise is None and self.training:
            noise = torch.randn_like(mu)
        z = mu if noise is None else mu + noise * log_sigma.exp()
        out: Tensor = z if self.head is None else self.head(z)
        return (out, mu, log_sigma) if return_embedding else out
