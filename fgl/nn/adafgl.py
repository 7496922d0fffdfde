"""Networks of AdaFGL's second step, which refine a federated model's predictions per client."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from ..checks import check_count, check_share
from ..sparse import SparseMatrix
from ..sparse.matrix import dense
from .layers import Edges, Features, adjacency, dropout


class AdaFGL(nn.Module):
    """A frozen federated model and a client's personal networks, which refine the model's output.

    Let ``P = softmax(extractor(x, A))``. An edge is added to the graph between any two nodes with
    similar rows of P: ``A' = alpha A + (1 - alpha) R``. R_ij is 1 if ``alike(P)_ij > 0.999`` (see
    `alike`), and 0 otherwise. The networks read ``S = [x || A^ x || ... || A^^k x]``, where ``A^ =
    D^-1/2 (A' + I)^T D^-1/2`` normalises A'.

    - On a homophilous graph, an MLP reads S. The output is ``(softmax(MLP) + softmax(P)) / 2``. As
      in the public code, softmax(P) replaces P.
    - On a heterophilous graph, the output is the mean of the softmaxes of three MLPs. The first MLP
      reads x. The second MLP and the third MLP read S. The third MLP's outputs are sent along
      signed edges, see `signed_messages`.

    The buffer `homophilous` is 1 for a homophilous graph and 0 for a heterophilous graph. The
    network compares all pairs of nodes.

    Args:
        extractor: the federated model; the network calls ``extractor(x, adj)``.
        in_channels: number of node features.
        hidden_channels: width of the MLPs.
        out_channels: number of classes.
        hops: k, at least 1.
        alpha: weight of the client's own edges.
        beta: weight of the matrix R in the signed messages.
        dropout: probability of dropping a hidden unit in training.

    Shapes:
        - x: float ``[n, in_channels]``.
        - edges: ``edge_index`` or a `SparseMatrix` with ``A[target, source]``.
        - node_mask: bool ``[n]``, False for padding nodes; by default all True.

    Returns:
        Log-probabilities, ``[n, out_channels]``.

    Example:
        >>> model = AdaFGL(fgl.nn.GCN(4, 8, 2), 4, 8, 2)
        >>> model(torch.rand(3, 4), torch.tensor([[0, 1], [1, 2]])).exp().sum(1).round(decimals=3)
        tensor([1., 1., 1.], grad_fn=...)

    Source: Li et al. 2024, https://arxiv.org/abs/2401.11750; https://github.com/xkLi-Allen/AdaFGL
    """

    homophilous: Tensor

    def __init__(
        self,
        extractor: nn.Module,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        *,
        hops: int = 3,
        alpha: float = 0.05,
        beta: float = 0.2,
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        check_share(alpha=alpha)
        check_count(hops=hops)
        self.extractor = extractor.requires_grad_(False)
        sizes = in_channels, hidden_channels, out_channels, hops
        self.personal = Personal(*sizes, beta=beta, dropout=dropout)
        self.register_buffer("homophilous", torch.zeros(()))
        self.hops, self.alpha = hops, alpha

    def forward(self, x: Features, edges: Edges, node_mask: Tensor | None = None) -> Tensor:
        edges = adjacency(edges, x.shape[0])
        answers = self.extractor(x, edges).softmax(1)
        propagated = self.propagated(x, edges, answers)
        homo, *hetero = self.personal(propagated, answers, node_mask)
        alike_ = (homo.softmax(1) + answers.softmax(1)) / 2
        unlike = torch.stack([each.softmax(1) for each in hetero]).mean(0)
        return torch.where(self.homophilous > 0, alike_, unlike).log()

    def propagated(self, x: Features, edges: SparseMatrix, answers: Tensor) -> Tensor:
        """The matrix S, float ``[n, (hops + 1) in_channels]``."""
        features = dense(x)
        own = edges.to_dense().to(features)
        matrix = normalised(self.alpha * own + (1 - self.alpha) * joined(answers))
        steps = [features]
        for _ in range(self.hops):
            steps.append(matrix @ steps[-1])
        return torch.cat(steps, 1)


class Personal(nn.Module):
    """The personal networks of a single client, see `AdaFGL`.

    Shapes:
        - propagated: S, float ``[n, (hops + 1) in_channels]``.
        - answers: P, float ``[n, out_channels]``.

    Returns:
        Four tensors of logits ``[n, out_channels]``. The first tensor is for homophilous graphs.
        The last three tensors are for heterophilous graphs and are computed from x, from S and from
        the signed messages.

    Example:
        >>> [out.shape for out in Personal(2, 8, 3, 1)(torch.rand(5, 4), torch.rand(5, 3))]
        [torch.Size([5, 3]), torch.Size([5, 3]), torch.Size([5, 3]), torch.Size([5, 3])]
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        hops: int,
        *,
        beta: float = 0.2,
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        check_share(beta=beta, dropout=dropout)
        check_count(in_channels=in_channels, hidden_channels=hidden_channels)
        wide, h = (hops + 1) * in_channels, hidden_channels
        self.homo = linears((wide, h, out_channels))
        self.own = linears((in_channels, h, h, out_channels))
        self.smooth = linears((wide, h, h, out_channels))
        self.signed = linears((wide, h, h, out_channels))
        self.slope_homo, self.slope, self.slope_signed = (
            nn.Parameter(torch.full((), 0.25)) for _ in range(3)
        )
        self.in_channels, self.beta, self.dropout = in_channels, beta, dropout

    def forward(self, propagated: Tensor, answers: Tensor, node_mask: Tensor | None = None) -> Any:
        x = propagated[:, : self.in_channels]
        passed = self._through(self.signed, propagated, self.slope_signed)
        signs = self.beta * joined(answers) + (1 - self.beta) * alike(passed)
        return (
            self._through(self.homo, propagated, self.slope_homo),
            self._through(self.own, x, self.slope),
            self._through(self.smooth, propagated, self.slope),
            signed_messages(passed, signs, self.slope_signed, node_mask),
        )

    def _through(self, layers: nn.ModuleList, h: Tensor, slope: Tensor) -> Tensor:
        h = layers[0](h)
        for layer in layers[1:]:
            h = layer(dropout(prelu(h, slope), self.dropout, self.training))
        return h


def linears(sizes: Sequence[int]) -> nn.ModuleList:
    """Linear layers; biases are 0, and weights are Glorot-uniform values times ReLU's gain."""
    layers = nn.ModuleList([nn.Linear(a, b) for a, b in pairwise(sizes)])
    for layer in layers:
        nn.init.xavier_uniform_(layer.weight, gain=nn.init.calculate_gain("relu"))  # type: ignore[arg-type]
        nn.init.zeros_(layer.bias)  # type: ignore[arg-type]
    return layers


def prelu(h: Tensor, slope: Tensor) -> Tensor:
    """``h`` for positive entries and ``slope h`` for the other entries."""
    return torch.where(h > 0, h, slope * h)


def alike(answers: Tensor) -> Tensor:
    """Cosine similarity between the softmaxes of every two nodes, ``[n, n]``; 0 on the diagonal."""
    share = answers.softmax(1)
    unit = share / share.square().sum(1, keepdim=True).sqrt()
    eye = torch.eye(len(answers), dtype=torch.bool, device=answers.device)
    return torch.where(eye, 0, unit @ unit.T)


def joined(answers: Tensor) -> Tensor:
    """The matrix R: 1 for two nodes whose predictions are alike, else 0."""
    return (alike(answers.detach()) > 0.999).to(answers.dtype)


def normalised(matrix: Tensor) -> Tensor:
    """``D^-1/2 (A + I)^T D^-1/2`` for a matrix ``A[source, target]``; `matrix` is A's transpose."""
    matrix = matrix + torch.eye(len(matrix), dtype=matrix.dtype, device=matrix.device)
    scale = matrix.sum(0) ** -0.5
    return scale[:, None] * matrix * scale


def signed_messages(h: Tensor, signs: Tensor, slope: Tensor, mask: Tensor | None) -> Tensor:
    """Return ``(softmax(f(L) h) - softmax(f(-L) h) + h) / 2`` for a PReLU f and signed edges L.

    Let m be the mean and M the maximum of `signs`. In L, an entry r of `signs` becomes
    ``(r - m) / (M - m)`` if r is above m, and ``-r / m`` otherwise. Each diagonal entry of L is
    larger by 1 than this value.
    """
    present = torch.ones_like(signs[0]) if mask is None else mask.to(signs.dtype)
    signs = signs * present * present[:, None]
    mean, most = signs.sum() / present.sum().square(), signs.amax()
    above = most - mean
    positive = (signs - mean) / torch.where(above == 0, 1, above)
    negative = -signs / torch.where(mean == 0, 1, mean)
    eye = torch.eye(len(signs), dtype=signs.dtype, device=signs.device)
    edges = torch.where(signs > mean, positive, negative) + eye
    edges = edges * present  # padding sends nothing
    pulls, pushes = prelu(edges, slope) @ h, prelu(-edges, slope) @ h
    return (pulls.softmax(1) - pushes.softmax(1) + h) / 2
