"""Trees: ego-graphs of a fixed shape as index tensors, and aligned Mixup of trees (FedEgo).

A tree with fan-outs ``(6, 6)`` has ``1 + 6 + 36`` positions in the order of a breadth-first search.
The first position is the centre. The centre's children follow, then the children of the first
child, and so on.
"""

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from operator import index, mul

import torch
from torch import Tensor

from ..checks import check_count, check_fanouts, check_index, check_number, reject_if
from ..graph import Graph
from ..sparse import SparseMatrix
from ..warn import warn

BITS = 31  # bits of a random integer; ``draw * degree`` fits an int64 for every degree below 2^32


def levels(fanouts: Sequence[int]) -> list[int]:
    """Index of the first node of each level of a tree, followed by the tree's number of nodes.

    Args:
        fanouts: for each level, the number of children of each node, at least 1.

    Returns:
        ``[0, 1, 1 + s_1, 1 + s_1 + s_1 s_2, ...]``; the list has one more entry than the tree has
        levels.

    Raises:
        TypeError: if a fan-out is not an integer.
        ValueError: if there is no fan-out, or if a fan-out is below 1.

    Example:
        >>> levels((6, 6))
        [0, 1, 7, 43]
    """
    widths = accumulate(check_fanouts(fanouts), mul, initial=1)
    return [*accumulate(widths, initial=0)]


class EgoSampler:
    """Sampler of ego-graphs of a fixed shape: a fixed number of neighbours is drawn per node.

    Neighbours are the sources of a node's incoming edges. Neighbours are sampled uniformly and with
    replacement. Each hop needs only one gather operation on the neighbour table. The probability of
    a neighbour is proportional to its number of edges to the node. Edges of weight 0 are ignored. A
    node without neighbours counts as its own neighbour, so each position of its tree holds this
    node.

    Args:
        graph: the graph, or its adjacency ``A[target, source]``.
        fanouts: for each level, the number of children of each node.

    Raises:
        TypeError: if a fan-out is not an integer.
        ValueError: if a fan-out is below 1, or if the adjacency is not square.

    Example:
        >>> graph = fgl.Graph(torch.ones(4, 1), torch.tensor([[1, 2], [0, 1]]))
        >>> EgoSampler(graph, (2, 1))(torch.tensor([0, 3]))
        tensor([[0, 1, 1, 2, 2],
                [3, 3, 3, 3, 3]])

    Source: Zhang et al., FedEgo, https://arxiv.org/abs/2208.13685
    """

    def __init__(self, graph: Graph | SparseMatrix, fanouts: Sequence[int] = (6, 6)) -> None:
        adj = graph.adj if isinstance(graph, Graph) else graph
        reject_if(adj.shape[0] != adj.shape[1], "the adjacency to be square", f"shape {adj.shape}")
        self.size = levels(fanouts)[-1]
        self.fanouts = tuple(fanouts)
        self.num_nodes = adj.shape[0]
        row, col = adj.pattern.row, adj.pattern.col
        if adj.present is not None and not bool(adj.present.all()):
            row, col = row[adj.present], col[adj.present]
        degree = torch.bincount(row, minlength=self.num_nodes)
        alone = (degree == 0).nonzero().squeeze(1)
        if alone.numel():
            order = torch.cat([row, alone]).argsort(stable=True)
            col = torch.cat([col, alone])[order]
            degree = degree.clamp(min=1)
        # Sampling is limited by memory access: a narrow table, with a node's two numbers adjacent.
        narrow = max(self.num_nodes, col.numel()) < 2**31
        self.neighbour = col.int() if narrow else col
        table = torch.stack([degree.cumsum(0) - degree, degree], 1)
        self.table = table.int() if narrow else table

    def __call__(self, centres: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
        """Sample a tree for each centre.

        Args:
            centres: int64 ``[batch]`` on the graph's device.
            generator: source of randomness, on the graph's device; by default torch's global
                generator.

        Returns:
            Node ids, int64 ``[batch, size]``.

        Raises:
            TypeError: if `centres` is not an int64 tensor.
            ValueError: if `centres` has the wrong shape, or if a centre is not a node of the graph.
        """
        check_index("centres", centres, (None,), self.num_nodes)
        batch = centres.numel()
        layers, parents, width = [centres[:, None]], centres, 1
        for fanout in self.fanouts:
            begin, degree = self.table.index_select(0, parents).unsqueeze(2).unbind(1)
            entry = _draws((parents.numel(), fanout), centres.device, generator)
            entry.mul_(degree).bitwise_right_shift_(BITS).add_(begin)
            parents = self.neighbour.index_select(0, entry.flatten())
            width *= fanout
            layers.append(parents.view(batch, width))
        return torch.cat(layers, 1)


def training_trees(
    graph: Graph, fanouts: Sequence[int] = (6, 6), *, shuffle: bool = True
) -> Tensor:
    """Sample one tree for each training node with torch's generator: int64 ``[num_train, size]``.

    Args:
        graph: the client's graph; without a training mask all nodes are training nodes.
        fanouts: see `EgoSampler`.
        shuffle: whether to return the trees in random order. If False, the trees have the order of
            the nodes.

    Example:
        >>> graph = fgl.Graph(torch.ones(4, 1), torch.tensor([[1, 2], [0, 1]]))
        >>> training_trees(graph, (1, 1), shuffle=False)
        tensor([[0, 1, 2],
                [1, 2, 2],
                [2, 2, 2],
                [3, 3, 3]])

    Source: Zhang et al., FedEgo, https://arxiv.org/abs/2208.13685
    """
    nodes = graph.training_mask.nonzero().squeeze(1)
    if shuffle:
        nodes = nodes[torch.randperm(len(nodes)).to(nodes.device)]
    return EgoSampler(graph, fanouts)(nodes)


def resample(
    trees: Tensor, *, fanouts: Sequence[int] = (6, 6), generator: torch.Generator | None = None
) -> Tensor:
    """Sample new trees from given trees: at every level, children are drawn with replacement.

    The children of a sampled node are drawn from the children that this node has in the given tree.
    So the children of a node are always neighbours of the node.

    Args:
        trees: ``[num_trees, size, ...]``, e.g. embeddings that `mash` averaged.
        fanouts: number of children per node for each level, in the given trees and in the sampled
            trees.
        generator: source of randomness; by default torch's global generator.

    Returns:
        A tensor like `trees`.

    Raises:
        ValueError: if the number of positions in `trees` does not fit `fanouts`.

    Example:
        >>> tree = torch.tensor([[0, 1, 2, 10, 11, 20, 21]])
        >>> new = resample(tree, fanouts=(2, 2))[0]
        >>> bool((new[3:5] // 10 == new[1]).all() and (new[5:] // 10 == new[2]).all())
        True

    Source: Zhang et al., FedEgo, https://arxiv.org/abs/2208.13685
    """
    bounds = levels(fanouts)
    if trees.dim() < 2 or trees.shape[1] != bounds[-1]:
        raise ValueError(
            f"Expected trees to have shape [*, {bounds[-1]}, ...] for fan-outs {tuple(fanouts)}, "
            f"but got {list(trees.shape)}"
        )
    count = trees.shape[0]
    draws = _draws((count, bounds[-1] - 1), trees.device, generator)
    places = [draws.new_zeros(count, 1)]
    for fanout, (begin, end), (low, high) in zip(
        fanouts, pairwise(bounds[:-1]), pairwise(bounds[1:]), strict=True
    ):
        draw = draws[:, low - 1 : high - 1].view(count, end - begin, fanout)
        child = low + (places[-1] - begin)[..., None] * fanout + ((draw * fanout) >> BITS)
        places.append(child.flatten(1))
    position = torch.cat(places, 1)
    return trees[torch.arange(count, device=trees.device)[:, None], position]


def mash(
    values: Tensor, trees: Tensor, *, batch_size: int | None = None, least: int | None = None
) -> Tensor:
    """Aligned Mixup: the mean over a batch of ego-graphs, position by position (FedEgo, Eq. 8).

    ``X_j = 1/b sum_i r_{tree_i(j)}`` for every position j. Position 0 holds the mean over the
    centres, position 1 holds the mean over the first neighbours, and so on. The mean of one-hot
    labels is a soft label.

    Args:
        values: embeddings or one-hot labels, float ``[num_nodes, H]``.
        trees: int64 ``[num_trees, size]``, sampled by an `EgoSampler`.
        batch_size: trees per mashed ego-graph; by default all. The function warns if this number is
            1, since the result would reveal individual ego-graphs.
        least: smallest number of trees in the last batch, by default `batch_size`. A last batch
            with fewer trees is merged with the previous batch.

    Returns:
        float ``[num_batches, size, H]``.

    Raises:
        TypeError: if `values` is not floating point, or if `trees` is not int64.
        ValueError: if a shape is invalid, if an id in `trees` is not a row of `values`, or if
            ``1 <= least <= batch_size <= num_trees`` does not hold.

    Example:
        >>> trees = torch.tensor([[0, 1], [2, 2], [1, 0]])
        >>> mash(torch.tensor([[0.0], [2.0], [4.0]]), trees, batch_size=2, least=1).squeeze(2)
        tensor([[2., 3.],
                [2., 0.]])

    Source: Zhang et al., FedEgo, https://arxiv.org/abs/2208.13685
    """
    check_float(values, "values")
    reject_if(values.dim() != 2, "values to have shape [*, *]", list(values.shape))
    check_index("trees", trees, (None, None), len(values))
    count, size = trees.shape
    batch = max(count, 1) if batch_size is None else index(batch_size)
    reject_if(not 1 <= batch <= max(count, 1), f"batch_size to be in [1, {count}]", batch)
    if batch == 1 and count:
        warn(
            "Expected means of several ego-graphs, but got batch_size 1: they stay as they are, "
            "and whoever sees them reads the features and labels of their nodes"
        )
    least = batch if least is None else least
    check_number("least", least, at_least=1, at_most=batch, integer=True)
    whole = count - count % batch - (batch if 0 < count % batch < least else 0)
    exact = values.to(torch.promote_types(values.dtype, torch.float32))
    means = [
        torch.nn.functional.embedding_bag(bags.mT.flatten(0, -2), exact, mode="mean")
        for bags in (trees[:whole].unflatten(0, (-1, batch)), trees[whole:])
        if bags.numel()
    ]
    if not means:
        return values.new_zeros(0, size, values.shape[1])
    out: Tensor = torch.cat(means).unflatten(0, (-1, size)).to(values.dtype)
    return out


def tree_minibatches(
    trees: Tensor,
    labels: Tensor,
    num_epochs: int = 5,
    batch_size: int = 32,
    *,
    fanouts: Sequence[int] | None = None,
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield minibatches of averaged ego-graphs (see `mash`), on which a server trains.

    An epoch uses a random fifth of all averaged ego-graphs.

    Sampling uses torch's global generator.

    Args:
        trees: ``[num_trees, size, H]``.
        labels: labels of the centres, ``[num_trees, C]``.
        num_epochs: number of epochs. Each epoch uses ``num_trees // 5`` trees, at least one.
        batch_size: trees per step.
        fanouts: number of children per node for each level. If given, each minibatch contains new
            trees, which `resample` draws from the minibatch's trees. By default the trees are
            yielded unchanged.

    Raises:
        ValueError: if the number of labels differs from the number of trees, if there are no trees,
            or if a number is out of range.

    Example:
        >>> steps = tree_minibatches(torch.zeros(12, 3, 4), torch.ones(12, 1), num_epochs=2)
        >>> [len(chosen) for chosen, _ in steps]
        [2, 2]

    Source: Zhang et al., FedEgo, https://arxiv.org/abs/2208.13685
    """
    check_steps(num_epochs, batch_size)
    if not len(trees) == len(labels) > 0:
        got = f"{len(trees)} and {len(labels)}"
        raise ValueError(f"Expected trees and labels to be as many, at least one, but got {got}")
    for _ in range(num_epochs):
        order = torch.randperm(len(trees), device=trees.device)
        for chosen in order[: max(len(trees) // 5, 1)].split(batch_size):
            batch = trees[chosen]
            yield batch if fanouts is None else resample(batch, fanouts=fanouts), labels[chosen]


def check_steps(epochs: int, batch_size: int) -> None:
    """Raise an error if the number of epochs is below 0 or the batch size is below 1.

    Example:
        >>> check_steps(5, 0)
        Traceback (most recent call last):
        ValueError: Expected batch_size to be an integer >= 1, but got 0
    """
    check_number("epochs", epochs, at_least=0, integer=True)
    check_count(batch_size=batch_size)


def check_float(value: object, name: str) -> None:
    """Raise an error unless a value is a dense floating-point tensor.

    Example:
        >>> check_float(torch.tensor([1]), "values")
        Traceback (most recent call last):
        TypeError: Expected values to be a float tensor, but got torch.int64
    """
    if not isinstance(value, Tensor) or not value.is_floating_point():
        got = value.dtype if isinstance(value, Tensor) else type(value).__name__
        raise TypeError(f"Expected {name} to be a float tensor, but got {got}")
    if value.layout != torch.strided:
        raise TypeError(f"Expected {name} to be a dense tensor, but got {value.layout}")


def _draws(
    shape: tuple[int, int], device: torch.device, generator: torch.Generator | None
) -> Tensor:
    """Random integers with `BITS` bits; ``draw * n >> BITS`` is uniform in ``[0, n)``."""
    return torch.randint(2**BITS, shape, generator=generator, device=device)
