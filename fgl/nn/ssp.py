"""Spectral network for whole graphs, for FedSSP (Tan et al. 2024)."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from ..checks import check_count, check_number, check_share, reject_if
from ..sparse import SparseMatrix, gather_rows, sum_rows
from .gin import membership, pooled_rows
from .layers import Edges, adjacency, dropout


class SSP(nn.Module):
    """FedSSP's network: filters on a graph's spectrum give each edge a weight in every channel.

    An eigenvalue is encoded as ``z = W [lambda || sin(100 lambda w) || cos(100 lambda w)] + b``
    with ``w_i = 10000^(-2i/d)`` (`eigen_encoder`). The encoded eigenvalues of a graph attend to
    each other: ``z <- z + MHA(LN(z))``, and then ``z <- z + MLP(LN(z))``. Each head h decodes
    ``g_h(lambda)`` from z. For each edge, the filter ``U g_h(Lambda) U^T`` of head h yields one
    value. For each edge, an MLP with batch norms (`filter_encoder`) maps the values of all heads to
    d channels. In each channel, a softmax over the incoming edges of a node gives the weights
    ``a_uv``. Starting from ``relu(W x + b)``, the steps
    ``y_v = x_v + sum_u a_uv * gelu(W x_u + b)`` and ``x_v <- y_v + MLP(y_v)`` are applied
    `num_layers` times. The embedding e of a graph is the mean of x over the graph's nodes. The
    graph's logits are ``W (e + p) + b``, where p is the parameter `preference`, initially zero.

    In training, each call sets the buffer `mean_embedding` to the mean of e over the graphs in the
    call.

    The public code also uses the identity matrix as a filter. This filter is 0 at every edge, so
    this network omits the filter. The public code omits graphs without edges; this network accepts
    such graphs.

    Args:
        in_channels: number of node features, without the spectrum.
        hidden_channels: width d of all hidden layers; d must be even and a multiple of `heads`.
        out_channels: number of classes.
        num_layers: number of convolutions.
        heads: number of filters, which is also the number of attention heads.
        dropout: probability with which a hidden unit, an edge weight or an attention weight is
            dropped in training.

    Shapes:
        - x: float ``[num_nodes, in_channels + 1 + width]``, the features, followed by
          `fgl.properties.laplacian_spectrum` (see `fgl.tasks.with_spectrum`).
        - edges: ``edge_index`` or a `SparseMatrix` with ``A[target, source]`` and any values.
        - pool: as for `GIN`.
        - output: logits ``[num_graphs, out_channels]``. With ``return_embedding=True``, e is
          returned too: ``[num_graphs, hidden_channels]``.

    Raises:
        TypeError, ValueError: if a number is out of range. A call of the network raises a
            ValueError if x is a `SparseMatrix` or has no spectrum.

    Example:
        >>> batch = torch.tensor([0, 0, 0, 1, 1])
        >>> edges = torch.tensor([[0, 1, 3, 4], [1, 0, 4, 3]])
        >>> graph = fgl.tasks.with_spectrum(fgl.Graph(torch.rand(5, 4), edges, batch=batch))
        >>> SSP(4, 8, 2)(*graph.inputs).shape
        torch.Size([2, 2])

    Source: Tan et al. 2024, https://arxiv.org/abs/2410.20105; https://github.com/OakleyTan/FedSSP
    """

    SPECTRAL = ("eigen_encoder", "filter_encoder")

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        *,
        num_layers: int = 3,
        heads: int = 4,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        check_count(num_layers=num_layers, heads=heads)
        check_share(dropout=dropout)
        width = hidden_channels
        check_number("hidden_channels", width, at_least=2, integer=True)
        expected = f"hidden_channels to be even and a multiple of heads={heads}"
        reject_if(width % heads or width % 2, expected, width)
        self.in_channels, self.width, self.dropout = in_channels, width, dropout
        self.feature_encoder = nn.Linear(in_channels, width)
        self.eigen_encoder = nn.Linear(width + 1, width)
        self.attention_norm, self.mlp_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, heads, dropout, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, width))
        self.decoder = nn.Linear(width, heads)
        self.filter_encoder = normed(heads, width, nn.GELU)
        self.convs = nn.ModuleList(SSPConv(width, dropout) for _ in range(num_layers))
        self.preference = nn.Parameter(torch.zeros(width))
        self.head = nn.Linear(width, out_channels)
        self.mean_embedding: Tensor
        self.register_buffer("mean_embedding", torch.zeros(width))

    def reset_parameters(self) -> None:
        """Initialise all layers again and set the preference to zero."""
        for module in list(self.modules())[:0:-1]:  # a layer after those inside it
            again: Any = getattr(module, "reset_parameters", None)
            again = getattr(module, "_reset_parameters", again)
            if again is not None:
                again()
        nn.init.zeros_(self.preference)
        nn.init.zeros_(self.mean_embedding)

    def forward(
        self,
        x: Tensor,
        edges: Edges,
        pool: SparseMatrix | Tensor | None = None,
        *,
        return_embedding: bool = False,
    ) -> Any:
        wrong = not isinstance(x, Tensor) or x.shape[-1] < self.in_channels + 2
        columns = f"{self.in_channels} features and a spectrum (see fgl.tasks.with_spectrum)"
        got = f"{type(x).__name__} {list(x.shape)}"
        reject_if(wrong, f"x to be dense and have {columns}", got)
        if not isinstance(pool, SparseMatrix):
            nodes = torch.zeros_like(x[:, 0], dtype=torch.int64) if pool is None else pool
            pool = membership(nodes, x.shape[0])
        pattern = adjacency(edges, x.shape[0]).pattern
        features, value, vectors = x.split(
            [self.in_channels, 1, x.shape[1] - self.in_channels - 1], 1
        )
        weight = self.edge_weights(value, vectors, pattern.col, pattern.row, pool)
        h = self.feature_encoder(features).relu()
        for conv in self.convs:
            h = conv(h, pattern.col, pattern.row, weight)
        embedding = pooled_rows(h, pool, "mean")
        if self.training:
            self.mean_embedding.copy_(embedding.detach().mean(0))
        out = self.head(embedding + self.preference)
        return (out, embedding) if return_embedding else out

    def edge_weights(
        self, value: Tensor, vectors: Tensor, source: Tensor, target: Tensor, pool: SparseMatrix
    ) -> Tensor:
        """The weight of every edge in every channel, float ``[num_edges, d]``.

        Args:
            value: the eigenvalues, float ``[num_nodes, 1]``.
            vectors: the eigenvectors, float ``[num_nodes, width]``.
            source, target: int64 ``[num_edges]``.
            pool: matrix ``[num_graphs, num_nodes]`` with 1 where the node belongs to the graph.
        """
        if not source.numel():
            return value.new_zeros(0, self.width)
        graph, node = pool.pattern.row, pool.pattern.col
        place = torch.arange(node.numel(), device=node.device) - pool.pattern.crow[graph]
        owner = torch.empty_like(graph).index_copy(0, node, graph)[source]
        z = self.eigen_encoder(waves(value, self.width))[node]
        sizes = pool.pattern.crow.diff()
        kind = sizes.double().log2().ceil()  # graphs of similar size are padded together
        numbers = value.new_zeros(source.numel(), self.decoder.out_features)
        for each in kind[sizes > 0].unique():
            some = kind == each
            slot, own, edges = some.cumsum(0) - 1, some[graph], some[owner].nonzero().squeeze(1)
            most = int(sizes[some].max())
            blank = z.new_zeros(int(some.sum()), most, self.width)
            padded = blank.index_put((slot[graph[own]], place[own]), z[own])
            absent = torch.arange(most, device=node.device) >= sizes[some][:, None]
            gain = gather_rows(self.decoder(self.mixed(padded, absent)), slot[owner[edges]])
            both = vectors[source[edges], :most] * vectors[target[edges], :most]
            share = torch.einsum("en,enh->eh", both, gain)  # in half precision under autocast
            numbers = numbers.index_put((edges,), share.to(numbers.dtype))
        channels = dropout(self.filter_encoder(numbers), self.dropout, self.training)
        return softmax_into(channels, target, value.shape[0])

    def mixed(self, z: Tensor, absent: Tensor) -> Tensor:
        """Encode the eigenvalues of a graph by attention between them, ``[num_graphs, n, d]``."""
        drop: Any = (self.dropout, self.training)
        out = self.attention_norm(z)
        out = self.attention(out, out, out, key_padding_mask=absent, need_weights=False)[0]
        z = z + dropout(out, *drop)
        return z + dropout(self.mlp(self.mlp_norm(z)), *drop)


class SSPConv(nn.Module):
    """A convolution of `SSP`.

    The output for a node v is ``y_v + MLP(y_v)`` with ``y_v = x_v + sum_u a_uv * gelu(W x_u + b)``.

    Args:
        width: width of the input and the output.
        dropout: probability with which training drops a unit of the sum over neighbours or of the
            MLP's output.

    Shapes:
        - x: float ``[num_nodes, width]``.
        - source, target: int64 ``[num_edges]``.
        - weight: float ``[num_edges, width]``.
        - output: ``[num_nodes, width]``.

    Example:
        >>> x, edge = torch.rand(3, 4), (torch.tensor([0]), torch.tensor([1]))
        >>> SSPConv(4)(x, *edge, torch.ones(1, 4)).shape
        torch.Size([3, 4])
    """

    def __init__(self, width: int, dropout: float = 0.1) -> None:
        super().__init__()
        self.pre = nn.Sequential(nn.Linear(width, width), nn.GELU())
        self.mlp = normed(width, width, nn.ReLU)
        self.dropout = dropout

    def forward(self, x: Tensor, source: Tensor, target: Tensor, weight: Tensor) -> Tensor:
        summed = sum_rows(gather_rows(self.pre(x), source) * weight, target, x.shape[0])
        y = x + dropout(summed, self.dropout, self.training)
        out: Tensor = y + dropout(self.mlp(y), self.dropout, self.training)
        return out


def normed(in_channels: int, width: int, active: type[nn.Module]) -> nn.Sequential:
    """Two linear layers; a batch norm and an activation follow each of the layers."""
    first = nn.Linear(in_channels, width), nn.BatchNorm1d(width), active()
    return nn.Sequential(*first, nn.Linear(width, width), nn.BatchNorm1d(width), active())


def waves(value: Tensor, width: int) -> Tensor:
    """``[lambda || sin(100 lambda w) || cos(100 lambda w)]`` with ``w_i = 10000^(-2i / width)``.

    Args:
        value: float ``[n, 1]``.
        width: an even number.

    Returns:
        float ``[n, 1 + width]``.

    Example:
        >>> waves(torch.zeros(1, 1), 4)
        tensor([[0., 0., 0., 1., 1.]])
    """
    step = torch.arange(0, width, 2, dtype=value.dtype, device=value.device)
    angle = 100 * value * torch.exp(step * (-math.log(10000.0) / width))
    return torch.cat([value, angle.sin(), angle.cos()], 1)


def softmax_into(logit: Tensor, target: Tensor, num_nodes: int) -> Tensor:
    """Softmax over the incoming edges of a node, for every node and every channel.

    Args:
        logit: float ``[num_edges, d]``.
        target: int64 ``[num_edges]``.
        num_nodes: number of nodes.

    Returns:
        float ``[num_edges, d]``.

    Example:
        >>> softmax_into(torch.zeros(3, 1), torch.tensor([0, 0, 1]), 2).flatten()
        tensor([0.5000, 0.5000, 1.0000])
    """
    index = target[:, None].expand_as(logit)
    most = logit.new_zeros(num_nodes, logit.shape[1])
    most = most.scatter_reduce(0, index, logit.detach(), "amax", include_self=False)
    power = (logit - most[target]).exp()
    return power / gather_rows(sum_rows(power, target, num_nodes), target)
