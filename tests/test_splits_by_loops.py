"""Splits of edges beside plain loops over lists of edges: reverses, times, sides, negatives."""

import math
import random
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import pytest
import torch
from federations import refuses
from torch import Tensor

import fgl
from fgl.data.splits import (
    EdgeSplit,
    edge_split,
    free_pairs,
    negative_edges,
    negatives,
    pair_split,
    reverses,
    split_by_time,
    subgraph_split,
    with_negatives,
)
from fgl.data.splits.free_pairs import CYCLES, FreeCells

Edge = tuple[int, int]


def tensor(edges: Sequence[Edge]) -> Tensor:
    return torch.tensor(list(edges), dtype=torch.int64).reshape(-1, 2).T.contiguous()


def listed(edges: Any) -> list[Edge]:
    return [(int(u), int(v)) for u, v in edges.T.tolist()]


def density(edges: set[Edge]) -> float:
    return len(edges) / max(len({u for u, _ in edges}) * len({v for _, v in edges}), 1)


def most(share: float, other: set[Edge]) -> bool:
    return share > 0.5 and 2 * share > 1 + density(other) + 1e-6


def test_a_share_that_chance_leaves_is_not_most() -> None:
    """Of half of all possible edges three of four are chance: 2 * .75 = 1 + .5."""
    other = [(0, 10), (0, 11), (1, 12), (1, 13)]
    for last, share in (((5, 6), None), ((1, 13), 1.0)):
        own = [*other[:3], last]
        kinds = torch.tensor([0] * 4 + [1] * 4)
        same = reverses.copying_relations(tensor([*own, *other]), kinds, 0, 14)
        back = [(v, u) for u, v in own]
        turned = reverses.turned_relations(tensor([*back, *other]), kinds, 14, only=0)
        assert (same, turned) == (({1: share}, {(0, 1): share}) if share else ({}, {}))


@pytest.mark.parametrize("sample", [reverses.SAMPLE, 3])
def test_shares_of_reverses(sample: int, monkeypatch: Any) -> None:
    monkeypatch.setattr(reverses, "SAMPLE", sample)
    rng, n, answers = random.Random(1), 7, set()
    for case in range(150):
        edges = {(rng.randrange(n), rng.randrange(n)) for _ in range(rng.randint(0, 14))}
        chance = (0.0, 0.8, 1.0)[case % 3]
        edges |= {(v, u) for u, v in edges if rng.random() < chance}
        index = tensor(sorted(edges))
        keys = (index[0] * n + index[1]).sort().values
        symmetric = all((v, u) in edges for u, v in edges)
        assert reverses.symmetric(index, n) == symmetric == reverses.all_reversed(keys, n)
        lacking = [i for i, (u, v) in enumerate(sorted(edges)) if (v, u) not in edges]
        assert reverses.lacking_reverse(index, n).tolist() == lacking
        joins = [(u, v) for u, v in edges if u != v]
        share = sum((v, u) in edges for u, v in joins) / max(len(joins), 1)
        want = share if most(share, edges) else 0.0
        found = reverses.reversed_share(keys, n)
        assert found == pytest.approx(want) or (sample == 3 and found == 0.0 and share < 1)
        answers.add((symmetric, want > 0))
    assert {*answers} >= {(True, True), (False, True), (False, False)}


def timed(rng: random.Random, *, both: bool, n: int = 5, m: int = 14) -> fgl.Graph:
    """Edges of few nodes and few times, some of them more than once, also self-loops."""
    edges = [(rng.randrange(n), rng.randrange(n)) for _ in range(m)]
    edges += [(v, u) for u, v in edges if u != v] if both else []
    rng.shuffle(edges)
    times = torch.tensor([rng.randrange(20) for _ in edges])
    marks = torch.arange(len(edges))[:, None].float()
    return fgl.Graph(torch.eye(n), tensor(edges), edge_time=times, edge_attr=marks)


def is_symmetric(edges: Sequence[Edge]) -> bool:
    return all((v, u) in set(edges) for u, v in edges)


Timed = tuple[Edge, int, float]


def at_once(graph: fgl.Graph) -> list[Timed]:
    """An undirected graph's edges, each direction as early as the other."""
    times: Any = graph.edge_time
    marks: Any = graph.edge_attr
    edges = listed(graph.edge_index)
    every = list(zip(edges, times.tolist(), marks[:, 0].tolist(), strict=True))
    if not is_symmetric(edges):
        return every
    first = {edge: min(t for e, t, _ in every if e == edge) for edge in edges}
    early = [each for each in every if first[each[0]] <= first[each[0][::-1]]]
    have = {edge for edge, _, _ in early}
    return early + [((v, u), t, mark) for (u, v), t, mark in early if (v, u) not in have]


def by_time(
    every: list[Timed], shares: Sequence[float], presence: bool
) -> tuple[list[list[Any]], list[int]]:
    """The messages and the pairs of the three windows, as a loop would list them; their sizes."""
    ordered = sorted(range(len(every)), key=lambda i: every[i][1])
    unordered = not presence and is_symmetric([edge for edge, _, _ in every])
    unit = [tuple(sorted(e)) if unordered else (e if presence else (i,))
            for i, (e, _, _) in enumerate(every)]  # fmt: skip
    first: dict[Any, int] = {}
    for i in ordered:
        first.setdefault(unit[i], i)
    loop = {i for i in ordered if presence and every[i][0][0] == every[i][0][1]}
    heads = [i for i in ordered if first[unit[i]] == i and i not in loop]
    bounds = [round(share * len(heads)) for share in accumulate(shares[:3])]
    starts = [every[heads[bound]][1] for bound in bounds if bound < len(heads)]
    sizes = [b - a for a, b in zip([0, *bounds], [*bounds, len(heads)], strict=True)]
    window = [sum(t >= start for start in starts) for _, t, _ in every]
    parts: list[list[Any]] = [[], [], [], []]
    for i in range(len(every)):
        head = first[unit[i]]
        asked = i == head and i not in loop if presence else window[i] == window[head]
        if window[i] == 0:
            parts[0].append((every[i][0], every[i][2]))
        elif asked:
            parts[window[i]].append((every[i][0], i))
    return parts, sizes


@pytest.mark.parametrize("presence", [True, False])
@pytest.mark.parametrize("both", [True, False])
def test_windows_of_time(both: bool, presence: bool) -> None:
    rng, shares, refused = random.Random(2), (0.4, 0.2, 0.2, 0.2), 0
    for _ in range(30):
        graph = timed(rng, both=both)
        every = at_once(graph) if presence else [
            (e, int(t), float(a)) for e, t, (a,) in
            zip(listed(graph.edge_index), graph.edge_time, graph.edge_attr, strict=True)
        ]  # fmt: skip
        y = None if presence else graph.edge_attr[:, 0]
        whole = split_by_time(graph, y, shares=(1.0, 0.0, 0.0, 0.0))
        found = zip(listed(whole.edge_index), whole.edge_attr[:, 0].tolist(), strict=True)
        assert Counter(found) == Counter((edge, mark) for edge, _, mark in every)
        (messages, *windows), sizes = by_time(every, shares, presence)
        if any(size and not part for size, part in zip(sizes, (messages, *windows), strict=True)):
            refused += 1
            with pytest.raises(ValueError, match="edge_time to leave"):
                split_by_time(graph, y, shares=shares)
            continue
        split = split_by_time(graph, y, shares=shares)
        marks: Any = split.edge_attr
        read = zip(listed(split.edge_index), marks[:, 0].tolist(), strict=True)
        assert sorted(read) == sorted(messages)
        pairs: Any = split.edge_label_index
        for mask, window in zip(fgl.graph.MASKS, windows, strict=True):
            own: Any = getattr(split, mask)
            assert sorted(listed(pairs[:, own])) == sorted(edge for edge, _ in window)
            if not presence:
                assert sorted(split.y[own].tolist()) == sorted(float(i) for _, i in window)
    assert 0 < refused < 20
    refuses("sum 1", lambda: split_by_time(graph, shares=(0.5, 0.25, 0.1, 0.1500015)))


SHARES = (0.4, 0.3, 0.1, 0.2)


@pytest.mark.filterwarnings("ignore:Expected")
def test_windows_of_a_relation() -> None:
    """Relation 1 holds the reverses of relation 0; edges of relation 2 are only read."""
    rng = random.Random(5)
    for case in range(16):
        ends = rng.sample([(u, v) for u in range(7) for v in range(u + 1, 7)], 10)
        rows = [*((e, 0) for e in ends), *(((v, u), 1) for u, v in ends)]
        rows += [((rng.randrange(7), rng.randrange(7)), 2) for _ in range(9)]
        times, kinds = rng.sample(range(99), 29), torch.tensor([kind for _, kind in rows])
        graph = fgl.Graph(torch.eye(7), tensor([e for e, _ in rows]), edge_type=kinds)
        graph = graph.replace(edge_time=torch.tensor(times))
        y, shares = (None, torch.arange(29.0))[case % 2], SHARES if case > 1 else (1.0, 0, 0, 0)
        split = split_by_time(graph, y, shares=shares, edge_type=0)
        pairs = sorted(range(10), key=times.__getitem__)[4 if case > 1 else 10 :]
        asked = {(rows[i][0][::-1], 1) for i in pairs if y is None}
        first = min((times[i] for i in pairs), default=99)
        read = [t for t, row in zip(times, rows, strict=True) if t < first and row not in asked]
        assert split.edge_time.tolist() == read  # type: ignore[union-attr]
        assert listed(split.edge_label_index) == [ends[i] for i in pairs]
        assert split.edge_label_type.tolist() == [0] * len(pairs)  # type: ignore[union-attr]
        assert split.y.tolist() == [1.0 if y is None else i for i in pairs]  # type: ignore[union-attr]
        sizes = [int(getattr(split, mask).sum()) for mask in fgl.graph.MASKS]
        assert sizes == ([3, 1, 2] if pairs else [0, 0, 0])


def ways() -> list[dict[str, Any]]:
    """What `pair_split` is told of edges in both directions, in relations 0, 1 and 2."""
    own: dict[str, Any] = {"edge_type": 0, "rev_edge_type": 1}
    return [
        *({"is_undirected": value, "answers": y} for value in (True, False) for y in (True, False)),
        *({**own, "is_undirected": False, "answers": y} for y in (True, False)),
        {"edge_type": 2, "answers": True, "is_undirected": True},
    ]


@pytest.mark.filterwarnings("ignore:Expected")
@pytest.mark.parametrize("way", ways(), ids=str)
def test_a_random_split_is_that_of_loops(way: dict[str, Any]) -> None:
    way, rng, n = dict(way), random.Random(4), 9
    answers, told = way.pop("answers"), way.get("edge_type")
    both = way["is_undirected"]
    for seed in range(12):
        edges = [(rng.randrange(n), rng.randrange(n)) for _ in range(14)]
        kinds = [0] * 14
        if told == 0:
            edges, kinds = [*edges, *((v, u) for u, v in edges)], [0] * 14 + [1] * 14
        edges, kinds = [*edges, *((k, k + 1) for k in range(5))], [*kinds, *[2] * 5]
        y = [float(sum(e)) if both else float(i) for i, e in enumerate(edges)]
        y = [math.nan if value == 9 else value for value in y]
        graph = fgl.Graph(torch.eye(n), tensor(edges), edge_type=torch.tensor(kinds))
        split = pair_split(
            graph, torch.tensor(y) if answers else None, shares=SHARES, seed=seed, **way
        )
        own = [i for i, (u, v) in enumerate(edges) if answers or u != v]
        own = [i for i in own if told is None or kinds[i] == told]
        if both:
            have = {edges[i] for i in own}
            for i in [i for i in own if edges[i][::-1] not in have]:
                own.append(len(edges))
                edges.append(edges[i][::-1])
                kinds.append(kinds[i])
                y.append(y[i])
        unit = {i: tuple(sorted(edges[i])) if both else edges[i] for i in own}
        units = sorted({*unit.values()})
        if len(units) == len(own):  # nothing to join: in the order of the edges
            units = [unit[i] for i in own]
        generator = torch.Generator().manual_seed(seed)
        order = torch.randperm(len(units), generator=generator).tolist()
        turned = (torch.rand(len(units), generator=generator) < 0.5).tolist()
        rank = {unit_: order.index(place) for place, unit_ in enumerate(units)}
        ends = [round(share * len(units)) for share in accumulate(SHARES[:3])]
        held = [i for i in own if rank[unit[i]] >= ends[0]]
        backs = {edges[i][::-1] for i in held} if "rev_edge_type" in way else set()
        messages = [i for i in range(len(edges)) if i not in held]
        messages = [i for i in messages if not (kinds[i] == 1 and edges[i] in backs)]
        asked = [i for i in held if not (both or not answers) or i == min(
            j for j in held if unit[j] == unit[i])]  # fmt: skip
        asked.sort(key=lambda i: rank[unit[i]])
        pairs = [
            edges[i][::-1] if both and turned[units.index(unit[i])] else edges[i] for i in asked
        ]
        assert listed(split.edge_index) == [edges[i] for i in messages]
        assert listed(split.edge_label_index) == pairs
        want = [y[i] if answers else 1.0 for i in asked]
        assert torch.equal(
            torch.nan_to_num(split.y, 99.0), torch.nan_to_num(torch.tensor(want), 99.0)
        )
        for k, mask in enumerate(fgl.graph.MASKS):
            inside = [ends[k] <= rank[unit[i]] < [*ends, len(units)][k + 1] for i in asked]
            assert getattr(split, mask).tolist() == inside
        assert (
            split.edge_label_type is None
            if told is None
            else {*split.edge_label_type.tolist()} == {told}
        )


def test_a_relation_with_its_reverse_in_another_one_is_not_undirected() -> None:
    ring = tensor([(k, (k + 1) % 9) for k in range(9)])
    kinds = torch.tensor([0] * 9 + [1] * 9)
    graph = fgl.Graph(torch.eye(9), torch.cat([ring, ring.flip(0)], 1), edge_type=kinds)
    for undirected in (True, None):
        with pytest.raises(ValueError, match="rev_edge_type=1"):
            pair_split(graph, edge_type=0, is_undirected=undirected)


@pytest.mark.filterwarnings("ignore:Expected most of")
def test_a_negative_has_the_relation_and_the_type_of_its_pair() -> None:
    rng = random.Random(6)
    types = torch.tensor([0] * 5 + [1] * 6 + [2] * 6)
    pairs = [(rng.randrange(5), rng.randrange(5, 17)) for _ in range(30)]
    relation = torch.tensor([rng.randrange(2) for _ in pairs])
    asked = torch.arange(30) >= 15
    graph = fgl.Graph(
        torch.eye(17), tensor(pairs[:15]), edge_type=relation[:15], node_type=types,
        edge_label_index=tensor(pairs[15:]), edge_label_type=relation[15:], y=torch.ones(15),
        test_mask=asked[15:],
    )  # fmt: skip
    made = with_negatives(graph)
    ends: Any = made.edge_label_index
    kinds: Any = made.edge_label_type
    false = made.y == 0
    known = {(*pair, int(kind)) for pair, kind in zip(pairs, relation, strict=True)}
    found = [(u, v, int(k)) for (u, v), k in zip(listed(ends), kinds, strict=True)]
    new = [each for each, is_new in zip(found, false.tolist(), strict=True) if is_new]
    assert len(new) > 8 and not {*new} & known
    like = Counter((u, int(types[v]), k) for u, v, k in found[:15])
    assert Counter((u, int(types[v]), k) for u, v, k in new) <= like


@pytest.mark.filterwarnings("ignore:Expected shares")
def test_answers_of_an_edge_and_its_reverse_are_one() -> None:
    edges = tensor([(0, 1), (1, 0), (1, 2), (2, 1), (2, 3), (3, 2), (0, 3), (3, 0)])
    graph, y = (
        fgl.Graph(torch.eye(4), edges),
        torch.tensor([1.0, 1, math.nan, math.nan, 0, 0, 1, 1]),
    )
    pair_split(graph, y, is_undirected=True)
    for wrong in (2.0, math.nan):
        other = y.clone()
        other[1] = wrong
        with pytest.raises(ValueError, match="y to be the same for an edge and its reverse"):
            pair_split(graph, other, is_undirected=True)
    for kinds, call in (
        ({}, r"pair_split\(graph, is_"),
        ({"edge_type": 0}, r"pair_split\(graph, edge_type=0, is_"),
    ):
        typed = graph.replace(edge_type=torch.zeros(8, dtype=torch.int64)) if kinds else graph
        with pytest.raises(ValueError, match=call):
            pair_split(typed, **kinds)


def bipartite(users: int, items: int, edges: Sequence[Edge], **more: Any) -> fgl.Graph:
    return fgl.Graph(torch.eye(users + items), tensor([(u, users + v) for u, v in edges]), **more)


def sides(graph: fgl.Graph, pairs: Any) -> set[tuple[bool, bool]]:
    users = int(graph.edge_index[0].max()) + 1
    return {(u < users, v < users) for u, v in listed(pairs)}


@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("typed", [True, False])
def test_negatives_join_what_edges_join(typed: bool, directed: bool) -> None:
    edges = [(u, v) for u in range(6) for v in range(7) if (u + v) % 2]
    types = {"node_type": torch.tensor([0] * 6 + [1] * 7)} if typed else {}
    graph = bipartite(6, 7, edges, **types)
    split = edge_split(graph, val=0.2, test=0.3, directed=directed)
    assert split.val_negatives.shape[1] > 2 and split.test_negatives.shape[1] > 2
    for pairs in (split.val_negatives, split.test_negatives):
        assert sides(graph, pairs) == {(True, False)}
        assert not {*listed(pairs)} & {*listed(graph.edge_index)}
    part = subgraph_split(split, torch.arange(13))
    assert sides(graph, part.test_negatives) == {(True, False)}


def test_negatives_of_a_directed_split_have_both_directions() -> None:
    ring = tensor([(k, (k + 1) % 41) for k in range(41)])
    split = edge_split(fgl.Graph(torch.eye(41), ring), directed=True, val=0.4, test=0.4)
    found = listed(split.val_negatives) + listed(split.test_negatives)
    assert {u < v for u, v in found} == {True, False} and not {*found} & {*listed(ring)}


def test_negatives_of_types_are_as_frequent_as_edges() -> None:
    types = torch.tensor([0] * 10 + [1] * 10 + [2] * 10)
    edges = tensor([(k, 10 + k) for k in range(10)] + [(k, k + 1) for k in range(5)] + [(3, 3)])
    found = negative_edges(edges, 30, 30, node_type=types, replacement=True)
    kinds = Counter(tuple(sorted(types[list(pair)].tolist())) for pair in listed(found))
    assert kinds == {(0, 1): 20, (0, 0): 10}
    assert not {*listed(found)} & {*listed(edges)} and bool((found[0] < found[1]).all())
    with pytest.raises(ValueError, match="edge_index to have edges"):
        negative_edges(tensor([(1, 1)]), 30, 1, node_type=types)
    for name, wrong in (("edge_index", (edges - 1, types)), ("node_type", (edges, types[:9]))):
        with pytest.raises(ValueError, match=name):
            negative_edges(wrong[0], 30, 3, node_type=wrong[1])
    # Where two types are all joined, only pairs of the others are there to be drawn.
    full = tensor([(0, 10), (0, 11), (1, 10), (1, 11), (20, 21), (12, 20)])
    few = torch.tensor([0] * 2 + [3] * 8 + [1] * 2 + [2] * 18)
    found = negative_edges(full, 30, 6, node_type=few)
    kinds = Counter(tuple(sorted(few[list(pair)].tolist())) for pair in listed(found))
    assert kinds == {(2, 2): 2}


@pytest.mark.parametrize(
    ("pairs", "columns"), [([(1, 2), (2, 1), (3, 0)], 3), ([(2, 1), (3, 0)], 4), ([(1, 1)], 2)]
)
def test_pairs_without_messages_have_a_direction_if_one_is_twice(
    pairs: list[Edge], columns: int
) -> None:
    y = torch.ones(len(pairs))
    graph = fgl.Graph(torch.eye(4), tensor([]), edge_label_index=tensor(pairs), y=y)
    assert negatives._not_free(graph, None, y == 1).shape[1] == columns


def test_parts_with_few_cycles_have_no_sides() -> None:
    """Two nodes that are joined with k others have k - 1 independent cycles."""
    for others, first in ((CYCLES, 0), (CYCLES + 1, 0), (CYCLES + 1, 4)):
        edges = [(first + a, first + 2 + b) for a in range(2) for b in range(others)]
        extra = [(k, k + 1) for k in range(first - 1)]  # a path has two sides by chance
        side = free_pairs._two_sides(tensor(edges + extra), first + others + 2)
        if others == CYCLES:
            assert side is None
            continue
        assert side[first:].tolist() in ([1, 1, *[2] * others], [2, 2, *[1] * others])  # type: ignore[index]
        assert not side[:first].any()  # type: ignore[index]


def test_edges_whose_reverses_are_another_relation_are_not_split_alone() -> None:
    ring = tensor([(k, (k + 1) % 9) for k in range(9)])
    kinds = torch.tensor([0] * 9 + [1] * 9)
    graph = fgl.Graph(torch.eye(9), torch.cat([ring, ring.flip(0)], 1), edge_type=kinds)
    refuses("relation", lambda: edge_split(graph, directed=True))
    with pytest.raises(ValueError, match="the reverse of every edge"):
        edge_split(graph.replace(edge_type=None), directed=True)
    one = edge_split(fgl.Graph(torch.eye(9), ring, edge_type=kinds[:9]), directed=True, val=0.2)
    assert one.val_edges.shape == (2, 2)
    for val, test, text in (
        (0.01, 0.0, "val=0.01 come to no edge: more edges"),
        (0.01, 0.2, "val=0.01, test=0.2 come to no edge for val: val=0 keeps"),
        (0.6, 0.39, "val=0.6, test=0.39 would leave no edge to train on: smaller shares keep"),
    ):
        with pytest.warns(UserWarning, match=f"No edge of 9 is kept .* {text}"):
            assert edge_split(fgl.Graph(torch.eye(9), ring), val=val, test=test).trains_only


def test_kept_edges_without_a_negative_of_their_types_are_left_out() -> None:
    edges, kinds = tensor([(0, 3), (0, 4), (1, 3), (1, 4)]), torch.tensor([0, 0, 0, 1, 1, 1])
    whole = fgl.Graph(torch.eye(6), torch.cat([edges, edges.flip(0)], 1), node_type=kinds)
    free = tensor([(0, 5)])
    negatives = {"val_negatives": free, "test_negatives": free}
    held_out = {"val_edges": edges[:, 2:3], "test_edges": edges[:, 3:]}
    split = EdgeSplit(whole, edges[:, :2], **held_out, **negatives)
    with pytest.warns(UserWarning, match="The 2 kept edges between these 4 nodes are left out"):
        part = subgraph_split(split, torch.tensor([0, 1, 3, 4]))
    assert part.trains_only and listed(part.train_edges) == [(0, 2), (0, 3)]
    assert part.val_negatives.shape == part.test_negatives.shape == (2, 0)
    assert subgraph_split(split, torch.arange(6)).val_edges.tolist() == [[1], [3]]


def test_cells_of_a_column_are_its_rows() -> None:
    free = FreeCells(torch.tensor([[1], [0]]), 4, 1)
    assert sorted(listed(free(3))) == [(0, 0), (2, 0), (3, 0)]
    assert len(listed(free(9, replacement=True))) == 9
    refuses(r"\[0, 3\].*got 4", lambda: free(4))
    none = FreeCells(torch.zeros(2, 0, dtype=torch.int64), 3, 0)
    columns, has = none.of_rows(torch.tensor([0, 2]))
    assert columns.tolist() == [] and has.tolist() == [False, False]


@pytest.mark.filterwarnings("ignore:Expected most of")
@pytest.mark.parametrize("both", [True, False])
def test_no_negative_is_an_edge_or_a_pair(both: bool) -> None:
    rng = random.Random(3)
    for _ in range(10):
        graph = timed(rng, both=both, n=9, m=40)
        split = split_by_time(
            graph.replace(edge_time=torch.randperm(graph.num_edges)), shares=(0.5, 0.2, 0.15, 0.15)
        )
        made = with_negatives(split)
        pairs: Any = made.edge_label_index
        known = {*listed(split.edge_index), *listed(split.edge_label_index)}
        if is_symmetric(listed(split.edge_index)):
            known |= {(v, u) for u, v in known}
        false = made.y == 0
        assert not {*listed(pairs[:, false])} & known
        assert not any(u == v for u, v in listed(pairs[:, false]))
        for name in ("val_mask", "test_mask"):
            own: Any = getattr(made, name)
            sources = Counter(pairs[0, own & false].tolist())
            assert sources <= Counter(pairs[0, own & ~false].tolist())
            until: Any = made.train_mask | made.val_mask
            until = until | own
            nodes = {*split.edge_index.flatten().tolist()}
            nodes |= {*pairs[:, until & ~false].flatten().tolist()}
            assert {*pairs[1, own & false].tolist()} <= nodes
        assert not (made.train_mask & false).any()


def test_negatives_of_a_window_end_where_its_time_knows_nodes() -> None:
    pairs, masks = tensor([(0, 1), (0, 2), (3, 5)]), torch.eye(3, dtype=torch.bool)
    how: Any = dict(zip(fgl.graph.MASKS, masks, strict=True))
    known = tensor([(3, 4), (4, 3)])
    graph = fgl.Graph(torch.eye(6), known, edge_label_index=pairs, y=torch.ones(3), **how)
    ends: dict[str, set[int]] = {"val_mask": set(), "test_mask": set()}
    for seed in range(40):
        made: Any = with_negatives(graph, seed=seed)
        for name, own in ends.items():
            own |= {*made.edge_label_index[1, getattr(made, name) & (made.y == 0)].tolist()}
    assert ends == {"val_mask": {3, 4}, "test_mask": {0, 1, 2}}


@pytest.mark.parametrize("y", [torch.tensor([0.5, 1.0]), torch.ones(2, 1), torch.ones(2).long()])
def test_answers_are_zeros_and_ones_in_a_row(y: Tensor) -> None:
    pairs = tensor([(0, 1), (1, 2)])
    masks: Any = {"val_mask": torch.tensor([True, True])}
    graph = fgl.Graph(torch.eye(3), tensor([(0, 2)]), edge_label_index=pairs, y=y, **masks)
    refuses("y to be 1", lambda: with_negatives(graph))


def test_a_graph_with_fields_is_told_which_call_keeps_them() -> None:
    ring = tensor([(k, (k + 1) % 12) for k in range(12)])
    both = torch.cat([ring, ring.flip(0)], 1)
    cases: list[tuple[Tensor, Any, str]] = [
        (ring, None, "directed=True"),
        (both, None, r"is_undirected=True"),
        (both, torch.tensor([0] * 12 + [1] * 12), "edge_type=0, rev_edge_type=1"),
        (both, torch.tensor([0, 1] * 12), "is_undirected=True"),
    ]
    for edges, kinds, call in cases:
        times = torch.arange(edges.shape[1])
        more = {} if kinds is None else {"edge_type": kinds}
        with pytest.raises(ValueError, match=call):
            edge_split(fgl.Graph(torch.eye(12), edges, edge_time=times, **more))


def test_a_random_split_of_pairs_puts_each_in_one_part() -> None:
    rng = random.Random(5)
    pairs = [(rng.randrange(6), rng.randrange(6)) for _ in range(40)]
    y = torch.ones(40)
    graph = fgl.Graph(torch.eye(6), tensor([(0, 1)]), edge_label_index=tensor(pairs), y=y)
    split = fgl.data.splits.random_split(graph, train=0.5, val=0.3)
    masks: Any = torch.stack([getattr(split, name) for name in fgl.graph.MASKS])
    assert torch.equal(masks.sum(0), torch.ones(40, dtype=torch.int64))
    part = {}
    for pair, which in zip(pairs, masks.int().argmax(0).tolist(), strict=True):
        assert part.setdefault(frozenset(pair), which) == which
    counts = Counter(part.values())
    assert [counts[k] for k in range(3)] == [
        round(0.5 * len(part)),
        round(0.8 * len(part)) - round(0.5 * len(part)),
        len(part) - round(0.8 * len(part)),
    ]
