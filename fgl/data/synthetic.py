"""Synthetic data: a block model, small graphs, molecules, ratings and a bibliography."""

from collections.abc import Sequence

import torch
from torch import Generator, Tensor

from ..checks import Count, Share, Weight, reject_if
from ..graph import Graph
from ..kinds import typed
from ..sparse import SparseMatrix
from ..sparse.gather import ranges
from .typed import typed_graph
from .undirected import undirected

CORA_CLASSES = (351, 217, 418, 818, 426, 298, 180)


@typed
def csbm(
    *,
    num_nodes: Count = 2708,
    class_weights: Sequence[float] = CORA_CLASSES,
    communities_per_class: Count = 6,
    degree: Weight = 3.9,
    homophily: Share = 0.81,
    closeness: Share = 0.9,
    strays: float = 0.1,
    tail: float = 1.5,
    num_features: Count = 1433,
    words_per_node: Weight = 18.0,
    words_per_set: int = 100,
    topic: Share = 0.17,
    flavour: float = 0.1,
    seed: int = 0,
) -> Graph:
    """Generate a contextual stochastic block model: nodes have communities, classes and words.

    Every class has communities of equal size. An edge joins two nodes of one community, two nodes
    of one class in different communities, or two nodes of different classes. First, each node gets
    an edge to a random node. Then further edges are drawn, each between two random nodes. Random
    nodes are drawn with probabilities proportional to the nodes' Pareto weights. Repeated edges
    count once. A stray node keeps its edges, but gets the class of a random node. The fraction of
    stray nodes is `strays`. Each word of a node is drawn from the word set of its class, from the
    word set of its community, or from all words. The word sets are random and may overlap. If a
    word is drawn from all words, words with low ids are more likely than words with high ids.

    The defaults resemble Cora in size, classes, degree, homophily and words per node. Words alone,
    or edges alone, are not enough to predict the classes well. Methods can therefore differ in
    accuracy. We measured test accuracy with `class_capped_split`, 5 Louvain clients and graph seeds
    0 to 2. Logistic regression on the words reaches 60 to 63 %, and FedAvg with a GAT reaches 86 %
    after 50 to 60 rounds.

    Args:
        num_nodes: number of nodes.
        class_weights: relative sizes of the classes.
        communities_per_class: number of communities in each class.
        degree: mean degree. With a mean degree below 2, some nodes have no edge.
        homophily: approximate fraction of edges within a class. The actual fraction is lower
            because of stray nodes.
        closeness: among the edges within a class, the fraction whose two ends are in one community.
            This fraction applies before stray nodes change their class.
        strays: fraction of the nodes that take the class of a random node.
        tail: exponent of the Pareto weights. The larger the exponent, the more similar are the
            degrees.
        num_features: number of words.
        words_per_node: mean number of words drawn per node (Poisson-distributed). A word that is
            drawn twice for a node counts once.
        words_per_set: number of words in a word set. Each class has a word set, and so does each
            community.
        topic: fraction of a node's words that are drawn from the word set of its class.
        flavour: fraction of a node's words that are drawn from the word set of its community.
        seed: random seed.

    Returns:
        Undirected graph without self-loops and repeated edges. The features x are a float32
        `SparseMatrix` whose stored values are 1. All masks are None.

    Raises:
        ValueError: if an argument is out of range.

    Example:
        >>> graph = fgl.data.csbm(num_nodes=100, class_weights=(2, 1))
        >>> graph.num_nodes, graph.num_features, graph.num_classes
        (100, 1433, 2)

    Source: Deshpande et al., Contextual Stochastic Block Models, https://arxiv.org/abs/1807.09596;
    Pareto weights: Karrer & Newman, https://arxiv.org/abs/1008.3926
    """
    most = 2**31
    for name, value, low, high in (
        ("class_weights", min(class_weights, default=-1), 0, most),
        ("sum(class_weights)", sum(class_weights), 1e-9, most),
        ("strays", strays, 0, 0.99),
        ("tail", tail, 1, most),
        ("words_per_set", words_per_set, 1, num_features),
        ("flavour", flavour, 0, 1 - topic),
    ):
        reject_if(not low <= value <= high, f"{name} to be in [{low}, {high}]", value)
    generator = torch.Generator().manual_seed(seed)
    y, community = _labels(num_nodes, class_weights, communities_per_class)
    share = y.bincount() / num_nodes
    changed = strays * (1 - float(share.square().sum()))
    same = min(homophily / (1 - changed) ** 2, 1.0)
    close = same * (closeness if communities_per_class > 1 else 1.0)
    edges = _edges(y, community, round(num_nodes * degree / 2), (close, same), tail, generator)
    stray = torch.rand(num_nodes, generator=generator) < strays
    y = torch.where(stray, y[torch.randperm(num_nodes, generator=generator)], y)

    num_words = torch.poisson(torch.full((num_nodes,), float(words_per_node)), generator).long()
    node = torch.arange(num_nodes).repeat_interleave(num_words)
    num_sets = len(class_weights) * (1 + communities_per_class)  # of classes, then of communities
    sets = torch.rand(num_sets, num_features, generator=generator).argsort(1)[:, :words_per_set]
    word = _words(
        torch.stack([y, len(class_weights) + community])[:, node],
        sets,
        (topic, topic + flavour),
        num_features,
        generator,
    )

    place = torch.randperm(num_nodes, generator=generator)  # so that ids do not reveal the class
    pair = (place[node] * num_features + word).unique()
    ends = (pair // num_features, pair % num_features)
    x = SparseMatrix.from_entries(*ends, (num_nodes, num_features), torch.ones(pair.numel()))
    labels = torch.empty_like(y)
    labels[place] = y
    return Graph(x, undirected(place[edges], num_nodes), y=labels, num_classes=len(class_weights))


def _labels(num_nodes: int, weights: Sequence[float], parts: int) -> tuple[Tensor, Tensor]:
    """Class and community of every node, in ascending order; class sizes follow the weights."""
    share = torch.tensor(weights, dtype=torch.float64) / sum(weights) * num_nodes
    size = share.long()
    size[(size - share).argsort(stable=True)[: num_nodes - int(size.sum())]] += 1
    place, y = ranges(torch.zeros_like(size), size)
    return y, y * parts + place * parts // size[y]


def _edges(
    y: Tensor,
    community: Tensor,
    num_edges: int,
    shares: tuple[float, float],
    tail: float,
    generator: Generator,
) -> Tensor:
    """At most `num_edges` distinct edges without self-loops, int64 ``[2, *]``."""
    n = y.numel()
    node = torch.arange(n)
    # Each node has four ranges: itself, its community, its class, all nodes. An edge of kind k
    # goes to the range k + 1 without the range k.
    groups = (node, community, y, node * 0)
    low = torch.stack([torch.searchsorted(group, group) for group in groups])
    high = torch.stack([torch.searchsorted(group, group, right=True) for group in groups])
    weight = (1 - torch.rand(n, generator=generator, dtype=torch.float64)).pow(-1 / tail)
    mass = torch.cat([weight.new_zeros(1), weight.cumsum(0)])

    size = 2 * num_edges + n  # some edges are drawn twice
    first = torch.multinomial(weight, size, replacement=True, generator=generator)
    first[:n] = torch.randperm(n, generator=generator)
    chance = torch.rand(2, size, generator=generator, dtype=torch.float64)
    kind = torch.bucketize(chance[0], chance.new_tensor(shares), right=True)
    outer_low, outer_high = low[kind + 1, first], high[kind + 1, first]
    inner_low, inner_high = low[kind, first], high[kind, first]
    hole = mass[inner_high] - mass[inner_low]
    room = mass[outer_high] - mass[outer_low] - hole
    goal = mass[outer_low] + chance[1] * room
    goal = torch.where(goal < mass[inner_low], goal, goal + hole)
    second = torch.searchsorted(mass, goal, right=True) - 1
    ends = torch.stack([first, second.clamp(max=n - 1)])[:, room > 0]
    ends = ends[:, ends[0] != ends[1]]

    pair = ends.amin(0) * n + ends.amax(0)
    order = pair.argsort(stable=True)
    new = pair[order].diff(prepend=pair.new_tensor([-1])) != 0
    return ends[:, order[new].sort().values[:num_edges]]


def _words(
    group: Tensor,
    sets: Tensor,
    shares: tuple[float, float],
    num_features: int,
    generator: Generator,
) -> Tensor:
    """Draw a word for each column of `group`, from one of its two word sets or from all words."""
    chance = torch.rand(2, group.shape[1], generator=generator, dtype=torch.float64)
    kind = torch.bucketize(chance[0], chance.new_tensor(shares), right=True)
    index = (chance[1] * sets.shape[1]).long()
    special = sets[group.gather(0, kind.clamp(max=1)[None]).squeeze(0), index]
    return torch.where(kind < 2, special, (chance[1].square() * num_features).long())


def small_graphs(
    num_graphs: int = 240, *, num_features: int = 5, seed: int = 0
) -> tuple[list[Graph], Tensor]:
    """Generate small graphs of two classes: rings of 8 to 23 nodes with short or long chords.

    A chord starts at each node with a probability of one third. In class 0, the chord ends two
    steps along the ring from its start, and closes a triangle. In class 1, the chord ends three
    steps along the ring from its start, and closes a square. Each node has one of `num_features`
    kinds; its features are the one-hot encoding of this kind. Kind 0 is more frequent in class 0
    than in class 1. Chords and features do not always determine the class.

    Args:
        num_graphs: number of graphs; classes 0 and 1 alternate.
        num_features: number of kinds of nodes.
        seed: random seed.

    Returns:
        The graphs and their classes, int64 ``[num_graphs]``.

    Example:
        >>> graphs, y = small_graphs(4)
        >>> len(graphs), y
        (4, tensor([0, 1, 0, 1]))
    """
    rng = torch.Generator().manual_seed(seed)
    graphs = []
    for label in (y := torch.arange(num_graphs) % 2).tolist():
        n = int(torch.randint(8, 24, (1,), generator=rng))
        node = torch.arange(n)
        begins = node[torch.rand(n, generator=rng) < 1 / 3]
        ring = torch.stack([node, (node + 1) % n])
        chords = torch.stack([begins, (begins + 2 + label) % n])
        share = torch.ones(num_features)
        share[0] = 2 - label
        kind = torch.multinomial(share, n, replacement=True, generator=rng)
        edges = undirected(torch.cat([ring, chords], dim=1), n)
        graphs.append(Graph(torch.eye(num_features)[kind], edges))
    return graphs, y


def small_molecules(
    num_graphs: int = 120, *, seed: int = 0
) -> tuple[list[Graph], Tensor, list[str]]:
    """Generate synthetic molecules (a chain, a ring, or a ring with a chain) with float targets.

    Features have the same columns as in ``torch_geometric.utils.from_smiles``. Only four columns
    are set: atomic number, degree, ring membership and bond type. The target is the sum of 0.3 for
    every atom, -1 for every nitrogen, -1.5 for every oxygen and 1 for every double bond.

    Args:
        num_graphs: number of molecules.
        seed: random seed.

    Returns:
        Three values: the graphs with x ``[num_nodes, 9]`` and edge_attr ``[num_edges, 3]``; the
        targets, float32 ``[num_graphs]``; and one scaffold per molecule, a string with the atoms of
        the ring.

    Example:
        >>> graphs, y, scaffolds = small_molecules(3)
        >>> [graph.x.shape[1] for graph in graphs], y.shape, len(scaffolds)
        ([9, 9, 9], torch.Size([3]), 3)
    """
    rng = torch.Generator().manual_seed(seed)
    graphs, numbers, scaffolds = [], [], []
    for _ in range(num_graphs):
        size, nitrogens, length = (int(torch.randint(n, (1,), generator=rng)) for n in (7, 3, 6))
        size = size + 2 if size else 0  # a ring of 3 to 8 atoms, or none
        chain = torch.randint(6, 9, (length if size else length + 1,), generator=rng)
        ring = torch.tensor([7] * min(nitrogens, size) + [6] * (size - min(nitrogens, size)))
        atom = torch.cat([ring, chain])
        node = torch.arange(len(atom))
        ends = torch.stack([node[:-1], node[1:]])  # the chain is attached to the ring's last atom
        if size:
            ends = torch.cat([ends, torch.tensor([[size - 1], [0]])], dim=1)
        double = torch.rand(ends.shape[1], generator=rng) < 0.3
        edge_index = torch.cat([ends, ends.flip(0)], dim=1)
        x = torch.zeros(len(atom), 9)
        x[:, 0] = atom
        x[:, 2] = edge_index[1].bincount(minlength=len(atom))
        x[:size, 8] = 1
        edge_attr = torch.zeros(edge_index.shape[1], 3)
        edge_attr[:, 0] = 1 + double.repeat(2)
        graphs.append(Graph(x, edge_index, edge_attr=edge_attr))
        weight = 0.3 - (atom == 7).float() - 1.5 * (atom == 8).float()
        numbers.append(float(weight.sum() + double.sum()))
        scaffolds.append("".join("N" if kind == 7 else "C" for kind in ring.tolist()))
    return graphs, torch.tensor(numbers), scaffolds


def ratings(num_nodes: int = 200, num_edges: int = 4000, *, seed: int = 0) -> Graph:
    """Generate ratings between people: directed edges with times and with values from -10 to 10.

    Every person has a popularity, a strictness and a time of joining. The person who rates and the
    person who is rated are drawn from the people who have already joined. Each person rates any
    other person at most once. A rating is the rounded sum of three numbers: the popularity of the
    target, the strictness of the source, and noise. Ratings that round to 0 are left out.

    Args:
        num_nodes: number of people, at least 3.
        num_edges: number of drawn ratings; repeated ratings are left out.
        seed: random seed.

    Returns:
        The graph: x ``[num_nodes, 1]`` holds ones, ``edge_attr [E, 1]`` holds the ratings, and
        ``edge_time [E]`` holds sorted times from 0 to 1.

    Example:
        >>> graph = fgl.data.ratings()
        >>> graph.num_edges, bool((graph.edge_time.diff() >= 0).all())
        (3014, True)
    """
    rng = torch.Generator().manual_seed(seed)
    time = torch.rand(num_edges, generator=rng).sort().values
    joined = (3 + time * (num_nodes - 3)).long()  # number of people that have joined
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


def bibliography(num_papers: int = 400, *, seed: int = 0) -> Graph:
    """Generate a typed graph like DBLP's: papers, authors and conferences of four areas.

    Each author and each conference has one area. A paper has the area of its first author or, with
    probability 0.25, a random area. A paper may have a second and a third author, both from the
    paper's area. Five of 100 words are drawn for a paper: two words of its area, and three words of
    any area. A paper appears at a conference of its area or, with probability 0.1, at any
    conference.

    Args:
        num_papers: number of papers. There is one author for every two papers, and there are twelve
            conferences.
        seed: random seed.

    Returns:
        The graph, with types and relations as in ``load("dblp_four_area")``: papers (type 0, 100
        feature columns), authors (type 1, one column) and conferences (type 2, 12 columns). ``y``
        is the area of each author, and the training mask contains all authors.

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
