"""Damaged clients: an exact fraction of edges, features or labels is removed or corrupted."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ..checks import Share, Weight, reject_if
from ..graph import Graph
from ..graph.facts import answered, unscored
from ..graph.fields import mask_of
from ..graph.windows import check_no_series
from ..seeds import fold_in
from ..sparse import SparseMatrix
from ..sparse.matrix import dense
from ..warn import warn
from .splits.free_pairs import Draws, FreePairs


def lose_labels(graph: Graph, share: Share, *, generator: Draws = None) -> Graph:
    """Remove ``round(share * n)`` of a graph's n training examples from the training mask.

    Examples whose labels are all unknown (NaN) are not counted in n.

    Args:
        graph: a graph or a collection. If there is no training mask, all examples are training
            examples.
        share: fraction of the training examples, between 0 and 1.
        generator: random generator on the CPU; by default torch's global generator.

    Example:
        >>> graph = fgl.Graph(torch.eye(4), torch.zeros(2, 0).long(), y=torch.tensor([0, 1, 0, 1]))
        >>> lose_labels(graph, 0.5).num_train
        2

    Source: "random_label_sparsity" of OpenFGL, https://arxiv.org/abs/2408.16288
    """
    check_no_series(graph, "lose_labels")
    mask = graph.training_mask.clone()
    mask[_drawn(answered(mask, graph.y), share, generator)] = False
    return graph.replace(train_mask=mask)


def wrong_labels(graph: Graph, share: Share, *, generator: Draws = None) -> Graph:
    """Change ``round(share * n)`` of a graph's n training labels to other classes.

    All classes except the old class are equally likely. If ``y`` holds binary labels as floats, n
    counts only known labels, and a changed label is 1 minus the old label. Labels of validation and
    test examples are never changed. If there is no training mask, all examples outside the
    validation and test masks count as training examples.

    Args:
        graph: a graph or a collection, with at least two classes or with binary labels.
        share: fraction of the training examples, between 0 and 1.
        generator: random generator on the CPU; by default torch's global generator.

    Raises:
        ValueError: if the graph has no labels, or if it has fewer than two classes.
        TypeError: if a float ``y`` has values other than 0, 1 and NaN.

    Example:
        >>> graph = fgl.Graph(torch.eye(4), torch.zeros(2, 0).long(), y=torch.tensor([0, 1, 0, 1]))
        >>> (wrong_labels(graph, 0.5).y != graph.y).sum()
        tensor(2)

    Source: "random_label_noise" of OpenFGL, https://arxiv.org/abs/2408.16288
    """
    if graph.y is not None and graph.y.is_floating_point():
        return graph.replace(y=_wrong_answers(graph.y, unscored(graph), share, generator))
    classes, labels = int(graph.num_classes or 0), graph.labels.clone()
    reject_if(classes < 2, "graph to have at least two classes", classes)
    chosen = _drawn(unscored(graph), share, generator)
    step = torch.randint(1, classes, (chosen.numel(),), generator=generator).to(graph.device)
    labels[chosen] = (labels[chosen] + step) % classes
    return graph.replace(y=labels)


def _wrong_answers(y: Tensor, noisy: Tensor, share: float, generator: Draws) -> Tensor:
    answered = ~y.isnan()
    numbers = (y != 0) & (y != 1) & answered
    expected = "graph.y to be class labels or answers, 0 and 1, of which some can be another"
    got = "other numbers: they can be left out (missing_labels, lose_labels)"
    reject_if(numbers.any(), expected, got, TypeError)
    mask = answered & noisy.view(-1, *[1] * (y.dim() - 1))
    chosen, wrong = _drawn(mask.flatten(), share, generator), y.flatten().clone()
    wrong[chosen] = 1 - wrong[chosen]
    return wrong.view_as(y)


def _drawn(mask: Tensor, share: float, generator: Draws) -> Tensor:
    """Int64 ids of a random fraction of the examples in a mask."""
    own = mask.nonzero().squeeze(1)
    order = torch.randperm(own.numel(), generator=generator)
    return own[order[: round(share * own.numel())].to(own.device)]


def share_nodes(graphs: Sequence[Graph]) -> bool:
    """Whether clients share training nodes and each shared node has the same class at all clients.

    Example:
        >>> graph = fgl.Graph(torch.eye(2), torch.zeros(2, 0).long(), y=torch.tensor([0, 1]))
        >>> own = graph.subgraph(torch.tensor([1]))
        >>> share_nodes([own, own]), share_nodes([graph, graph])  # the latter has no node_id
        (True, False)
    """
    if not all(map(_has_classes_by_node, graphs)):
        return False
    node = torch.cat([own.node_id[unscored(own)] for own in graphs])  # type: ignore[index]  # checked
    label = torch.cat([own.labels[unscored(own)] for own in graphs])
    different = torch.stack([node, label]).unique(dim=1)[0]
    return len(different) < len(node) and len(different) == len(node.unique())


def _has_classes_by_node(graph: Graph) -> bool:
    of_nodes = graph.batch is None and graph.edge_label_index is None
    classes = graph.y is not None and not graph.y.is_floating_point()
    return of_nodes and classes and graph.node_id is not None


def wrong_nodes(graphs: Sequence[Graph], share: float, seed: int) -> list[Graph]:
    """Like `wrong_labels`, but draw a shared node's new label once and use it at all clients.

    Example:
        >>> y = torch.tensor([0, 1, 2, 1])
        >>> graph = fgl.Graph(torch.eye(4), torch.zeros(2, 0).long(), y=y)
        >>> one, two = wrong_nodes([graph.subgraph(torch.arange(3))] * 2, 0.7, seed=0)
        >>> (one.y != y[:3]).sum(), torch.equal(one.y, two.y)
        (tensor(2), True)
    """
    chosen = [unscored(own).nonzero().squeeze(1) for own in graphs]
    pairs = [*zip(graphs, chosen, strict=True)]
    node = torch.cat([own.node_id[index] for own, index in pairs])  # type: ignore[index]  # checked
    node, place = node.unique(return_inverse=True)
    y = torch.empty_like(node)
    y[place] = torch.cat([own.labels[index] for own, index in pairs])
    alone = Graph(torch.zeros(len(node), 1), torch.zeros(2, 0, dtype=torch.int64))
    source = alone.to(y.device).replace(y=y, num_classes=graphs[0].num_classes)
    wrong = wrong_labels(source, share, generator=torch.Generator().manual_seed(seed)).labels
    drawn = wrong[place].split([len(index) for index in chosen])
    return [
        own.replace(y=own.labels.index_copy(0, index, new))
        for (own, index), new in zip(pairs, drawn, strict=True)
    ]


Features = Callable[[Graph], Graph] | None


@dataclass(frozen=True)
class Damage:
    """The damage to do to every client's data before training: its kinds and amounts.

    Example:
        >>> Damage(label_noise=0.3).any
        True

    Source: the settings of OpenFGL, https://github.com/xkLi-Allen/OpenFGL
    """

    missing_edges: Share = 0.0
    """Fraction of a client's edges that are removed."""
    edge_noise: Share = 0.0
    """Fraction of a client's edges that are moved to two other nodes."""
    missing_features: Share = 0.0
    """Fraction of each node's features that are set to 0."""
    feature_noise: Weight = 0.0
    """Standard deviation of the normal noise that is added to every feature."""
    missing_labels: Share = 0.0
    """Fraction of a client's training examples that are removed from the training mask."""
    label_noise: Share = 0.0
    """Fraction of a client's training examples whose label is changed."""

    @property
    def any(self) -> bool:
        """Whether any kind of damage is set."""
        return self != Damage()


def _with_damage(graph: Graph, how: Damage, draws: Draws, features: Features) -> Graph:
    """Damage a graph's edges, compute its features, and damage the features and training labels."""
    changes: tuple[tuple[Any, float], ...] = (
        *((lose_edges, how.missing_edges), (move_edges, how.edge_noise)),
        (lambda own, _, generator: features(own) if features else own, 1.0),
        *((lose_features, how.missing_features), (noisy_features, how.feature_noise)),
        *((wrong_labels, how.label_noise), (lose_labels, how.missing_labels)),
    )
    for change, amount in changes:
        graph = change(graph, amount, generator=draws) if amount else graph
    return graph


def damaged(
    graphs: Sequence[Graph], how: Damage, *, seed: int = 0, features: Features = None
) -> list[Graph]:
    """Damage the clients' graphs: first the edges, then the features, then the labels.

    Several clients may train on the same node of one graph, identified by `node_id`. A new label
    for such a node is drawn only once, and all clients that train on the node get this label. If
    clients share training nodes, ``how.label_noise`` is a fraction of the training nodes of all
    clients together. All damage except changed labels is drawn for each client independently.

    Args:
        graphs: one graph per client; random numbers are drawn client by client.
        how: the kinds and amounts of damage.
        seed: random seed.
        features: a function that computes features from a graph's edges, such as `degree_features`.
            The function is called after the edges have been damaged, and before the features are
            damaged. By default features are not recomputed.

    Returns:
        The damaged graphs. If no damage is set and `features` is None, the given graphs are
        returned.

    Raises:
        TypeError: if an entry of `graphs` is not a graph, or if `how` is not a `Damage`.
        ValueError: if one of the functions that damage a graph (`lose_edges`, `move_edges`, ...)
            raises a ValueError.

    Example:
        >>> graph = fgl.data.splits.split(fgl.data.load("synthetic"), "random")
        >>> made = damaged([graph], Damage(missing_labels=0.2))[0]
        >>> graph.num_train, made.num_train
        (1625, 1300)

    Source: OpenFGL, Li et al. 2024, https://arxiv.org/abs/2408.16288
    """
    if how.label_noise and share_nodes(graphs):
        graphs = wrong_nodes(graphs, how.label_noise, fold_in(seed, "labels"))
        how = replace(how, label_noise=0.0)
    generator = torch.Generator().manual_seed(seed)
    return [_with_damage(own, how, generator, features) for own in graphs]


def lose_edges(graph: Graph, share: Share, *, generator: Draws = None) -> Graph:
    """Remove ``round(share * m)`` of a graph's m edges; an edge is removed in both directions.

    Args:
        graph: a graph or a collection. In a collection, the fraction refers to the edges of all
            graphs together.
        share: fraction of the edges, between 0 and 1.
        generator: random generator on the CPU; by default torch's global generator.

    Example:
        >>> graph = fgl.Graph(torch.eye(4), torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]))
        >>> lose_edges(graph, 0.5).num_edges
        2

    Source: "random_topology_sparsity" of OpenFGL, https://arxiv.org/abs/2408.16288
    """
    return graph.with_edges(~_drawn_edges(graph, share, generator))


def move_edges(graph: Graph, share: Share, *, generator: Draws = None) -> Graph:
    """Move ``round(share * m)`` of the m edges of a graph to other pairs of nodes.

    A moved edge joins two nodes that no edge joined before. Both directions of a moved edge keep
    their weights, features and times. In a collection, an edge is moved only within its own graph.
    If the graph has too few unlinked pairs of nodes, as in an almost complete graph, fewer edges
    than ``round(share * m)`` are moved.

    Args:
        graph: an undirected graph or a collection of such graphs. Edges must not have relations,
            since a relation can join only nodes of certain types.
        share: fraction of the edges, between 0 and 1.
        generator: random generator on the CPU; by default torch's global generator.

    Raises:
        ValueError: if edges have relations, or if an edge lacks its reverse.

    Example:
        >>> graph = fgl.Graph(torch.eye(4), torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]))
        >>> moved = move_edges(graph, 0.5)
        >>> moved.num_edges, torch.equal(moved.edge_index, graph.edge_index)
        (4, False)

    Source: "random_topology_noise" of OpenFGL, https://arxiv.org/abs/2408.16288
    """
    reject_if(graph.edge_type is not None, "edges to be without relations", "edge_type")
    edges, lost = graph.edge_index.cpu(), _drawn_edges(graph, share, generator).cpu()
    back = _other_directions(edges, graph.num_nodes)
    owner = torch.zeros(graph.num_nodes, dtype=torch.int64)
    owner = owner if graph.batch is None else graph.batch.cpu()
    sizes = owner.bincount()
    removed = (lost & (edges[0] <= edges[1])).nonzero().flatten()
    of_graph = owner[edges[0, removed]]
    ids, new = [(~lost).nonzero().flatten()], [edges[:, ~lost]]
    first = sizes.cumsum(0) - sizes
    for index, count in enumerate(of_graph.bincount().tolist()):
        if count:
            inside = edges[:, owner[edges[0]] == index] - first[index]
            free = FreePairs(inside, int(sizes[index]))
            ends = free(min(count, free.count), generator=generator) + first[index]
            replaced = removed[of_graph == index][: ends.shape[1]]
            ids += [replaced, back[replaced]]
            new += [ends, ends.flip(0)]
    reduced = graph.with_edges(torch.cat(ids).to(graph.device))
    return reduced.replace(edge_index=torch.cat(new, 1).to(graph.device))


def _other_directions(edges: Tensor, num_nodes: int) -> Tensor:
    """The id of each edge's reverse, int64 ``[num_edges]``."""
    to, fro = edges[0] * num_nodes + edges[1], edges[1] * num_nodes + edges[0]
    by_to, by_fro = to.argsort(stable=True), fro.argsort(stable=True)
    same = torch.equal(to[by_to], fro[by_fro])
    reject_if(not same, "edges to be there in both directions", "others")
    return torch.empty_like(to).scatter_(0, by_fro, by_to)


def _drawn_edges(graph: Graph, share: float, generator: Draws) -> Tensor:
    """Draw a fraction of the linked node pairs; return a bool mask of their edges."""
    low, high = graph.edge_index.cpu().sort(0).values
    pair, of_edge = (low * graph.num_nodes + high).unique(return_inverse=True)
    order = torch.randperm(pair.numel(), generator=generator)
    drawn = mask_of(order[: round(share * pair.numel())], pair.numel())
    return drawn[of_edge].to(graph.device)


def lose_features(graph: Graph, share: Share, *, generator: Draws = None) -> Graph:
    """Set a fraction of each node's nonzero features to 0.

    If a node has k nonzero features, ``int(share * k)`` of the features are set to 0.

    With one-hot features, k is 1, so every node loses its feature if `share` is 1, and no node
    loses its feature if `share` is below 1. A warning is given if no node of the graph loses a
    feature.

    Args:
        graph: a graph or a collection.
        share: fraction of each node's nonzero features, between 0 and 1.
        generator: random generator on the CPU; by default torch's global generator.

    Example:
        >>> graph = fgl.Graph(torch.tensor([[1.0, 2.0, 0.0, 3.0]]), torch.zeros(2, 0).long())
        >>> (lose_features(graph, 0.7).x != 0).sum()
        tensor(1)

    Source: "random_feature_sparsity" of OpenFGL, https://arxiv.org/abs/2408.16288
    """
    check_no_series(graph, "lose_features")
    x: Any = graph.x
    if isinstance(x, SparseMatrix):
        value = x.values
        nonzero = (value != 0).cpu()
        keep = torch.ones(len(value), dtype=torch.bool)
        keep[nonzero] = _kept(x.pattern.row.cpu()[nonzero], x.shape[0], share, generator)
        return graph.replace(x=x.with_value(value * keep.to(value.device)))
    row, column = x.cpu().nonzero().T
    lost = ~_kept(row, len(x), share, generator)
    values = x.clone()
    values[row[lost].to(x.device), column[lost].to(x.device)] = 0
    return graph.replace(x=values)


def _kept(row: Tensor, rows: int, share: float, generator: Draws) -> Tensor:
    """Mask of the entries to keep; of the k entries of a node, ``int(share * k)`` are lost."""
    count = row.bincount(minlength=rows)
    order = torch.randperm(len(row), generator=generator)
    order = order[row[order].argsort(stable=True)]  # row by row, at random within each
    place = torch.empty_like(order)
    place[order] = torch.arange(len(row)) - (count.cumsum(0) - count)[row[order]]
    lost = (share * count.double() + 1e-9).floor()  # 0.29 * 100 is 28.999...
    if share and len(row) and not lost.any():
        warn(
            f"Expected the share of missing features to be at least {1 / int(count.max()):.4g} for "
            f"a node to lose one, since none has more than {int(count.max())} that are not 0, but "
            f"got {share}: nothing is lost"
        )
    return place >= lost[row]


def noisy_features(graph: Graph, deviation: Weight, *, generator: Draws = None) -> Graph:
    """Add normal noise to every feature of a graph, including features that are zero.

    Args:
        graph: a graph or a collection.
        deviation: standard deviation of the noise, at least 0. Choose a deviation that suits the
            size of the features. For example, row-normalised features are small, so the noise
            should have a small standard deviation.
        generator: random generator on the CPU; by default torch's global generator.

    Returns:
        A graph with dense features.

    Example:
        >>> graph = fgl.Graph(torch.zeros(100, 100), torch.zeros(2, 0).long())
        >>> 1.9 < noisy_features(graph, 2.0).x.std() < 2.1
        tensor(True)

    Source: "random_feature_noise" of OpenFGL, https://arxiv.org/abs/2408.16288
    """
    x = dense(graph.x)
    noise = torch.randn(x.shape, generator=generator, dtype=x.dtype)
    return graph.replace(x=x + deviation * noise.to(x.device))
