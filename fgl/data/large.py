"""Synthetic graphs with millions of nodes, communities, labels, dense features and hubs."""

from typing import Any

import torch
from torch import Generator, Tensor

from ..checks import Count, Natural, Share, Weight, check_number
from ..graph import Graph
from ..kinds import typed
from .undirected import undirected

SHIFT = 0.8  # offset of the Pareto weights: the smallest is 0.2, so many nodes have few edges
CHUNK = 2**22  # edges that are drawn at a time
TRIES = 8  # how often edges are drawn to replace repeated edges
# OGB's sizes; the other values were chosen by the figures in docs/speed.md.
LIKE: dict[str, dict[str, Any]] = {
    "arxiv-like": {"num_nodes": 169_343, "num_edges": 1_157_799},
    "products-like": {
        "num_nodes": 2_449_029,
        "num_edges": 61_859_140,
        "num_classes": 47,
        "num_features": 100,
        "homophily": 0.81,
        "tail": 2.0,
        "max_degree": 17_500,
        "community_size": 2000,
    },
}


@typed
def large_graph(
    num_nodes: Count,
    num_edges: Natural,
    *,
    num_classes: Count = 40,
    num_features: Count = 128,
    homophily: Share = 0.66,
    closeness: Share = 0.8,
    strays: Share = 0.1,
    tail: float = 1.7,
    max_degree: int = 13_000,
    community_size: Count = 500,
    skew: Weight = 1.0,
    signal: Weight = 0.16,
    seed: int = 0,
) -> Graph:
    """Generate a large graph with communities, hubs, skewed labels and dense features.

    The size of the class with rank r is proportional to ``r ** -skew``. Each class consists of
    communities of about `community_size` nodes. A node's weight is ``u ** (-1 / tail) - 0.8``,
    where u is uniform between 0 and 1. The expected degree of a node is proportional to the node's
    weight, but at most `max_degree`. The first end of an edge is drawn from all nodes. The second
    end is drawn from the first end's community, from the first end's class, or from all nodes. Both
    ends are drawn with probabilities proportional to the nodes' weights. A hub (a node with a very
    high degree) is joined to no more than about half of the nodes in its community. Likewise, a hub
    is joined to no more than about half of the nodes in the hub's class. All further edges of a hub
    may end at any node. A stray node keeps its edges, but gets the class of a random node. The
    fraction of stray nodes is `strays`. Node ids are random. A node of class y has normal features
    with mean ``signal * centre[y]``. The centres themselves are drawn from the standard normal
    distribution.

    ``fgl.data.load("arxiv-like")`` and ``load("products-like")`` have the sizes of ogbn-arxiv and
    of ogbn-products. Generating ``products-like`` takes 7 GB of memory and one minute.

    Args:
        num_nodes: number of nodes.
        num_edges: number of undirected edges; each edge has two columns in `edge_index`.
        num_classes: number of classes.
        num_features: number of columns of `x`.
        homophily: approximate fraction of edges within a class. The actual fraction is lower
            because of stray nodes and hubs.
        closeness: among the edges within a class, the approximate fraction whose two ends are in
            one community.
        strays: fraction of the nodes that take the class of a random node.
        tail: exponent of the tail of the degree distribution, above 1.
        max_degree: largest expected degree.
        community_size: approximate number of nodes per community.
        skew: exponent of the class sizes; 0 gives classes of equal size.
        signal: factor for the distances between the classes' mean features, in standard deviations
            of a feature.
        seed: random seed.

    Returns:
        Undirected graph without self-loops and repeated edges. Edges are sorted by target, and then
        by source. The features x are float32 ``[num_nodes, num_features]``. All masks are None. If
        too many drawn edges are repeats, the graph has fewer than `num_edges` edges.

    Raises:
        ValueError: if an argument is out of range.

    Example:
        >>> graph = fgl.data.large_graph(1000, 5000, num_classes=5, num_features=8)
        >>> graph.num_nodes, graph.num_edges, graph.num_classes
        (1000, 10000, 5)

    Source: https://ogb.stanford.edu/docs/nodeprop/ (the sizes)
    """
    check_number("max_degree", max_degree, at_least=1)
    check_number("tail", tail, above=1)
    generator = torch.Generator().manual_seed(seed)
    y, community = _groups(num_nodes, num_classes, skew, community_size)
    weight = (1 - torch.rand(num_nodes, generator=generator, dtype=torch.float64)).pow(-1 / tail)
    weight = weight - SHIFT
    weight.clamp_(max=max_degree * float(weight.mean()) * num_nodes / max(2 * num_edges, 1))

    share: Tensor = y.bincount(minlength=num_classes) / num_nodes
    chance = float(share.square().sum())  # probability that two random nodes have the same class
    changed = strays * (1 - chance)
    same = min(homophily / max(1 - changed, 0.01) ** 2, 1.0)
    same = max(same - chance, 0.0) / max(1 - chance, 1e-9)
    place = torch.randperm(num_nodes, generator=generator)
    ends = _edges(weight, (community, y), (closeness * same, same), place, num_edges, generator)
    edges = undirected(ends, num_nodes)
    del ends

    stray = torch.rand(num_nodes, generator=generator) < strays
    y = torch.where(stray, y[torch.randperm(num_nodes, generator=generator)], y)
    labels = torch.empty_like(y)
    labels[place] = y
    x = torch.randn(num_nodes, num_features, generator=generator)
    centre = signal * torch.randn(num_classes, num_features, generator=generator)
    for rows, own in zip(x.split(2**16), labels.split(2**16), strict=True):
        rows += centre[own]
    return Graph(x, edges, y=labels, num_classes=num_classes)


def _groups(num_nodes: int, num_classes: int, skew: float, size: int) -> tuple[Tensor, Tensor]:
    """Class and community of every node, in ascending order; a community belongs to one class."""
    rank = torch.arange(1, num_classes + 1, dtype=torch.float64)
    bound = (rank.pow(-skew).cumsum(0) / rank.pow(-skew).sum() * num_nodes).round().long()
    node = torch.arange(num_nodes)
    y = torch.searchsorted(bound, node, right=True)  # the last bound is num_nodes
    sizes = y.bincount(minlength=num_classes)
    parts = (sizes / size).round().long().clamp(min=1)
    position = node - (sizes.cumsum(0) - sizes)[y]
    return y, (parts.cumsum(0) - parts)[y] + position * parts[y] // sizes[y]


def _edges(
    weight: Tensor,
    groups: tuple[Tensor, Tensor],
    shares: tuple[float, float],
    place: Tensor,
    num_edges: int,
    generator: Generator,
) -> Tensor:
    """At most `num_edges` distinct edges without self-loops, int64 ``[2, *]``.

    The function numbers the nodes by class. In the result, nodes have random ids instead. `place`
    contains each node's id in the result.

    Each node is in two of the `groups`: a community, and a class that contains the community. An
    edge's second end is drawn from the first end's community with probability ``shares[0]``, from
    the first end's class with probability ``shares[1] - shares[0]``, and otherwise from all nodes.
    For a hub, both probabilities are reduced, so that the hub's expected number of edges in a group
    is at most half of the group's size.
    """
    n = weight.numel()
    low = torch.stack([torch.searchsorted(g, g) for g in groups] + [torch.zeros_like(groups[0])])
    high = torch.stack([torch.searchsorted(g, g, right=True) for g in groups])
    degree = weight * (2 * num_edges / float(weight.sum()))
    room = (high - low[:2]) / 2
    limit = torch.minimum(torch.tensor(shares, dtype=torch.float64)[:, None], room / degree)
    ranges = low, torch.cat([high, torch.full((1, n), n)])
    pair = torch.empty(0, dtype=torch.int64)
    for _ in range(TRIES):  # some edges are drawn twice
        missing = num_edges - pair.numel()
        if missing <= 0:
            break
        more = _pairs(weight, limit, ranges, place, missing + missing // 16 + n // 16, generator)
        pair = (torch.cat([pair, more]) if pair.numel() else more).unique()
        del more
        pair = pair[int(pair[:1].sum() < 0) :]  # without -1, which marks self-loops
    excess = pair.numel() - num_edges
    if excess > 0:
        chosen = torch.ones(pair.numel(), dtype=torch.bool)
        chosen[torch.arange(excess) * pair.numel() // excess] = False
        pair = pair[chosen]
    return torch.stack([pair // n, pair % n])


def _pairs(
    weight: Tensor,
    limit: Tensor,
    ranges: tuple[Tensor, Tensor],
    place: Tensor,
    count: int,
    generator: Generator,
) -> Tensor:
    """Random edges, encoded as ``low end * n + high end``, int64 ``[*]``; a self-loop is -1."""
    n = weight.numel()
    mass = torch.cat([weight.new_zeros(1), weight.cumsum(0)])
    each = int(count >= 2 * n)  # with at least 2 n edges every node is the first end of one
    begins = (mass / mass[-1] * (count - each * n) + torch.rand((), generator=generator)).long()
    begins += each * torch.arange(n + 1)
    first = torch.arange(n, dtype=torch.int32).repeat_interleave(begins.diff())
    pair = torch.empty(first.numel(), dtype=torch.int64)
    for start in range(0, first.numel(), CHUNK):
        one = first[start : start + CHUNK].long()
        chance = torch.rand(2, one.numel(), generator=generator, dtype=torch.float64)
        kind = (chance[0] >= limit[0, one]).long() + (chance[0] >= limit[:, one].amax(0))
        inner, outer = (mass[bound[kind, one]] for bound in ranges)
        goal = inner + chance[1] * (outer - inner)
        two = (torch.searchsorted(mass, goal, right=True) - 1).clamp(max=n - 1)
        ends = torch.stack([place[one], place[two]])
        pair[start : start + CHUNK] = torch.where(one == two, -1, ends.amin(0) * n + ends.amax(0))
    return pair
