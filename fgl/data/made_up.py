"""Made-up graphs with times and with types: ratings among people, and a bibliography."""

from __future__ import annotations

import torch
from torch import Tensor

from ..graph import Graph
from ..kinds import typed
from .typed import typed_graph


@typed
def ratings(num_nodes: int = 200, num_edges: int = 4000, *, seed: int = 0) -> Graph:
    """People who rate each other in the course of time: directed edges, from -10 to 10.

    Every person is liked to a degree of its own, is a judge of its own strictness, and joins at a
    time of its own; raters and rated are drawn among people that have joined. Nobody rates the same
    person twice. A rating is the sum of what the rated is liked, of strictness and of chance,
    rounded, without 0.

    Args:
        num_nodes: number of people, at least 3.
        num_edges: how many ratings are drawn; repeated ones are left out.
        seed: of all draws.

    Returns:
        The graph, x ones ``[num_nodes, 1]``, ``edge_attr [E, 1]`` the ratings, ``edge_time [E]``
        from 0 to 1, sorted.

    Example:
        >>> graph = fgl.data.ratings()
        >>> graph.num_edges, bool((graph.edge_time.diff() >= 0).all())
        (3014, True)
    """
    rng = torch.Generator().manual_seed(seed)
    time = torch.rand(num_edges, generator=rng).sort().values
    joined = (3 + time * (num_nodes - 3)).long()  # how many have joined
    chance = torch.rand(2, num_edges, generator=rng)
    source, target = (chance * joined).long()
    liked, strict = 5 * torch.randn(2, num_nodes, generator=rng)
    noise = torch.randn(num_edges, generator=rng)
    value = (2 + liked[target] - strict[source] / 3 + 2 * noise).round().clamp(-10, 10)
    key = source * num_nodes + target
    order = key.argsort(stable=True)
    first = order[key[order].diff(prepend=key.new_tensor([-1])) != 0].sort().values
    first = first[(source != target)[first] & (value != 0)[first]]
    return Graph(
        torch.ones(num_nodes, 1),
        torch.stack([source, target])[:, first],
        edge_attr=value[first, None],
        edge_time=time[first],
    )


@typed
def bibliography(num_papers: int = 400, *, seed: int = 0) -> Graph:
    """Papers, authors and conferences of four areas, as a typed graph like DBLP's.

    An author works in one area, and so does a conference; a quarter of the papers of an author are
    of another area. A paper has one to three authors, appears at a conference of its area, but one
    time in ten at any, and has five of 100 words, two of them its area's.

    Args:
        num_papers: number of papers; there is an author for every two, and twelve conferences.
        seed: of all draws.

    Returns:
        The graph, with types and relations as `load` of ``"dblp_four_area"``: papers 0, authors 1
        and conferences 2, in 100, 1 and 12 columns; ``y`` is an author's area, and authors are in
        the training mask.

    Example:
        >>> graph = fgl.data.bibliography()
        >>> graph.num_nodes, graph.num_features, graph.num_classes, graph.num_train
        (612, 113, 4, 200)
    """
    rng = torch.Generator().manual_seed(seed)

    def draw(high: int, *shape: int) -> Tensor:
        return torch.randint(high, shape, generator=rng)

    def chance(share: float) -> Tensor:
        return torch.rand(num_papers, generator=rng) < share

    num_authors = num_papers // 2
    y = torch.arange(num_authors) % 4
    lead = draw(num_authors, num_papers)
    area = torch.where(chance(0.25), draw(4, num_papers), y[lead])
    others = 4 * draw(num_authors // 4, num_papers, 2) + area[:, None]  # authors of the area
    present = torch.stack([chance(1.0), chance(0.6), chance(0.3)], 1)
    paper, place = present.nonzero(as_tuple=True)
    author = torch.cat([lead[:, None], others], 1)[paper, place]
    conf = torch.where(chance(0.1), draw(12, num_papers), 4 * draw(3, num_papers) + area)
    words = torch.cat([25 * area[:, None] + draw(25, num_papers, 2), draw(100, num_papers, 3)], 1)
    x = torch.zeros(num_papers, 100).scatter(1, words, 1.0)
    return typed_graph(
        {"paper": x, "author": num_authors, "conf": torch.eye(12)},
        {
            ("paper", "by", "author"): torch.stack([paper, author]),
            ("paper", "at", "conf"): torch.stack([torch.arange(num_papers), conf]),
        },
        both=True,
        y={"author": y},
        num_classes=4,
    )
