"""Edge splits that leak nothing, and pairs that are never an edge."""

from dataclasses import replace
from itertools import combinations

import pytest
import torch
from torch import Tensor

import fgl
from fgl.data.splits import EdgeSplit, edge_split, negative_edges, subgraph_split
from fgl.data.splits.free_pairs import keys_of as _keys
from fgl.data.splits.free_pairs import pairs_of as _pairs


def chain(n: int, **options: object) -> fgl.Graph:
    """A cycle, given in one direction only, with a self-loop and a repeat."""
    nodes = torch.arange(n)
    edges = torch.stack([nodes, (nodes + 1) % n])
    edges = torch.cat([edges, torch.tensor([[0, 0], [0, 1]])], 1)
    return fgl.Graph(torch.ones(n, 1), edges, **options)


def pairs(edges: Tensor) -> set[tuple[int, int]]:
    return {(min(u, v), max(u, v)) for u, v in edges.t().tolist()}


def test_the_order_of_the_edges_does_not_matter() -> None:
    graph = fgl.data.csbm(num_nodes=60, num_features=4, words_per_set=2, seed=0)
    order = torch.randperm(graph.num_edges, generator=torch.Generator().manual_seed(1))
    one, two = (
        edge_split(graph.replace(edge_index=graph.edge_index[:, places]), seed=2)
        for places in (torch.arange(graph.num_edges), order)
    )
    for name in (*KINDS, "val_negatives", "test_negatives"):
        assert torch.equal(getattr(one, name), getattr(two, name))
    assert torch.equal(one.graph.edge_index, two.graph.edge_index)
    place = one.graph.edge_index[1] * 60 + one.graph.edge_index[0]
    assert (place.diff() > 0).all()  # by target, then by source


def complete(n: int) -> fgl.Graph:
    return fgl.Graph(torch.ones(n, 1), torch.tensor(list(combinations(range(n), 2))).t())


@pytest.mark.parametrize("shares", [(-0.1, 0.1), (0.1, -0.1), (0.5, 0.5), (float("nan"), 0.1)])
def test_shares_out_of_range(shares: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match="Expected val and test to be at least 0 and their sum"):
        edge_split(chain(40), val=shares[0], test=shares[1])


@pytest.mark.parametrize("options", [{}, {"replacement": True}])
def test_every_free_pair_is_as_likely(options: dict[str, bool]) -> None:
    edges = torch.tensor([[0, 1, 2, 5, 9], [1, 2, 3, 9, 0]])
    counts = torch.zeros(10, 10)
    torch.manual_seed(0)
    for _ in range(800):
        got = negative_edges(edges, 10, 5, **options)
        counts.index_put_((got[0], got[1]), torch.ones(5), accumulate=True)
    drawn = counts[counts > 0]
    assert drawn.numel() == 40 and counts.sum() == 4000
    assert (drawn - 100).abs().max() < 45  # 4.5 standard deviations


def test_a_complete_or_nearly_complete_graph() -> None:
    edges = complete(5).edge_index
    assert negative_edges(edges[:, 1:], 5, 1).tolist() == [[0], [1]]
    assert negative_edges(edges, 5, 0, replacement=True).shape == (2, 0)
    none = torch.zeros(2, 0, dtype=torch.int64)
    for given, replacement, message in (
        ((edges[:, 1:], 5, 2), False, r"num to be in \[0, 1\]"),
        ((edges[:, 1:], 5, -1), False, r"num to be in \[0, 1\]"),
        ((edges, 5, 1), True, r"num to be in \[0, 0\]"),
        ((torch.tensor([[0], [3]]), 3, 1), False, r"edge_index to be in \[0, 3\)"),
        ((none, -3, 2), False, "num_nodes to be at least 0, but got -3"),
    ):
        with pytest.raises(ValueError, match=message):
            negative_edges(*given, replacement=replacement)


def test_numbers_of_pairs_are_exact_where_a_double_is_not() -> None:
    v = torch.tensor([1, 2, 3, 10**6, 94_906_266, 134_218_018, 10**9, 2 * 10**9, 3 * 10**9])
    for u in (torch.zeros_like(v), v - 1, v // 2):
        edges = torch.stack([u, v])
        for column in edges.t():
            assert torch.equal(_pairs(_keys(column[:, None]))[:, 0], column)


KINDS = ("train_edges", "val_edges", "test_edges")


@pytest.mark.parametrize("size", [0, 1, 2])
def test_a_client_that_holds_next_to_nothing_only_trains(size: int) -> None:
    """Nodes 0, 1 and 2 of a cycle: an edge or two, all of them for training."""
    nodes = torch.arange(30)
    train = torch.stack([nodes, (nodes + 1) % 30])
    none = torch.zeros(2, 0, dtype=torch.int64)
    kept, free = torch.tensor([[5, 10], [15, 20]]), torch.tensor([[6, 11], [16, 21]])
    graph = fgl.Graph(torch.ones(30, 1), torch.cat([train, train.flip(0)], 1))
    held_out = {"val_edges": kept[:, :1], "test_edges": kept[:, 1:]}
    negatives = {"val_negatives": free[:, :1], "test_negatives": free[:, 1:]}
    whole = EdgeSplit(graph, train, **held_out, **negatives)
    with pytest.raises(ValueError, match="val_negatives to have 1 columns.*, but got 2"):
        replace(whole, val_negatives=free)
    with pytest.raises(ValueError, match=r"test_edges to be in \[0, 30\), but got 45"):
        replace(whole, test_edges=kept[:, 1:] + 25)
    with pytest.raises(TypeError, match="at most 2 of EdgeSplit"):
        EdgeSplit(graph, train, *held_out.values(), *negatives.values())
    own = subgraph_split(whole, torch.arange(size))
    assert own.trains_only and own.graph.num_nodes == size
    assert own.train_edges.shape == (2, max(size - 1, 0))
    assert own.val_negatives.shape == own.test_negatives.shape == none.shape
    only_test = subgraph_split(whole, torch.tensor([10, 20, 3, 4]))
    assert not only_test.trains_only
    assert only_test.val_edges.shape == only_test.val_negatives.shape == (2, 0)
    assert only_test.test_edges.tolist() == [[0], [1]]


def test_a_client_whose_nodes_are_all_joined_only_trains() -> None:
    whole = edge_split(
        fgl.Graph(torch.ones(40, 1), complete(20).edge_index), val=0.1, test=0.2, seed=0
    )
    assert not whole.trains_only
    with pytest.warns(UserWarning, match="The 57 kept edges between these 20 nodes are left out"):
        own = subgraph_split(whole, torch.arange(20))
    assert own.trains_only and own.train_edges.shape == whole.train_edges.shape
    other = subgraph_split(whole, torch.arange(30))
    assert other.test_edges.shape == whole.test_edges.shape == other.test_negatives.shape


def test_a_client_with_just_as_many_free_pairs_as_kept_edges_is_scored() -> None:
    train, val, test = (torch.tensor([[u], [v]]) for u, v in ((0, 1), (1, 2), (2, 3)))
    train = torch.cat([train, torch.tensor([[0], [2]])], 1)  # 0 - 3 and 1 - 3 are free
    graph = fgl.Graph(torch.ones(4, 1), torch.cat([train, train.flip(0)], 1))
    negatives = dict.fromkeys(("val_negatives", "test_negatives"), torch.zeros(2, 1).long())
    whole = EdgeSplit(graph, train, val_edges=val, test_edges=test, **negatives)
    own = subgraph_split(whole, torch.arange(4))
    assert pairs(torch.cat([own.val_negatives, own.test_negatives], 1)) == {(0, 3), (1, 3)}
    more = torch.cat([train, torch.tensor([[0], [3]])], 1)
    with pytest.warns(UserWarning, match="The 2 kept edges between these 4 nodes are left out"):
        full = subgraph_split(replace(whole, train_edges=more), torch.arange(4))
    assert full.trains_only


BARE = fgl.Graph(torch.ones(5, 1), torch.zeros(2, 0, dtype=torch.int64))
# A graph and shares of which nothing is kept; the reason; shares that the warning names.
KEEPS_NONE: dict[str, tuple[fgl.Graph, dict[str, float], str, dict[str, float]]] = {
    "short": (chain(4), {}, "come to no edge: more edges or larger", {"val": 0.3, "test": 0.3}),
    "val alone": (chain(9), {}, "come to no edge for val: val=0 keeps", {"val": 0.0, "test": 0.1}),
    "star": (fgl.Graph(torch.ones(40, 1), torch.stack([torch.zeros(39).long(), torch.arange(1,
        40)])), {"val": 0.2, "test": 0.2}, "are more than the pairs without an edge", {"val": 0.0,
        "test": 0.0},),
    "complete": (fgl.Graph(torch.ones(20, 1), torch.cartesian_prod(*[torch.arange(20)] * 2).t()),
        {}, "are more than the pairs without an edge", {"val": 0.0, "test": 0.0},),
    "isolated": (BARE, {}, "", {"val": 0.0, "test": 0.0}),
    "empty": (BARE.subgraph(torch.arange(0)), {}, "", {"val": 0.0, "test": 0.0}),
}  # fmt: skip


@pytest.mark.parametrize("name", KEEPS_NONE)
def test_a_split_that_keeps_nothing_says_so_and_what_helps(name: str) -> None:
    graph, shares, reason, cure = KEEPS_NONE[name]
    with pytest.warns(UserWarning, match=rf"^No edge of \d+ is kept .*{reason}"):
        parts = edge_split(graph, **shares)
    assert parts.trains_only
    known = {pair for pair in pairs(graph.edge_index) if pair[0] != pair[1]}
    assert pairs(parts.train_edges) == known
    assert parts.graph.num_edges == 2 * len(known)
    for kept in ("val_edges", "val_negatives", "test_edges", "test_negatives"):
        assert getattr(parts, kept).shape == (2, 0)
    cured = edge_split(graph, **cure)
    assert cured.trains_only == (sum(cure.values()) == 0)
