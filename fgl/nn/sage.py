"""GraphSAGE (Hamilton et al. 2017) for graphs and trees of a fixed shape; FedEgo's network."""

from collections.abc import Sequence
from itertools import accumulate, pairwise
from operator import mul
from typing import Any

import torch
from torch import Tensor, nn

from ..checks import check_fanouts, check_share, reject_if
from ..sparse import gather_rows
from .layers import Edges, Features, Stack, adjacency, dropout, widths


class SAGEConv(nn.Module):
    """GraphSAGE convolution ``h_v = W_r x_v + W_l mean_{u in N(v)} x_u + b``.

    FedEgo's Eq. 9 has one matrix for a node and its neighbours. Here there are two matrices, W_r
    and W_l. For a node without neighbours, the mean is 0. ``torch_geometric.nn.SAGEConv`` has the
    same `state_dict` keys and the same outputs.

    Args:
        in_channels: width of the input.
        out_channels: width of the output.

    Shapes:
        - x: float ``[num_nodes, in_channels]``, dense or `SparseMatrix`.
        - edges: ``edge_index`` or a `SparseMatrix` with ``A[target, source]``. A zero entry means
          no edge. All other values are ignored.
        - output: ``[num_nodes, out_channels]``.

    Example:
        >>> SAGEConv(4, 2)(torch.rand(3, 4), torch.tensor([[0, 1], [1, 2]])).shape
        torch.Size([3, 2])

    Source: https://arxiv.org/abs/1706.02216
    """

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.lin_l = nn.Linear(in_channels, out_channels)
        self.lin_r = nn.Linear(in_channels, out_channels, bias=False)

    def forward(self, x: Features, edges: Edges) -> Tensor:
        neighbours = x @ self.lin_l.weight.t()
        mean = adjacency(edges, x.shape[0]).astype(neighbours.dtype).mean_norm
        out: Tensor = mean @ neighbours + self.lin_l.bias
        return out + x @ self.lin_r.weight.t()

    def on_trees(self, x: Tensor, fanouts: Sequence[int]) -> Tensor:
        """Apply the convolution to all nodes of trees except leaves; no list of edges is needed.

        Args:
            x: float ``[num_trees, size, in_channels]``, in which the nodes of a tree are ordered by
                level, the centre first.
            fanouts: number of children of a node, for each level of the trees.

        Returns:
            float ``[num_trees, m, out_channels]``, where m is the number of nodes of a tree that
            are not leaves.

        Raises:
            ValueError: if the number of nodes per tree in `x` does not match `fanouts`.
        """
        mean = child_mean(x, fanouts)
        root = x[:, : mean.shape[1]].flatten(0, 1)
        # Two dimensions: under `vmap` a product of three would repeat the weights for every tree.
        flat = mean.flatten(0, 1) @ self.lin_l.weight.t() + root @ self.lin_r.weight.t()
        out: Tensor = (flat + self.lin_l.bias).unflatten(0, mean.shape[:2])
        return out


def child_mean(x: Tensor, fanouts: Sequence[int]) -> Tensor:
    """For each inner node of trees of a fixed shape, the mean over its children.

    Args:
        x: float ``[num_trees, size, F]``, in which the nodes of a tree are ordered by level, the
            centre first.
        fanouts: number of children of a node, for each level of the trees.

    Returns:
        float ``[num_trees, m, F]``, where m is the number of nodes of a tree that are not leaves.

    Raises:
        ValueError: if the number of nodes per tree in `x` does not match `fanouts`.

    Example:
        >>> child_mean(torch.arange(7.0).view(1, 7, 1), (2, 2)).flatten()
        tensor([1.5000, 3.5000, 5.5000])
    """
    counts = [*accumulate(fanouts, mul, initial=1)]
    expected = f"x to have shape [*, {sum(counts)}, *] for fan-outs {tuple(fanouts)}"
    reject_if(x.dim() != 3 or x.shape[1] != sum(counts), expected, list(x.shape))
    if len(set(fanouts)) == 1:
        mean: Tensor = x[:, 1:].unflatten(1, (-1, fanouts[0])).mean(2)
        return mean
    children = x[:, 1:].split(counts[1:], 1)
    means = [c.unflatten(1, (-1, f)).mean(2) for c, f in zip(children, fanouts, strict=True)]
    return torch.cat(means, 1)


class SAGE(Stack):
    """Layers of `SAGEConv`, with ReLU and dropout between them.

    A ``torch_geometric.nn.GraphSAGE`` of the same sizes has the same `state_dict` keys. With the
    same weights, both networks have equal outputs.

    Args:
        in_channels: number of node features.
        hidden_channels: width of the hidden layers.
        out_channels: number of classes.
        num_layers: number of convolutions.
        dropout: probability of dropping a hidden unit in training.

    Returns:
        Logits ``[num_nodes, out_channels]``; with ``return_embedding=True`` also the output of the
        last hidden convolution before the activation.

    Example:
        >>> SAGE(4, 8, 2)(torch.rand(3, 4), torch.tensor([[0, 1], [1, 2]])).shape
        torch.Size([3, 2])

    Source: https://arxiv.org/abs/1706.02216
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
        sizes = widths(in_channels, hidden_channels, out_channels, num_layers)
        super().__init__([SAGEConv(a, b) for a, b in pairwise(sizes)], dropout)


class EgoSAGE(nn.Module):
    """FedEgo's network: a linear layer, SAGE layers of equal width, and a linear classifier.

    The network computes ``r = ReLU(W x + b)`` and starts with h = r. Each SAGE layer replaces h by
    ``ReLU(SAGE(h))``. The logits are ``W_c h``. The same trained network can be applied to a graph
    and to trees of sampled neighbours. The layers are called ``reduction``, ``convs`` and ``head``,
    in this order. Weight matrices are initialised from a Kaiming normal distribution.

    Args:
        in_channels: number of node features.
        hidden_channels: width of all layers except the last.
        out_channels: number of classes.
        fanouts: number of children of a node, for each level of the trees; every level has one SAGE
            layer.
        dropout: probability of dropping a unit after the reduction layer and after the SAGE layers.
        linear: if True, no ReLU is applied between SAGE layers. A ReLU still follows the last SAGE
            layer. The order of children in a mashed ego-graph then does not matter (Theorem 4.1).

    Shapes:
        - ``model(x, edges)``: logits ``[num_nodes, C]`` on a graph.
        - ``model(x, trees=trees)``: logits ``[num_trees, C]`` for the centres of the trees. Here x
          are features of nodes, and ``trees`` are indices of nodes, int64 ``[num_trees, size]``.
        - ``model(r)``: logits for trees of embeddings ``[num_trees, size, hidden_channels]``.
        - ``model(x, reduce=True)``: embeddings ``[num_nodes, hidden_channels]``.

    Raises:
        TypeError: if a fan-out is not an integer.
        ValueError: if a fan-out is below 1, or if there are no fan-outs.

    Example:
        >>> model = EgoSAGE(4, 8, 2)
        >>> trees = torch.zeros(5, 43, dtype=torch.int64)
        >>> model(torch.rand(3, 4), trees=trees).shape, model(torch.rand(5, 43, 8)).shape
        (torch.Size([5, 2]), torch.Size([5, 2]))

    Source: Zhang et al., FedEgo, https://arxiv.org/abs/2208.13685
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        *,
        fanouts: Sequence[int] = (6, 6),
        dropout: float = 0.5,
        linear: bool = False,
    ) -> None:
        super().__init__()
        check_share(dropout=dropout)
        self.fanouts = check_fanouts(tuple(fanouts))
        self.dropout = dropout
        self.linear = linear
        self.reduction = nn.Linear(in_channels, hidden_channels)
        convs = [SAGEConv(hidden_channels, hidden_channels) for _ in self.fanouts]
        self.convs = nn.ModuleList(convs)
        self.head = nn.Linear(hidden_channels, out_channels, bias=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw all parameters again: Kaiming-normal weights, ``U(+-1/sqrt(fan_in))`` biases."""
        for layer in self.modules():
            if isinstance(layer, nn.Linear):
                layer.reset_parameters()
                nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")

    def forward(
        self,
        x: Features,
        edges: Edges | None = None,
        *,
        trees: Tensor | None = None,
        reduce: bool = False,
    ) -> Tensor:
        if len(x.shape) == 3:
            return self._on_trees(x)
        r = (x @ self.reduction.weight.t() + self.reduction.bias).relu()
        if reduce:
            return r
        r = dropout(r, self.dropout, self.training)
        if trees is not None:
            chosen = gather_rows(r, trees.flatten())
            return self._on_trees(chosen.unflatten(0, trees.shape))
        reject_if(edges is None, "edges or trees to be given", "neither")
        for conv in self.convs[:-1]:
            r = conv(r, edges) if self.linear else conv(r, edges).relu()
        return self._classified(self.convs[-1](r, edges))

    def _on_trees(self, x: Tensor) -> Tensor:
        layers: list[Any] = list(self.convs)
        for depth, conv in enumerate(layers):
            if depth:
                x = x if self.linear else x.relu()
            x = conv.on_trees(x, self.fanouts[: len(self.fanouts) - depth])
        return self._classified(x.squeeze(1))

    def _classified(self, h: Tensor) -> Tensor:
        out: Tensor = self.head(dropout(h.relu(), self.dropout, self.training))
        return out
