"""Partitions: what is in them, their sizes and their cuts counted anew, in loops over sets.

A name of `fgl.data.partitions` without a row in `ROWS` or a reason in `NO_ROW` fails.

Mutants that this file finds (each was tried):
- `random_partition` that gives the first clients more.
- `cut_loss` and `partition_graph` that take an edge to another client for an edge inside.
- `dirichlet_partition` without `cap`.

Faults that the suite let pass at 820a2c65, before this file stood (their texts, and the tests that
ran, in `benchmarks/results/truth_mutants.json`; `mutants.py --seeded` puts them in):
- `overlapping_partition` whose clients draw in the order of the ids: tried, 338 tests.
- `overlapping_partition` whose common nodes are the first: tried, 338 tests.
- `metis_partition` that drops `recursive`: tried, 234 tests.
"""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

import fgl
from fgl.data import partitions

BLOCKS, SIZE, K = 8, 25, 4
N = BLOCKS * SIZE


def rng(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@cache
def blocks() -> fgl.Graph:
    """Eight blocks of 25 nodes, 12 % of the pairs within and 1 % between; ids are shuffled."""
    block = torch.arange(N)[torch.randperm(N, generator=rng(0))] % BLOCKS
    within = block[:, None] == block
    chance = torch.rand(N, N, generator=rng(1)).triu(1)
    upper = (chance > 0) & (chance < torch.where(within, 0.3, 0.01))
    x = torch.rand(N, 3, generator=rng(2))
    return fgl.Graph(x, (upper | upper.T).nonzero().T, y=block)


def sets(parts: Sequence[Tensor]) -> list[set[int]]:
    return [set(part.tolist()) for part in parts]


def pairs(edges: Tensor) -> list[tuple[int, int]]:
    return [(u, v) for u, v in edges.T.tolist()]


def lost(graph: fgl.Graph, parts: Sequence[Tensor]) -> tuple[int, int]:
    """Edges between nodes of clients, and those of which no client has both ends, one by one."""
    whole = cut = 0
    for u, v in pairs(graph.edge_index):
        of_u, of_v = ({k for k, own in enumerate(sets(parts)) if node in own} for node in (u, v))
        whole += bool(of_u and of_v)
        cut += bool(of_u and of_v) and not of_u & of_v
    return whole, cut


def alike(parts: Sequence[Tensor], graph: Any = None) -> bool:
    """Sizes differ by at most one."""
    sizes = [len(part) for part in parts]
    return max(sizes) - min(sizes) <= 1


def within(most: float) -> Callable[..., bool]:
    return lambda parts: max(map(len, parts)) <= most and min(map(len, parts)) >= 1


def communities(parts: Sequence[Tensor]) -> bool:
    """Within the slack of 5, since two of the blocks of 25 fit into a client of 50."""
    return max(map(len, parts)) <= N // K + 5 and min(map(len, parts)) >= N // K - 5


def own_mixes(parts: Sequence[Tensor]) -> bool:
    """Of equal sizes, and no class has over .95 of a client but where others were used up."""
    y: Any = blocks().y
    shares = [max(Counter(y[part].tolist()).values()) / len(part) for part in parts]
    return alike(parts) and sum(shares) / K > 0.3


def molecules() -> list[int]:
    return [*range(20)] + [7] * 30 + [3] * 12


def whole_scaffolds(parts: Sequence[Tensor]) -> bool:
    """No scaffold in two clients, and sizes as near as the largest scaffold lets them be."""
    held = [{molecules()[k] for k in part.tolist()} for part in parts]
    apart = sum(map(len, held)) == len(set(molecules()))
    rest = [len(part) for part in parts if 7 not in {molecules()[k] for k in part.tolist()}]
    return apart and max(rest) - min(rest) <= 13 and len(rest) == K - 1


# A partition of each name; its number of examples; whether its sizes are as its docstring says.
ROWS: dict[str, tuple[Callable[[], list[Tensor]], int, Callable[..., bool]]] = {
    "random_partition": (lambda: partitions.random_partition(blocks(), K), N, alike),
    "sorted_partition": (
        lambda: partitions.sorted_partition(blocks(), K, by="degrees"), N, alike,
    ),
    "metis_partition": (
        lambda: partitions.metis_partition(blocks(), K), N, within(1.1 * N / K),
    ),
    "ldg_partition": (
        lambda: partitions.ldg_partition(blocks(), K), N, within(math.ceil(1.05 * N / K)),
    ),
    "louvain_partition": (
        lambda: partitions.louvain_partition(blocks(), K, delta=5), N, communities,
    ),
    "leiden_partition": (lambda: partitions.leiden_partition(blocks(), K, delta=5), N, communities),
    "dirichlet_partition": (
        lambda: partitions.dirichlet_partition(labels(), K, alpha=0.3), N, own_mixes,
    ),
    "gpfl_partition": (
        lambda: partitions.gpfl_partition(labels(), K, alpha=0.3), N, own_mixes,
    ),
    "scaffold_partition": (
        lambda: partitions.scaffold_partition(molecules(), K), 62, whole_scaffolds,
    ),
}  # fmt: skip
FEW_CUT = ("metis_partition", "ldg_partition", "louvain_partition", "leiden_partition")
EXTRA = {"metis_partition": "pymetis", "leiden_partition": "igraph"}
COUNTED = {"cut_loss", "partition_graph", "union_graph"}
OVERLAPPING = {"overlapping_partition", "community_clients", "major_label_partition"}
NO_ROW = {
    "PROPORTIONS": "numbers",
    "Skew": "a setting of the partitions above",
    "relation_partition": "test_triples: parts of relations, not of nodes",
    "quantile_labels": "labels for dirichlet_partition: below",
}


def labels() -> Tensor:
    y: Any = blocks().y
    return y  # type: ignore[no-any-return]


def made(name: str) -> list[Tensor]:
    if name in EXTRA:
        pytest.importorskip(EXTRA[name])
    return ROWS[name][0]()


def test_every_partition_has_a_row() -> None:
    assert {*partitions.__all__} == ROWS.keys() | COUNTED | OVERLAPPING | NO_ROW.keys()


@pytest.mark.parametrize("name", ROWS)
def test_every_example_is_in_one_part_of_the_size_that_is_stated(name: str) -> None:
    parts = made(name)
    counts = Counter(k for part in parts for k in part.tolist())
    assert counts == dict.fromkeys(range(ROWS[name][1]), 1) and len(parts) == K
    assert all(part.tolist() == sorted(part.tolist()) for part in parts)
    assert ROWS[name][2](parts), [len(part) for part in parts]


@pytest.mark.parametrize("name", FEW_CUT)
def test_a_partition_by_edges_finds_what_was_planted(name: str) -> None:
    """No more than half of a random cut, or than the blocks' own, of which two are a client."""
    graph = blocks()
    found, at_random = (lost(graph, parts)[1] for parts in (made(name), made("random_partition")))
    own = lost(graph, [(labels() == k).nonzero()[:, 0] for k in range(BLOCKS)])[1]
    assert found <= at_random / 2 and found <= own


@pytest.mark.parametrize("name", [*ROWS, *sorted(OVERLAPPING)])
def test_a_cut_is_what_a_loop_counts(name: str) -> None:
    if name == "scaffold_partition":
        return  # of molecules, which have no edges between them
    graph, parts = blocks(), made(name) if name in ROWS else overlapping(name)
    whole, cut = lost(graph, parts)
    counts = partitions.cut_loss(graph, parts)
    assert (counts.edges, counts.lost_edges) == (whole, cut)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        clients = partitions.partition_graph(graph, parts)
    for own, nodes in zip(clients, sets(parts), strict=True):
        ids: Any = own.node_id
        held = {(int(ids[u]), int(ids[v])) for u, v in pairs(own.edge_index)}
        assert held == {pair for pair in pairs(graph.edge_index) if set(pair) <= nodes}
        assert set(ids.tolist()) == nodes and len(ids) == len(nodes)
    together = partitions.union_graph(graph, parts)
    assert together.num_edges == whole - cut
    assert together.num_nodes == len(set().union(*sets(parts)))


def overlapping(name: str) -> list[Tensor]:
    if name == "overlapping_partition":
        return partitions.overlapping_partition(blocks(), [0.3, 0.4, 0.5], common=0.1)
    if name == "community_clients":
        return partitions.community_clients(made("louvain_partition"), 2, share=0.6)
    _, clients = partitions.major_label_partition(blocks(), 3, share=0.2, num_test=5)
    return [own.node_id for own in clients]  # type: ignore[misc]


def test_metis_cuts_by_halves_or_at_once_as_pymetis_does() -> None:
    pymetis = pytest.importorskip("pymetis")
    beside: list[list[int]] = [[] for _ in range(N)]
    for u, v in sorted(pairs(blocks().edge_index)):
        beside[u].append(v)
    cuts = []
    for recursive in (True, False):
        how: Any = {"options": pymetis.Options(seed=1), "recursive": recursive}
        owner = pymetis.part_graph(K, adjacency=beside, **how).vertex_part
        parts = partitions.metis_partition(blocks(), K, seed=0, recursive=recursive)
        cuts.append([part.tolist() for part in parts])
        assert cuts[-1] == [[v for v in range(N) if owner[v] == k] for k in range(K)]
    assert cuts[0] != cuts[1]


def test_overlaps_are_those_that_are_asked_for() -> None:
    one, two, three = sets(overlapping("overlapping_partition"))
    assert [len(one), len(two), len(three)] == [60, 80, 100] and len(one & two & three) == 20
    communities = sets(made("louvain_partition"))
    drawn = sets(overlapping("community_clients"))
    for k, own in enumerate(communities):
        for client in drawn[2 * k : 2 * k + 2]:
            assert client <= own and len(client) == int(0.6 * len(own))
    test, clients = partitions.major_label_partition(blocks(), 3, share=0.2, num_test=5)
    held: Any = test.node_id
    assert len(held) == int(0.3 * N)
    for own in clients:
        nodes, y = set(own.node_id.tolist()), labels()[own.node_id]  # type: ignore[union-attr, index]
        top = sum(count for _, count in Counter(y.tolist()).most_common(3))
        assert not nodes & set(held.tolist()) and top / len(nodes) > 0.7


def drawn_parts(name: str, seed: int) -> list[list[int]]:
    """Parts of 40 nodes, some of which are left out."""
    graph = fgl.Graph(torch.ones(40, 1), torch.arange(40).repeat(2, 1).roll(1, 1))
    if name == "random_partition":
        parts = partitions.random_partition(graph, 3, seed=seed)
    elif name == "overlapping_partition":
        parts = partitions.overlapping_partition(graph, [0.2, 0.5, 0.7], seed=seed)
    elif name == "overlapping_partition, common":
        parts = partitions.overlapping_partition(graph, [0.3, 0.5, 0.6], common=0.2, seed=seed)
    elif name == "community_clients":
        parts = partitions.community_clients([torch.arange(40)], 3, share=0.4, seed=seed)
    else:
        split = fgl.data.splits.random_split(graph.replace(y=torch.zeros(40).long()), seed=seed)
        masks: Any = (split.train_mask, split.val_mask, split.test_mask)
        parts = [mask.nonzero()[:, 0] for mask in masks]
    return [part.tolist() for part in parts]


def held(name: str, draws: int = 250) -> Tensor:
    """Whether a client holds a node, for each draw: float64 ``[draws, clients, 40]``."""
    out = torch.zeros(draws, 3, 40, dtype=torch.float64)
    for seed in range(draws):
        for client, part in enumerate(drawn_parts(name, seed)):
            out[seed, client, part] = 1
    return out


INDEPENDENT = ("overlapping_partition", "community_clients")
DRAWS = ("random_partition", *INDEPENDENT, "overlapping_partition, common", "random_split")


def test_draws_are_uniform_and_those_of_a_client_or_a_split_tell_nothing_of_others() -> None:
    """Each share of 250 draws is within five standard deviations of what chance says."""
    every = {name: held(name) for name in DRAWS}
    for name, own in every.items():
        share = own.mean((0, 2))  # of a client
        error = (own.mean(0) - share[:, None]).abs()
        assert (error < 5 * (share * (1 - share) / 250).sqrt()[:, None]).all(), name
        again = (own[1:] * own[:-1]).mean((0, 2))  # in two draws that follow each other
        assert (again - share**2).abs().max() < 5 * 0.5 / (250 * 40) ** 0.5, name
    for name in INDEPENDENT:
        own = every[name]
        for i, j in ((0, 1), (0, 2), (1, 2)):
            both = (own[:, i] * own[:, j]).mean()
            want = own[:, i].mean() * own[:, j].mean()
            assert abs(both - want) < 5 * 0.5 / (250 * 40) ** 0.5, (name, i, j)
    common = every["overlapping_partition, common"].prod(1).sum(1)
    assert (common == 8).all()
    of_split, of_clients = every["random_split"], every["random_partition"]
    together = torch.einsum("din,djn->ij", of_split, of_clients) / (250 * 40)
    apart = torch.outer(of_split.mean((0, 2)), of_clients.mean((0, 2)))
    assert (together - apart).abs().max() < 5 * 0.5 / (250 * 40) ** 0.5


def test_a_client_of_major_labels_is_drawn_as_its_docstring_says() -> None:
    """Its test nodes are nobody's after it, and each class is major equally often."""
    major: Counter[int] = Counter()
    for seed in range(60):
        _, clients = partitions.major_label_partition(
            blocks(), 2, num_major=1, share=0.1, major_rate=1.0, num_test=3, seed=seed
        )
        first, second = (own.node_id for own in clients)
        tests: Any = first[clients[0].test_mask]  # type: ignore[index]
        assert len(tests) == 3 and not set(tests.tolist()) & set(second.tolist())  # type: ignore[union-attr]
        for own in clients:
            nodes = own.num_nodes
            assert int(own.val_mask.sum()) == nodes // 5  # type: ignore[union-attr]
            major[Counter(labels()[own.node_id].tolist()).most_common(1)[0][0]] += 1  # type: ignore[index, union-attr]
    assert len(major) == BLOCKS
    chance = 120 / BLOCKS
    assert all(abs(count - chance) < 5 * chance**0.5 for count in major.values())


def test_a_cap_bounds_the_share_of_a_class() -> None:
    """Of four classes and four clients that want one class each: the mean of the largest shares."""
    y, share = torch.arange(1200) % 4, {}
    for cap in (0.4, 1.0):
        parts = [
            part
            for seed in range(4)
            for part in partitions.dirichlet_partition(y, 4, alpha=0.02, cap=cap, seed=seed)
        ]
        largest = [max(Counter(y[part].tolist()).values()) / len(part) for part in parts]
        share[cap] = sum(largest) / len(largest)
    assert share[0.4] < 0.45 and share[1.0] > 0.55


def test_ranges_of_numbers_hold_equally_many() -> None:
    numbers = torch.randn(101, generator=rng(9))
    numbers[::10] = torch.nan
    label = partitions.quantile_labels(numbers, 4)
    counts = Counter(label.tolist())
    assert counts[4] == 11 and max(counts[k] for k in range(4)) - min(counts.values()) <= 12
    assert sorted(counts[k] for k in range(4)) in ([22, 22, 23, 23], [22, 23, 22, 23])
    known = sorted(
        (value, k) for value, k in zip(numbers.tolist(), label.tolist(), strict=True) if k < 4
    )
    assert [k for _, k in known] == sorted(k for _, k in known)
