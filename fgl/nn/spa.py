"""FedSPA's network: neighbours with equal, different and unknown labels have separate sums."""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from ..sparse import SparseMatrix
from .layers import Edges, Features, Layers, Linear, adjacency, widths

SPLITS = 7  # low-pass and high-pass sums of three kinds of neighbours, and the node itself


class SPAConv(nn.Module):
    """A layer of `SPA` with attention over seven parts: six sums over neighbours, and the node.

    ``l = relu(M x W_l)``, ``h = relu((I - M) x W_h)``, ``o = relu(x W_o)`` with
    ``M = D^-1 (A + I)``. There are three kinds of neighbours: a neighbour's label differs from the
    node's label (u), both labels are equal (a), or at least one of both labels is unknown (n). Each
    kind gives two parts: the sum of l, and the sum of h, over the neighbours of this kind. The
    seventh part is the vector ``o``, which is computed only from the node's own row of x. The
    scores of the parts are ``u_l a_1, u_h a_2, a_l a_3, a_h a_4, b_l (n_l a_1) + (1 - b_l) (n_l
    a_3), b_h (n_h a_2) + (1 - b_h) (u_h a_4), o a_5``, with ``b = sigmoid(n w + c)``. The attention
    is ``softmax(sigmoid(scores) B / 7)``. The output is 7 times the sum of the parts weighted by
    the attention. In the sixth score, the term ``u_h`` comes from the public code.

    Args:
        in_channels: width of the input.
        out_channels: width of the output.

    Shapes:
        - x: float ``[n, in_channels]``, dense or `SparseMatrix`.
        - edges: a `SparseMatrix`.
        - kinds: the three matrices that the function `kinds` returns.

    Example:
        >>> edges = fgl.SparseMatrix.from_edge_index(torch.tensor([[0, 1], [1, 2]]), 3)
        >>> SPAConv(4, 2)(torch.rand(3, 4), edges, kinds(edges, torch.tensor([0, 1, -1]))).shape
        torch.Size([3, 2])
    """

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.low, self.high, self.own = (Linear(in_channels, out_channels) for _ in range(3))
        self.unlike_low, self.unlike_high, self.alike_low, self.alike_high, self.itself = (
            glorot(out_channels, 1) for _ in range(5)
        )
        self.together = glorot(SPLITS, SPLITS)
        self.balance = nn.Linear(out_channels, 1)

    def reset_parameters(self) -> None:
        """Initialise the layer's parameters again, but not the weights of its linear maps."""
        for own in self.parameters(recurse=False):
            nn.init.xavier_uniform_(own)

    def forward(self, x: Features, edges: SparseMatrix, kinds: Sequence[SparseMatrix]) -> Tensor:
        high: Tensor = self.high(x)
        mean = edges.astype(high.dtype).plus_identity.mean_norm
        low = (mean @ self.low(x)).relu()
        high = (high - mean @ high).relu()
        both = torch.cat([low, high], 1)
        unlike, like, unknown = ((kind.astype(both.dtype) @ both).chunk(2, 1) for kind in kinds)
        own = self.own(x).relu()
        scores = [
            unlike[0] @ self.unlike_low,
            unlike[1] @ self.unlike_high,
            like[0] @ self.alike_low,
            like[1] @ self.alike_high,
            self._between(unknown[0], unknown[0] @ self.unlike_low, unknown[0] @ self.alike_low),
            self._between(unknown[1], unknown[1] @ self.unlike_high, unlike[1] @ self.alike_high),
            own @ self.itself,
        ]
        attention = (torch.cat(scores, 1).sigmoid() @ self.together / SPLITS).softmax(1)
        parts = torch.stack([*unlike, *like, *unknown, own], 1)
        return SPLITS * (attention[:, :, None] * parts).sum(1)

    def _between(self, unknown: Tensor, unlike: Tensor, like: Tensor) -> Tensor:
        share = self.balance(unknown).sigmoid()
        mixed: Tensor = unlike * share + like * (1 - share)
        return mixed


class SPA(Layers):
    """FedSPA's network, which separates neighbours with equal, different and unknown labels.

    The network has layers of `SPAConv` with ReLU and dropout between them. Dropout is also applied
    to the features. Only the labels of training nodes are known. If the label of a node is unknown,
    all neighbours of this node are of the unknown kind. The labels of scored nodes are always
    unknown. The kinds of edges at a training node reveal the label of this training node to the
    network.

    Args:
        in_channels: number of node features.
        hidden_channels: width of the hidden layers.
        out_channels: number of classes.
        num_layers: number of layers.
        dropout: probability of dropping a feature or a hidden unit in training.

    Shapes:
        - x: float ``[n, in_channels]``, dense or `SparseMatrix`.
        - edges: ``edge_index`` or a `SparseMatrix`. The matrix's values are the neighbours' weights
          in the sums.
        - train_labels: int64 ``[n]``, -1 for an unknown label; by default, all labels are unknown.
          In a minibatch, the labels of the minibatch's own nodes are known.

    Returns:
        Logits ``[n, out_channels]``; with ``return_embedding=True`` also the output of the last
        hidden layer.

    Example:
        >>> SPA(4, 8, 2)(torch.rand(3, 4), torch.tensor([[0, 1], [1, 2]])).shape
        torch.Size([3, 2])

    Source: Tan et al. 2025 (CVPR, pages 15464-15475); https://github.com/OakleyTan/FedSPA
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        *,
        num_layers: int = 2,
        dropout: float = 0.1,
    ) -> None:
        sizes = widths(in_channels, hidden_channels, out_channels, num_layers)
        super().__init__([SPAConv(a, b) for a, b in pairwise(sizes)], dropout, drop_input=True)

    def forward(
        self,
        x: Features,
        edges: Edges,
        train_labels: Tensor | None = None,
        *,
        return_embedding: bool = False,
    ) -> Tensor | tuple[Tensor, Tensor]:
        edges = adjacency(edges, x.shape[0])
        if train_labels is None:
            train_labels = torch.full((x.shape[0],), -1, device=edges.device)
        out, embedding = self.outputs(x, edges, kinds(edges, train_labels))
        return (out, embedding) if return_embedding else out


def kinds(edges: SparseMatrix, train_labels: Tensor) -> list[SparseMatrix]:
    """Split edges by the labels of their ends: different labels, equal labels, or an unknown label.

    Args:
        edges: ``A[target, source]``.
        train_labels: int64 ``[n]``, negative for an unknown label.

    Returns:
        Three matrices whose sum is `edges`. The first matrix contains the edges whose ends have
        different labels. The second matrix contains the edges whose ends have the same label. The
        third matrix contains all other edges, each with at least one unlabelled end.

    Example:
        >>> edges = fgl.SparseMatrix.from_edge_index(torch.tensor([[0, 1], [1, 2]]), 3)
        >>> [kind.values.tolist() for kind in kinds(edges, torch.tensor([0, 1, -1]))]
        [[1.0, 0.0], [0.0, 0.0], [0.0, 1.0]]
    """
    one = train_labels.index_select(0, edges.pattern.row)
    other = train_labels.index_select(0, edges.pattern.col)
    labelled = (one >= 0) & (other >= 0)
    masks = labelled & (one != other), labelled & (one == other), ~labelled
    return [edges.with_value(edges.values * mask) for mask in masks]


def glorot(rows: int, columns: int) -> nn.Parameter:
    """A parameter with Glorot-uniform values, float ``[rows, columns]``."""
    return nn.Parameter(nn.init.xavier_uniform_(torch.empty(rows, columns)))
