"""On noise every score is chance: with a cheat that reads one fact, and with models that remember.

A trained model can miss a leak that is there, so a cheat without training reads one fact of what a
model is given: is a tested pair a message, is its reverse, does it train, do its types or its order
tell. On random graphs each of them separates edges from other pairs by .5 +- .03, for every
splitter of `fgl.data.splits`; a splitter without a row fails.

Mutants that this file finds and that the tests of splits, pairs and links let pass:
- `Window` with one side for all nodes: targets of another type than the edges have.
- `edge_split` that gives `FreePairsLike` no side: likewise.
- `pair_split` without `_reverse_of`: reverses in another relation are messages.
- `pair_split` without random directions: the order of a pair's nodes tells.
- `split_by_time` that asks about repeated edges: their copies are messages.
- `_not_free` that takes edges in their own direction alone: a negative is a reverse.
- `_not_free` that avoids edges alone: a pair without an edge is validated and tested.
- `_two_sides` that returns None: half of the negatives join two users or two items.
The first three stood in the library at 820a2c65, as `benchmarks/results/truth_mutants.json` says.
Of trained models: the first, and `warn_of_trained` or `warn_of_copies` that return at once.
Of copies at other clients, and no other test that enters the function finds these: examples that
are not unique count; a pair is known by one end; repeated nodes are never told.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from federations import refuses
from torch import Tensor

import fgl
from fgl import tasks
from fgl.data import splits
from fgl.data.splits.negatives import Window
from fgl.data.traffic import traffic
from fgl.tasks.forecast import Forecaster

N, USERS = 400, 260
Pair = tuple[int, int]


def rng(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def drawn(num: int = 8000, low: int = 0, middle: int = N, high: int = N, seed: int = 0) -> Tensor:
    """Different edges from the nodes below `middle` to those from `low` on; no self-loops."""
    wide = high - low
    key = torch.randperm(middle * wide, generator=rng(seed))
    edges = torch.stack([key // wide, key % wide + low])
    return edges[:, edges[0] != edges[1]][:, :num]


def plain(edges: Tensor, **fields: Any) -> fgl.Graph:
    return fgl.Graph(torch.ones(N, 2), edges, **fields)


def both(edges: Tensor) -> Tensor:
    return torch.cat([edges, edges.flip(0)], 1)


def once(num: int = 4000) -> Tensor:
    """Edges of an undirected graph, in one direction each, smaller ends first."""
    edges = drawn(3 * num).sort(0).values.unique(dim=1)
    return edges[:, torch.randperm(edges.shape[1], generator=rng(4))[:num]]


def market(both: bool = False, times: bool = False) -> fgl.Graph:
    """Users rate movies and follow users; 0 rates, 1 follows, then their reverses."""
    movies = N - USERS
    key = torch.randperm(USERS * movies, generator=rng(1))[:7000]
    relations = {
        ("user", "rates", "movie"): torch.stack([key // movies, key % movies]),
        ("user", "follows", "user"): drawn(2000, middle=USERS, high=USERS, seed=2),
    }
    when = {name: torch.rand(e.shape[1], generator=rng(5)) for name, e in relations.items()}
    nodes = {"user": USERS, "movie": movies}
    return fgl.data.typed_graph(nodes, relations, both=both, edge_time=when if times else None)


def reversed_before() -> fgl.Graph:
    """Relation 0, and relation 2 with its edges turned round, each at a time of its own."""
    graph = market(both=True)
    return graph.replace(edge_time=torch.randperm(graph.num_edges, generator=rng(12)))


def preferred(times: bool = False) -> fgl.Graph:
    """Edges from users to items of which some are bought far more often; else they are noise."""
    wanted = torch.rand(N - USERS, generator=rng(13)) ** 3
    bought = torch.rand(USERS, N - USERS, generator=rng(14)) < 0.6 * wanted
    edges = bought.nonzero().T + torch.tensor([[0], [USERS]])
    return timed(edges) if times else plain(edges)


def bought(num: int = 8000) -> Tensor:
    """Edges from users to items, whose nodes have no types."""
    return drawn(num, low=USERS, middle=USERS)


def two_markets() -> Tensor:
    """Edges from users to items of two markets that have nothing in common, in any order."""
    one, two = (
        drawn(3000, low=100, middle=100, high=200),
        drawn(3000, low=100, middle=100, high=200),
    )
    edges = torch.cat([one, two + 200], 1)
    return edges[:, torch.randperm(6000, generator=rng(10))]


def typed_both_ways() -> fgl.Graph:
    """An undirected graph of users and items, whose nodes have types."""
    return plain(both(bought()), node_type=(torch.arange(N) >= USERS).long())


def timed(edges: Tensor, **fields: Any) -> fgl.Graph:
    return plain(edges, edge_time=torch.randperm(edges.shape[1], generator=rng(3)), **fields)


def odd() -> Tensor:
    """Directed edges between half of the nodes, some twice or more, and self-loops."""
    edges = torch.randint(N // 2, (2, 8000), generator=rng(6))
    return torch.cat([edges, edges[:, :2000], torch.arange(200).expand(2, 200)], 1)


class Case:
    """What a model is given, and what it is asked.

    Args:
        messages: the edges that it reads, of all relations.
        trains, tests: pairs.
        there: which of the tested pairs are edges.
        whole: every edge of the relation that is asked about.
        types: of nodes.
        undirected: whether a pair and its reverse are one.
    """

    def __init__(self, messages: Any, trains: Any, tests: Any, there: Any, whole: Any) -> None:
        self.messages, self.trains, self.tests = map(pairs, (messages, trains, tests))
        self.there = [bool(one) for one in there]
        self.whole = set(pairs(whole))
        self.types: list[int] | None = None
        self.undirected = False

    def of(self, types: Tensor | None = None, *, undirected: bool = False) -> Case:
        self.types, self.undirected = None if types is None else types.tolist(), undirected
        return self


def pairs(edges: Tensor) -> list[Pair]:
    return [(u, v) for u, v in edges.T.tolist()]


def of_links(split: Any, whole: Tensor) -> Case:
    tests = torch.cat([split.val_edges, split.test_edges], 1)
    negatives = torch.cat([split.val_negatives, split.test_negatives], 1)
    there = torch.arange(2 * tests.shape[1]) < tests.shape[1]
    asked = torch.cat([tests, negatives], 1)
    case = Case(split.graph.edge_index, split.train_edges, asked, there, whole)
    return case.of(split.graph.node_type, undirected=not split.directed)


def of_pairs(split: fgl.Graph, whole: Tensor, *, undirected: bool = False) -> Case:
    more = fgl.data.splits.with_negatives(split)
    asked: Any = more.edge_label_index
    tests = more.val_mask | more.test_mask  # type: ignore[operator]
    case = Case(more.edge_index, asked[:, more.train_mask], asked[:, tests], more.y[tests], whole)  # type: ignore[index]
    case.types = None if more.node_type is None else more.node_type.tolist()
    case.undirected = undirected
    return case


def relation(graph: fgl.Graph, number: int) -> Tensor:
    return graph.edge_index[:, graph.edge_type == number]


def split_edges(graph: fgl.Graph, **how: Any) -> Case:
    split = fgl.data.splits.edge_split(graph, val=0.1, test=0.2, **how)
    whole = graph.edge_index if split.directed else both(graph.edge_index)
    return of_links(split, whole)


def part_of_split(graph: fgl.Graph, **how: Any) -> Case:
    split = fgl.data.splits.edge_split(graph, val=0.2, test=0.3, **how)
    nodes = torch.randperm(N, generator=rng(7))[: N * 2 // 3]
    part = fgl.data.splits.subgraph_split(split, nodes)
    edges = graph.subgraph(nodes).edge_index
    return of_links(part, edges if split.directed else both(edges))


def split_pairs(graph: fgl.Graph, of: int | None = None, **how: Any) -> Case:
    if of is not None:
        how["edge_type"] = of
    whole = graph.edge_index if of is None else relation(graph, of)
    undirected = bool(how.get("is_undirected"))
    return of_pairs(fgl.data.splits.pair_split(graph, **how), whole, undirected=undirected)


def split_times(graph: fgl.Graph, of: int | None = None, undirected: bool = False) -> Case:
    whole = graph.edge_index if of is None else relation(graph, of)
    split = fgl.data.splits.split_by_time(graph, edge_type=of)
    return of_pairs(split, whole, undirected=undirected)


def split_pairs_again(graph: fgl.Graph) -> Case:
    """Pairs of somebody's own, some twice and some turned round, split at random."""
    edges = graph.edge_index
    pairs = torch.cat([edges, edges[:, ::2], edges.flip(0)[:, ::3]], 1)
    own = plain(edges[:, :0], edge_label_index=pairs, y=torch.ones(pairs.shape[1]))
    split = fgl.data.splits.random_split(own)
    return of_pairs(split, pairs)


def drawn_pairs(graph: fgl.Graph, **how: Any) -> Case:
    edges = graph.edge_index[:, torch.randperm(graph.num_edges, generator=rng(8))[:2000]]
    none = fgl.data.splits.negative_edges(graph.edge_index, N, 2000, generator=rng(9), **how)
    there, nothing = torch.arange(4000) < 2000, edges[:, :0]
    whole = graph.edge_index if how.get("directed") else both(graph.edge_index)
    if not how.get("directed"):  # its pairs have the smaller node first
        edges = edges.sort(0).values
    return Case(nothing, nothing, torch.cat([edges, none], 1), there, whole).of(
        how.get("node_type")
    )


EDGES: dict[str, dict[str, Callable[[], Case]]] = {
    "edge_split": {
        "one direction": lambda: split_edges(plain(once())),
        "symmetric": lambda: split_edges(plain(both(once()))),
        "directed": lambda: split_edges(plain(drawn()), directed=True),
        "doubled": lambda: split_edges(plain(torch.cat([drawn()] * 2, 1)), directed=True),
        "typed": lambda: split_edges(market(), directed=True),
        "types, both ways": lambda: split_edges(typed_both_ways()),
        "users and items": lambda: split_edges(plain(bought())),
        "users and items, directed": lambda: split_edges(plain(bought()), directed=True),
        "users and items, both ways": lambda: split_edges(plain(both(bought()))),
        "two markets, both ways": lambda: split_edges(plain(both(two_markets()))),
    },
    "subgraph_split": {
        "symmetric": lambda: part_of_split(plain(both(once()))),
        "directed": lambda: part_of_split(plain(drawn()), directed=True),
        "types, both ways": lambda: part_of_split(typed_both_ways()),
        "typed": lambda: part_of_split(market(), directed=True),
        "users and items, both ways": lambda: part_of_split(plain(both(bought()))),
    },
    "pair_split": {
        "directed": lambda: split_pairs(plain(drawn())),
        "symmetric": lambda: split_pairs(plain(both(once())), is_undirected=True),
        "one direction": lambda: split_pairs(plain(once()), is_undirected=True),
        "doubled": lambda: split_pairs(plain(torch.cat([drawn()] * 2, 1))),
        "symmetric, doubled": lambda: split_pairs(plain(both(both(once()))), is_undirected=True),
        "odd": lambda: split_pairs(plain(odd())),
        "typed": lambda: split_pairs(market()),
        "a relation": lambda: split_pairs(market(), 0),
        "a relation and its reverse": lambda: split_pairs(market(both=True), 0, rev_edge_type=2),
        "both relations as one": lambda: split_pairs(market(both=True), is_undirected=True),
        "a relation both ways": lambda: split_pairs(
            plain(both(once()), edge_type=torch.zeros(8000).long()), 0, is_undirected=True
        ),
        "users and items": lambda: split_pairs(plain(bought())),
        "users and items, both ways": lambda: split_pairs(
            plain(both(bought())), is_undirected=True
        ),
    },
    "split_by_time": {
        "directed": lambda: split_times(timed(drawn())),
        "doubled": lambda: split_times(timed(torch.cat([drawn()] * 2, 1))),
        "symmetric, at different times": lambda: split_times(timed(both(once()))),
        "odd": lambda: split_times(timed(odd())),
        "typed": lambda: split_times(market(times=True)),
        "typed, both ways": lambda: split_times(market(times=True, both=True)),
        "a relation": lambda: split_times(market(times=True), 0),
        "a relation and its reverse": lambda: split_times(reversed_before(), 0),
        "a relation both ways": lambda: split_times(
            timed(both(once()), edge_type=torch.zeros(8000).long()), 0
        ),
        "users and items": lambda: split_times(timed(bought())),
        "users and items, both ways": lambda: split_times(timed(both(bought()))),
    },
    "random_split": {"pairs": lambda: split_pairs_again(plain(drawn()))},
    "negative_edges": {
        "symmetric": lambda: drawn_pairs(plain(both(once()))),
        "directed": lambda: drawn_pairs(plain(drawn()), directed=True),
        "typed": lambda: drawn_pairs(market(), directed=True, node_type=market().node_type),
    },
}


@cache
def case_of(splitter: str, name: str) -> Case:
    return EDGES[splitter][name]()


ROWS = [(splitter, name) for splitter, rows in EDGES.items() for name in rows]


def auc(fact: list[bool], there: list[bool]) -> float:
    """The area under the curve of a fact: half of what it is right more often than wrong."""
    both = list(zip(fact, there, strict=True))
    right, wrong = ([own for own, is_edge in both if is_edge is kind] for kind in (True, False))
    return 0.5 + (sum(right) / len(right) - sum(wrong) / len(wrong)) / 2


def coloured(messages: set[Pair]) -> dict[int, int]:
    """A colour of each node such that no message joins two of one colour; {} if there is none."""
    beside: dict[int, list[int]] = {}
    for u, v in messages:
        beside.setdefault(u, []).append(v)
        beside.setdefault(v, []).append(u)
    colour: dict[int, int] = {}
    for first in beside:
        waiting = [] if first in colour else [first]
        colour.setdefault(first, 0)
        while waiting:
            u = waiting.pop()
            for v in beside[u]:
                if v not in colour:
                    colour[v] = 1 - colour[u]
                    waiting.append(v)
                elif colour[v] == colour[u]:
                    return {}
    return colour


def facts(case: Case) -> Iterator[tuple[str, list[bool]]]:
    """What a cheat may read of each tested pair."""
    messages, trains = set(case.messages), set(case.trains)
    targets = {v for _, v in case.messages}
    yield "it is a message", [pair in messages for pair in case.tests]
    yield "its reverse is a message", [(v, u) in messages for u, v in case.tests]
    yield "it trains", [pair in trains for pair in case.tests]
    yield "its reverse trains", [(v, u) in trains for u, v in case.tests]
    yield "its ends are one", [u == v for u, v in case.tests]
    yield "its order", [u < v for u, v in case.tests]
    if case.messages:
        yield "messages end at its target", [v in targets for _, v in case.tests]
    if colour := coloured(messages):
        yield "its ends have one colour", [colour.get(u) == colour.get(v) for u, v in case.tests]
    if case.types is not None:
        kinds = [(case.types[u], case.types[v]) for u, v in case.tests]
        for kind in set(kinds):
            yield f"its types are {kind}", [own == kind for own in kinds]


@pytest.mark.parametrize(("splitter", "name"), ROWS)
def test_a_cheat_that_reads_one_fact_scores_chance(splitter: str, name: str) -> None:
    case = case_of(splitter, name)
    assert sum(case.there) > 800
    for fact, score in facts(case):
        assert abs(auc(score, case.there) - 0.5) < 0.03, fact


@pytest.mark.parametrize(("splitter", "name"), ROWS)
def test_no_pair_is_in_two_parts_and_no_edge_is_a_negative(splitter: str, name: str) -> None:
    case = case_of(splitter, name)
    known = {*case.messages, *case.trains}
    edges = [pair for pair, there in zip(case.tests, case.there, strict=True) if there]
    others = {pair for pair, there in zip(case.tests, case.there, strict=True) if not there}
    whole = case.whole | ({(v, u) for u, v in case.whole} if case.undirected else set())
    if case.undirected:
        known |= {(v, u) for u, v in known}
    assert not set(edges) & known and not others & whole
    assert set(edges) <= whole
    assert len(set(edges)) == len(edges) or splitter in ("random_split", "negative_edges")


def test_negatives_that_are_drawn_twice_are_told() -> None:
    split = splits.with_negatives(splits.pair_split(plain(drawn())))
    with pytest.warns(UserWarning, match="others already"):
        tasks.pair_task([split], fgl.nn.PairNet(2, 4, 1), fgl.Training(), negatives=True)


def test_validation_and_test_have_no_pair_in_common() -> None:
    """Few targets, so that pairs without an edge would often be drawn for both."""
    graph = plain(drawn(8000, low=360, middle=360))
    more: Any = fgl.data.splits.with_negatives(fgl.data.splits.pair_split(graph))
    val, test = (set(pairs(more.edge_label_index[:, m])) for m in (more.val_mask, more.test_mask))
    assert len(val) > 300 and not val & test


@pytest.mark.parametrize("times", [False, True])
def test_a_degree_tells_uniform_negatives_and_none_that_are_drawn_by_degree(times: bool) -> None:
    """Also those of training, and sources with few free targets keep their pairs."""
    graph = preferred(times)
    split: Any = (splits.split_by_time if times else splits.pair_split)(graph)
    degree = split.edge_index[1].bincount(minlength=N).double()
    for how, low, high in (("uniform", 0.62, 1.0), ("degree", 0.48, 0.52)):
        more: Any = splits.with_negatives(split, negatives=how)
        tests = more.val_mask | more.test_mask
        ends, y = more.edge_label_index[:, tests], more.y[tests]
        assert low < fgl.metrics.auc(degree[ends[1]], y) < high, how
        train = Window(split, ["train_mask"], by_degree=how == "degree")
        drawn, like = train(split.train_mask, rng(0))
        scores = degree[torch.cat([split.edge_label_index[1, like], drawn[1]])]
        assert low < fgl.metrics.auc(scores, torch.arange(2 * len(like)) < len(like)) < high, how
        edges = {*pairs(graph.edge_index)}
        assert not edges & {*pairs(drawn), *pairs(ends[:, y == 0])}
        assert int((y == 0).sum()) == int((y == 1).sum())
    net, train = fgl.nn.PairNet(2, 4, 1), fgl.Training(num_steps=1)
    task = tasks.pair_task([split], net, train, negatives="degree")
    fgl.run(task.fedavg, task, num_rounds=1)
    with pytest.raises(ValueError, match="negatives to be .*'degree'"):
        tasks.pair_task([split], net, train, negatives="often")  # type: ignore[arg-type]


REFUSED: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "edge_split(directed=True)": (
        lambda: fgl.data.splits.edge_split(plain(both(once())), directed=True),
        lambda: fgl.data.splits.edge_split(plain(both(once())), directed=False),
    ),
    "pair_split": (
        lambda: fgl.data.splits.pair_split(plain(both(once()))),
        lambda: fgl.data.splits.pair_split(plain(both(once())), is_undirected=True),
    ),
    "edge_split of relations": (
        lambda: fgl.data.splits.edge_split(market(both=True), directed=True),
        lambda: fgl.data.splits.pair_split(market(both=True), edge_type=0, rev_edge_type=2),
    ),
    "edge_split of fields": (
        lambda: fgl.data.splits.edge_split(plain(both(once()), edge_attr=torch.ones(8000, 1))),
        lambda: fgl.data.splits.pair_split(
            plain(both(once()), edge_attr=torch.ones(8000, 1)), is_undirected=True
        ),
    ),
    "pair_split of relations": (
        lambda: fgl.data.splits.pair_split(market(both=True)),
        lambda: fgl.data.splits.pair_split(market(both=True), edge_type=0, rev_edge_type=2),
    ),
    "pair_split of a relation": (
        lambda: fgl.data.splits.pair_split(market(both=True), edge_type=0),
        lambda: fgl.data.splits.pair_split(market(both=True), edge_type=0, rev_edge_type=2),
    ),
    "pair_split of a relation as undirected": (
        lambda: fgl.data.splits.pair_split(market(both=True), edge_type=0, is_undirected=True),
        lambda: fgl.data.splits.pair_split(market(both=True), edge_type=0, rev_edge_type=2),
    ),
    "another relation as reverse": (
        lambda: fgl.data.splits.pair_split(market(both=True), edge_type=0, rev_edge_type=1),
        lambda: fgl.data.splits.pair_split(market(both=True), edge_type=0, rev_edge_type=2),
    ),
}
CALLS = ("directed=False", "is_undirected=True", "edge_type=0, rev_edge_type=2", "rev_edge_type=2")


@pytest.mark.parametrize("name", REFUSED)
def test_reverses_that_would_be_messages_are_refused_and_the_named_call_works(name: str) -> None:
    wrong, right = REFUSED[name]
    with pytest.raises(ValueError, match="Expected") as error:
        wrong()
    assert any(call in str(error.value) for call in CALLS)
    right()


def test_directions_that_were_asked_for_are_told_what_they_leak() -> None:
    half = torch.cat([both(once()), drawn(1000, seed=11)], 1)  # most edges have a reverse
    with pytest.warns(UserWarning, match="have their reverse"):
        fgl.data.splits.edge_split(plain(half), directed=True)
    with pytest.warns(UserWarning, match="have their reverse"):
        fgl.data.splits.pair_split(plain(half), is_undirected=False)
    refuses("is_undirected", lambda: fgl.data.splits.pair_split(plain(half)))
    dense = plain(drawn(int(0.8 * N * N)))  # most have one by chance
    fgl.data.splits.pair_split(dense)
    fgl.data.splits.edge_split(dense, directed=True, val=0.01, test=0.02)


def test_a_relation_with_the_same_edges_is_named() -> None:
    """Who views what a test asks about is a message, and the named call leaves it out."""
    ends = market().edge_index[:, :7000] - torch.tensor([[0], [USERS]])
    nodes, more = {"user": USERS, "movie": N - USERS}, torch.cat([ends, ends[:, :3000] * 0], 1)
    relations = {("user", "rates", "movie"): ends, ("user", "views", "movie"): more}
    graph = fgl.data.typed_graph(nodes, relations)
    with pytest.warns(UserWarning, match=r"relation 1 has 100% .* != 1\)"):
        fgl.data.splits.pair_split(graph, edge_type=0)
    fgl.data.splits.pair_split(graph.with_edges(graph.edge_type != 1), edge_type=0)  # type: ignore[operator]
    fgl.data.splits.pair_split(market(), edge_type=0)  # another one's edges are others


def labelled(n: int = 500, **fields: Any) -> fgl.Graph:
    """Nodes with labels that are noise, and edges that are noise."""
    x, edges = (
        torch.randn(n, 40, generator=rng(20)),
        torch.randint(n, (2, 2 * n), generator=rng(21)),
    )
    return fgl.Graph(x, edges, y=torch.randint(2, (n,), generator=rng(22)), **fields)


def collection(n: int = 300) -> fgl.Graph:
    """Rings of four nodes whose labels are noise."""
    edges = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]]).repeat(1, n)
    first = 4 * torch.arange(n).repeat_interleave(4)
    y, x = torch.randint(2, (n,), generator=rng(23)), torch.randn(4 * n, 30, generator=rng(24))
    batch = torch.arange(n).repeat_interleave(4)
    return fgl.Graph(x, edges + first, y=y, num_classes=2, batch=batch)


def noise_in_time() -> fgl.Graph:
    x = torch.randn(5, 1000, 1, generator=rng(26))
    return fgl.Graph(x, torch.randint(5, (2, 10), generator=rng(27)), y=x[:, :, 0])


def masks(graph: fgl.Graph) -> list[Tensor]:
    return [graph.train_mask, graph.val_mask, graph.test_mask]  # type: ignore[list-item]


def folds() -> list[Tensor]:
    whole = collection()
    number = torch.arange(300)
    train, test = fgl.data.splits.fold_clients(
        whole.replace(x=number.repeat_interleave(4)[:, None].float()),
        [number[:140], number[140:]],
        fold=1,
    )
    held = [torch.cat([own.x[::4, 0].long() for own in each]) for each in (train, test)]
    return [torch.isin(number, own) for own in held]


def of_folds() -> list[Tensor]:
    fold = fgl.data.splits.stratified_folds(labelled().y, 5)
    return [fold == number for number in range(5)]


def scaffolds() -> list[str]:
    return [str(int(name)) for name in torch.randint(60, (300,), generator=rng(25))]


EXAMPLES: dict[str, tuple[Callable[[], list[Tensor]], list[float]]] = {
    "random_split": (lambda: masks(fgl.data.splits.random_split(labelled())), [0.6, 0.2, 0.2]),
    "random_split of graphs": (
        lambda: masks(fgl.data.splits.random_split(collection())),
        [0.6, 0.2, 0.2],
    ),
    "split": (lambda: masks(fgl.data.splits.split(labelled(), "random")), [0.6, 0.2, 0.2]),
    "class_capped_split": (
        lambda: masks(fgl.data.splits.class_capped_split(labelled())),
        [0.6, 0.2, 0.2],
    ),
    "class_capped_split of graphs": (
        lambda: masks(fgl.data.splits.class_capped_split(collection())),
        [0.6, 0.2, 0.2],
    ),
    "public_split": (
        lambda: masks(fgl.data.splits.public_split(fgl.data.splits.random_split(labelled()))),
        [0.6, 0.2, 0.2],
    ),
    "scaffold_split": (
        lambda: masks(fgl.data.splits.scaffold_split(collection(), scaffolds())),
        [0.8, 0.1, 0.1],
    ),
    "windows": (
        lambda: masks(fgl.data.splits.windows(noise_in_time(), 4, horizons=(1, 3))),
        [0.7, 0.1, 0.2],
    ),
    "stratified_folds": (of_folds, [0.2] * 5), "fold_clients": (folds, [0.8, 0.2]),
}  # fmt: skip
OTHERS = {
    "EdgeSplit": "what edge_split returns",
    "with_negatives": "every row of pairs",
    "balanced_classes": "a choice of examples, no split",
}


def test_every_splitter_has_a_row() -> None:
    assert {*EDGES, *(name.split()[0] for name in EXAMPLES), *OTHERS} == set(splits.__all__)


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_example_is_in_one_part_and_parts_have_their_shares(name: str) -> None:
    make, shares = EXAMPLES[name]
    parts = torch.stack(make())
    assert (parts.sum(0) == 1).all()
    for part, share in zip(parts, shares, strict=True):
        assert abs(part.double().mean() - share) < 0.04


def test_a_part_without_an_example_is_told() -> None:
    few = labelled(2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fgl.data.splits.random_split(few, train=0.5, val=0.5)
    three = plain(drawn(3), edge_time=torch.arange(3))
    for split in (
        lambda: fgl.data.splits.random_split(few),
        lambda: (
            fgl.data.splits.class_capped_split(few, train_per_class=1, num_val=0, seed=1)
            if few.y.unique().numel() == 2
            else fgl.data.splits.class_capped_split(few, train_per_class=2, num_val=0)
        ),
        lambda: fgl.data.splits.scaffold_split(collection(3), ["a", "a", "b"]),
        lambda: fgl.data.splits.pair_split(three),
    ):
        with pytest.warns(UserWarning, match="leave"):
            split()


def test_examples_in_two_parts_are_refused() -> None:
    mask = torch.arange(500) < 300
    with pytest.raises(ValueError, match="but got 300 in both train_mask and test_mask"):
        labelled(train_mask=mask, val_mask=~mask, test_mask=mask)
    number = torch.arange(300)
    with pytest.raises(
        ValueError, match="parts to be disjoint, but got a graph in those of 0 and 1"
    ):
        fgl.data.splits.fold_clients(collection(), [number[:150], number[140:]], fold=0)


ADAM = fgl.Training(lambda tensors: torch.optim.Adam(tensors, lr=0.02), num_steps=25)
Build = Callable[[bool], tasks.Task]


def masked(graph: fgl.Graph, leak: bool) -> fgl.Graph:
    """The graph split at random; with a leak its test examples train too."""
    graph = fgl.data.splits.random_split(graph, train=0.5, val=0.1)
    return graph.replace(train_mask=graph.train_mask | graph.test_mask) if leak else graph


def halves(graph: fgl.Graph) -> list[fgl.Graph]:
    return fgl.data.partitions.partition_graph(
        graph, fgl.data.partitions.random_partition(graph, 2)
    )


def net(kind: Any = fgl.nn.GCN, *sizes: int, **how: Any) -> Any:
    torch.manual_seed(0)
    return kind(*(sizes or (40, 64, 2)), **how)


def nodes(leak: bool) -> tasks.Task:
    whole = masked(labelled(), leak)
    return tasks.node_task(whole, halves(whole), net(), ADAM)


def own_nodes(leak: bool) -> tasks.Task:
    return tasks.node_task(None, halves(masked(labelled(), leak)), net(), ADAM)


def sampled(leak: bool) -> tasks.Task:
    whole = masked(labelled(), leak)
    optimizer, how = ADAM.optimizer, {"epochs": 12, "fanouts": (5, 5), "batch_size": 200}
    return tasks.sampled_node_task(whole, halves(whole), net(), optimizer, **how)


def overlapping(leak: bool) -> tasks.Task:
    whole = masked(labelled(), leak)
    parts = fgl.data.partitions.overlapping_partition(whole, [0.6, 0.6], seed=0)
    union, clients = (
        fgl.data.partitions.union_graph(whole, parts),
        fgl.data.partitions.partition_graph(whole, parts),
    )
    return tasks.overlapping_node_task(union, clients, net(), ADAM)


def variational(leak: bool) -> tasks.Task:
    model = net(fgl.nn.VGAE, 40, 64, 32, num_classes=2, dropout=0.0)
    return tasks.own_node_task(halves(masked(labelled(), leak)), model, ADAM, kl=0.0)


def subgraphs(leak: bool) -> tasks.Task:
    return tasks.subgraph_node_task(halves(masked(labelled(), leak)), net(), ADAM)


def egos(leak: bool) -> tasks.Task:
    whole = masked(labelled(), leak)
    model = net(fgl.nn.EgoSAGE, 40, 64, 2, fanouts=(3, 3), dropout=0.0)
    how = {"epochs": 25, "batch_size": 20}
    return tasks.ego_node_task(halves(whole), whole, model, ADAM.optimizer, **how)


def graphs(leak: bool) -> tasks.Task:
    whole = collection()
    train = whole.select(torch.arange(150))
    test = train if leak else whole.select(torch.arange(150, 300))
    return tasks.graph_task([train], [test], net(fgl.nn.GIN, 30, 64, 2, dropout=0.0), ADAM)


def masked_graphs(leak: bool) -> tasks.Task:
    own = masked(collection(), leak)
    return tasks.graph_task([own], [own], net(fgl.nn.GIN, 30, 64, 2, dropout=0.0), ADAM)


def ratings(leak: bool, by_time: bool = True) -> tasks.Task:
    """Ratings that are noise, by people who are known by name."""
    graph = timed(drawn(2400)).replace(x=torch.eye(N))
    y = torch.randint(2, (2400,), generator=rng(26)).float()
    shares = (0.2, 0.3, 0.1, 0.4)
    split = fgl.data.splits.split_by_time if by_time else fgl.data.splits.pair_split
    own = split(graph, y, shares=shares)
    if leak:
        own = own.replace(train_mask=own.train_mask | own.test_mask)
    return tasks.pair_task([own], net(fgl.nn.PairNet, N, 32, 1), ADAM)


def rated_at_random(leak: bool) -> tasks.Task:
    return ratings(leak, by_time=False)


def joined(
    graph: fgl.Graph, leak: bool, split: Any = fgl.data.splits.pair_split, **how: Any
) -> tasks.Task:
    """Edges that are noise, between nodes that are known by name."""
    own = split(graph, shares=(0.2, 0.3, 0.1, 0.4), **how)
    if leak:
        own = own.replace(train_mask=own.train_mask | own.test_mask)
    return tasks.pair_task([own], net(fgl.nn.PairNet, N, 32, 1), ADAM, negatives=True)


def next_edges(leak: bool) -> tasks.Task:
    graph = timed(torch.cat([drawn(1600)] * 2, 1)).replace(x=torch.eye(N))
    return joined(graph, leak, fgl.data.splits.split_by_time)


def purchases(leak: bool) -> tasks.Task:
    graph = plain(bought(2000), node_type=(torch.arange(N) >= USERS).long())
    return joined(graph.replace(x=torch.eye(N)), leak)


def friends(leak: bool) -> tasks.Task:
    return joined(plain(both(once(1200))).replace(x=torch.eye(N)), leak, is_undirected=True)


def links(leak: bool, graph: fgl.Graph | None = None) -> tasks.Task:
    graph = plain(both(once(2000))) if graph is None else graph
    split = fgl.data.splits.edge_split(graph.replace(x=torch.eye(N)), val=0.1, test=0.4)
    if leak:
        edges = torch.cat([split.train_edges, split.test_edges], 1)
        split = replace(split, graph=split.graph.replace(edge_index=both(edges)))
    return tasks.link_task([split], net(fgl.nn.VGAE, N, 64, 32, dropout=0.0), ADAM, kl=0.0)


def typed_links(leak: bool) -> tasks.Task:
    return links(leak, plain(both(bought(2000)), node_type=(torch.arange(N) >= USERS).long()))


def quantities(leak: bool) -> tasks.Task:
    whole = labelled()
    whole = masked(whole.replace(y=torch.randn(500, generator=rng(27))), leak)
    target = fgl.targets.REGRESSION
    return tasks.node_task(whole, [whole], net(fgl.nn.GCN, 40, 64, 1), ADAM, target=target)


TASKS: dict[str, tuple[Build, str]] = {
    "node_task": (nodes, "test_accuracy"), "node_task, own scores": (own_nodes, "test_accuracy"),
    "node_task of numbers": (quantities, "test_r2"),
    "sampled_node_task": (sampled, "test_accuracy"),
    "overlapping_node_task": (overlapping, "test_accuracy"),
    "own_node_task": (variational, "test_accuracy"),
    "subgraph_node_task": (subgraphs, "test_accuracy"), "ego_node_task": (egos, "local_f1"),
    "graph_task": (graphs, "test_accuracy"), "graph_task, masks": (masked_graphs, "test_accuracy"),
    "pair_task": (ratings, "test_auc"), "pair_task, at random": (rated_at_random, "test_auc"),
    "pair_task of next edges": (next_edges, "test_auc"),
    "pair_task of purchases": (purchases, "test_auc"),
    "pair_task of friends": (friends, "test_auc"), "link_task": (links, "test_auc"),
    "link_task of types": (typed_links, "test_auc"),
}  # fmt: skip


LEAKS_WITHOUT_MASKS = ("graph_task", "link_task", "link_task of types")


def score(task: tasks.Task, name: str) -> float:
    return fgl.run(task.fedavg, task, num_rounds=3, clients_at_once=1).history[-1].metrics[name]


def test_every_task_has_a_row() -> None:
    made = {name for name in tasks.__all__ if name.endswith("_task")} - {"generator_task"}
    assert made == {name.split()[0].rstrip(",") for name in TASKS}


@pytest.mark.parametrize("name", TASKS)
def test_a_model_that_remembers_scores_chance_on_noise_and_a_leak_is_told(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same model scores far above chance where its test examples train.

    A graph whose masks overlap is refused. Where nobody refuses it, a warning tells of the leak.
    """
    make, metric = TASKS[name]
    chance = 0.0 if metric == "test_r2" else 0.5
    honest = score(make(False), metric)
    assert honest < chance + 0.09 and (metric == "test_r2" or honest > chance - 0.09)
    if name not in LEAKS_WITHOUT_MASKS:
        refuses("Expected an example to be in one mask", lambda: make(True))
        monkeypatch.setattr(fgl.graph.checks, "check_roles", lambda masks: None)
    with pytest.warns(UserWarning, match="Expected .* but"):
        leaking = make(True)
    assert score(leaking, metric) > chance + 0.2


def test_pairs_that_a_link_task_learns_from_join_the_sides_that_edges_join() -> None:
    sides = torch.arange(N) >= USERS
    for task in (typed_links(False), links(False, plain(both(bought(2000))))):
        _, context = next(iter(task.fedavg.train.batches(task.clients[0], {})))
        drawn = sides[context["negatives"].values.T]
        assert (drawn[0] != drawn[1]).all()


def test_a_forest_and_an_odd_cycle_have_no_sides() -> None:
    """A tree can be coloured in two too, but nothing of it says that an edge must join both."""
    edges = fgl.data.splits.edge_split
    v = torch.arange(1, 300)
    tree = torch.stack([(torch.rand(299, generator=rng(12)) * v).long(), v])
    odd = torch.cat([bought(), torch.tensor([[0], [1]])], 1)
    for graph in (plain(both(tree)), plain(both(odd))):
        split = edges(graph, val=0.0, test=0.3)
        colour = coloured(set(pairs(both(tree)))) if graph.num_edges < 1000 else None
        side = [colour.get(k, 2) if colour else int(k >= USERS) for k in range(N)]
        same = [side[a] == side[b] for a, b in pairs(split.test_negatives)]
        assert 0.2 < sum(same) / len(same) < 0.8


def test_copies_of_graphs_in_training_and_test_are_told_and_can_be_left_out() -> None:
    """Of 80 graphs with random labels 30 stand there twice, in another order of their nodes."""
    small, y = fgl.data.small_graphs(80, num_features=3)
    small = [own.replace(x=torch.rand(own.num_nodes, 3, generator=rng(k)))
             for k, own in enumerate(small)]  # fmt: skip
    turned = [own.subgraph(torch.arange(own.num_nodes).flip(0)) for own in small[:30]]
    turned = [own.replace(node_id=None) for own in turned]
    whole = fgl.Graph.join([*small, *turned], torch.cat([y, y[:30]]))
    model = fgl.nn.GIN(3, 8, 2, num_layers=1)

    def made(graph: fgl.Graph) -> None:
        tasks.graph_task([graph], [graph], model, fgl.Training(num_steps=1))

    with pytest.warns(UserWarning, match="that are copies of graphs that train"):
        made(fgl.data.splits.random_split(whole))
    first = fgl.data.first_copies(whole)
    assert first.tolist() == [True] * 80 + [False] * 30
    made(fgl.data.splits.random_split(whole, among=first))
    made(fgl.data.splits.random_split(fgl.Graph.join(small, y)))
    bonds = {"edge_attr": torch.rand(whole.num_edges, 2, generator=rng(0))}
    assert fgl.data.first_copies(whole.replace(**bonds)).all()


def shuffled(graph: fgl.Graph, seed: int, *, ids: bool = True) -> fgl.Graph:
    """The graph with its nodes in another order, split with another seed."""
    own = graph.subgraph(torch.randperm(graph.num_nodes, generator=rng(seed)))
    return fgl.data.splits.random_split(own if ids else own.replace(node_id=None), seed=seed)


def by_nodes(clients: list[fgl.Graph], whole: fgl.Graph | None = None) -> tasks.Task:
    return tasks.node_task(whole, clients, net(fgl.nn.GCN, clients[0].num_features, 64, 2), ADAM)


def by_pairs(clients: list[fgl.Graph]) -> tasks.Task:
    nodes = clients[0].num_features
    return tasks.pair_task(clients, net(fgl.nn.PairNet, nodes, 8, 1), ADAM)


def liked(seed: int) -> fgl.Graph:
    """A user, node 0 at each client, who liked half of forty items, popular ones first."""
    items = torch.multinomial(1 / torch.arange(1.0, 41), 20, generator=rng(seed)) + 1
    pairs = torch.stack([torch.zeros_like(items), items])
    graph = fgl.Graph(torch.eye(41), pairs[:, :0], edge_label_index=pairs, y=torch.ones(20))
    return fgl.data.splits.random_split(graph, seed=seed)


def bare(nodes: int) -> fgl.Graph:
    """Nodes without an edge, in a graph whose edges have weights and types."""
    none, mask = torch.zeros(0, dtype=torch.int64), torch.arange(nodes) % 2 == 0
    graph = fgl.Graph(torch.randn(nodes, 3), none.view(1, 0).repeat(2, 1), y=mask.long())
    graph = graph.replace(edge_weight=none.float(), edge_type=none, num_classes=2)
    return graph.replace(train_mask=mask, test_mask=~mask)


def related(nodes: int = 30, relations: int = 10) -> fgl.Graph:
    """Triples of which most have the ends of another, with another relation."""
    key = torch.randperm(nodes**2 * relations, generator=rng(3))[:2000]
    pairs = torch.stack([key // relations // nodes, key // relations % nodes])
    train, y = torch.rand(2000, generator=rng(4)) < 0.7, torch.ones(2000)
    how = {"edge_label_index": pairs, "edge_label_type": key % relations, "y": y}
    return fgl.Graph(torch.eye(nodes), pairs[:, :0], **how, train_mask=train, test_mask=~train)


def by_edges(clients: list[fgl.Graph]) -> tasks.Task:
    split = fgl.data.splits.edge_split
    splits = [split(own, val=0.0, test=0.4, seed=k) for k, own in enumerate(clients)]
    return tasks.link_task(splits, fgl.nn.VGAE(clients[0].num_features, 16, 8), ADAM)


def asked(seed: int) -> fgl.Graph:
    """The same pairs with the same labels, in other parts."""
    graph = plain(drawn(800)).replace(x=torch.eye(N))
    y = torch.randint(2, (800,), generator=rng(26)).float()
    return fgl.data.splits.pair_split(graph, y, seed=seed)


def unlike(x: Callable[[Tensor], Tensor], own: bool = False) -> list[fgl.Graph]:
    """Four graphs of their own that have no features by which a node is known."""
    out = []
    for seed in range(4):
        edges = torch.randint(30, (2, 90), generator=rng(seed))
        y = torch.randint(2, (30,), generator=rng(seed + 9))
        out.append(shuffled(fgl.Graph(x(edges), edges, y=y, num_classes=2), seed, ids=own))
    return out


def degrees(edges: Tensor) -> Tensor:
    return torch.bincount(edges[1], minlength=30).float()[:, None]


def overlaps() -> list[fgl.Graph]:
    parts = fgl.data.partitions.overlapping_partition(labelled(), [0.6, 0.6], seed=0)
    clients = fgl.data.partitions.partition_graph(labelled(), parts)
    return [fgl.data.splits.random_split(own, seed=k) for k, own in enumerate(clients)]


def parts(seed: int = 5, **fields: Any) -> list[fgl.Graph]:
    """Disjoint parts of one graph."""
    return [own.replace(**fields) for own in halves(shuffled(labelled(), seed))]


def taught() -> tuple[list[fgl.Graph], fgl.Graph]:
    """Parts without ids, and the whole; the second part also trains on what the first tests."""
    whole = shuffled(labelled(), 5, ids=False)
    first, second = halves(whole)
    own = whole.subgraph(torch.cat([second.node_id, first.node_id[~first.train_mask]]))
    train = own.train_mask | (torch.arange(own.num_nodes) >= second.num_nodes)
    second = own.replace(train_mask=train, val_mask=None, test_mask=None)
    return [own.replace(node_id=None) for own in (first, second)], whole


def repeated(times: int) -> fgl.Graph:
    """The same nodes several times, as oversampling leaves them, and a split after that."""
    own, n = labelled(200), 200
    x, y = own.x.repeat(times, 1), own.y.repeat(times)  # type: ignore[union-attr]
    edges = torch.cat([own.edge_index + k * n for k in range(times)], 1)
    return fgl.data.splits.random_split(fgl.Graph(x, edges, y=y, num_classes=2))


def nearest() -> fgl.Graph:
    """Nodes twice, then an edge in both directions between a node and each of its five nearest."""
    whole = repeated(2)
    x = torch.as_tensor(whole.x)
    near = torch.cdist(x, x).fill_diagonal_(torch.inf).topk(5, largest=False).indices
    edges = torch.stack([torch.arange(len(x)).repeat_interleave(5), near.flatten()])
    return whole.replace(edge_index=torch.cat([edges, edges.flip(0)], 1))


def stored_otherwise() -> list[fgl.Graph]:
    """Two copies: one has sparse features."""
    half = labelled().replace(x=torch.as_tensor(labelled().x).relu())
    dense, other = (shuffled(half, k, ids=False) for k in range(2))
    return [dense, other.replace(x=fgl.sparse.SparseMatrix.from_dense(torch.as_tensor(other.x)))]


def by_windows(*shares: tuple[float, float, float], torn: bool = False) -> tasks.Task:
    """A client for each of the shares, all of one series; `torn` windows have masks at random."""
    series = traffic(4, 120)
    clients = [splits.windows(series, 4, horizons=(1, 2), shares=own) for own in shares]
    if torn:
        place = [torch.randperm(own.num_examples, generator=rng(1)) for own in clients]
        masks = [
            {"train_mask": own < 60, "test_mask": own >= 60, "val_mask": None} for own in place
        ]
        clients = [own.replace(**mask) for own, mask in zip(clients, masks, strict=True)]
    model = net(Forecaster, series.num_features, 4, steps=4, num_horizons=2)
    return tasks.node_task(None, clients, model, ADAM, target=fgl.targets.FORECAST)


COPIES: dict[str, Callable[[], tasks.Task]] = {
    "nodes before their edges": lambda: by_nodes(halves(nearest())),
    "sparse and dense": lambda: by_nodes(stored_otherwise()),
    "windows in any order": lambda: by_windows((0.7, 0.1, 0.2), torn=True),
    "windows of other times": lambda: by_windows((0.7, 0.1, 0.2), (0.4, 0.1, 0.5)),
    "nodes twice": lambda: by_nodes([repeated(2)]),
    "nodes four times": lambda: by_nodes([repeated(4)]),
    "nodes": lambda: by_nodes([shuffled(labelled(), k, ids=False) for k in range(4)]),
    "nodes by ids": lambda: by_nodes(overlaps()),
    "nodes of the whole": lambda: by_nodes(parts(node_id=None), shuffled(labelled(), 6, ids=False)),
    "nodes of one client": lambda: by_nodes(*taught()),
    "edges": lambda: by_edges([shuffled(labelled(), k, ids=False) for k in range(2)]),
    "pairs": lambda: by_pairs([asked(k) for k in range(5)]),
}
APART: dict[str, Callable[[], tasks.Task]] = {
    "windows": lambda: by_windows((0.7, 0.1, 0.2), (0.7, 0.1, 0.2)),
    "one role": lambda: by_nodes([shuffled(labelled(), 3, ids=False)] * 3),
    "parts": lambda: by_nodes(parts()),
    "parts without ids": lambda: by_nodes(parts(node_id=None), None),
    "no features": lambda: by_nodes(unlike(lambda edges: torch.ones(30, 4))),
    "one-hot": lambda: by_nodes(unlike(lambda edges: torch.eye(30))),
    "one-hot with ids": lambda: by_nodes(unlike(lambda edges: torch.eye(30), own=True)),
    "degrees": lambda: by_nodes(unlike(degrees)),
    "ids of other graphs": lambda: by_nodes(unlike(lambda edges: torch.ones(30, 4), own=True)),
    "bits": lambda: by_nodes(
        [fgl.data.splits.random_split(labelled().replace(x=(labelled().x[:, :8] > 0).float()))]
    ),
    "types": lambda: by_nodes(
        [fgl.data.splits.random_split(labelled().replace(x=(labelled().x[:, :2] > 0).float()))]
    ),
    "pairs of one user": lambda: by_pairs([liked(k) for k in range(9)]),
    "no edges": lambda: by_nodes([bare(4), bare(0)]), "triples": lambda: by_pairs([related()]),
    "edges of parts": lambda: by_edges(parts(node_id=None)),
    "edges, no features": lambda: by_edges(unlike(lambda edges: torch.ones(30, 4))),
    "edges, one-hot": lambda: by_edges(unlike(lambda edges: torch.eye(30))),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:Expected training pairs with labels 0 and 1")
def test_copies_that_train_at_another_client_are_told_and_nothing_else_is() -> None:
    """The labels are noise: a model of four copies of one graph remembers what another tests."""
    for make in COPIES.values():
        with pytest.warns(UserWarning, match="Expected .*(train|other clients), but got [0-9]+"):
            task = make()
        if make is COPIES["nodes"]:
            assert score(task, "test_accuracy") > 0.7
    for make in APART.values():
        make()
